"""Explain a charge of any organization: from the journal to the ledger (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.charges import charge_table, explanation_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.charges import ChargeExplanationView, LeaseChargePage


def add(finance: Commands) -> None:
    parser = command(
        finance,
        "explain",
        explain,
        "Show what a charge follows from, or list the charges of a lease.",
        more=(
            "Of a charge: the events of the journal before and after it, its interval, its\n"
            "price and the price book, and its transaction in the ledger. An export has the\n"
            "id of each charge in x_ChargeId, and that of its lease in ResourceId."
        ),
        examples="""
        splitplane finance explain ch_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane finance explain le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        """,
    )
    parser.add_argument("id", metavar="ID", help="of a charge (ch_...) or a lease (le_...)")


def explain(terminal: Terminal, args: Namespace) -> None:
    kind = args.id.partition("_")[0]
    if kind == "ch":
        charge = terminal.client().get(f"/v1/finance/charges/{args.id}", ChargeExplanationView)
        terminal.present(args.json, charge, explanation_page)
    elif kind == "le":
        listed = terminal.client().every(f"/v1/finance/leases/{args.id}/charges", LeaseChargePage)
        terminal.present(args.json, listed, lambda page: charge_table(page.items))
    else:
        raise usage(f"{args.id!r} is no id of a charge (ch_...) or of a lease (le_...).")
