"""SKUs, offers and quotes."""

from argparse import Namespace

from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command
from control_plane.cli.render.catalogue import offer_tables, quote_page, sku_table
from control_plane.cli.terminal import Terminal
from control_plane.domain.money import parse_usd
from control_plane.wire.catalogue import OfferList, QuoteRequest, QuoteView, SkuList


def add(to: Commands) -> None:
    command(
        to, "skus", skus, "Show the SKUs that are for sale, and their prices.", examples="splitplane skus"
    )
    parser = command(
        to,
        "offers",
        offers,
        "Show the capacity of providers, how certain it is, and how old.",
        examples="""
        splitplane offers
        splitplane offers --gpu h100-sxm-80gb
        """,
    )
    parser.add_argument("--gpu", metavar="MODEL", help="only this GPU model, such as h100-sxm-80gb")
    parser = command(
        to,
        "quote",
        quote,
        "Show what a lease would cost and where it would go, without creating it.",
        more="When the lease would be refused, it says why and exits with 1.",
        examples="""
        splitplane quote h100-sxm.8x
        splitplane quote h100-sxm.8x --region eu --max-price 25
        """,
    )
    add_constraints(parser)


def add_constraints(parser: Parser) -> None:
    """The arguments that a quote and a lease have in common."""
    parser.add_argument("sku", metavar="SKU", help="what to lease; see: splitplane skus")
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
    parser.add_argument("--max-price", metavar="USD", help="highest price per hour for the whole machine")


def ceiling(args: Namespace) -> str | None:
    """The amount given as `--max-price`; None without it. An invalid amount is a usage error."""
    if args.max_price is not None:
        try:
            parse_usd(args.max_price)
        except ValueError as error:
            raise usage(f"--max-price: {error}; use an amount such as 25 or 24.90.") from None
    amount: str | None = args.max_price
    return amount


def skus(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/skus", SkuList)
    terminal.present(args.json, answer, lambda page: sku_table(page.items))


def offers(terminal: Terminal, args: Namespace) -> None:
    params = {"gpu_model": args.gpu} if args.gpu else None
    answer = terminal.client().get("/v1/offers", OfferList, params)
    terminal.present(args.json, answer, lambda page: offer_tables(page.items))


def quote(terminal: Terminal, args: Namespace) -> None:
    request = QuoteRequest(args.sku, tuple(args.region), tuple(args.provider), ceiling(args))
    answer = terminal.client().post("/v1/quotes", QuoteView, request)
    terminal.present(args.json, answer, quote_page)
    verdict = answer.value.verdict
    if not verdict.admitted:
        raise CliError(verdict.why or "A lease would be refused.", code=verdict.code or "refused")
