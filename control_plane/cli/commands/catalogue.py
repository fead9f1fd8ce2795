"""SKUs, offers and quotes."""

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands.amounts import amount
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command, is_id, suggestion
from control_plane.cli.render.catalogue import kept_quote_page, offer_tables, quote_page, sku_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.catalogue import (
    PRIORITY_DEFAULT,
    KeptQuoteView,
    OfferList,
    OfferView,
    PriceRequest,
    PurchaseChoice,
    QuoteView,
    SkuList,
)

QUOTE_PREFIX = "qt"
SLA_TIERS = ("bronze", "silver", "gold")
SLA_DEFAULT = "bronze"

NAMED_MAX = 20
"""How many values a remark names."""


def add(to: Commands) -> None:
    command(
        to, "skus", skus, "Show the SKUs that are for sale, and their prices.", examples="splitplane skus"
    )
    _add_offers(to)
    parser = command(
        to,
        "quote",
        quote,
        "Show what a lease would cost and where it would go, without creating it.",
        more=(
            "When the lease would be refused, it says by which limits and exits with 1.\n"
            "--verbose shows every rule that was checked. With --keep, the price stands for\n"
            "15 minutes: splitplane lease create SKU --quote QUOTE. With the id of such a\n"
            "quote in the place of the SKU, it shows what was kept."
        ),
        examples="""
        splitplane quote h100-sxm.8x
        splitplane quote h100-sxm.8x --region eu --max-price 25
        splitplane quote h100-sxm.8x --spot --max-price 18
        splitplane quote h100-sxm.8x --committed
        splitplane quote h100-sxm.8x --sla gold
        splitplane quote h100-sxm.8x --region eu --keep
        splitplane quote qt_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane quote h100-sxm.8x --project research --environment prod --verbose
        """,
    )
    parser.add_argument("--keep", action="store_true", help="keep the price for a lease that names the quote")
    add_verbose(parser)
    parser.add_argument(
        "sku", metavar="SKU", help="what to lease (see: splitplane skus), or the id of a quote that was kept"
    )
    add_constraints(parser)
    add_purchase(parser)


def _add_offers(to: Commands) -> None:
    parser = command(
        to,
        "offers",
        offers,
        "Show the capacity that can be had, how certain it is, and how old the list.",
        examples="""
        splitplane offers
        splitplane offers --sku h100-sxm.8x --region eu --max-price 30
        splitplane offers --gpu h100-sxm-80gb --all
        splitplane offers --sku h100-sxm.8x --min-network 100
        splitplane offers --sku h100-sxm.8x --sla gold
        """,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--available", action="store_true", help="only what is in stock and sold (this is the default)"
    )
    which.add_argument("--all", action="store_true", help="also what is sold out, or sold as no SKU")
    parser.add_argument("--sku", metavar="SKU", help="only offers that can serve this SKU")
    parser.add_argument("--gpu", metavar="MODEL", help="only this GPU model, such as h100-sxm-80gb")
    parser.add_argument(
        "--region", metavar="REGION", action="append", help="eu, us-east-1, ...; may be repeated"
    )
    parser.add_argument("--provider", metavar="NAME", action="append", help="may be repeated")
    parser.add_argument(
        "--max-price", "--price-max", metavar="USD", help="highest price per hour for the whole machine"
    )
    parser.add_argument(
        "--min-network",
        type=int,
        metavar="GBPS",
        help="only with at least so many Gbit/s between machines, where the provider says so",
    )
    parser.add_argument(
        "--sla", choices=SLA_TIERS, help=f"show the prices with this service level (default: {SLA_DEFAULT})"
    )


def add_verbose(parser: Parser) -> None:
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show every rule, and name every rejected offer"
    )


def add_sku(parser: Parser) -> None:
    parser.add_argument("sku", metavar="SKU", help="what to lease; see: splitplane skus")


