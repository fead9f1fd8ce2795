"""An envelope: what an organization, a project or an environment may use at most.

Envelopes are stated at four levels, from the operator's ceiling of an organization down to an environment. Every level
speaks for itself, on the use of its own scope (`domain/envelope_rules.py`), and a request has to satisfy all of them.
So the narrowest level decides whatever the others say, and an envelope that was within its parent when it was written
cannot become a way around a parent that is narrowed later. Writing one that is wider than a parent is refused all the
same (`widenings`), because its reader would expect what can never be had.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano, dollars_down
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import region_within


class Level(StrEnum):
    """Where an envelope is stated, widest first."""

    CEILING = "ceiling"
    """The whole organization, as its operator allows."""
    ORGANIZATION = "organization"
    """The whole organization, as its owner allows."""
    PROJECT = "project"
    ENVIRONMENT = "environment"


WIDEST_FIRST = tuple(Level)
NAMES: Mapping[Level, str] = {
    Level.CEILING: "the organization's ceiling",
    Level.ORGANIZATION: "the organization's envelope",
    Level.PROJECT: "the project's envelope",
    Level.ENVIRONMENT: "the environment's envelope",
}
"""What a sentence calls the envelope of a level."""

WHOLE = 100
"""A hundred percent."""


@dataclass(frozen=True, slots=True)
class Burst:
    """How far the limits on GPUs and on the spend per hour may be exceeded for a while, and what that costs."""

    over_percent: int
    """How much over a limit, in percent of it: with 50, a limit of 8 GPUs is exceeded by up to 4."""
    seconds: int
    """How long, from the moment at which the first limit was exceeded until none is."""
    price_percent: int = WHOLE
    """What a lease costs that is admitted over a limit, in percent of its price."""

    def stretched(self, limit: int) -> int:
        """A limit with what may be used over it."""
        return limit * (WHOLE + self.over_percent) // WHOLE

    @property
    def duration(self) -> timedelta:
        return timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The limits of one level. A limit that is None, and a model without an entry, is not limited here."""

    gpus: int | None = None
    """How many GPUs live leases may hold at once."""
    gpus_of_model: Mapping[GpuModel, int] = field(default_factory=dict[GpuModel, int])
    spend_nano_per_hour: Nano | None = None
    """The most that all live leases together may cost per hour."""
    spend_nano_per_month: Nano | None = None
    """The most that may be charged and held in a calendar month, which begins and ends in UTC."""
    skus: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    """Regions and jurisdictions in which machines may be."""
    providers: frozenset[str] | None = None
    tiers: frozenset[Tier] | None = None
    """What the machines of a SKU have to have proven of their GPUs."""
    purchases: frozenset[PurchaseKind] | None = None
    """How leases may be bought."""
    priority: int | None = None
    """The highest priority that a lease may have."""
    batch_size: int | None = None
    """How many leases one request may create."""
    burst: Burst | None = None
    ends_after_seconds: int | None = None
    """How long after its warning a running lease ends that is outside of this envelope; None: it is only warned."""

    def allows_sku(self, sku: str) -> bool:
        return self.skus is None or sku in self.skus

    def allows_tier(self, tier: Tier) -> bool:
        return self.tiers is None or tier in self.tiers

    def allows_purchase(self, purchase: PurchaseKind) -> bool:
        return self.purchases is None or purchase in self.purchases

    def allows_provider(self, provider: str) -> bool:
        return self.providers is None or provider in self.providers

    def allows_region(self, region: str) -> bool:
        return self.regions is None or any(region_within(region, allowed) for allowed in self.regions)

    def meets_providers(self, wanted: Collection[str]) -> bool:
        """Whether one of the wanted providers is allowed; with none named, any may serve."""
        if self.providers is None:
            return True
        return bool(self.providers.intersection(wanted) if wanted else self.providers)

    def meets_regions(self, wanted: Collection[str]) -> bool:
        """Whether a machine can be both in a wanted region and in an allowed one."""
        if self.regions is None:
            return True
        if not wanted:
            return bool(self.regions)
        return any(
            region_within(region, allowed) or region_within(allowed, region)
            for region in wanted
            for allowed in self.regions
        )


