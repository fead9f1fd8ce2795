"""Decisions of admission: a refused one is stored after its request was rolled back, and customers read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import admission_decisions
from control_plane.db.admission_decisions import About, Decided
from control_plane.domain.actor import Actor
from control_plane.domain.decision import NotAdmitted, Verdict
from control_plane.domain.ids import AdmissionDecisionId, LeaseId, OrganizationId
from control_plane.world import World

__all__ = ["Decided"]  # For controllers and views, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class NotAllowed(NotAdmitted):
    """A refusal with what it is about, so that it can be stored."""

    about: About


def refused(verdict: NotAdmitted, about: About) -> NotAllowed:
    return NotAllowed(verdict.code, verdict.why, verdict.decision, about)


async def store(world: World, refusal: NotAllowed, actor: Actor) -> None:
    """Store a refusal, in a transaction of its own: that of the request was rolled back."""
    decision_id = AdmissionDecisionId(world.new_id())
    async with world.db.transaction(refusal.about.organization_id) as connection:
        await admission_decisions.insert(
            connection, [(decision_id, refusal.about, refusal.decision)], actor=actor, now=world.now()
        )


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    lease_id: LeaseId | None = None,
    outcome: Verdict | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int,
) -> Sequence[Decided]:
    """The decisions about an organization, newest first."""
    async with world.db.reading(organization_id) as connection:
        return await admission_decisions.page(
            connection, organization_id, lease_id=lease_id, outcome=outcome, before=before, limit=limit
        )
