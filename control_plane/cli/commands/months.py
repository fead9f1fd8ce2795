"""The option `--month`, which several commands about money have."""

import re
from argparse import Namespace

from control_plane.cli.errors import usage
from control_plane.cli.parsing import Parser
from control_plane.wire.exports import PERIOD_PATTERN


def add_month(parser: Parser, what: str) -> None:
    parser.add_argument("--month", metavar="MONTH", help=f"{what}, such as 2026-10")


def month(args: Namespace) -> dict[str, str]:
    """The month as a parameter of a query; empty without one. Raises CliError when it is none."""
    if args.month is None:
        return {}
    if not re.match(PERIOD_PATTERN, args.month):
        raise usage(f"--month: {args.month!r} is not a month such as 2026-10.")
    return {"month": args.month}
