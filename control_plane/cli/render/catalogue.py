"""SKUs, offers and quotes on the screen."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.admissions import rule_table
from control_plane.cli.render.layout import facts, heading, indented, pairs, table
from control_plane.cli.words import both, coarse, exact, plural, price, spaced
from control_plane.wire.catalogue import (
    CandidateView,
    KeptQuoteView,
    OfferView,
    QuoteView,
    RejectedView,
    SkuView,
)
from control_plane.wire.common import Money

STOCK = {"live": "in stock", "advisory": "likely", "static": "not known"}
"""How certain it is that the provider has stock, by the offer's confidence."""


def hardware(count: int, model: str | None) -> str:
    return "no GPUs" if model is None else f"{count} x {model}"


def per_hour(whole: Money | None, per_gpu: Money | None) -> str:
    """A price in words: of the machine, and of one of its GPUs where it has any."""
    of_gpu = "" if per_gpu is None else f", {price(per_gpu)} per GPU-hour"
    return f"{price(whole)} USD per {'hour' if of_gpu else 'machine-hour'}{of_gpu}"


def sku_table(skus: Sequence[SkuView]) -> RenderableType:
    if not skus:
        return Text("Nothing is for sale: the price book is empty.")
    columns = ("SKU", "GPUS", "VCPU", "RAM GiB", "DISK GiB", "USD/GPU-H", "USD/H")
    rows = [
        (
            Text(sku.name, style="bold"),
            hardware(sku.gpu_count, sku.gpu_model),
            str(sku.vcpus),
            f"{sku.memory_gib:,}",
            f"{sku.disk_gib:,}",
            price(sku.price_per_gpu_hour),
            price(sku.price_per_hour),
        )
        for sku in skus
    ]
    return Group(
        table(columns, rows, right=columns[2:]),
        *_demands(skus),
        *_taken_back(skus),
        *_for_terms(skus),
        *_elsewhere(skus),
    )


def _demands(skus: Sequence[SkuView]) -> list[RenderableType]:
    """Which SKUs demand GPU proof, one line for each tier; nothing when none does."""
    by_tier: dict[str, list[str]] = {}
    for sku in skus:
        by_tier.setdefault(sku.proof, []).append(sku.name)
    return [
        Text(f"\nGPUs {tier} before they are leased: {', '.join(names)}.", style="dim")
        for tier, names in by_tier.items()
        if tier != "listed"
    ]


def _taken_back(skus: Sequence[SkuView]) -> list[RenderableType]:
    """The prices of the SKUs that are sold as spot, and of interruptible leases; nothing when none is."""
    return [
        Text(f"\n{words}: {', '.join(prices)}.", style="dim")
        for words, field in (
            ("Sold as spot (--spot)", "price_per_hour_spot"),
            ("Interruptible (--interruptible)", "price_per_hour_interruptible"),
        )
        if (
            prices := [
                f"{sku.name} for {price(found)} USD per hour"
                for sku in skus
                if (found := getattr(sku, field)) is not None
            ]
        )
    ]


def _for_terms(skus: Sequence[SkuView]) -> list[RenderableType]:
    """The prices of the SKUs that are sold for a term; nothing when none is."""
    prices = [
        f"{sku.name} for {price(sku.price_per_hour_committed)} USD per hour, for {plural(sku.committed_days, 'day')}"
        for sku in skus
        if sku.price_per_hour_committed is not None and sku.committed_days is not None
    ]
    return [Text(f"\nFor a term (--committed): {', '.join(prices)}.", style="dim")] if prices else []


def _elsewhere(skus: Sequence[SkuView]) -> list[RenderableType]:
    """Prices of regions and tiers, and those that differ from the price book's; nothing when there are none."""
    regions = [
        f"{sku.name} in {place.region} for {price(place.price_per_hour)} USD per hour"
        for sku in skus
        for place in sku.regions
    ]
    tiers = [
        f"{sku.name} with {tier.sla}{'' if tier.region is None else f' in {tier.region}'} for"
        f" {price(tier.price_per_hour)} USD per hour"
        for sku in skus
        for tier in sku.tiers
    ]
    agreed = [
        f"{sku.name} (listed at {price(sku.list_price_per_hour)} USD per hour)"
        for sku in skus
        if sku.list_price_per_hour is not None and sku.list_price_per_hour.nano != sku.price_per_hour.nano
    ]
    lines = []
    if regions:
        lines.append(Text(f"\nLimited to a region (--region): {', '.join(regions)}.", style="dim"))
    if tiers:
        lines.append(Text(f"\nWith a service level (--sla): {', '.join(tiers)}.", style="dim"))
    if agreed:
        lines.append(Text(f"\nAgreed on with you: {', '.join(agreed)}.", style="dim"))
    return [*lines]


