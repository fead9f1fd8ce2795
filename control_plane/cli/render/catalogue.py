"""SKUs, offers and quotes on the screen."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import heading, indented, pairs, table
from control_plane.cli.words import coarse, price, spaced
from control_plane.wire.catalogue import CandidateView, OfferView, QuoteView, RejectedView, SkuView

STOCK = {"live": "in stock", "advisory": "likely", "static": "not known"}
"""How certain it is that the provider has stock, by the offer's confidence."""


def hardware(count: int, model: str) -> str:
    return f"{count} x {model}"


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
    return Group(table(columns, rows, right=columns[2:]), *_demands(skus))


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


def offer_tables(offers: Sequence[OfferView]) -> RenderableType:
    """A table for each kind of hardware; in it offers in stock first, the cheapest first."""
    if not offers:
        return Text("No offers: no provider has listed capacity of this kind yet.")
    cost = any(offer.cost_per_hour for offer in offers)
    parts: list[RenderableType] = []
    for (model, count), group in groupby(sorted(offers, key=_hardware_of), key=_hardware_of):
        members = sorted(group, key=_offer_order)
        sold_as = sorted({sku for offer in members for sku in offer.skus})
        parts.append(
            heading(hardware(count, model), f"sold as {', '.join(sold_as)}" if sold_as else "not sold")
        )
        parts += [indented(_offer_table(members, cost=cost)), Text()]
    return Group(*parts[:-1])


def _hardware_of(offer: OfferView) -> tuple[str, int]:
    return (offer.gpu_model, offer.gpu_count)


def _offer_order(offer: OfferView) -> tuple[bool, int, str]:
    amount = offer.cost_per_hour or offer.price_per_hour
    return (not offer.available, amount.nano if amount else 0, offer.key)


def _offer_table(offers: Sequence[OfferView], *, cost: bool) -> Table:
    columns = ("PROVIDER", "REGION", "TYPE", "STOCK", "SEEN", "USD/H", *(("COST",) if cost else ()))
    rows = [
        (
            offer.provider,
            offer.region,
            offer.native_type,
            _stock(offer),
            coarse(timedelta(seconds=offer.age_seconds)),
            price(offer.price_per_hour),
            *((price(offer.cost_per_hour),) if cost else ()),
        )
        for offer in offers
    ]
    return table(columns, rows, right=("SEEN", "USD/H", "COST"))


def _stock(offer: OfferView) -> Text:
    if not offer.available:
        return Text("sold out", style="dim")
    word = STOCK.get(offer.confidence, offer.confidence)
    return Text(word, style="green" if offer.confidence == "live" else "yellow")


def quote_page(quote: QuoteView) -> RenderableType:
    """Price, verdict and candidates. The reason of a refusal goes to standard error, as every error does."""
    parts: list[RenderableType] = []
    if quote.price_per_hour is not None:
        per_hour, per_gpu_hour = price(quote.price_per_hour), price(quote.price_per_gpu_hour)
        parts.append(heading(quote.sku, f"{per_hour} USD per hour, {per_gpu_hour} per GPU-hour"))
    if quote.verdict.admitted:
        hold = f" with a hold of {price(quote.first_hour)} USD for its first hour."
        parts.append(Text.assemble(("Would be admitted", "green"), hold))
    if quote.candidates:
        title = "Would be tried, best first" if quote.verdict.admitted else "Could serve it, best first"
        parts += [Text(), heading(title), candidate_table(quote.candidates, chosen=None)]
    elif quote.verdict.admitted:
        parts += [Text(), Text("No offer can serve it now; a lease would wait for one.", style="yellow")]
    if quote.rejected:
        parts += [Text(), heading("Rejected"), rejected_lines(quote.rejected)]
    return Group(*parts)


def candidate_table(candidates: Sequence[CandidateView], *, chosen: str | None) -> RenderableType:
    """`chosen` is the key of the candidate to mark."""
    cost = any(candidate.cost_per_hour for candidate in candidates)
    columns = ("", "#", "PROVIDER", "REGION", "TYPE", "STOCK", *(("COST USD/H",) if cost else ()))
    rows = [
        (
            Text("▸" if candidate.key == chosen else " ", style="green"),
            str(number),
            candidate.provider,
            candidate.region,
            candidate.native_type,
            STOCK.get(candidate.confidence or "", candidate.confidence or "-"),
            *((price(candidate.cost_per_hour),) if cost else ()),
        )
        for number, candidate in enumerate(candidates, start=1)
    ]
    return table(columns, rows, right=("#", "COST USD/H"))


def rejected_lines(rejected: Sequence[RejectedView]) -> RenderableType:
    """Each rejected offer with its reason on a line of its own, so that neither is cut.

    The same machine type, rejected for the same reason in several regions, appears once with all its regions.
    """
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for offer in rejected:
        key = (offer.provider, offer.native_type, offer.code, offer.why)
        alike.setdefault(key, []).append(offer.region)
    return indented(
        pairs((Text("✗", style="dim"), _rejection(*key, regions)) for key, regions in alike.items())
    )


def _rejection(provider: str, native_type: str, code: str, why: str, regions: Sequence[str]) -> Text:
    if len(regions) == 1:
        return Text.assemble(
            f"{provider} {regions[0]} {native_type}  ", (spaced(code), "yellow"), "\n", (why, "dim")
        )
    where = f"{provider} {native_type} in {len(regions)} regions  "
    return Text.assemble(where, (spaced(code), "yellow"), "\n", (f"{why} {', '.join(regions)}", "dim"))
