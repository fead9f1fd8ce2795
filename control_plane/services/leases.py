"""Lease operations for customers: quote, create, release, read. Each is one transaction: load, decide, store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import (
    accounts,
    attempts,
    catalogue,
    journal,
    leases,
    organizations,
    placements,
    proofs,
    ssh_keys,
    verification_reports,
)
from control_plane.db.attempts import AttemptOverview
from control_plane.db.connection import Connection
from control_plane.db.journal import Line
from control_plane.db.leases import LatestProof, Overview
from control_plane.db.placements import PlacedOffer, PlacedRanking, Placement, RejectedOffer
from control_plane.db.proofs import Proof
from control_plane.db.verification_reports import VerificationReport
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Admitted, Price, admit
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import Lease, LeaseEvent, LeaseState, PurchaseKind
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Offer, Ranking, rank
from control_plane.domain.project import Project
from control_plane.domain.proof import Record, Tier, tier
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import region_within
from control_plane.domain.status import Status
from control_plane.domain.status import project as status_of
from control_plane.outcomes import leases as outcomes
from control_plane.services import projects
from control_plane.world import World

__all__ = [  # For controllers and views, which must not import the layer below.
    "AttemptOverview",
    "Explanation",
    "LatestProof",
    "Line",
    "Overview",
    "PlacedOffer",
    "PlacedRanking",
    "Placement",
    "Proof",
    "Quote",
    "RejectedOffer",
    "Shown",
    "VerificationReport",
]

EXPLAINED_PROOFS_MAX = 200
"""An explanation contains the latest proofs; an endpoint of their own lists all of them."""
EXPLAINED_LINES_MAX = 1_000
_NOT_FOUND = Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")


@dataclass(frozen=True, slots=True)
class Quote:
    """What a lease would cost and where it would be placed, without buying."""

    verdict: Admitted | Refused
    price: Price | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Shown:
    """A lease with the status its customer reads."""

    overview: Overview
    status: Status
    tier: Tier
    """The tier of its machine, from its GPU proofs."""


async def quote(world: World, organization_id: OrganizationId, request: CapacityRequest) -> Quote:
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        price, known = await _facts(connection, request, now, with_offers=True)
        if isinstance(known, Refused):
            return Quote(known, price, Ranking((), ()))
        standing = await organizations.standing(connection, organization_id, lock=False)
        ranking = Ranking((), ())
        if price is not None:
            ranking = rank(
                request,
                price.sku.shape,
                price.nano_per_hour,
                known,
                failures={},
                unhealthy_accounts=await outcomes.unhealthy_accounts(connection),
                disproven=await proofs.disproven(connection, since=now - PROOF_RECORD_WINDOW),
                now=now,
            )
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    return Quote(admit(request, price, standing), price, ranking)


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    request: CapacityRequest,
    *,
    name: str,
    ssh_key_ids: Sequence[UUID],
    actor: Actor,
    project: str | None = None,
) -> Lease | Refused:
    """Admit a request as a lease, with a hold for its first hour, in the caller's transaction.

    `project` is the name of one of the organization's projects; None means its default one.
    """
    now = world.now()
    keys = await _authorized_keys(connection, organization_id, ssh_key_ids)
    if isinstance(keys, Refused):
        return keys
    of_project = await projects.of_lease(connection, organization_id, project)
    if isinstance(of_project, Refused):
        return of_project
    price, known = await _facts(connection, request, now, with_offers=False)
    if isinstance(known, Refused):
        return known

    standing = await organizations.standing(connection, organization_id, lock=True)
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    verdict = admit(request, price, standing)
    if isinstance(verdict, Refused):
        return verdict

    lease_id = LeaseId(world.new_id())
    lease = _admitted(lease_id, of_project, request, verdict.price, name=name, authorized_keys=keys, now=now)
    why = f"{request.sku}; {standing.gpus_held} of {standing.gpu_quota} GPUs were held before"
    await leases.insert(connection, lease, hold_nano=verdict.hold_nano, actor=actor, why=why)
    return lease


def _admitted(
    lease_id: LeaseId,
    project: Project,
    request: CapacityRequest,
    price: Price,
    *,
    name: str,
    authorized_keys: tuple[str, ...],
    now: datetime,
) -> Lease:
    """A new lease, with the price and the proof that it is promised for its whole life."""
    return Lease(
        id=lease_id,
        organization_id=project.organization_id,
        project_id=project.id,
        project=project.name,
        name=name,
        sku=request.sku,
        gpu_model=price.sku.shape.gpu_model,
        gpu_count=price.sku.shape.gpu_count,
        purchase=PurchaseKind.ON_DEMAND,
        nano_per_gpu_hour=price.nano_per_gpu_hour,
        price_book=price.book,
        proof=price.sku.proof,
        regions=request.regions,
        providers=request.providers,
        price_nano_per_hour_max=request.price_nano_per_hour_max,
        authorized_keys=authorized_keys,
        state=LeaseState.PLACING,
        generation=1,
        attempts=0,
        end_reason=None,
        end_why=None,
        created_at=now,
        ready_at=None,
        billed_until=None,
        ended_at=None,
    )


async def _authorized_keys(
    connection: Connection, organization_id: OrganizationId, ssh_key_ids: Sequence[UUID]
) -> tuple[str, ...] | Refused:
    """The public keys that a request names by their ids."""
    if not ssh_key_ids:
        return ()
    keys = await ssh_keys.of_ids(connection, organization_id, ssh_key_ids)
    if set(ssh_key_ids) - {key.id for key in keys}:
        return Refused(
            RefusalCode.SSH_KEY_UNKNOWN, "An SSH key of this request does not exist; GET /v1/ssh-keys."
        )
    return tuple(key.public_key for key in keys)


async def _facts(
    connection: Connection, request: CapacityRequest, now: datetime, *, with_offers: bool
) -> tuple[Price | None, list[Offer] | Refused]:
    """The price of a request and the offers of its GPUs, or a refusal when no offer can ever meet a constraint.

    Offers are read only when `with_offers` asks for them or the request names regions or providers: otherwise a
    create does not need them.
    """
    prices = await catalogue.prices(connection, now=now, sku=request.sku)
    if not prices:
        return None, []
    if not (with_offers or request.providers or request.regions):
        return prices[0], []
    shape = prices[0].sku.shape
    offers = await catalogue.offers(connection, gpu_model=shape.gpu_model, gpu_count=shape.gpu_count)
    if request.providers or request.regions:
        known = await accounts.every(connection)
        refused = _impossible(
            request, {account.provider for account in known}, {offer.region for offer in offers}
        )
        if refused is not None:
            return prices[0], refused
    return prices[0], offers


def _impossible(request: CapacityRequest, providers: set[str], regions: set[str]) -> Refused | None:
    unknown = sorted(set(request.providers) - providers)
    if unknown:
        return Refused(
            RefusalCode.PROVIDER_UNKNOWN,
            f"No provider is called {unknown[0]!r}; there is {', '.join(sorted(providers)) or 'none'}.",
        )
    unserved = [
        wanted for wanted in request.regions if not any(region_within(region, wanted) for region in regions)
    ]
    if unserved:
        return Refused(
            RefusalCode.REGION_NOT_SERVED,
            f"No offer for this SKU is in {unserved[0]!r}; there is {', '.join(sorted(regions)) or 'none'}.",
        )
    return None


async def release(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    actor: Actor,
) -> Overview | Refused:
    """Release a lease: billing stops now, and its machine is terminated. A second release has no effect."""
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    if lease is None or lease.organization_id != organization_id:
        return _NOT_FOUND
    await outcomes.end(
        connection, lease, LeaseEvent.RELEASED, why="released by the customer", actor=actor, now=world.now()
    )
    overview = await leases.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


def shown(overview: Overview, now: datetime) -> Shown:
    """A lease with its projected status at `now`."""
    lease = overview.lease
    status = status_of(lease.state, overview.evidence, demanded=lease.proof, attempts=lease.attempts, now=now)
    return Shown(overview, status, tier(overview.record or Record(), now))


async def get(world: World, organization_id: OrganizationId, lease_id: LeaseId) -> Shown | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
    if overview is None:
        return _NOT_FOUND
    return shown(overview, world.now())


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    project: str | None = None,
    limit: int,
) -> list[Shown] | Refused:
    """Newest first; `project` is the name of the project whose leases are wanted."""
    async with world.db.reading(organization_id) as connection:
        project_id = None
        if project is not None:
            named = await projects.named(connection, organization_id, project)
            if isinstance(named, Refused):
                return named
            project_id = named.id
        found = await leases.page(
            connection,
            organization_id,
            before=before,
            states=states,
            project_id=project_id,
            limit=limit,
        )
    now = world.now()
    return [shown(overview, now) for overview in found]


async def journal_page(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> list[Line] | Refused:
    """Journal lines after number `after`, oldest first."""
    async with world.db.reading(organization_id) as connection:
        if await leases.show(connection, organization_id, lease_id) is None:
            return _NOT_FOUND
        return await journal.page(connection, lease_id, after=after, limit=limit)


def shown_new(lease: Lease, now: datetime) -> Shown:
    """A lease that was admitted just now and has no attempt yet."""
    return shown(Overview(lease), now)


async def watch(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> tuple[Shown, list[Line]] | Refused:
    """A lease and its journal lines after number `after`, which an event stream reads on every poll.

    The lease is read first, so that the lines always include the one that explains its status.
    """
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
        if overview is None:
            return _NOT_FOUND
        lines = await journal.page(connection, lease_id, after=after, limit=limit)
    return shown(overview, world.now()), lines


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that led to a lease's present state."""

    shown: Shown
    placements: Sequence[Placement]
    attempts: Sequence[AttemptOverview]
    journal: Sequence[Line]
    reports: Sequence[VerificationReport]
    proofs: Sequence[Proof]


async def explain(world: World, organization_id: OrganizationId, lease_id: LeaseId) -> Explanation | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
        if overview is None:
            return _NOT_FOUND
        return Explanation(
            shown=shown(overview, world.now()),
            placements=await placements.of_lease(connection, lease_id),
            attempts=await attempts.of_leases(connection, [lease_id]),
            journal=await journal.page(connection, lease_id, after=0, limit=EXPLAINED_LINES_MAX),
            reports=await verification_reports.of_lease(connection, lease_id),
            proofs=await proofs.page(
                connection, organization_id, lease_id, before=None, limit=EXPLAINED_PROOFS_MAX
            ),
        )