def offer_tables(offers: Sequence[OfferView], *, hidden: int) -> RenderableType:
    """A table for each kind of hardware; in it offers in stock first, the cheapest first.

    `hidden` is how many offers there are besides that are sold out, or that no SKU sells.
    """
    if not offers:
        more = f" {plural(hidden, 'more offer')} cannot be had now; to see them, add --all." if hidden else ""
        return Text(f"No offers: no provider has such capacity now.{more}")
    cost = any(offer.cost_per_hour for offer in offers)
    parts: list[RenderableType] = []
    for of_kind, group in groupby(sorted(offers, key=_hardware_of), key=_hardware_of):
        members = sorted(group, key=_offer_order)
        sold_as = sorted({sku for offer in members for sku in offer.skus})
        parts.append(
            heading(_kind_in_words(of_kind), f"sold as {', '.join(sold_as)}" if sold_as else "not sold")
        )
        parts += [indented(_offer_table(members, cost=cost)), Text()]
    if hidden:
        cannot = "cannot be had now (sold out, or of no SKU)"
        parts += [Text(f"{plural(hidden, 'more offer')} {cannot}; --all shows them.", style="dim"), Text()]
    return Group(*parts[:-1])


def _hardware_of(offer: OfferView) -> tuple[bool, str, int, int]:
    """By what offers are put together: their GPUs, or their vCPUs and memory where they have none, which come last."""
    if offer.gpu_model is None:
        return (True, "", offer.vcpus, offer.memory_gib)
    return (False, offer.gpu_model, offer.gpu_count, 0)


def _kind_in_words(kind: tuple[bool, str, int, int]) -> str:
    without_gpus, model, count, memory_gib = kind
    return f"{count} vCPUs, {memory_gib:,} GiB" if without_gpus else hardware(count, model)


def _offer_order(offer: OfferView) -> tuple[bool, int, str]:
    amount = offer.cost_per_hour or offer.price_per_hour
    return (not offer.available, amount.nano if amount else 0, offer.key)


def _offer_table(offers: Sequence[OfferView], *, cost: bool) -> Table:
    stopped = any(offer.price_per_hour_stopped for offer in offers)
    columns = (
        *("PROVIDER", "REGION", "TYPE", "STOCK", "SEEN", "USD/H"),
        *(("STOPPED",) if stopped else ()),
        *(("COST",) if cost else ()),
    )
    rows = [
        (
            offer.provider,
            offer.region,
            _type(offer),
            _stock(offer),
            coarse(timedelta(seconds=offer.age_seconds)),
            price(offer.price_per_hour),
            *((price(offer.price_per_hour_stopped),) if stopped else ()),
            *((price(offer.cost_per_hour),) if cost else ()),
        )
        for offer in offers
    ]
    return table(columns, rows, right=("SEEN", "USD/H", "STOPPED", "COST"))


def _type(offer: OfferView) -> str:
    """The provider's name of the machine, and what sets it apart from others of its kind."""
    marks = [
        *(["spot"] if offer.spot else []),
        *([offer.architecture] if offer.architecture == "arm64" else []),
        *_network(offer),
    ]
    return f"{offer.native_type} ({', '.join(marks)})" if marks else offer.native_type


def _network(offer: OfferView | CandidateView) -> list[str]:
    return [] if offer.network_gbps is None else [f"{offer.network_gbps:,} Gbit/s"]


def _stock(offer: OfferView) -> Text:
    if not offer.available:
        return Text("sold out", style="dim")
    word = STOCK.get(offer.confidence, offer.confidence)
    return Text(word, style="green" if offer.confidence == "live" else "yellow")


def quote_page(quote: QuoteView, now: datetime, *, verbose: bool = False) -> RenderableType:
    """Price, verdict and candidates. The reason of a refusal goes to standard error, as every error does."""
    parts: list[RenderableType] = []
    if quote.price_per_hour is not None:
        tier = "" if quote.sla == "bronze" else f", {quote.sla}"
        costs = per_hour(quote.price_per_hour, quote.price_per_gpu_hour)
        parts.append(heading(quote.sku, costs + tier))
    if quote.verdict.admitted:
        hold = _hold(quote)
        place = _place(quote)
        parts.append(Text.assemble(("Would be admitted", "green"), place, hold))
    if quote.id is not None:
        parts.append(Text(f"The price is kept until {both(quote.expires_at, now)}, for a lease with"))
        parts.append(indented(Text(f"--quote {quote.id}{_tier_option(quote.sla)}", style="cyan")))
    rules = [rule for rule in quote.verdict.rules if verbose or rule.verdict != "allowed"]
    if rules:
        hint = "" if verbose else "--verbose shows every rule"
        parts += [Text(), heading("Limits" if not verbose else "Rules", hint), indented(rule_table(rules))]
    if quote.candidates:
        title = "Would be tried, best first" if quote.verdict.admitted else "Could serve it, best first"
        parts += [Text(), heading(title), candidate_table(quote.candidates, chosen=None)]
        if quote.more_candidates:
            parts.append(Text(f"{plural(quote.more_candidates, 'more candidate')} after these.", style="dim"))
    elif quote.verdict.admitted:
        parts += [Text(), Text("No offer can serve it now; a lease would wait for one.", style="yellow")]
    if quote.rejected:
        hint = "" if verbose or not is_folded(quote.rejected) else "--verbose names every offer"
        parts += [Text(), heading("Rejected", hint), rejected_lines(quote.rejected, verbose=verbose)]
    return Group(*parts)


