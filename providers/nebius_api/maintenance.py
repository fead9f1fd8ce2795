"""Maintenance of hosts that Nebius announces.

Sources: official protos @0e32ad9, and docs.nebius.com, compute/virtual-machines/maintenance-reasons and stop-start; all
read 2026-11-29.

An event does not say which machine it is about: the machine names its event. It says when the machine will be stopped
by force. A machine that is stopped and started before that is on another host, and the event is over. The list has
events that are not over. Left out are those without a time, and those that no machine of the project names.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from control_plane.domain.ids import ProviderRef
from control_plane.domain.planned_work import WorkKind
from providers.base import Page, PlannedWork, Verb
from providers.listings import reference_of, whole_listing
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api.api import Api
from providers.nebius_api.methods import LIST_INSTANCES, LIST_MAINTENANCE

PAGE_SIZE = 500


async def planned_work(api: Api, project_id: str) -> tuple[PlannedWork, ...]:
    """What is planned on the machines of a project. They are listed only when there are events."""

    async def page_of_times(cursor: str | None) -> Page[tuple[ProviderRef, datetime]]:
        request = pb.ListMaintenanceEventsRequest(
            parent_id=project_id, page_size=PAGE_SIZE, page_token=cursor or ""
        )
        return await api.call(Verb.INVENTORY, LIST_MAINTENANCE, request, _times)

    async def page(cursor: str | None) -> Page[PlannedWork]:
        request = pb.ListInstancesRequest(parent_id=project_id, page_size=PAGE_SIZE, page_token=cursor or "")
        return await api.call(Verb.INVENTORY, LIST_INSTANCES, request, lambda listed: _works(listed, times))

    times = dict(await whole_listing(Verb.INVENTORY, page_of_times))
    return await whole_listing(Verb.INVENTORY, page) if times else ()


def _times(listed: pb.ListMaintenanceEventsResponse) -> Page[tuple[ProviderRef, datetime]]:
    """A page of events that are not over, with the time of each."""
    planned = [
        (reference_of(event.id), event.status.sla_deadline_ts.ToDatetime(tzinfo=UTC))
        for event in listed.items
        if event.status.HasField("sla_deadline_ts") and not event.status.HasField("finished_at")
    ]
    return Page(planned, listed.next_page_token or None)


def _works(listed: pb.ListInstancesResponse, times: Mapping[ProviderRef, datetime]) -> Page[PlannedWork]:
    works = [
        PlannedWork(reference_of(machine.metadata.id), event, WorkKind.STOP, "maintenance", times[event])
        for machine in listed.items
        for event in (ProviderRef(machine.status.maintenance_event_id),)
        if event in times
    ]
    return Page(works, listed.next_page_token or None)
