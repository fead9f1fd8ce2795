"""Maintenance of hosts that Nebius announces.

Sources: official protos @0e32ad9, and docs.nebius.com, compute/virtual-machines/maintenance-reasons and stop-start; all
read 2026-11-29.

An event does not say which machine it is about: the machine names its event. It says when the machine will be stopped
by force. A machine that is stopped and started before that is on another host, and the event is over. The list has
events that are not over. Left out are those without a time, and those that no machine of the project names.
"""

from datetime import UTC

from control_plane.domain.planned_work import WorkKind
from providers.base import Page, PlannedWork, Verb
from providers.listings import reference_of, whole_listing
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api.api import Api
from providers.nebius_api.methods import LIST_INSTANCES, LIST_MAINTENANCE

PAGE_SIZE = 500


async def planned_work(api: Api, project_id: str) -> tuple[PlannedWork, ...]:
    """What is planned on the machines of a project. They are listed only when there are events."""

    async def page(cursor: str | None) -> Page[pb.MaintenanceEvent]:
        request = pb.ListMaintenanceEventsRequest(
            parent_id=project_id, page_size=PAGE_SIZE, page_token=cursor or ""
        )
        return await api.call(
            Verb.INVENTORY,
            LIST_MAINTENANCE,
            request,
            lambda listed: Page(tuple(listed.items), listed.next_page_token or None),
        )

    async def page_of_machines(cursor: str | None) -> Page[pb.Instance]:
        request = pb.ListInstancesRequest(parent_id=project_id, page_size=PAGE_SIZE, page_token=cursor or "")
        return await api.call(
            Verb.INVENTORY,
            LIST_INSTANCES,
            request,
            lambda listed: Page(tuple(listed.items), listed.next_page_token or None),
        )

    events = {event.id: event for event in await whole_listing(Verb.INVENTORY, page) if _is_planned(event)}
    machines = await whole_listing(Verb.INVENTORY, page_of_machines) if events else ()
    return tuple(
        _work(machine, events[machine.status.maintenance_event_id])
        for machine in machines
        if machine.status.maintenance_event_id in events
    )


def _is_planned(event: pb.MaintenanceEvent) -> bool:
    return event.status.HasField("sla_deadline_ts") and not event.status.HasField("finished_at")


def _work(machine: pb.Instance, event: pb.MaintenanceEvent) -> PlannedWork:
    return PlannedWork(
        provider_ref=reference_of(machine.metadata.id),
        event=event.id,
        kind=WorkKind.STOP,
        native_kind="maintenance",
        begins_at=event.status.sla_deadline_ts.ToDatetime(tzinfo=UTC),
    )