def _hold(quote: QuoteView) -> str:
    """What is held for a lease when it is admitted."""
    if quote.term_price is None or quote.committed_days is None:
        return f" with a hold of {price(quote.first_hour)} USD for its first hour."
    term = plural(quote.committed_days, "day")
    return (
        f" with a hold of {price(quote.term_price)} USD for its term of {term}, which is paid, used or not."
    )


def kept_quote_page(quote: KeptQuoteView, now: datetime) -> RenderableType:
    """A quote that was kept, and how to have its price while that lasts."""
    ceiling, least = quote.price_usd_per_hour_max, quote.network_gbps_min
    limits = (
        "" if quote.purchase == "on_demand" else quote.purchase,
        "" if quote.committed_days is None else f"for {plural(quote.committed_days, 'day')}",
        *quote.regions,
        *quote.providers,
        "" if least is None else f"{least:,} Gbit/s at least",
        "" if ceiling is None else f"at most {exact(ceiling)} USD per hour",
    )
    page = facts(
        ("Quote", quote.id),
        ("SKU", quote.sku),
        ("Project", f"{quote.project}, {quote.environment}"),
        ("Price", per_hour(quote.price_per_hour, quote.price_per_gpu_hour)),
        ("Constraints", ", ".join(limit for limit in limits if limit) or None),
        ("Service level", quote.sla),
        ("Quoted", both(quote.quoted_at, now)),
        ("Expired" if quote.expired else "Expires", both(quote.expires_at, now)),
        ("Leases", str(quote.leases)),
    )
    if quote.expired:
        return page
    create = f"splitplane lease create {quote.sku} --quote {quote.id}{_tier_option(quote.sla)}"
    return Group(page, Text(), indented(Text(create, style="cyan")))


def _tier_option(sla: str) -> str:
    """What a lease for a quote has to say about its tier."""
    return "" if sla == "bronze" else f" --sla {sla}"


def _place(quote: QuoteView) -> str:
    """Where a lease would be, unless that is the default, as for most."""
    place = (quote.project, quote.environment)
    return "" if place == ("default", "default") else f" in {quote.project}, {quote.environment},"


def candidate_table(candidates: Sequence[CandidateView], *, chosen: str | None) -> RenderableType:
    """`chosen` is the key of the candidate to mark."""
    cost = any(candidate.cost_per_hour for candidate in candidates)
    stopped = any(candidate.price_per_hour_stopped for candidate in candidates)
    columns = (
        *("", "#", "PROVIDER", "REGION", "TYPE", "STOCK"),
        *(("STOPPED USD/H",) if stopped else ()),
        *(("COST USD/H", "OF USE") if cost else ()),
    )
    rows = [
        (
            Text("▸" if candidate.key == chosen else " ", style="green"),
            str(number),
            candidate.provider,
            candidate.region,
            " ".join((candidate.native_type, *(f"({network})" for network in _network(candidate)))),
            STOCK.get(candidate.confidence or "", candidate.confidence or "-"),
            *((price(candidate.price_per_hour_stopped),) if stopped else ()),
            *((price(candidate.cost_per_hour), price(candidate.effective_cost_per_hour)) if cost else ()),
        )
        for number, candidate in enumerate(candidates, start=1)
    ]
    return table(columns, rows, right=("#", "STOPPED USD/H", "COST USD/H", "OF USE"))


def rejected_lines(rejected: Sequence[RejectedView], *, verbose: bool) -> RenderableType:
    """Why offers were rejected: one entry for all that have the same reason, or with `verbose` one for each."""
    if verbose:
        groups = [[offer] for offer in rejected]
    else:
        by_code: dict[str, list[RejectedView]] = {}
        for offer in rejected:
            by_code.setdefault(offer.code, []).append(offer)
        groups = sorted(by_code.values(), key=len)
    return indented(pairs((Text("✗", style="dim"), _rejection(group)) for group in groups))


def _rejection(alike: Sequence[RejectedView]) -> Text:
    """Offers with one reason. Their sentences may differ in figures; then the first stands for all."""
    first = alike[0]
    where = f"{first.provider} {first.region} {first.native_type}"
    count = len(alike) + sum(offer.more for offer in alike)
    if len(alike) == 1:
        title = f"{where} and {plural(first.more, 'more offer')}" if first.more else where
    else:
        title = plural(count, "offer")
    why = first.why
    if len({offer.why for offer in alike}) > 1:
        why = f"For example {where}: {why}"
    return Text.assemble(f"{title}  ", (spaced(first.code), "yellow"), "\n", (why, "dim"))


def is_folded(rejected: Sequence[RejectedView]) -> bool:
    """Whether `rejected_lines` leaves out names, because offers have the same reason."""
    return len({offer.code for offer in rejected}) < len(rejected)
