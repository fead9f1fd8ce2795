"""Show service levels: what each tier promises."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.sla_terms import tier_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.sla_terms import SlaTierList


def add(to: Commands) -> None:
    sla = noun(to, "sla", "Show service levels: what is promised, and what was given back.")
    command(
        sla,
        "tiers",
        tiers,
        "Show what each tier promises with leases that are created now.",
        examples="""
        splitplane sla tiers
        splitplane lease create h100-sxm.8x --sla gold
        """,
    )


def tiers(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/sla-tiers", SlaTierList)
    terminal.present(args.json, answer, lambda listed: tier_table(listed.items))
