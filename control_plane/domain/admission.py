"""Whether a product action is admitted: decided when it is asked for, before anything is bought or changed.

One pipeline for every action: identity, envelope, policy, money, capacity. All rules of the action speak
(`APPLIES`), the first refusal decides on the code, and all refusals are reported. A quote asks the same pipeline, so a
quote and a create never disagree on the same facts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.decision import (
    Action,
    Decision,
    NotAdmitted,
    Rule,
    Spoken,
    Verdict,
    decided,
    refusal,
)
from control_plane.domain.envelope import WHOLE, Level
from control_plane.domain.envelope_rules import Applied, Wanted, says
from control_plane.domain.lease import Lease
from control_plane.domain.money import (
    NOTHING,
    SECONDS_PER_HOUR,
    Nano,
    dollars_down,
    dollars_up,
    usd,
)
from control_plane.domain.organization import EFFECTS, OrganizationState
from control_plane.domain.period import month_after, month_of
from control_plane.domain.price import Price, hold_for
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Standing:
    """What we know of an organization's money at this moment, read under its lock."""

    state: OrganizationState
    available_nano: Nano
    """Posted balance less open holds, with what is left of the credit limit."""
    short_nano: Nano = NOTHING
    """What the next hour costs of ready leases for which it cannot be set aside. New leases come after them."""
    credit_nano: Nano = NOTHING
    """What of the available money is left of the credit limit, and not the organization's own."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that somebody asks for, with the facts that it is decided on."""

    action: Action
    request: CapacityRequest
    price: Price | None
    """The price book's entry for the SKU; None when we do not sell it."""
    standing: Standing
    envelopes: tuple[Applied, ...]
    """The envelopes of every level that the lease lies in, with the use of their scopes, without the lease itself
    where the action replaces what it uses."""
    now: datetime
    sold: tuple[str, ...] = ()
    """The SKUs that a refusal offers instead of an unknown one."""
    unserved: Refused | None = None
    """Why no offer can ever serve the request."""
    adds: bool = True
    """Whether what is wanted is added to the use of the envelopes. Otherwise it is in it already."""
    price_percent_agreed: int = WHOLE
    """The factor of the price that was agreed for a burst, for actions that keep their price."""
    count: int = 1
    """How many leases with this request are wanted."""
    hold_nano: Nano = NOTHING
    """What is held already for the lease, and counts as available for it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    price: Price
    """With the factor of a burst, where one is used."""
    hold_nano: Nano
    """For each lease."""
    decision: Decision
    over: tuple[Level, ...] = ()
    """The levels whose limits are exceeded within their bursts."""


def month_part(nano_per_hour: Nano, hold: Nano, since: datetime, now: datetime) -> Nano:
    """What counts against the limit of a month of the hold of a term: what the rest of the month can use of it.

    `since` is up to when the lease is charged, or when it was created. Another hold counts in whole.
    """
    end = month_after(month_of(now))
    seconds = max(0, -((max(since, month_of(now)) - end) // _SECOND))
    return Nano(min(hold, -(-nano_per_hour * seconds // SECONDS_PER_HOUR)))


def agreed_price(lease: Lease) -> Price:
    """What a lease costs, as it was agreed when it was admitted. The size of its machine is not part of it."""
    shape = Shape(lease.gpu_model, lease.gpu_count, vcpus=0, memory_gib=0, disk_gib=0)
    sku = Sku(lease.sku, shape, CapacityShape.VM, lease.proof)
    stopped = lease.stopped_nano_per_unit_hour
    return Price(
        sku,
        lease.nano_per_unit_hour,
        lease.price_book,
        stopped_nano_per_unit_hour=stopped,
        committed_days=lease.committed_days,
        purchase=lease.purchase,
        listed_nano_per_unit_hour=lease.list_nano_per_unit_hour,
        agreement_id=lease.price_agreement_id,
    )


def not_spending(state: OrganizationState) -> Refused:
    """The refusal of what an organization in this state must not do."""
    if state is OrganizationState.SUSPENDED:
        return Refused(
            RefusalCode.ORGANIZATION_SUSPENDED,
            "The organization is suspended; settle its account to lease again.",
        )
    return Refused(RefusalCode.ORGANIZATION_CLOSED, "The organization is closed.")


_ENVELOPE = frozenset(
    {
        Rule.SKU,
        Rule.TIER,
        Rule.PURCHASE,
        Rule.REGIONS,
        Rule.PROVIDERS,
        Rule.GPUS,
        Rule.GPUS_OF_MODEL,
        Rule.SPEND_PER_HOUR,
        Rule.SPEND_PER_MONTH,
        Rule.PRIORITY,
    }
)
_CAPACITY = frozenset({Rule.ORGANIZATION, *_ENVELOPE, Rule.SOLD, Rule.PRICE, Rule.BALANCE, Rule.OFFERED})

APPLIES: Mapping[Action, frozenset[Rule]] = {
    Action.LEASE_CREATE: _CAPACITY,
    Action.LEASE_RESIZE: _CAPACITY,
    Action.LEASE_BATCH: _CAPACITY | {Rule.BATCH_SIZE},
    Action.LEASE_MOVE: _CAPACITY,
    Action.NODE_POOL_CREATE: _CAPACITY | {Rule.BATCH_SIZE},
    Action.NODE_POOL_SCALE: _CAPACITY | {Rule.BATCH_SIZE},
    Action.NODE_REPLACE: _CAPACITY,
    Action.LEASE_PLACE: frozenset({Rule.ORGANIZATION, *_ENVELOPE}),
    Action.LEASE_EXTEND: frozenset({Rule.ORGANIZATION, *_ENVELOPE, Rule.BALANCE}) - {Rule.PRIORITY},
    Action.LEASE_PRIORITY: frozenset({Rule.ORGANIZATION, *_ENVELOPE, Rule.BALANCE}),
}
"""The rules that speak on each action that somebody asks for. A quota increase is decided in
`domain/quota_request.py`, and whether a lease may run on in `domain/envelope_watch.py`."""


def admit(proposal: Proposal) -> Admitted | NotAdmitted:
    """Decide on an action that concerns a lease."""
    factor = proposal.price_percent_agreed
    while True:
        # A burst raises the price, and a higher price can use a burst of its own: as often as there are levels.
        priced = _priced(proposal, factor)
        rules = tuple(_speak(priced))
        needed = max(factor, _factor(proposal.envelopes, rules))
        if needed == factor:
            break
        factor = needed
    decision = decided(proposal.action, rules)
    refused = refusal(decision)
    if refused is not None:
        return refused
    if priced.price is None:
        raise ValueError(f"{proposal.action} was admitted without a price")
    over = tuple(
        level
        for level in Level
        if any(spoken.level is level and spoken.verdict is Verdict.BURST for spoken in rules)
    )
    return Admitted(priced.price, hold_for(priced.price), decision, over)


def _priced(proposal: Proposal, percent: int) -> Proposal:
    price = proposal.price
    if price is None or percent == WHOLE or not proposal.adds:
        return proposal
    raised, stopped = (
        Nano(-(-nano * percent // WHOLE)) for nano in (price.nano_per_unit_hour, price.stopped_nano)
    )
    dearer = replace(
        price,
        nano_per_unit_hour=raised,
        stopped_nano_per_unit_hour=stopped,
        listed_nano_per_unit_hour=price.listed_nano,
    )
    return replace(proposal, price=dearer)


def _factor(envelopes: Iterable[Applied], rules: Iterable[Spoken]) -> int:
    """The highest factor of the bursts that are used."""
    bursting = {spoken.level for spoken in rules if spoken.verdict is Verdict.BURST}
    return max(
        (
            applied.envelope.burst.price_percent
            for applied in envelopes
            if applied.level in bursting and applied.envelope.burst is not None
        ),
        default=WHOLE,
    )


def _speak(proposal: Proposal) -> Iterator[Spoken]:
    applies = APPLIES[proposal.action]
    for rules, speaker in _SPEAKERS:
        if rules & applies:
            yield from (spoken for spoken in speaker(proposal) if spoken.rule in applies)


def _organization(proposal: Proposal) -> Iterator[Spoken]:
    state = proposal.standing.state
    refused = None if EFFECTS[state].spends else not_spending(state)
    yield _said(Rule.ORGANIZATION, refused, limit=OrganizationState.ACTIVE, used=state)


def _envelopes(proposal: Proposal) -> Iterator[Spoken]:
    wanted = _wanted(proposal)
    for applied in proposal.envelopes:
        yield from says(applied, wanted, proposal.now)


def _wanted(proposal: Proposal) -> Wanted:
    request, price = proposal.request, proposal.price
    wanted = Wanted(
        sku=request.sku,
        purchase=request.purchase,
        regions=request.regions,
        providers=request.providers,
        priority=request.priority,
        batch_size=proposal.count,
    )
    if price is None:
        return wanted
    shape = price.sku.shape
    wanted = replace(wanted, tier=price.sku.proof, gpu_model=shape.gpu_model, takes_gpus=shape.gpu_count > 0)
    if not proposal.adds:
        return wanted
    hold = hold_for(price)
    if price.term_days is not None:
        hold = month_part(price.nano_per_hour, hold, proposal.now, proposal.now)
    return replace(
        wanted,
        gpus=shape.gpu_count * proposal.count,
        nano_per_hour=Nano(price.nano_per_hour * proposal.count),
        hold_nano=Nano(hold * proposal.count),
    )


def _sold(proposal: Proposal) -> Iterator[Spoken]:
    sku = proposal.request.sku
    refused = None
    if proposal.price is None and sku in proposal.sold:
        kind = proposal.request.purchase
        why = f"{sku} has no {kind} price; ask for it on demand, or for a SKU that has one (GET /v1/skus)."
        refused = Refused(RefusalCode.PURCHASE_NOT_OFFERED, why)
    elif proposal.price is None:
        why = f"There is no SKU {sku!r}; {choose(sku, proposal.sold)} (GET /v1/skus)."
        refused = Refused(RefusalCode.SKU_UNKNOWN, why)
    else:
        refused = _other_term(proposal.request, proposal.price.term_days)
    yield _said(Rule.SOLD, refused, wanted=sku)


def _other_term(request: CapacityRequest, days: int | None) -> Refused | None:
    """The refusal of a term that the SKU is not sold for; None when the request names its own, or none."""
    asked = request.committed_days
    if asked in (None, days):
        return None
    if days is None:
        why = f"Only a lease that is {PurchaseKind.COMMITTED} has a term; ask for that, or leave `committed_days` out."
    else:
        why = f"{request.sku} is committed to for {days:,} days, and not for {asked:,}; ask for that term."
    return Refused(RefusalCode.TERM_DIFFERS, why)


def _price(proposal: Proposal) -> Iterator[Spoken]:
    ceiling, price = proposal.request.price_nano_per_hour_max, proposal.price
    if price is None:
        return
    if ceiling is None:
        if proposal.request.purchase is PurchaseKind.SPOT:
            yield _said(Rule.PRICE, _NO_CEILING, wanted=usd(price.nano_per_hour))
        return
    refused = None
    if price.nano_per_hour > ceiling:
        refused = Refused(
            RefusalCode.PRICE_ABOVE_CEILING,
            f"{proposal.request.sku} costs {dollars_up(price.nano_per_hour)} USD per hour, above the ceiling of"
            f" {dollars_down(ceiling)} USD.",
        )
    yield _said(Rule.PRICE, refused, limit=usd(ceiling), wanted=usd(price.nano_per_hour))


_NO_CEILING = Refused(
    RefusalCode.PRICE_CEILING_MISSING,
    "A spot lease needs a ceiling: say the most that it may cost per hour with price_usd_per_hour_max.",
)


def _balance(proposal: Proposal) -> Iterator[Spoken]:
    price = proposal.price
    if price is None:
        return
    hold = Nano(hold_for(price) * proposal.count) if proposal.adds else NOTHING
    available = Nano(proposal.standing.available_nano + proposal.hold_nano)
    short = proposal.standing.short_nano if hold else NOTHING
    days = price.term_days
    ahead = "the first hour" if days is None else f"the term of {days:,} days"
    refused = None
    if short and available < hold + short:
        missing = dollars_up(Nano(hold + short - available))
        refused = Refused(
            RefusalCode.BALANCE_EXHAUSTED,
            f"Leases that you have need {dollars_up(short)} USD for their next hour, {ahead} of this one takes"
            f" {dollars_up(hold)} USD, and {dollars_down(available)} USD is available; top up {missing} USD.",
        )
    elif available < hold:
        refused = Refused(
            RefusalCode.BALANCE_TOO_LOW,
            f"{ahead[0].upper()}{ahead[1:]} takes a hold of {dollars_up(hold)} USD and {dollars_down(available)} USD"
            " is available; top up the balance.",
        )
    yield _said(Rule.BALANCE, refused, limit=usd(available), wanted=usd(hold))


def _offered(proposal: Proposal) -> Iterator[Spoken]:
    yield _said(Rule.OFFERED, proposal.unserved)


def _said(
    rule: Rule,
    refused: Refused | None,
    *,
    limit: str | None = None,
    used: str | None = None,
    wanted: str | None = None,
) -> Spoken:
    return Spoken(
        rule=rule,
        verdict=Verdict.ALLOWED if refused is None else Verdict.REFUSED,
        limit=limit,
        used=used,
        wanted=wanted,
        code=None if refused is None else refused.code,
        why=None if refused is None else refused.why,
    )


_SPEAKERS: tuple[tuple[frozenset[Rule], Callable[[Proposal], Iterator[Spoken]]], ...] = (
    (frozenset({Rule.ORGANIZATION}), _organization),
    (_ENVELOPE | {Rule.BATCH_SIZE}, _envelopes),
    (frozenset({Rule.SOLD}), _sold),
    (frozenset({Rule.PRICE}), _price),
    (frozenset({Rule.BALANCE}), _balance),
    (frozenset({Rule.OFFERED}), _offered),
)
