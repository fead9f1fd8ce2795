"""The reconciler's loops. They need the permission `loops.read`."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.loops import loop_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.loops import LoopList


def add(to: Commands) -> None:
    command(
        to,
        "loops",
        loops,
        "Show the last report of every loop (operators).",
        more=(
            "A loop is stuck when its last report is older than three of its intervals and\n"
            "one run. It is stopped when that is so in one replica and another one runs it.\n"
            "A loop with no report is run by no process, or its first run has not ended."
        ),
        examples="splitplane loops",
    )


def loops(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole("/v1/operator/loops", LoopList)
    terminal.present(args.json, answer, loop_table)
