"""Agree on prices with customers (platform role `finance`)."""

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime

from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.catalogue import SLA_TIERS, purchase
from control_plane.cli.commands.money_once import add_key, post
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find, names_of
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.price_agreements import agreement_page, agreement_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.price_agreements import (
    PriceAgreementEndRequest,
    PriceAgreementPage,
    PriceAgreementRequest,
    PriceAgreementView,
)

PATH = "/v1/finance/price-agreements"
TIME_HELP = "in UTC, such as 2026-12-01 or 2026-12-01T06:00 (default: {})"


def add(finance: Commands) -> None:
    prices = noun(finance, "price", "Agree on prices with customers, list and end what was agreed on.")
    parser = command(
        prices,
        "agree",
        agree,
        "Agree on a price with a customer, for leases that it creates from then on.",
        more=(
            "USD is for a GPU and hour, or for a machine without GPUs and hour. A price is\n"
            "never edited: end it, and agree on another one."
        ),
        examples="""
        splitplane finance price agree heliotrope h100-sxm.8x 2.19 --reason 'deal 17'
        splitplane finance price agree acme cpu.16x 0.50 --region eu --reason ticket
        splitplane finance price agree acme l4.1x 0.75 --sla gold --reason 'deal 18'
        """,
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("sku", metavar="SKU", help="a SKU of `splitplane skus`")
    parser.add_argument("amount", metavar="USD", help="the price, such as 2.19")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")
    parser.add_argument("--region", metavar="REGION", help="only for leases that are limited to it")
    parser.add_argument(
        "--sla", choices=SLA_TIERS, help="only for leases with this tier (default: with every tier)"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--spot", action="store_true", help="the price as spot")
    kinds.add_argument("--interruptible", action="store_true", help="the price of interruptible leases")
    kinds.add_argument("--committed", action="store_true", help="the price for the term of the SKU")
    parser.add_argument("--stopped", metavar="USD", help="the price while the machine is stopped")
    parser.add_argument("--from", dest="since", metavar="TIME", help=TIME_HELP.format("now"))
    parser.add_argument("--until", metavar="TIME", help=TIME_HELP.format("until it is ended"))
    add_yes(parser)
    add_key(parser)
    parser = command(
        prices,
        "list",
        list_agreements,
        "List the prices that were agreed on, newest first.",
        examples="splitplane finance price list --organization heliotrope",
    )
    parser.add_argument("--organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser = command(
        prices,
        "end",
        end,
        "Let an agreed price be over. Leases that have it keep it.",
        examples="splitplane finance price end pa_0190c2f0 --at 2026-12-31",
    )
    parser.add_argument("agreement", metavar="AGREEMENT", help="the beginning of its id")
    parser.add_argument("--at", metavar="TIME", help=TIME_HELP.format("now"))
    add_yes(parser)


def agree(terminal: Terminal, args: Namespace) -> None:
    price = amount(args.amount, "USD")
    stopped = None if args.stopped is None else amount(args.stopped, "--stopped")
    since, until = _moment(args.since, "--from"), _moment(args.until, "--until")
    client = terminal.client()
    organization = find(client, args.organization)
    tier = "" if args.sla is None else f" with {args.sla}"
    confirm(
        terminal,
        args,
        f"Sell {args.sku}{tier} to {organization.name} for {args.amount} USD per unit and hour?",
    )
    request = PriceAgreementRequest(
        organization_id=organization.id,
        sku=args.sku,
        usd_per_unit_hour=price,
        reason=args.reason,
        region=args.region,
        sla=args.sla,
        purchase=purchase(args),
        stopped_usd_per_unit_hour=stopped,
        valid_from=since,
        valid_until=until,
    )
    answer = post(client, args, PATH, PriceAgreementView, request)
    terminal.present(args.json, answer, lambda made: agreement_page(made, organization.name))


def list_agreements(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    only = {} if args.organization is None else {"organization": find(client, args.organization).id}
    answer = client.every(PATH, PriceAgreementPage, only)
    names = names_of(client)
    terminal.present(args.json, answer, lambda page: agreement_table(page.items, names, terminal.now()))


def end(terminal: Terminal, args: Namespace) -> None:
    at, client = _moment(args.at, "--at"), terminal.client()
    agreement = _one_of(client.every(PATH, PriceAgreementPage).value.items, args.agreement)
    confirm(terminal, args, f"End the agreed price of {agreement.sku} ({agreement.reason})?")
    answer = client.post(f"{PATH}/{agreement.id}/end", PriceAgreementView, PriceAgreementEndRequest(at))
    terminal.present(args.json, answer, lambda made: agreement_page(made, made.organization_id))


def _one_of(agreements: Sequence[PriceAgreementView], word: str) -> PriceAgreementView:
    """The agreement whose id is this, or begins so."""
    digits = word.removeprefix("pa_")
    found = [each for each in agreements if each.id == word or each.id.startswith(f"pa_{digits}")]
    if len(found) > 1 and digits:
        raise CliError(f"{word!r} is the beginning of {len(found)} ids; write more of it.", code="ambiguous")
    if len(found) != 1:
        raise CliError(
            f"There is no agreed price {word!r}. See: splitplane finance price list", code="not_found"
        )
    return found[0]


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"{option}: {text!r} is not a time such as 2026-12-01T06:00.") from None
    if not 2000 <= moment.year <= 2200:
        raise usage(f"{option}: {text!r} is not in the years 2000 to 2200.")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
