"""The `splitplane` command: it parses, runs, and ends with an exit code."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from control_plane.cli.client import user_agent
from control_plane.cli.commands import (
    accounts,
    billing,
    catalogue,
    leases,
    loops,
    orphans,
    projects,
    proofs,
    session,
    ssh_keys,
)
from control_plane.cli.errors import CliError, Exit
from control_plane.cli.hints import hint
from control_plane.cli.parsing import Parser
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import clean_lines

DESCRIPTION = """\
Lease verified GPUs from many providers, and read a bill that adds up.

  splitplane login --url https://splitplane.example.com
  splitplane ssh-key add laptop
  splitplane quote h100-sxm.8x --region eu
  splitplane lease create h100-sxm.8x --name train-1 --region eu
  splitplane lease ssh train-1
  splitplane lease release train-1"""

EPILOG = """\
Every command has --help with examples, and --json for scripts.

environment:
  SPLITPLANE_URL, SPLITPLANE_API_KEY   take precedence over the stored login
  NO_COLOR                             no colours
exit codes:
  0 done   1 refused or failed   2 wrong usage   3 no answer from the API"""


def parser() -> Parser:
    made = Parser(prog="splitplane", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument("--version", action="version", version=user_agent())
    to = made.add_subparsers(metavar="COMMAND", title="commands", required=True, parser_class=Parser)
    session.add(to)
    ssh_keys.add(to)
    projects.add(to)
    catalogue.add(to)
    leases.add(to)
    leases.add_why(to)
    proofs.add(to)
    billing.add(to)
    loops.add(to)
    orphans.add(to)
    accounts.add(to)
    return made


def parsed(arguments: Sequence[str]) -> Namespace:
    """Parse the arguments. Everything after `--` in `lease ssh` is the remote command, whatever it looks like."""
    own, remote = list(arguments), []
    if own[:2] == ["lease", "ssh"] and "--" in own:
        at = own.index("--")
        own, remote = own[:at], own[at + 1 :]
    args = parser().parse_args(own)
    if remote:
        args.remote = remote
    return args


def main(arguments: Sequence[str], terminal: Terminal) -> Exit:
    args = parsed(arguments)
    try:
        args.run(terminal, args)
    except CliError as error:
        # Always on standard error, with --json as well: a pipe must not take an error for an answer.
        terminal.err.print(f"error: {error.code}: {clean_lines(error.sentence)}", style="red", soft_wrap=True)
        if more := hint(error.code, error.fields):
            terminal.note(more)
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        terminal.close()
    return Exit.OK


def run() -> None:
    """The entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # A terminal that cannot show a character shows a question mark.
    try:
        code = main(sys.argv[1:], Terminal())
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left, as in `splitplane lease list | head`; that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.OK
    sys.exit(int(code))
