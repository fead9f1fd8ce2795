"""Lease operations: quote, create, release, read. Each is one transaction: load, decide, store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import accounts, catalogue, machines, journal, leases, organizations, proofs
from control_plane.domain.admission import Admitted, Price, admit
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.machine import Machine, MachineEvent, MachineMove
from control_plane.domain.machine import step as machine_step
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, LeaseState
from control_plane.domain.lease import step as lease_step
from control_plane.domain.transitions import Moved
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Offer, Ranking, rank
from control_plane.domain.proof import Tier, erased_until, tier
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import region_within
from control_plane.domain.status import Status, project
from control_plane.domain.request import CapacityRequest
from control_plane.services.attempts import failed_since
from control_plane.world import World

EXPLAINED_PROOFS_MAX = 200
"""The latest; all of them have an address of their own."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What a lease would cost and where it would go, without buying."""

    verdict: Admitted | Refused
    price: Price | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Shown:
    """A lease with the status its customer reads."""

    overview: leases.Overview
    status: Status
    tier: Tier
    """What its machine is, by its GPU proofs."""


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
                unhealthy_accounts=await unhealthy_accounts(connection),
                disproven=await proofs.disproven(connection, since=now - PROOF_RECORD_WINDOW),
                now=now,
            )
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    return Quote(admit(request, price, standing), price, ranking)


