"""The `splitplane` command: it parses, runs, and ends with an exit code.

A command's file is imported only when its noun is on the command line, and the libraries that draw and speak
HTTP come with it: `benchmarks/cli.py` measures how long it takes to start.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from control_plane.cli.errors import CliError, Exit, usage
from control_plane.cli.parsing import Parser, empty_argument
from control_plane.cli.version import VERSION

if TYPE_CHECKING:  # Imported when a command runs.
    from control_plane.cli.terminal import Terminal

DESCRIPTION = """\
Lease verified GPUs from many providers, and read a bill that adds up.

  splitplane login --url https://splitplane.example.com
  splitplane quote h100-sxm.8x --region eu
  splitplane lease create h100-sxm.8x --name train-1 --region eu
  splitplane lease ssh train-1
  splitplane lease release train-1"""

EPILOG = """\
Every command has --help with examples, --json for scripts, and --quiet.

environment:
  SPLITPLANE_URL, SPLITPLANE_API_KEY   take precedence over the stored login
  SPLITPLANE_PROFILE                   the stored login to use, as --profile
  NO_COLOR                             no colours
exit codes:
  0 done   1 refused or failed   2 wrong usage   3 no answer from the API"""

PROGRAM = f"splitplane-cli/{VERSION}"
FILES = {
    "session": ("login", "logout", "whoami"),
    "profiles": ("profile",),
    "sessions": ("session",),
    "api_keys": ("api-key",),
    "completion": ("completion",),
    "catalogue": ("skus", "offers", "quote"),
    "leases": ("lease", "why"),
    "sla": ("sla",),
    "proofs": ("proof",),
    "ssh_keys": ("ssh-key",),
    "ssh_certificates": ("ssh-certificate",),
    "firewalls": ("firewall",),
    "networks": ("network",),
    "clusters": ("cluster",),
    "kubeconfigs": ("kubeconfig",),
    "node_pools": ("node-pool",),
    "nodes": ("node",),
    "projects": ("project",),
    "environments": ("environment",),
    "users": ("user",),
    "service_accounts": ("service-account",),
    "roles": ("role",),
    "envelopes": ("envelope",),
    "quota_requests": ("quota",),
    "audit": ("audit",),
    "billing": ("usage", "bill", "reconciliation"),
    "balance": ("balance",),
    "invoices": ("invoice",),
    "credit_notes": ("credit-note",),
    "exports": ("export",),
    "finance": ("finance",),
    "organizations": ("organization",),
    "loops": ("loops",),
    "fleet": ("fleet",),
    "liabilities": ("liability",),
    "orphans": ("orphan",),
    "repairs": ("repair",),
    "preemptions": ("preemption",),
    "enforcement": ("enforcement",),
    "agents": ("agent",),
    "accounts": ("account",),
    "pools": ("pool",),
    "server_hosts": ("server-host",),
}
"""The files of `commands/`, in the order of the help, and the commands that each of them adds."""

GROUPS = {
    "login": "sign in, and set up this command",
    "skus": "lease machines",
    "ssh-key": "reach machines",
    "cluster": "use Kubernetes clusters",
    "project": "organize people, projects and limits",
    "usage": "see what it costs",
    "finance": "run an installation",
}
"""The headings of the help, by the command that comes first below each."""


def parser(first: str | None = None) -> Parser:
    """The parser of all commands, or of those that come with the command `first`."""
    made = Parser(prog="splitplane", description=DESCRIPTION, epilog=EPILOG, groups=GROUPS)
    made.add_argument("--version", action="version", version=PROGRAM)
    to = made.add_subparsers(metavar="COMMAND", title="commands", required=True, parser_class=Parser)
    only = [file for file, names in FILES.items() if first in names]
    for file in only or FILES:
        import_module(f"control_plane.cli.commands.{file}").add(to)
    return made


def parsed(arguments: Sequence[str]) -> Namespace:
    """Parse the arguments. Everything after `--` in `lease ssh` is the remote command, whatever it looks like."""
    own, remote = list(arguments), []
    if own[:2] == ["lease", "ssh"] and "--" in own:
        at = own.index("--")
        own, remote = own[:at], own[at + 1 :]
    made = parser(own[0] if own else None)
    if fault := empty_argument(own):
        made.error(fault)
    args = made.parse_args(own)
    if remote:
        args.remote = remote
    return args


def main(arguments: Sequence[str], terminal: "Terminal") -> Exit:
    # Known before anything is parsed, because an error in the command line is JSON as well.
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    terminal.arguments = arguments
    try:
        args = parsed(arguments)
        terminal.quiet, terminal.timeout, terminal.profile = args.quiet, args.timeout, args.profile
        args.run(terminal, args)
    except CliError as error:
        terminal.fail(error, as_json=as_json)
        return error.exit_code
    except ValueError as error:
        from control_plane.wire.common import RequestError  # noqa: PLC0415 - imported late, so that --help starts faster

        if not isinstance(error, RequestError):
            raise
        terminal.fail(usage(f"The request {error}."), as_json=as_json)
        return Exit.USAGE
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
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"{PROGRAM}\n")
        return
    from control_plane.cli import completing  # noqa: PLC0415 - these bring the libraries that draw and
    from control_plane.cli.terminal import Terminal  # noqa: PLC0415 - speak HTTP.

    terminal = Terminal()
    completing.answer(terminal, parser)
    try:
        code = main(sys.argv[1:], terminal)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left, as in `splitplane lease list | head`; that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.OK
    sys.exit(int(code))
