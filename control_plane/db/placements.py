"""Queries on placements: every decision on where a lease is placed, with the reason for each rejected offer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, write
from control_plane.domain.ids import LeaseId
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer, RejectCode, Rejection
from control_plane.domain.pool_claim import PoolChoice
from control_plane.domain.ranking import Ranking, digest


@dataclass(frozen=True, slots=True)
class PlacedOffer:
    """An offer as it was when the decision was made."""

    offer: str
    """Its key."""
    provider: str
    region: str
    native_type: str
    cost_nano_per_hour: Nano
    confidence: str
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class RankedOffer(PlacedOffer):
    effective_nano_per_hour: Nano
    """What an hour of use cost us, by which it was ranked."""


@dataclass(frozen=True, slots=True)
class RejectedOffer(PlacedOffer):
    code: RejectCode
    why: str
    proofs: tuple[UUID, ...] = ()
    """The failed GPU proofs, where they are the reason."""
    more: int = 0
    """How many more offers of its account were rejected for the same reason, and are not named."""


@dataclass(frozen=True, slots=True)
class PlacedRanking:
    candidates: tuple[RankedOffer, ...]
    """Best first."""
    rejected: tuple[RejectedOffer, ...]
    more_candidates: int = 0
    """How many there are besides those that are named."""
    pooled: PoolChoice | None = None
    """What was decided about machines of pools; None where there were none of the SKU."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One decision, as it is stored."""

    number: int
    """1, 2, 3 ... per lease."""
    decided_at: datetime
    chosen: str | None
    """The key of the offer that was chosen; None when the lease has to wait, or claimed a machine of a pool."""
    ranking: PlacedRanking


@dataclass(frozen=True, slots=True)
class _Decision:
    lease_id: LeaseId
    chosen: str | None
    ranking: PlacedRanking
    sha256: str


_DECIDED = Recordset(_Decision, "decided")
_INSERT = text(f"""
WITH decided AS (SELECT * FROM {_DECIDED}),
digested AS (
  UPDATE leases l SET placement_sha256 = decode(d.sha256, 'hex') FROM decided d WHERE l.id = d.lease_id
)
INSERT INTO placements (lease_id, number, organization_id, project_id, decided_at, chosen, ranking)
SELECT d.lease_id, coalesce((SELECT max(number) FROM placements p WHERE p.lease_id = d.lease_id), 0) + 1,
       l.organization_id, l.project_id, :now, d.chosen, d.ranking
FROM decided d JOIN leases l ON l.id = d.lease_id
""")
_OF_LEASE = text("""
SELECT number, decided_at, chosen, ranking FROM placements WHERE lease_id = :lease_id ORDER BY number
""")
_DIGESTS = text("""
SELECT id AS lease_id, placement_sha256 AS sha256 FROM leases
WHERE id = ANY(:lease_ids) AND placement_sha256 IS NOT NULL
""")


async def insert(connection: Connection, rankings: dict[LeaseId, Ranking], *, now: datetime) -> None:
    """Store decisions, and their digests on the leases."""
    if rankings:
        rows = [_decision(lease_id, ranking) for lease_id, ranking in rankings.items()]
        await write(connection, _INSERT, decided=_DECIDED.document(rows), now=now)


def _decision(lease_id: LeaseId, ranking: Ranking) -> _Decision:
    claims = ranking.pooled is not None and ranking.pooled.machine_id is not None
    chosen = ranking.candidates[0].key if ranking.candidates and not claims else None
    shown = PlacedRanking(
        tuple(_ranked(offer) for offer in ranking.candidates),
        tuple(_rejected(rejection) for rejection in ranking.rejected),
        ranking.more_candidates,
        ranking.pooled,
    )
    return _Decision(lease_id, chosen, shown, digest(ranking).hex())


def _ranked(offer: Offer) -> RankedOffer:
    return RankedOffer(
        offer=offer.key,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        cost_nano_per_hour=offer.cost_nano_per_hour,
        confidence=offer.confidence,
        observed_at=offer.observed_at,
        effective_nano_per_hour=offer.effective_nano_per_hour,
    )


def _rejected(rejection: Rejection) -> RejectedOffer:
    offer = rejection.offer
    return RejectedOffer(
        offer=offer.key,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        cost_nano_per_hour=offer.cost_nano_per_hour,
        confidence=offer.confidence,
        observed_at=offer.observed_at,
        code=rejection.code,
        why=rejection.why,
        proofs=rejection.proofs,
        more=rejection.more,
    )


async def of_lease(connection: Connection, lease_id: LeaseId) -> list[Placement]:
    """Every decision on a lease, oldest first."""
    return await read(connection, _OF_LEASE, Placement, lease_id=lease_id)


@dataclass(frozen=True, slots=True)
class _Digest:
    lease_id: LeaseId
    sha256: bytes


async def digests(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, bytes]:
    """The digest of each lease's last stored decision; a lease without one is left out."""
    found = await read(connection, _DIGESTS, _Digest, lease_ids=list(lease_ids))
    return {each.lease_id: each.sha256 for each in found}