UNLIMITED = Envelope()


@dataclass(frozen=True, slots=True)
class Widening:
    """A field of an envelope that allows more than the same field of a wider level."""

    field: str
    level: Level
    """The level that allows less."""
    why: str
    """The end of a sentence that begins with the field."""


def widenings(child: Envelope, parents: Iterable[tuple[Level, Envelope]]) -> tuple[Widening, ...]:
    """Everything in which an envelope would allow more than one of the levels above it.

    A limit that the child leaves open is not wider: the parent's holds there. How long a lease may run after its
    warning is each level's own, because it says what happens outside of that level's limits alone.
    """
    return tuple(
        Widening(name, level, f"{why}, as {NAMES[level]} says")
        for level, parent in parents
        for name, why in _wider(child, parent)
    )


def _wider(child: Envelope, parent: Envelope) -> Iterator[tuple[str, str]]:
    if _exceeds(child.gpus, parent.gpus):
        yield "gpus", f"is {child.gpus} and must be at most {parent.gpus}"
    for model, count in sorted(child.gpus_of_model.items()):
        if _exceeds(count, parent.gpus_of_model.get(model)):
            yield f"gpus_of_model.{model}", f"is {count} and must be at most {parent.gpus_of_model[model]}"
    for name, number, most in (
        ("priority_max", child.priority, parent.priority),
        ("batch_size_max", child.batch_size, parent.batch_size),
    ):
        if _exceeds(number, most):
            yield name, f"is {number} and must be at most {most}"
    for name, amount, limit in (
        ("spend_usd_per_hour_max", child.spend_nano_per_hour, parent.spend_nano_per_hour),
        ("spend_usd_per_month_max", child.spend_nano_per_month, parent.spend_nano_per_month),
    ):
        if amount is not None and limit is not None and amount > limit:
            yield name, f"is {dollars_down(amount)} USD and must be at most {dollars_down(limit)} USD"
    yield from _wider_choices(child, parent)
    yield from _wider_burst(child.burst, parent)


def _exceeds(count: int | None, limit: int | None) -> bool:
    return count is not None and limit is not None and count > limit


def _wider_choices(child: Envelope, parent: Envelope) -> Iterator[tuple[str, str]]:
    outside: tuple[tuple[str, Iterable[str], Collection[str] | None], ...] = (
        ("skus", (sku for sku in child.skus or () if not parent.allows_sku(sku)), parent.skus),
        ("regions", (each for each in child.regions or () if not parent.allows_region(each)), parent.regions),
        (
            "providers",
            (each for each in child.providers or () if not parent.allows_provider(each)),
            parent.providers,
        ),
        ("tiers", (tier for tier in child.tiers or () if not parent.allows_tier(tier)), parent.tiers),
        (
            "purchases",
            (kind for kind in child.purchases or () if not parent.allows_purchase(kind)),
            parent.purchases,
        ),
    )
    for name, found, allowed in outside:
        words = sorted(found)
        if words:
            among = ", ".join(sorted(allowed or ())) or "nothing"
            yield name, f"contains {', '.join(words)} and must stay within {among}"


def _wider_burst(burst: Burst | None, parent: Envelope) -> Iterator[tuple[str, str]]:
    if burst is None or not _has_countable_limits(parent):
        return
    allowed = parent.burst
    if allowed is None:
        yield "burst", "must be left out, since there is none"
        return
    if burst.over_percent > allowed.over_percent:
        yield (
            "burst.over_percent",
            f"is {burst.over_percent} and must be at most {allowed.over_percent}",
        )
    if burst.seconds > allowed.seconds:
        yield "burst.seconds", f"is {burst.seconds} and must be at most {allowed.seconds}"
    if burst.price_percent < allowed.price_percent:
        yield (
            "burst.price_percent",
            f"is {burst.price_percent} and must be at least {allowed.price_percent}",
        )


def _has_countable_limits(envelope: Envelope) -> bool:
    """Whether it has a limit that a burst may exceed."""
    return (
        envelope.gpus is not None or bool(envelope.gpus_of_model) or envelope.spend_nano_per_hour is not None
    )