async def create(
    connection: AsyncConnection,
    world: World,
    organization_id: OrganizationId,
    request: CapacityRequest,
    *,
    name: str,
    ssh_key_ids: Sequence[UUID],
    actor: str,
) -> Lease | Refused:
    """Admit a request as a lease, with a hold for its first hour, in the caller's transaction."""
    now = world.now()
    keys = await organizations.ssh_keys(connection, organization_id, ids=ssh_key_ids) if ssh_key_ids else []
    missing = set(ssh_key_ids) - {key.id for key in keys}
    if missing:
        return Refused(
            RefusalCode.SSH_KEY_UNKNOWN, "An SSH key of this request does not exist; GET /v1/ssh-keys."
        )
    price, known = await _facts(connection, request, now, with_offers=False)
    if isinstance(known, Refused):
        return known

    standing = await organizations.standing(connection, organization_id, lock=True)
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    verdict = admit(request, price, standing)
    if isinstance(verdict, Refused):
        return verdict

    shape = verdict.price.sku.shape
    lease = Lease(
        id=LeaseId(world.new_id()),
        organization_id=organization_id,
        name=name,
        request=request,
        gpu_model=shape.gpu_model.value,
        gpu_count=shape.gpu_count,
        nano_per_gpu_hour=verdict.price.nano_per_gpu_hour,
        proof=verdict.price.sku.proof,
        authorized_keys=tuple(key.public_key for key in keys),
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
    why = f"{request.sku}; {standing.gpus_held} of {standing.gpu_quota} GPUs were held before"
    await leases.insert(connection, lease, hold_nano=verdict.hold_nano, actor=actor, why=why, now=now)
    return lease


async def _facts(
    connection: AsyncConnection, request: CapacityRequest, now: datetime, *, with_offers: bool
) -> tuple[Price | None, list[Offer] | Refused]:
    """The price of a request and the offers of its GPUs; a constraint nothing can ever meet is refused.

    Offers are read where they are shown or where the request narrows them down: a create that takes any
    place needs none of them.
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


async def unhealthy_accounts(connection: AsyncConnection) -> dict[str, str]:
    """Accounts at which nothing is bought now, with the reason."""
    reasons: dict[str, str] = {}
    for account in await accounts.every(connection):
        if account.freeze is not None:
            reasons[account.name] = f"The account is frozen: {account.freeze.why}"
        elif account.failing_since is not None:
            reasons[account.name] = f"The account does not answer: {account.failing_why}"
    return reasons


async def release(
    connection: AsyncConnection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    actor: str,
) -> leases.Overview | Refused:
    """Let go of a lease: billing stops now, its machines are to be ended. Twice is once."""
    now = world.now()
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    if lease is None or lease.organization_id != organization_id:
        return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
    await end_lease(
        connection, lease, LeaseEvent.RELEASED, why="released by the customer", actor=actor, now=now
    )
    shown = await leases.show(connection, organization_id, lease_id)
    if shown is None:
        raise LookupError(f"lease {lease_id} vanished while locked")
    return shown


async def end_lease(
    connection: AsyncConnection,
    lease: Lease,
    event: LeaseEvent,
    *,
    why: str,
    actor: str,
    now: datetime,
) -> bool:
    """Move a locked lease towards its end, and every open attempt of it. False when it is ending already.

    It is billed to now, or to when its machine failed its GPU proof, if that stands.
    """
    moved = lease_step(lease.state, event)
    if not isinstance(moved, Moved):
        return False
    attempts = await machines.lock_open(connection, [lease.id])
    since = await failed_since(connection, attempts)
    billed_until = None if since is None or lease.ready_at is None else max(lease.ready_at, since)
    await machines.move(connection, end_moves(lease, attempts, why=why, now=now), actor=actor, now=now)
    # Last, because it takes the organization's standing: lease, machines, standing is the order everywhere.
    move = LeaseMove(lease.id, lease.generation, moved, why=why, billed_until=billed_until)
    return bool(await leases.move(connection, [move], actor=actor, now=now))


def end_moves(lease: Lease, attempts: Sequence[Machine], *, why: str, now: datetime) -> list[MachineMove]:
    """How the attempts of a lease end when it no longer wants them.

    A proven machine that a customer worked on waits a moment, for the proof that its memory is overwritten.
    """
    moves = []
    for attempt in attempts:
        never = machine_step(attempt.state, MachineEvent.NEVER_ASKED)
        if isinstance(never, Moved):
            evidence = "nothing was asked of the provider"
            moves.append(MachineMove(attempt.id, attempt.generation, never, why=why, gone_evidence=evidence))
            continue
        unwanted = machine_step(attempt.state, MachineEvent.RELEASED)
        if isinstance(unwanted, Moved):
            until = erased_until(attempt.state, lease.proof, now)
            moves.append(MachineMove(attempt.id, attempt.generation, unwanted, why=why, erasing_until=until))
    return moves


def shown(overview: leases.Overview, now: datetime) -> Shown:
    """A lease with its projected status at `now`."""
    lease, proof = overview.lease, overview.proof
    status = project(lease.state, overview.evidence, demanded=lease.proof, attempts=lease.attempts, now=now)
    return Shown(overview, status, Tier.LISTED if proof is None else tier(proof.record, now))


async def get(world: World, organization_id: OrganizationId, lease_id: LeaseId) -> Shown | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
    if overview is None:
        return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
    return shown(overview, world.now())


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    limit: int,
) -> list[Shown]:
    async with world.db.reading(organization_id) as connection:
        found = await leases.page(connection, organization_id, before=before, states=states, limit=limit)
    now = world.now()
    return [shown(overview, now) for overview in found]


async def journal_page(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> list[Any] | Refused:
    """Journal lines after number `after`, oldest first."""
    async with world.db.reading(organization_id) as connection:
        if await leases.show(connection, organization_id, lease_id) is None:
            return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
        return await journal.page(connection, lease_id, after=after, limit=limit)


def shown_new(lease: Lease, now: datetime) -> Shown:
    """A lease that was admitted just now and has no attempt yet."""
    return shown(leases.Overview(lease, None), now)


async def watch(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> tuple[Shown, list[Any]] | Refused:
    """A lease and its journal lines after number `after`: what a stream looks at on every poll.

    The lease is read first, so that a line which explains its status is never behind it.
    """
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
        if overview is None:
            return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
        lines = await journal.page(connection, lease_id, after=after, limit=limit)
    return shown(overview, world.now()), lines


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that led a lease to where it is."""

    shown: Shown
    placements: list[dict[str, Any]]
    attempts: list[Machine]
    journal: list[Any]
    reports: list[Any]
    proofs: list[Any]


async def explain(world: World, organization_id: OrganizationId, lease_id: LeaseId) -> Explanation | Refused:
    async with world.db.reading(organization_id) as connection:
        overview = await leases.show(connection, organization_id, lease_id)
        if overview is None:
            return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
        return Explanation(
            shown=shown(overview, world.now()),
            placements=await leases.placements(connection, lease_id),
            attempts=await machines.of_leases(connection, [lease_id]),
            journal=await journal.page(connection, lease_id, after=0, limit=1_000),
            reports=await journal.verification_reports(connection, lease_id),
            proofs=await proofs.page(
                connection, organization_id, lease_id, before=None, limit=EXPLAINED_PROOFS_MAX
            ),
        )