def add_constraints(parser: Parser, *, priced: str = "the whole machine") -> None:
    """The arguments that quotes, leases and node pools have in common; `priced` is what `--max-price` is about."""
    parser.add_argument(
        "--region",
        metavar="REGION",
        action="append",
        default=[],
        help="eu, us-east-1, ...; may be repeated (default: anywhere)",
    )
    parser.add_argument(
        "--provider",
        metavar="NAME",
        action="append",
        default=[],
        help="may be repeated (default: any)",
    )
    parser.add_argument("--max-price", metavar="USD", help=f"highest price per hour for {priced}")
    parser.add_argument(
        "--min-network",
        type=int,
        metavar="GBPS",
        help="at least so many Gbit/s between machines, as the provider states it (default: any)",
    )
    parser.add_argument(
        "--priority",
        type=int,
        default=PRIORITY_DEFAULT,
        metavar="N",
        help=f"0 to 100; of your leases, the highest is placed first (default: {PRIORITY_DEFAULT})",
    )
    parser.add_argument(
        "--sla",
        choices=SLA_TIERS,
        default=SLA_DEFAULT,
        help=f"how much is promised with it, at the tier's price (default: {SLA_DEFAULT}); see: splitplane sla tiers",
    )
    parser.add_argument(
        "--project",
        metavar="PROJECT",
        help="the project it belongs to, by name or id (default: the one called default)",
    )
    parser.add_argument(
        "--environment",
        metavar="ENVIRONMENT",
        help="the project's environment, by name or id (default: the one called default)",
    )


def add_purchase(parser: Parser) -> None:
    """The argument that quotes and leases have in common, and node pools do not have."""
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--spot",
        action="store_true",
        help="cheaper capacity that its provider may take back at any moment; needs --max-price",
    )
    kinds.add_argument(
        "--interruptible",
        action="store_true",
        help="cheaper, on a machine that we may take back with 2 minutes' notice",
    )
    kinds.add_argument(
        "--committed",
        action="store_true",
        help="cheaper for the SKU's term, all of which is held from the start and paid, used or not",
    )
    parser.add_argument(
        "--term",
        type=int,
        metavar="DAYS",
        help="the term that you commit to, which is the SKU's; a lease needs it with --committed",
    )


def purchase(args: Namespace) -> PurchaseChoice:
    """What the argument of `add_purchase` says, as a word of the API."""
    if args.interruptible:
        return "interruptible"
    if args.committed:
        return "committed"
    return "spot" if args.spot else "on_demand"


def constraints(args: Namespace) -> dict[str, Any]:
    """What the arguments of `add_constraints` and the SKU say, as fields of a request."""
    return {
        "sku": args.sku,
        "regions": tuple(args.region),
        "providers": tuple(args.provider),
        "price_usd_per_hour_max": ceiling(args),
        "network_gbps_min": args.min_network,
        "priority": args.priority,
        "sla": args.sla,
        "project": args.project,
        "environment": args.environment,
    }


def ceiling(args: Namespace) -> str | None:
    """The amount given as `--max-price`; None without it. An invalid amount is a usage error."""
    return None if args.max_price is None else amount(args.max_price, "--max-price")


def with_nearest_sku(client: Client, error: CliError, sku: str) -> CliError:
    """The error of an unknown SKU with the nearest one that is sold, unless the API has named it."""
    if error.code == "sku_unknown" and "did you mean" not in error.sentence.lower():
        known = client.whole("/v1/skus", SkuList).value.items
        error.sentence += suggestion(sku, (item.name for item in known))
    return error


@contextmanager
def naming_the_nearest(client: Client, sku: str) -> Iterator[None]:
    """An unknown SKU is refused with the nearest one."""
    try:
        yield
    except CliError as error:
        raise with_nearest_sku(client, error, sku) from None


