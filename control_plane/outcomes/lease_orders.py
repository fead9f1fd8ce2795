"""How leases come to be: equal ones are decided on together, and stored with their holds and the decision, all or none.

These functions run in the caller's open transaction. A refusal stores nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from control_plane.db import envelopes, leases, organizations
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Admitted, Proposal, admit
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.envelope import NAMES
from control_plane.domain.envelope_rules import Applied, exceeds
from control_plane.domain.ids import (
    AdmissionDecisionId,
    EnvironmentId,
    LeaseId,
    NodePoolId,
    OrganizationId,
    Prefix,
    ProjectId,
    on_wire,
)
from control_plane.domain.lease import AdmittedKey, Lease, LeaseState
from control_plane.domain.network import Network
from control_plane.domain.price import Price
from control_plane.domain.quote import KeptQuote, without_offers
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.outcomes import sla_terms
from control_plane.outcomes.market import Market, market_of
from control_plane.outcomes.rankings import ranking_of

GENERATED_DIGITS = 8
"""Random digits in a generated name. Should a live lease have the same ones, the name gets all digits of the id."""


@dataclass(frozen=True, slots=True)
class LeasePlace:
    """Where leases are to be."""

    organization_id: OrganizationId
    project_id: ProjectId
    project: str
    """The project's name."""
    environment_id: EnvironmentId
    environment: str
    """The environment's name."""

    @property
    def about(self) -> About:
        return About(self.organization_id, self.project_id, self.environment_id)


@dataclass(frozen=True, slots=True)
class OfPool:
    """The node pool that leases are nodes of."""

    id: NodePoolId
    name: str
    cluster: str
    """The name of the cluster."""


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """Equal leases that are to be created together."""

    place: LeasePlace
    request: CapacityRequest
    terms: LeaseTerms
    names: Sequence[str | None]
    """One for each of them; None: it is generated."""
    action: Action
    network: Network | None = None
    """The private network that they join; None for the nodes of a pool."""
    keys: tuple[AdmittedKey, ...] | None = None
    """The only SSH keys that log in; None: any key of whoever may log in."""
    pool: OfPool | None = None
    quote: KeptQuote | None = None
    """The quote whose price they have; None: today's price."""

    @property
    def prefix(self) -> str:
        """What a generated name begins with."""
        return self.request.sku[:50] if self.pool is None else self.pool.name


