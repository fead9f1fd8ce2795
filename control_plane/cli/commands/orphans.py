"""Orphaned machines. They need the permissions `orphans.read` and `orphans.terminate`."""

from argparse import Namespace

from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.orphans import orphan_pages, termination_pages
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.orphans import (
    ORPHANS_PER_REQUEST_MAX,
    OrphanList,
    OrphanTerminationList,
    OrphanTerminationRequest,
    OrphanView,
)

PATH = "/v1/operator/orphans"


def add(to: Commands) -> None:
    orphans = noun(to, "orphan", "See machines that no open record claims, and terminate them (operators).")
    parser = command(
        orphans,
        "list",
        list_orphans,
        "List machines that no open record claims, and why each is not terminated yet.",
        examples="""
        splitplane orphan list
        splitplane orphan list --all
        """,
    )
    parser.add_argument("--all", action="store_true", help="include those that went in the last 30 days")
    _add_terminate(orphans)


def _add_terminate(orphans: Commands) -> None:
    parser = command(
        orphans,
        "terminate",
        terminate,
        "Terminate orphans that are held back.",
        more=(
            "Orphans are terminated automatically. They are held back in a dry run, while the\n"
            "account is frozen, and when so many machines look like orphans that our records\n"
            "are more likely wrong. Check at the provider that nobody uses the machine, then\n"
            "decide: it is terminated within a minute. Your decision is stored with the\n"
            "reason and the id of your API key."
        ),
        examples="""
        splitplane orphan terminate lambda_cloud 0920582c7ff0 --reason "ticket 4711"
        splitplane orphan terminate lambda_cloud --held --reason "ticket 4711"
        """,
    )
    parser.add_argument("account", metavar="ACCOUNT", help='as "splitplane orphan list" shows it')
    parser.add_argument("refs", metavar="ID", nargs="*", help="the provider's id of the machine")
    parser.add_argument("--held", action="store_true", help="every orphan of the account that is held back")
    parser.add_argument(
        "--reason", required=True, dest="why", metavar="TEXT", help="stored with the id of your API key"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def list_orphans(terminal: Terminal, args: Namespace) -> None:
    query = {"gone": "true"} if args.all else {}
    answer = terminal.client().whole(PATH, OrphanList, query)
    terminal.present(args.json, answer, lambda page: orphan_pages(page.items, terminal.now()))


def terminate(terminal: Terminal, args: Namespace) -> None:
    if bool(args.refs) == args.held:
        raise usage("Name the orphans by their ids, or give --held for all that are held back.")
    client = terminal.client()
    refs = args.refs or _held(client.whole(PATH, OrphanList).value, args.account)
    if not args.yes:
        terminal.confirm(
            f"Terminate {plural(len(refs), 'machine')} of {args.account}? This cannot be undone.",
            otherwise="--yes",
        )
    request = OrphanTerminationRequest(args.account, tuple(refs), args.why)
    answer = client.post("/v1/operator/orphan-terminations", OrphanTerminationList, request)
    terminal.present(args.json, answer, termination_pages)


def _held(listed: OrphanList, account: str) -> list[str]:
    """The provider's ids of the account's orphans that are held back, as many as one request may name.

    Raises CliError when there is none.
    """
    held = [orphan.provider_ref for orphan in listed.items if orphan.account == account and _is_held(orphan)]
    if not held:
        raise CliError(f"No orphan of {account} is held back.", code="nothing_held")
    return held[:ORPHANS_PER_REQUEST_MAX]


def _is_held(orphan: OrphanView) -> bool:
    """Whether it waits for an operator. One that is only watched does not."""
    return orphan.held_code not in (None, "watched", "next_run") and orphan.termination is None