def skus(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole("/v1/skus", SkuList)
    terminal.present(args.json, answer, lambda page: sku_table(page.items))


def offers(terminal: Terminal, args: Namespace) -> None:
    ceiling(args)  # A wrong amount is reported before anything is asked.
    wanted = {"gpu_model": args.gpu, "network_gbps_min": args.min_network, "sla": args.sla}
    params = {name: value for name, value in wanted.items() if value is not None}
    answer = terminal.client().whole("/v1/offers", OfferList, params)
    fitting = _only(answer, lambda offer: _fits(offer, args))
    shown = fitting if args.all else _only(fitting, lambda offer: offer.available and bool(offer.skus))
    hidden = len(fitting.value.items) - len(shown.value.items)
    terminal.present(args.json, shown, lambda page: offer_tables(page.items, hidden=hidden))
    for remark in _without_offers(answer.value.items, args):
        terminal.note(remark)


def _without_offers(offers: Sequence[OfferView], args: Namespace) -> Iterator[str]:
    """A remark on each filter that no offer fits, whatever the others say: it may be mistyped."""
    if args.gpu or args.min_network is not None:
        return  # The API left out other offers.
    if args.sku is not None:
        sold = {sku for offer in offers for sku in offer.skus}
        if args.sku not in sold:
            yield f"No provider offers {args.sku!r}.{_nearest_or_all(args.sku, sold)}"
    regions = {offer.region for offer in offers}
    for region in args.region or ():
        if not any(_is_in(there, region) for there in regions):
            yield f"No offer is in {region!r}.{_nearest_or_all(region, regions)}"
    providers = {offer.provider for offer in offers}
    for provider in args.provider or ():
        if provider not in providers:
            yield f"No offer is of {provider!r}.{_nearest_or_all(provider, providers)}"


def _nearest_or_all(word: str, known: Collection[str]) -> str:
    near = suggestion(word, known)
    return near or (f" There are: {', '.join(sorted(known)[:NAMED_MAX])}." if known else "")


def _only(answer: Answer[OfferList], wanted: Callable[[OfferView], bool]) -> Answer[OfferList]:
    """The answer without the offers that are not wanted, in both of its forms."""
    kept = [
        (content, offer)
        for content, offer in zip(answer.content["items"], answer.value.items, strict=True)
        if wanted(offer)
    ]
    items = [content for content, _ in kept]
    return Answer({**answer.content, "items": items}, OfferList(tuple(offer for _, offer in kept)))


def _fits(offer: OfferView, args: Namespace) -> bool:
    """Whether the offer is of the SKU, the regions and the providers, and within the price, that were asked for."""
    regions, providers = args.region, args.provider
    return (
        (args.sku is None or args.sku in offer.skus)
        and (not regions or any(_is_in(offer.region, region) for region in regions))
        and (not providers or offer.provider in providers)
        and (args.max_price is None or _costs_at_most(offer, args.max_price))
    )


def _is_in(region: str, wanted: str) -> bool:
    """`eu` is a jurisdiction, which `eu-central-1` is in."""
    return region == wanted or region.startswith(f"{wanted}-")


def _costs_at_most(offer: OfferView, usd: str) -> bool:
    price = offer.price_per_hour
    return price is not None and Decimal(price.usd) <= Decimal(usd)


def quote(terminal: Terminal, args: Namespace) -> None:
    if is_id(QUOTE_PREFIX, args.sku):
        _kept(terminal, args)
        return
    request = PriceRequest(
        **constraints(args), purchase=purchase(args), committed_days=args.term, keep=args.keep
    )
    client = terminal.client()
    answer = client.post("/v1/quotes", QuoteView, request)
    now = terminal.now()
    terminal.present(args.json, answer, lambda quote: quote_page(quote, now, verbose=args.verbose))
    if args.keep and answer.value.id is None:
        terminal.note("The price is not kept: no offer can serve the quote now.")
    verdict = answer.value.verdict
    if not verdict.admitted:
        refusal = CliError(verdict.why or "A lease would be refused.", code=verdict.code or "refused")
        raise with_nearest_sku(client, refusal, args.sku)


def _kept(terminal: Terminal, args: Namespace) -> None:
    """What was kept is shown as it is, so nothing can be asked for beside its id."""
    asked = (
        *args.region,
        *args.provider,
        *(args.max_price, args.min_network, args.project, args.environment, args.term),
    )
    usual = (args.priority, args.sla) == (PRIORITY_DEFAULT, SLA_DEFAULT)
    if args.keep or purchase(args) != "on_demand" or not usual or any(each is not None for each in asked):
        raise usage("a quote that was kept never changes: leave the other arguments out, or name a SKU.")
    answer = terminal.client().get(f"/v1/quotes/{args.sku}", KeptQuoteView)
    now = terminal.now()
    terminal.present(args.json, answer, lambda kept: kept_quote_page(kept, now))
