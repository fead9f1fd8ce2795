"""Decide how far customers may use capacity before they pay (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.credit_terms import terms_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.credit_terms import PAYMENT_DAYS_MAX, CreditTermsRequest, CreditTermsView

PATH = "/v1/finance/credit-terms"


def add(finance: Commands) -> None:
    terms = noun(finance, "credit-terms", "Decide how far a customer may use capacity before it pays.")
    parser = command(
        terms,
        "show",
        show,
        "Show the credit limit of an organization, and how long it has to pay.",
        examples="splitplane finance credit-terms show heliotrope",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser = command(
        terms,
        "set",
        set_terms,
        "Set the credit limit of an organization, and how long it has to pay.",
        more=(
            "The limit counts at once: unpaid invoices and what is on none yet must not\n"
            "exceed it. The days count from the next invoice on. A limit of 0 makes a\n"
            "customer prepaid. A limit below what is used ends leases, as an empty balance."
        ),
        examples="""
        splitplane finance credit-terms set heliotrope 5000 --days 30 --reason deal-17
        splitplane finance credit-terms set heliotrope 0 --days 0 --reason unpaid
        """,
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("limit", metavar="USD", help="the limit, such as 5000; 0: prepaid")
    parser.add_argument(
        "--days", type=int, required=True, metavar="N", help="how many days it has to pay an invoice"
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")
    add_yes(parser)


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    answer = client.get(f"{PATH}/{organization.id}", CreditTermsView)
    terminal.present(args.json, answer, lambda found: terms_page(found, organization.name))


def set_terms(terminal: Terminal, args: Namespace) -> None:
    limit = amount(args.limit, "USD")
    if not 0 <= args.days <= PAYMENT_DAYS_MAX:
        raise usage(f"--days: must be from 0 to {PAYMENT_DAYS_MAX}.")
    client = terminal.client()
    organization = find(client, args.organization)
    confirm(
        terminal, args, f"Let {organization.name} owe up to {args.limit} USD, to pay in {args.days} days?"
    )
    request = CreditTermsRequest(limit, args.days, args.reason)
    answer = client.put(f"{PATH}/{organization.id}", CreditTermsView, request)
    terminal.present(args.json, answer, lambda found: terms_page(found, organization.name))
