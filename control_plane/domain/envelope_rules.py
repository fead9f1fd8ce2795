"""What an envelope says to something that is wanted, given what its scope uses already.

Each level is asked on its own and may only refuse, or demand a higher price: so adding a level or a limit never admits
more, and the order of the levels does not matter. Tests hold both as laws.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from control_plane.domain.decision import Rule, Spoken, Verdict
from control_plane.domain.envelope import NAMES, Burst, Envelope, Level
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import EnvelopeId
from control_plane.domain.money import NOTHING, Nano, dollars_down, dollars_up, usd
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode


@dataclass(frozen=True, slots=True)
class Use:
    """What the live leases of a scope use."""

    gpus_of_model: Mapping[GpuModel, int] = field(default_factory=dict[GpuModel, int])
    nano_per_hour: Nano = NOTHING
    month_nano: Nano = NOTHING
    """What was charged in this calendar month, and what is held for running leases."""
    over_since: datetime | None = None
    """Since when it has been over a limit of its envelope; None while it is not."""

    @property
    def gpus(self) -> int:
        return sum(self.gpus_of_model.values())


@dataclass(frozen=True, slots=True)
class Applied:
    """An envelope with the use of its scope."""

    level: Level
    envelope: Envelope
    use: Use = Use()
    id: EnvelopeId | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request adds to what is used, and what it is."""

    sku: str | None = None
    tier: Tier | None = None
    purchase: PurchaseKind | None = None
    regions: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    gpu_model: GpuModel | None = None
    gpus: int = 0
    nano_per_hour: Nano = NOTHING
    hold_nano: Nano = NOTHING
    priority: int | None = None
    batch_size: int | None = None
    takes_gpus: bool = True
    """Whether it has GPUs. A limit on GPUs says nothing about what has none, even when the limit is exceeded."""
    lives: bool = False
    """Whether it is a live lease that has what is named, instead of a request."""

    def unplaced(self, places: Collection[str]) -> bool:
        """Whether it is a lease without a machine, which is nowhere yet."""
        return self.lives and not places


def without(use: Use, model: GpuModel | None, gpus: int, nano_per_hour: Nano, hold_nano: Nano) -> Use:
    """What is used without a lease that is about to be replaced."""
    left = dict(use.gpus_of_model)
    if model is not None:
        left[model] = left.get(model, 0) - gpus
    return replace(
        use,
        gpus_of_model=left,
        nano_per_hour=Nano(use.nano_per_hour - nano_per_hour),
        month_nano=Nano(use.month_nano - hold_nano),
    )


def says(applied: Applied, wanted: Wanted, now: datetime) -> Iterator[Spoken]:
    """What each limit of an envelope says. A limit that it does not have says nothing."""
    yield from _choices(applied, wanted)
    yield from _numbers(applied, wanted)
    yield from _counts(applied, wanted, now)
    yield from _month(applied, wanted)


def exceeds(applied: Applied) -> bool:
    """Whether the use is over a limit that a burst can exceed."""
    envelope, use = applied.envelope, applied.use
    return (
        (envelope.gpus is not None and use.gpus > envelope.gpus)
        or any(use.gpus_of_model.get(model, 0) > limit for model, limit in envelope.gpus_of_model.items())
        or (envelope.spend_nano_per_hour is not None and use.nano_per_hour > envelope.spend_nano_per_hour)
    )


def burst_left(applied: Applied, now: datetime) -> Burst | None:
    """The burst that may be used now; None when there is none, or its time is over."""
    burst, since = applied.envelope.burst, applied.use.over_since
    if burst is None:
        return None
    if since is not None and exceeds(applied) and now >= since + burst.duration:
        return None
    return burst


def _choices(applied: Applied, wanted: Wanted) -> Iterator[Spoken]:
    envelope = applied.envelope
    if envelope.skus is not None and wanted.sku is not None:
        yield _choice(applied, wanted, Rule.SKU, (wanted.sku,), met=envelope.allows_sku(wanted.sku))
    if envelope.tiers is not None and wanted.tier is not None:
        yield _choice(applied, wanted, Rule.TIER, (wanted.tier,), met=envelope.allows_tier(wanted.tier))
    if envelope.purchases is not None and wanted.purchase is not None:
        met = envelope.allows_purchase(wanted.purchase)
        yield _choice(applied, wanted, Rule.PURCHASE, (wanted.purchase,), met=met)
    if envelope.regions is not None and not wanted.unplaced(wanted.regions):
        met = envelope.meets_regions(wanted.regions)
        yield _choice(applied, wanted, Rule.REGIONS, wanted.regions, met=met)
    if envelope.providers is not None and not wanted.unplaced(wanted.providers):
        met = envelope.meets_providers(wanted.providers)
        yield _choice(applied, wanted, Rule.PROVIDERS, wanted.providers, met=met)


def _numbers(applied: Applied, wanted: Wanted) -> Iterator[Spoken]:
    """Limits on a number of the request itself, whatever is used."""
    name = NAMES[applied.level].capitalize()
    for rule, limit, number, why in (
        (Rule.PRIORITY, applied.envelope.priority, wanted.priority, "allows priorities up to"),
        (
            Rule.BATCH_SIZE,
            applied.envelope.batch_size,
            wanted.batch_size,
            "allows this many leases in a request:",
        ),
    ):
        if limit is None or number is None:
            continue
        met = number <= limit
        yield Spoken(
            rule=rule,
            level=applied.level,
            verdict=Verdict.ALLOWED if met else Verdict.REFUSED,
            limit=str(limit),
            wanted=str(number),
            code=None if met else RefusalCode.ENVELOPE_EXCLUDES,
            why=None if met else f"{name} {why} {limit}; {number} is asked for.",
        )


