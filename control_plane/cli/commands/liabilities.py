"""Liabilities: what costs money for nobody. They need the permissions `fleet.read` and `orphans.decide`."""

from argparse import Namespace

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.liabilities import liability_page, liability_pages
from control_plane.cli.terminal import Terminal
from control_plane.wire.liabilities import EndRequest, LiabilityList, LiabilityView

PATH = "/v1/operator/liabilities"
PREFIX = "li"
_LIABILITY = "its id or the beginning of it, the id of its machine, or the provider's id"


def add(to: Commands) -> None:
    liabilities = noun(
        to, "liability", "See and end what costs money at providers and serves nobody (operators)."
    )
    command(
        liabilities,
        "list",
        list_liabilities,
        "List what costs money and has to go: machines, orphans, volumes.",
        more="A liability is open until its provider shows the end.",
        examples="splitplane liability list",
    )
    parser = command(
        liabilities,
        "show",
        show,
        "Show one liability: what it costs, what keeps it open, and what can be done.",
        examples="""
        splitplane liability show li_0190c2f0
        splitplane liability show vol-0a1b2c3d
        """,
    )
    parser.add_argument("liability", metavar="LIABILITY", help=_LIABILITY)
    parser = command(
        liabilities,
        "end",
        end,
        "End an orphan or what a launch left, whatever holds it back.",
        more=(
            "An orphan is terminated, and a volume, address or script deleted, within a\n"
            "minute. Look at the provider's console first: what has no record of ours may\n"
            "be in use. A machine on record needs no decision: its provider is asked until\n"
            "it is gone."
        ),
        examples='splitplane liability end li_0190c2f0 --reason "ticket 4711"',
    )
    parser.add_argument("liability", metavar="LIABILITY", help=_LIABILITY)
    parser.add_argument(
        "--reason", required=True, dest="why", metavar="TEXT", help="stored with the id of your API key"
    )
    add_yes(parser)


def list_liabilities(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, LiabilityList)
    terminal.present(args.json, answer, lambda page: liability_pages(page, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    answer = _find(terminal.client(), args.liability)
    terminal.present(args.json, answer, lambda liability: liability_page(liability, terminal.now()))


def end(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    found = _find(client, args.liability).cleaned()
    what = found.child_kind or found.kind
    confirm(terminal, args, f"End the {what} {found.provider_ref} of {found.account}? This cannot be undone.")
    answer = client.post(f"{PATH}/{found.id}/end", LiabilityView, EndRequest(args.why))
    terminal.present(args.json, answer, lambda liability: liability_page(liability, terminal.now()))


def _find(client: Client, word: str) -> Answer[LiabilityView]:
    """The liability that the word names. Raises CliError when it names none or several."""
    if is_id(PREFIX, word):
        return client.get(f"{PATH}/{word}", LiabilityView)
    known = client.every(PATH, LiabilityList).value.items
    found = [each for each in known if word in (each.machine_id, each.provider_ref)] or [
        each for each in known if each.id and each.id.startswith(word) and len(word) > len(f"{PREFIX}_")
    ]
    if not found:
        raise CliError(
            f"There is no liability {word!r}. See: splitplane liability list", code="liability_unknown"
        )
    if len(found) > 1:
        ids = ", ".join(str(each.id) for each in found)
        raise CliError(f"{word!r} names several liabilities: {ids}. Use an id.", code="ambiguous")
    return client.get(f"{PATH}/{found[0].id}", LiabilityView)
