"""What customers read of leases: one, a page, its journal, what an event stream watches, and the explanation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import (
    admission_decisions,
    attempts,
    journal,
    lease_overviews,
    placements,
    proofs,
    verification_reports,
)
from control_plane.db.admission_decisions import Decided
from control_plane.db.attempts import AttemptOverview
from control_plane.db.journal import Line, Page
from control_plane.db.lease_overviews import LatestProof, Overview
from control_plane.db.placements import PlacedRanking, Placement, RankedOffer, RejectedOffer
from control_plane.db.proofs import Proof
from control_plane.db.verification_reports import VerificationReport
from control_plane.domain.access import Reach
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.position import Position
from control_plane.domain.proof import Record, Tier, tier
from control_plane.domain.refusal import Refused
from control_plane.domain.status import Status, changes_at
from control_plane.domain.status import project as status_of
from control_plane.services import lease_reach, projects
from control_plane.services.lease_reach import NOT_FOUND
from control_plane.world import World

__all__ = [  # For controllers and views, which must not import the layer below.
    "AttemptOverview",
    "Explanation",
    "LatestProof",
    "Line",
    "Overview",
    "PlacedRanking",
    "Placement",
    "Proof",
    "RankedOffer",
    "RejectedOffer",
    "Shown",
    "VerificationReport",
    "Watched",
]

EXPLAINED_PROOFS_MAX = 200
"""An explanation contains the latest proofs; an endpoint of their own lists all of them."""
EXPLAINED_DECISIONS_MAX = 100
EXPLAINED_LINES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A lease with the status its customer reads."""

    overview: Overview
    status: Status
    tier: Tier
    """The tier of its machine, from its GPU proofs."""
    at: datetime
    """The time for which it is shown."""


def shown(overview: Overview, now: datetime) -> Shown:
    """A lease with its projected status at `now`."""
    lease = overview.lease
    status = status_of(lease, overview.evidence, now, overview.power)
    return Shown(overview, status, tier(overview.record or Record(), now), now)


async def get(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Shown | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
    if isinstance(overview, Refused):
        return overview
    return shown(overview, world.now())


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    project: str | None = None,
    labels: Mapping[str, str] | None = None,
    waiting: bool | None = None,
    limit: int,
) -> list[Shown] | Refused:
    """Newest first.

    `project` is the name of the project whose leases are wanted; `labels` are labels that they all have; `waiting`
    is whether they wait for stock.
    """
    async with world.db.reading(organization_id) as connection:
        project_id = None
        if project is not None:
            named = await projects.named(connection, organization_id, project, reach=reach)
            if isinstance(named, Refused):
                return named
            project_id = named.id
        found = await lease_overviews.page(
            connection,
            organization_id,
            reach,
            before=before,
            states=states,
            project_id=project_id,
            labels=labels,
            waiting=waiting,
            limit=limit,
        )
    now = world.now()
    return [shown(overview, now) for overview in found]


async def journal_page(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    position: Position,
    limit: int,
    reach: Reach,
) -> list[tuple[Line, Position]] | Refused:
    """Journal lines behind a position, oldest first, each with the position behind it."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        found = await journal.page(connection, lease_id, position=position, limit=limit)
    return found.unseen(position)[:limit]


def shown_new(lease: Lease, now: datetime) -> Shown:
    """A lease that was admitted just now and has no attempt yet."""
    return shown(Overview(lease), now)


@dataclass(frozen=True, slots=True)
class Watched:
    """What an event stream reads when something may have changed."""

    shown: Shown
    journal: Page
    status_until: datetime | None
    """When the status may change although nothing else does; None when it cannot."""


async def watch(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, position: Position, limit: int
) -> Watched | Refused:
    """A lease, and its next journal lines behind a position.

    The lease is read first, so that the lines always include the one that explains its status.
    """
    async with world.db.reading(organization_id) as connection:
        overview = await lease_overviews.show(connection, organization_id, lease_id)
        if overview is None:
            return NOT_FOUND
        lines = await journal.page(connection, lease_id, position=position, limit=limit)
    return Watched(
        shown(overview, world.now()), lines, changes_at(overview.lease, overview.evidence, world.now())
    )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that led to a lease's present state."""

    shown: Shown
    placements: Sequence[Placement]
    attempts: Sequence[AttemptOverview]
    journal: Sequence[Line]
    reports: Sequence[VerificationReport]
    proofs: Sequence[Proof]
    decisions: Sequence[Decided]


async def explain(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Explanation | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(overview, Refused):
            return overview
        first = await journal.page(connection, lease_id, position=Position(), limit=EXPLAINED_LINES_MAX)
        return Explanation(
            shown=shown(overview, world.now()),
            placements=await placements.of_lease(connection, lease_id),
            attempts=await attempts.of_leases(connection, [lease_id]),
            journal=first.lines,
            reports=await verification_reports.of_lease(connection, lease_id),
            proofs=await proofs.page(
                connection, organization_id, lease_id, before=None, limit=EXPLAINED_PROOFS_MAX
            ),
            decisions=await admission_decisions.page(
                connection, organization_id, lease_id=lease_id, limit=EXPLAINED_DECISIONS_MAX
            ),
        )
