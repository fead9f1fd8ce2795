"""Orphaned machines. They need the permissions `orphans.read` and `orphans.decide`."""

from argparse import Namespace
from collections.abc import Sequence

from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command, noun
from control_plane.cli.render.orphans import decision_pages, orphan_page, orphan_pages
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.orphans import (
    ORPHANS_PER_REQUEST_MAX,
    OrphanChoice,
    OrphanDecisionList,
    OrphanDecisionRequest,
    OrphanList,
    OrphanView,
)

PATH = "/v1/operator/orphans"


def add(to: Commands) -> None:
    orphans = noun(
        to, "orphan", "See machines that no open record claims, and decide about them (operators)."
    )
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
    show = command(
        orphans,
        "show",
        show_orphan,
        "Show one orphan, with what may be decided about it.",
        examples="splitplane orphan show lambda_cloud 0920582c7ff0",
    )
    show.add_argument("account", metavar="ACCOUNT", help='as "splitplane orphan list" shows it')
    show.add_argument("ref", metavar="ID", help="the provider's id of the machine")
    _add_end(orphans)
    _add_leave(orphans)
    _add_adopt(orphans)
    _add_revoke(orphans)


def _add_end(orphans: Commands) -> None:
    parser = command(
        orphans,
        "end",
        end,
        "Terminate orphans now, whatever holds them back.",
        more=(
            "Orphans are terminated automatically. They are held back at first, in a dry\n"
            "run, while the account is frozen or not armed, and when so many machines look\n"
            "like orphans that our records are more likely wrong. One without a record of its\n"
            "order is never terminated automatically, and --held leaves it out: it may be a\n"
            "customer's. Check at the provider that nobody uses the machine, then decide: it\n"
            "is terminated within a minute. Your decision is stored with the reason and the\n"
            "id of your API key."
        ),
        examples="""
        splitplane orphan end lambda_cloud 0920582c7ff0 --reason "ticket 4711"
        splitplane orphan end lambda_cloud --held --reason "ticket 4711"
        """,
    )
    _take(parser, several="*")
    parser.add_argument(
        "--held",
        action="store_true",
        help="every orphan of the account that waits for an operator and has a record",
    )
    add_yes(parser)


def _add_leave(orphans: Commands) -> None:
    parser = command(
        orphans,
        "leave",
        leave,
        "Leave orphans alone: nothing here terminates them.",
        more=(
            "For a machine whose disk somebody still needs. It is listed as before, with what\n"
            "it costs, and it counts as no sign that our records are wrong."
        ),
        examples='splitplane orphan leave lambda_cloud 0920582c7ff0 --reason "ticket 4711"',
    )
    _take(parser, several="+")


def _add_adopt(orphans: Commands) -> None:
    parser = command(
        orphans,
        "adopt",
        adopt,
        "Give an orphan to its own record, whose machine the provider does not list.",
        more=(
            "One order may have made two machines, or its answer named another id than the\n"
            "list. While the record of the order is booting, and the machine that it has is\n"
            "not listed, it can take the one that is. A closed record never can."
        ),
        examples='splitplane orphan adopt lambda_cloud 0920582c7ff0 --reason "ticket 4711"',
    )
    _take(parser, several="+")


def _add_revoke(orphans: Commands) -> None:
    parser = command(
        orphans,
        "revoke",
        revoke,
        "Revoke the decision on orphans: they are treated like any other again.",
        more=(
            "An orphan that was left is terminated then by the rules. What the provider was\n"
            "asked to terminate already ends all the same."
        ),
        examples='splitplane orphan revoke lambda_cloud 0920582c7ff0 --reason "ticket 4711"',
    )
    _take(parser, several="+")


def _take(parser: Parser, *, several: str) -> None:
    parser.add_argument("account", metavar="ACCOUNT", help='as "splitplane orphan list" shows it')
    parser.add_argument("refs", metavar="ID", nargs=several, help="the provider's id of the machine")
    parser.add_argument(
        "--reason", required=True, dest="why", metavar="TEXT", help="stored with the id of your API key"
    )


def list_orphans(terminal: Terminal, args: Namespace) -> None:
    query = {"gone": "true"} if args.all else {}
    answer = terminal.client().whole(PATH, OrphanList, query)
    terminal.present(args.json, answer, lambda page: orphan_pages(page.items, terminal.now()))


def show_orphan(terminal: Terminal, args: Namespace) -> None:
    query = {"account": args.account, "provider_ref": args.ref, "gone": "true"}
    answer = terminal.client().whole(PATH, OrphanList, query)
    if not answer.value.items:
        raise CliError(f"No orphan {args.ref} of {args.account} is on record.", code="orphan_unknown")
    terminal.present(args.json, answer, lambda page: orphan_page(page.items[0], terminal.now()))


def end(terminal: Terminal, args: Namespace) -> None:
    if bool(args.refs) == args.held:
        raise usage("Name the orphans by their ids, or give --held for all that are held back.")
    client = terminal.client()
    refs = args.refs or _held(client.whole(PATH, OrphanList).value, args.account)
    confirm(
        terminal, args, f"Terminate {plural(len(refs), 'machine')} of {args.account}? This cannot be undone."
    )
    _decide(terminal, args, "end", refs)


def leave(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "leave", args.refs)


def adopt(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "adopt", args.refs)


def revoke(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "revoke", args.refs)


def _decide(terminal: Terminal, args: Namespace, choice: OrphanChoice, refs: Sequence[str]) -> None:
    request = OrphanDecisionRequest(args.account, tuple(refs), choice, args.why)
    answer = terminal.client().post("/v1/operator/orphan-decisions", OrphanDecisionList, request)
    terminal.present(args.json, answer, decision_pages)


def _held(listed: OrphanList, account: str) -> list[str]:
    """The provider's ids of the account's orphans that are held back, as many as one request may name.

    Raises CliError when there is none.
    """
    held = [orphan.provider_ref for orphan in listed.items if orphan.account == account and _is_held(orphan)]
    if not held:
        raise CliError(f"No orphan of {account} is held back.", code="nothing_held")
    return held[:ORPHANS_PER_REQUEST_MAX]


def _is_held(orphan: OrphanView) -> bool:
    """Whether it waits for an operator. One that is only watched, or was decided on, does not. One without a record may
    be a customer's, so it has to be named.
    """
    waits = orphan.held_code not in (None, "watched", "next_run", "unrecorded")
    return waits and orphan.decision is None
