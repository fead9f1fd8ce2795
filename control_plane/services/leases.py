"""Lease operations for customers: quote, create, release, label. Each is one transaction: load, decide, store.

What customers read of them is in `services/lease_overviews.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from control_plane.db import (
    accounts,
    catalogue,
    journal,
    lease_overviews,
    leases,
    organizations,
    proof_records,
    ssh_keys,
    traces,
)
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.access import EVERYWHERE, Reach
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Admitted, Price, Proposal, admit
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.envelope_rules import Applied, Use
from control_plane.domain.environment import Environment
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, on_wire
from control_plane.domain.lease import AdmittedKey, Lease, LeaseEvent, LeaseState, PurchaseKind
from control_plane.domain.offered import is_offered, not_offered, unknown_constraint
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Offer, Ranking, rank
from control_plane.domain.project import Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.outcomes import leases as outcomes
from control_plane.services import environments, projects
from control_plane.services.lease_overviews import NOT_FOUND, Shown, get
from control_plane.world import World

__all__ = ["Overview", "Quote"]  # For controllers and views, which must not import the layer below.

GENERATED_DIGITS = 8
"""Random digits in a generated name. Should a live lease have the same ones, the name gets all digits of the id."""
_NO_TERMS = LeaseTerms()


@dataclass(frozen=True, slots=True)
class Quote:
    """What a lease would cost and where it would be placed, without buying."""

    verdict: Admitted | NotAdmitted
    price: Price | None
    ranking: Ranking


async def quote(world: World, organization_id: OrganizationId, request: CapacityRequest) -> Quote:
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        market = await _market(connection, request, now)
        proposal = await _proposal(connection, organization_id, request, market, now, lock=False)
        price, ranking = market.price, Ranking((), ())
        if price is not None and market.unserved is None:
            ranking = rank(
                request,
                price.sku.shape,
                price.nano_per_hour,
                market.offers,
                failures={},
                unhealthy_accounts=await outcomes.unhealthy_accounts(connection),
                disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
                now=now,
            )
    return Quote(admit(proposal), price, ranking)


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    request: CapacityRequest,
    *,
    name: str | None,
    ssh_key_ids: Sequence[UUID] | None,
    actor: Actor,
    project: str | None = None,
    environment: str | None = None,
    terms: LeaseTerms = _NO_TERMS,
    reach: Reach = EVERYWHERE,
) -> Lease | Refused:
    """Admit a request as a lease, with a hold for its first hour, in the caller's transaction.

    `name` is unique among the live leases of the project; None: one is generated. Without `ssh_key_ids` (None) the
    machine admits all keys of the organization, with an empty list none. `project` is the name of one of the
    organization's projects, and `environment` of one of the project's environments; None means the default one.
    """
    now = world.now()
    of_project = await projects.of_lease(connection, organization_id, project, reach=reach)
    if isinstance(of_project, Refused):
        return of_project
    in_environment = await environments.of_lease(connection, of_project, environment, reach=reach)
    if isinstance(in_environment, Refused):
        return in_environment
    keys = await _admitted_keys(connection, of_project, ssh_key_ids)
    if isinstance(keys, Refused):
        return keys
    market = await _market(connection, request, now)
    proposal = await _proposal(connection, organization_id, request, market, now, lock=True)
    verdict = admit(proposal)
    if isinstance(verdict, Refused):
        return verdict

    lease = _admitted(
        LeaseId(world.new_id()),
        of_project,
        in_environment,
        request,
        verdict.price,
        name=name,
        keys=keys,
        terms=terms,
        now=now,
    )
    why = f"{request.sku}; {proposal.envelopes[0].use.gpus} GPUs were held before"
    stored = partial(leases.insert, connection, hold_nano=verdict.hold_nano, actor=actor, why=why)
    if not await stored(lease):
        if name is not None:
            return await _name_taken(connection, of_project, name)
        lease = replace(
            lease, name=f"{request.sku[:30]}-{lease.id.hex}"
        )  # An id is unique, and so is this name.
        if not await stored(lease):
            return await _name_taken(connection, of_project, lease.name)
    await traces.follow(connection, lease.id, world.tracer.traceparent())
    return lease


async def _name_taken(connection: Connection, project: Project, name: str) -> Refused:
    holder = await leases.live_named(connection, project.id, name)
    who = "A live lease" if holder is None else f"The live lease {on_wire(Prefix.LEASE, holder)}"
    return Refused(
        RefusalCode.NAME_TAKEN,
        f"{who} of the project {project.name!r} is called {name!r}; choose another name, or release it first.",
    )


def _admitted(
    lease_id: LeaseId,
    project: Project,
    environment: Environment,
    request: CapacityRequest,
    price: Price,
    *,
    name: str | None,
    keys: tuple[AdmittedKey, ...],
    terms: LeaseTerms,
    now: datetime,
) -> Lease:
    """A new lease, with the price and the proof that it is promised for its whole life."""
    return Lease(
        id=lease_id,
        organization_id=project.organization_id,
        project_id=project.id,
        project=project.name,
        environment_id=environment.id,
        environment=environment.name,
        name=name or f"{request.sku[:50]}-{lease_id.hex[-GENERATED_DIGITS:]}",
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
        ssh_keys=keys,
        labels=terms.labels,
        wait_timeout_seconds=terms.wait_timeout_seconds,
        auto_release_after_seconds=terms.auto_release.after_seconds,
        auto_release_spend_nano=terms.auto_release.spend_nano,
        state=LeaseState.PLACING,
        generation=1,
        attempts=0,
        end_reason=None,
        end_why=None,
        waiting_since=None,
        waiting_why=None,
        created_at=now,
        ready_at=None,
        release_at=None,
        billed_until=None,
        ended_at=None,
    )


async def _admitted_keys(
    connection: Connection, project: Project, ssh_key_ids: Sequence[UUID] | None
) -> tuple[AdmittedKey, ...] | Refused:
    """The keys that a request names by their ids; without any ids (None), all keys of the project and organization."""
    keys: list[SshKey] = []
    if ssh_key_ids is None or ssh_key_ids:
        keys = await ssh_keys.of_project(connection, project.organization_id, project.id)
    if ssh_key_ids is None:
        if not keys:
            return Refused(
                RefusalCode.NO_SSH_KEY,
                "The organization has no SSH key, so nobody could log in; add one with POST /v1/ssh-keys, or send"
                " an empty `ssh_key_ids` for a machine that admits nobody.",
            )
    else:
        keys = [key for key in keys if key.id in ssh_key_ids]
        unknown = set(ssh_key_ids) - {key.id for key in keys}
        if unknown:
            missing = on_wire(Prefix.SSH_KEY, min(unknown))
            why = f"There is no SSH key {missing}; GET /v1/ssh-keys lists yours."
            return Refused(RefusalCode.SSH_KEY_UNKNOWN, why)
    return tuple(AdmittedKey(key.id, key.name, key.public_key, key.fingerprint) for key in keys)


@dataclass(frozen=True, slots=True)
class _Market:
    """What we sell and what providers offer, as far as a request is concerned."""

    price: Price | None
    offers: Sequence[Offer] = ()
    unserved: Refused | None = None
    """Why no offer can ever serve it."""
    sold: tuple[str, ...] = ()
    """The SKUs that are sold, when the request's is not."""


