"""Whether leases that waited may still be placed: their envelopes may have been narrowed meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import admission_decisions, envelopes
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Proposal, Standing, admit, agreed_price
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.envelope import Envelope
from control_plane.domain.envelope_rules import Applied
from control_plane.domain.ids import AdmissionDecisionId, EnvironmentId, LeaseId
from control_plane.domain.lease import Lease
from control_plane.domain.money import NOTHING
from control_plane.domain.organization import OrganizationState


class Placing:
    """The envelopes of leases that wait for a machine."""

    def __init__(
        self, applied: Mapping[EnvironmentId, tuple[Applied, ...]], held_back: Mapping[LeaseId, NotAdmitted]
    ) -> None:
        self._applied = applied
        self.held_back = held_back
        """The leases that may not be placed now."""

    def envelopes(self, lease: Lease) -> tuple[Envelope, ...]:
        return tuple(each.envelope for each in self._applied.get(lease.environment_id, ()))


async def placing(
    connection: Connection,
    leases: Sequence[Lease],
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> Placing:
    """Decide for leases of organizations that may spend, and store the decisions that differ from the last."""
    applied = await envelopes.applied(connection, {lease.environment_id for lease in leases}, now=now)
    verdicts = {lease.id: admit(_proposal(lease, applied[lease.environment_id], now)) for lease in leases}
    made = [
        (
            AdmissionDecisionId(new_id()),
            About(lease.organization_id, lease.project_id, lease.environment_id, lease.id),
            verdicts[lease.id].decision,
        )
        for lease in leases
    ]
    await admission_decisions.insert(connection, made, actor=actor, now=now)
    refused = {
        lease_id: verdict for lease_id, verdict in verdicts.items() if isinstance(verdict, NotAdmitted)
    }
    return Placing(applied, refused)


def _proposal(lease: Lease, applied: tuple[Applied, ...], now: datetime) -> Proposal:
    return Proposal(
        Action.LEASE_PLACE,
        lease.request,
        agreed_price(lease),
        Standing(OrganizationState.ACTIVE, NOTHING),
        applied,
        now,
        adds=False,
    )