_NOUNS = {
    Rule.SKU: "SKUs",
    Rule.TIER: "proof tiers",
    Rule.PURCHASE: "purchase kinds",
    Rule.REGIONS: "regions",
    Rule.PROVIDERS: "providers",
}


def _choice(applied: Applied, wanted: Wanted, rule: Rule, named: Sequence[str], *, met: bool) -> Spoken:
    envelope = applied.envelope
    allowed: Mapping[Rule, Iterable[str] | None] = {
        Rule.SKU: envelope.skus,
        Rule.TIER: envelope.tiers,
        Rule.PURCHASE: envelope.purchases,
        Rule.REGIONS: envelope.regions,
        Rule.PROVIDERS: envelope.providers,
    }
    words = ", ".join(sorted(allowed[rule] or ())) or "none"
    asked = ", ".join(named) or "any"
    found = f"the lease has {asked}" if wanted.lives else f"{asked} is asked for"
    why = f"{NAMES[applied.level].capitalize()} allows these {_NOUNS[rule]}: {words}; {found}."
    return Spoken(
        rule=rule,
        level=applied.level,
        verdict=Verdict.ALLOWED if met else Verdict.REFUSED,
        limit=words,
        wanted=asked,
        code=None if met else RefusalCode.ENVELOPE_EXCLUDES,
        why=None if met else why,
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    limit: int
    used: int
    wanted: int

    @property
    def after(self) -> int:
        return self.used + self.wanted


def _counts(applied: Applied, wanted: Wanted, now: datetime) -> Iterator[Spoken]:
    envelope, use, burst = applied.envelope, applied.use, burst_left(applied, now)
    if envelope.gpus is not None and wanted.takes_gpus:
        yield _gpus(applied, None, _Figures(envelope.gpus, use.gpus, wanted.gpus), burst)
    for model, limit in sorted(envelope.gpus_of_model.items()):
        if model is wanted.gpu_model:
            yield _gpus(applied, model, _Figures(limit, use.gpus_of_model.get(model, 0), wanted.gpus), burst)
    if envelope.spend_nano_per_hour is not None:
        figures = _Figures(envelope.spend_nano_per_hour, use.nano_per_hour, wanted.nano_per_hour)
        yield _amount(
            applied,
            Rule.SPEND_PER_HOUR,
            figures,
            _verdict(figures, burst),
            f"All leases together {_would(figures, 'cost')} {dollars_up(Nano(figures.after))} USD per hour, and"
            f" the limit of {NAMES[applied.level]} is {dollars_down(envelope.spend_nano_per_hour)} USD; release a"
            " lease, or ask for a higher limit.",
        )


def _month(applied: Applied, wanted: Wanted) -> Iterator[Spoken]:
    limit, used = applied.envelope.spend_nano_per_month, applied.use.month_nano
    if limit is None:
        return
    figures = _Figures(limit, used, wanted.hold_nano)
    yield _amount(
        applied,
        Rule.SPEND_PER_MONTH,
        figures,
        _verdict(figures, None),
        f"{dollars_up(Nano(figures.after))} USD {_would(figures, 'are')} charged or held in this calendar month,"
        f" and the limit of {NAMES[applied.level]} is {dollars_down(limit)} USD; wait for the next month (UTC), or"
        " ask for a higher limit.",
    )


def _would(figures: _Figures, verb: str) -> str:
    """The verb of what is so already, or of what would be so with what is wanted."""
    return verb if not figures.wanted else {"are": "would be"}.get(verb, f"would {verb}")


def _verdict(figures: _Figures, burst: Burst | None) -> Verdict:
    if figures.after <= figures.limit:
        return Verdict.ALLOWED
    if burst is not None and figures.after <= burst.stretched(figures.limit):
        return Verdict.BURST
    return Verdict.REFUSED


def _gpus(applied: Applied, model: GpuModel | None, figures: _Figures, burst: Burst | None) -> Spoken:
    verdict = _verdict(figures, burst)
    refused = verdict is Verdict.REFUSED
    noun = "GPUs" if model is None else f"{model} GPUs"
    why = (
        f"{figures.after} {noun} {_would(figures, 'are')} held and the limit of {NAMES[applied.level]} is"
        f" {figures.limit}; release a lease or ask for a higher quota."
    )
    return Spoken(
        rule=Rule.GPUS if model is None else Rule.GPUS_OF_MODEL,
        level=applied.level,
        subject=model,
        verdict=verdict,
        limit=str(figures.limit),
        used=str(figures.used),
        wanted=str(figures.wanted),
        code=RefusalCode.QUOTA_EXCEEDED if refused else None,
        why=why if refused else None,
    )


def _amount(applied: Applied, rule: Rule, figures: _Figures, verdict: Verdict, why: str) -> Spoken:
    refused = verdict is Verdict.REFUSED
    return Spoken(
        rule=rule,
        level=applied.level,
        verdict=verdict,
        limit=usd(Nano(figures.limit)),
        used=usd(Nano(figures.used)),
        wanted=usd(Nano(figures.wanted)),
        code=RefusalCode.SPEND_LIMIT_REACHED if refused else None,
        why=why if refused else None,
    )
