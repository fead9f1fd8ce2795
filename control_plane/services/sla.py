"""Promises of leases for customers and operators: clocks, breaches, credits, and the report of a month."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import sla, sla_credits, sla_facts, sla_terms
from control_plane.db.connection import Connection
from control_plane.db.sla import BreachRecord, TierTotal
from control_plane.domain.access import Reach
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, SlaBreachId, on_wire
from control_plane.domain.lease import Lease, LeaseKind
from control_plane.domain.period import month_of, month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sla import Terms
from control_plane.domain.sla_clock import Clocks, clocks
from control_plane.services import lease_reach
from control_plane.world import World

__all__ = ["BreachRecord", "TierTotal"]  # For controllers and views, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class LeaseSla:
    """What is promised with a lease, and how it stands."""

    lease: Lease
    at: datetime
    terms: Terms | None
    """None when nothing is promised."""
    clocks: Clocks | None
    breaches: Sequence[BreachRecord]
    """Those that are stored."""


async def of_lease(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> LeaseSla | Refused:
    """The promises of a lease now."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        overview = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(overview, Refused):
            return overview
        lease = overview.lease
        evidence = await sla_facts.evidence(connection, [lease_id])
        if not evidence.leases or lease.sla_version is None:
            return LeaseSla(lease, now, None, None, ())
        terms = (await sla_terms.of_versions(connection, [lease.sla_version]))[lease.sla_version, lease.sla]
        breaches = await sla.of_lease(connection, organization_id, lease_id)
    if lease.kind is LeaseKind.NODE:
        terms = terms.of_node
    (promised,) = evidence.leases
    return LeaseSla(lease, now, terms, clocks(evidence.facts(promised), terms, now), breaches)


@dataclass(frozen=True, slots=True)
class SlaReport:
    month: datetime
    tiers: Sequence[TierTotal]
    breaches: Sequence[BreachRecord]


async def report(
    world: World,
    reader: OrganizationId,
    month: datetime | None,
    *,
    whose: OrganizationId | None,
    after: UUID | None,
    limit: int,
) -> SlaReport | Refused:
    """What a month came to, and its breaches: of an organization or, with None, of all.

    For all, the reader is the operators' own organization. None as the month is the current one. Refused for one that
    has not begun.
    """
    month = month or month_of(world.now())
    if world.now() < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    async with world.db.reading(reader) as connection:
        tiers = await sla.tiers(connection, whose, month)
        breaches = await sla.of_month(connection, whose, month, after=after, limit=limit)
    return SlaReport(month, tiers, breaches)


async def undecided(
    world: World, platform: OrganizationId, *, after: UUID | None, limit: int
) -> Sequence[BreachRecord]:
    """The breaches of which a part of the credit waits for a decision. `platform` is the operators' organization."""
    async with world.db.reading(platform) as connection:
        return await sla.undecided(connection, after=after, limit=limit)


async def decide(
    connection: Connection, world: World, breach_id: SlaBreachId, *, approved: bool, by: str, reason: str
) -> BreachRecord | Refused:
    """Store finance's decision on what waits of a breach's credit. It is carried out within seconds."""
    breach = await sla.get(connection, breach_id)
    if breach is None:
        return Refused(
            RefusalCode.NOT_FOUND, f"There is no broken promise {on_wire(Prefix.SLA_BREACH, breach_id)}."
        )
    if await sla_credits.ordered_by(connection, breach_id) == by:
        why = "You asked for the lease yourself, so somebody else decides on its credit."
        return Refused(RefusalCode.OWN_REQUEST, why)
    now = world.now()
    if not await sla_credits.decide(connection, breach_id, approved=approved, by=by, reason=reason, now=now):
        why = "Nothing of its credit waits for a decision, or somebody has decided already."
        return Refused(RefusalCode.CREDIT_NOT_WAITING, why)
    return breach


@dataclass(frozen=True, slots=True)
class Approved:
    at: datetime
    by: str
    reason: str
    waiting: int
    """How many credits waited, which are posted within seconds."""


async def approve(connection: Connection, world: World, *, by: str, reason: str) -> Approved:
    """Let the credits that wait now be posted, however many they are."""
    now = world.now()
    waiting = await sla_credits.waiting_now(connection)
    await sla_credits.approve(connection, world.new_id(), by=by, reason=reason, now=now)
    return Approved(now, by, reason, waiting)