async def create(
    connection: Connection,
    order: LeaseOrder,
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> Sequence[Lease] | Refused:
    """Decide once for all, and store each; NotAdmitted when the decision refuses them.

    A refusal because of a name may come after some were stored, so it has to roll the caller's transaction back. Leases
    with generated names are never refused for that.
    """
    promised = await sla_terms.promised(connection, order.request, now)
    if isinstance(promised, Refused):
        return promised
    order = replace(order, request=promised.request)
    market = await market_of(connection, order.place.organization_id, order.request, now, quote=order.quote)
    proposal = replace(
        await new_proposal(connection, order.place, order.request, market, now, lock=True),
        action=order.action,
        count=len(order.names),
    )
    if order.quote is not None and not (await ranking_of(connection, proposal, market, now)).candidates:
        return without_offers(order.quote)
    verdict = admit(proposal)
    if isinstance(verdict, NotAdmitted):
        return verdict
    leases_made: list[Lease] = []
    for name in order.names:
        lease = _admitted(
            LeaseId(new_id()), order, verdict.price, sla_version=promised.version, name=name, now=now
        )
        stored = await _store(connection, lease, order, verdict, AdmissionDecisionId(new_id()), actor=actor)
        if isinstance(stored, Refused):
            return stored
        leases_made.append(stored)
    await _note_bursts(connection, proposal.envelopes, verdict, now)
    return leases_made


async def new_proposal(
    connection: Connection,
    place: LeasePlace,
    request: CapacityRequest,
    market: Market,
    now: datetime,
    *,
    lock: bool,
) -> Proposal:
    """The facts that a new lease is admitted on. With `lock`, no other transaction spends for the organization."""
    standing = await organizations.standing(connection, place.organization_id, lock=lock)
    if standing is None:
        raise LookupError(f"organization {place.organization_id} has no standing")
    applied = await envelopes.applied(connection, [place.environment_id], now=now)
    return Proposal(
        Action.LEASE_CREATE,
        request,
        market.price,
        standing,
        applied[place.environment_id],
        now,
        sold=market.sold,
        unserved=market.unserved,
    )


def _admitted(
    lease_id: LeaseId,
    order: LeaseOrder,
    price: Price,
    *,
    sla_version: int | None,
    name: str | None,
    now: datetime,
) -> Lease:
    """A new lease, with the price and the proof that it is promised for its whole life."""
    request, terms, place, network, pool = order.request, order.terms, order.place, order.network, order.pool
    return Lease(
        id=lease_id,
        organization_id=place.organization_id,
        project_id=place.project_id,
        project=place.project,
        environment_id=place.environment_id,
        environment=place.environment,
        network_id=None if network is None else network.id,
        network=None if network is None else network.name,
        node_pool_id=None if pool is None else pool.id,
        node_pool=None if pool is None else pool.name,
        cluster=None if pool is None else pool.cluster,
        name=name or f"{order.prefix}-{lease_id.hex[-GENERATED_DIGITS:]}",
        sku=request.sku,
        gpu_model=price.sku.shape.gpu_model,
        gpu_count=price.sku.shape.gpu_count,
        purchase=request.purchase,
        committed_days=price.term_days,
        on_eviction=terms.on_eviction,
        sla=request.sla,
        sla_version=sla_version,
        nano_per_unit_hour=price.nano_per_unit_hour,
        stopped_nano_per_unit_hour=price.stopped_nano,
        list_nano_per_unit_hour=price.listed_nano,
        price_book=price.book,
        price_agreement_id=price.agreement_id,
        quote_id=None if order.quote is None else order.quote.id,
        proof=price.sku.proof,
        regions=request.regions,
        providers=request.providers,
        price_nano_per_hour_max=request.price_nano_per_hour_max,
        network_gbps_min=request.network_gbps_min,
        priority=request.priority,
        ssh_keys=order.keys,
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
        switched_at=(),
        paused_at=(),
        billed_until=None,
        unused_unit_seconds=0,
        ended_at=None,
    )


async def _store(
    connection: Connection,
    lease: Lease,
    order: LeaseOrder,
    verdict: Admitted,
    decision_id: AdmissionDecisionId,
    *,
    actor: Actor,
) -> Lease | Refused:
    """Store a lease with its hold and the decision. A generated name that is taken is made longer."""
    stored = partial(
        leases.insert,
        connection,
        hold_nano=verdict.hold_nano,
        decision=verdict.decision,
        decision_id=decision_id,
        actor=actor,
        why=_admitted_why(order, verdict),
    )
    if await stored(lease):
        return lease
    # An id is unique, and so is this name.
    longer = replace(lease, name=f"{order.prefix[:30]}-{lease.id.hex}")
    if lease.name in order.names or not await stored(longer):
        return await _name_taken(connection, lease)
    return longer


def _admitted_why(order: LeaseOrder, verdict: Admitted) -> str:
    quoted = "" if order.quote is None else f" at the price of the quote {order.quote.on_wire}"
    sku = f"{order.request.sku}{quoted}"
    if not verdict.over:
        return f"{sku}; {len(verdict.decision.rules)} rules allowed it"
    over = " and ".join(NAMES[level] for level in verdict.over)
    return f"{sku}; over the limits of {over}, within a burst"


async def _note_bursts(
    connection: Connection, applied: Sequence[Applied], verdict: Admitted, now: datetime
) -> None:
    """Start the clock of the bursts that begin with these leases."""
    for each in applied:
        if each.id is not None and each.level in verdict.over and not exceeds(each):
            await envelopes.set_over_since(connection, each.id, now)


async def _name_taken(connection: Connection, lease: Lease) -> Refused:
    holder = await leases.live_named(connection, lease.project_id, lease.name)
    who = "A live lease" if holder is None else f"The live lease {on_wire(Prefix.LEASE, holder)}"
    return Refused(
        RefusalCode.NAME_TAKEN,
        f"{who} of the project {lease.project!r} is called {lease.name!r}; choose another name, or release it first.",
    )