async def _proposal(
    connection: Connection,
    organization_id: OrganizationId,
    request: CapacityRequest,
    market: _Market,
    now: datetime,
    *,
    lock: bool,
) -> Proposal:
    """The facts that a new lease is admitted on. With `lock`, no other transaction spends for the organization."""
    standing = await organizations.standing(connection, organization_id, lock=lock)
    if standing is None:
        raise LookupError(f"organization {organization_id} has no standing")
    held = {} if market.price is None else {market.price.sku.shape.gpu_model: standing.gpus_held}
    return Proposal(
        Action.LEASE_CREATE,
        request,
        market.price,
        standing,
        (Applied(Level.CEILING, Envelope(gpus=standing.gpu_quota), Use(held)),),
        now,
        sold=market.sold,
        unserved=market.unserved,
    )


async def _market(connection: Connection, request: CapacityRequest, now: datetime) -> _Market:
    prices = await catalogue.prices(connection, now=now, sku=request.sku)
    if not prices:
        book = await catalogue.prices(connection, now=now)
        return _Market(None, sold=tuple(other.sku.name for other in book))
    (price,) = prices
    shape = price.sku.shape
    offers = await catalogue.offers(connection, gpu_model=shape.gpu_model, gpu_count=shape.gpu_count)
    return _Market(price, offers, await _unserved(connection, request, price, offers, now))


async def _unserved(
    connection: Connection, request: CapacityRequest, price: Price, offers: Sequence[Offer], now: datetime
) -> Refused | None:
    """The refusal of a request that no offer can ever serve."""
    allowed = [
        offer
        for offer in offers
        if request.allows_region(offer.region) and request.allows_provider(offer.provider)
    ]
    offered = is_offered(price, allowed, now)
    if offered and not (request.providers or request.regions):
        return None
    known = await accounts.every(connection)
    refused = unknown_constraint(request, {account.provider for account in known}, offers)
    if refused is not None:
        return refused
    if offered or not known or any(account.offers_at is None for account in known):
        return None  # An account that was never listed may offer anything.
    book = await catalogue.prices(connection, now=now)
    return not_offered(request, price, book, await catalogue.offers(connection), now)


async def release(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    actor: Actor,
    reach: Reach = EVERYWHERE,
) -> Overview | Refused:
    """Release a lease: billing stops now, and its machine is terminated. A second release has no effect."""
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    if lease is None or lease.organization_id != organization_id or not reach.contains(lease.scope):
        return NOT_FOUND
    if await outcomes.end(
        connection, lease, LeaseEvent.RELEASED, why="released by the customer", actor=actor, now=world.now()
    ):
        await traces.follow(connection, lease.id, world.tracer.traceparent())
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


async def label(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    labels: Mapping[str, str],
    *,
    actor: Actor,
    reach: Reach = EVERYWHERE,
) -> Shown | Refused:
    """Replace the labels of a lease, live or ended. Setting the same labels again changes nothing."""
    now = world.now()
    async with world.db.transaction(organization_id) as connection:
        lease = (await leases.lock(connection, [lease_id])).get(lease_id)
        if lease is None or lease.organization_id != organization_id or not reach.contains(lease.scope):
            return NOT_FOUND
        if lease.labels != labels:
            await leases.set_labels(connection, lease_id, labels)
            words = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
            why = f"the labels are now: {words}"
            await journal.note_lease(connection, lease_id, event="labelled", why=why, actor=actor, now=now)
    return await get(world, organization_id, lease_id, reach=reach)
