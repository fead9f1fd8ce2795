"""Organizations on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.services.organization_states import Changed, Recorded
from control_plane.services.organizations import Organization
from control_plane.wire.organizations import (
    EndedView,
    OrganizationChange,
    OrganizationEventView,
    OrganizationView,
)


def organization_view(organization: Organization) -> OrganizationView:
    return OrganizationView(
        id=on_wire(Prefix.ORGANIZATION, organization.id),
        name=organization.name,
        state=organization.state.value,
        platform=organization.platform,
        gpu_quota=organization.gpu_quota,
        gpus_held=organization.gpus_held,
        balance=money(organization.posted_nano),
        held=money(organization.held_nano),
        available=money(Nano(organization.posted_nano - organization.held_nano)),
        created_at=organization.created_at,
        erased_at=organization.erased_at,
    )


def event_view(recorded: Recorded) -> OrganizationEventView:
    return OrganizationEventView(
        number=recorded.number,
        at=recorded.at,
        event=recorded.event.value,
        state_before=recorded.state_before.value,
        state_after=recorded.state_after.value,
        reason=recorded.reason,
        actor_kind=recorded.actor_kind.value,
        actor=recorded.actor,
        request_id=recorded.request_id,
        ended=EndedView(
            waiting_leases=recorded.waiting_leases,
            starting_leases=recorded.starting_leases,
            ready_leases=recorded.ready_leases,
            ending_leases=recorded.ending_leases,
            api_keys=recorded.api_keys,
            holds=money(recorded.released_nano),
        ),
        held=money(recorded.held_nano),
        balance=money(recorded.balance_nano),
    )


def change_view(changed: Changed) -> OrganizationChange:
    return OrganizationChange(organization_view(changed.organization), event_view(changed.recorded))
