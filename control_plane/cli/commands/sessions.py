"""Sessions: where people are signed in."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.sessions import session_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.sessions import SessionList

PATH = "/v1/sessions"
PREFIX = "ses"


def add(to: Commands) -> None:
    sessions = noun(to, "session", "List and end the sessions of people who are signed in.")
    parser = command(
        sessions,
        "list",
        list_sessions,
        "List your open sessions; with the permission, everybody's in the organization.",
        examples="splitplane session list --all",
    )
    parser.add_argument("--all", action="store_true", help="with those that have ended")
    parser = command(
        sessions,
        "revoke",
        revoke,
        "End a session at once.",
        examples="splitplane session revoke ses_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    )
    parser.add_argument("session", metavar="SESSION", help="its id, or the beginning of it")


def list_sessions(terminal: Terminal, args: Namespace) -> None:
    client, now = terminal.client(), terminal.now()
    answer = client.every(PATH, SessionList)
    terminal.present(
        args.json,
        answer,
        lambda page: session_table(
            [
                session
                for session in page.items
                if args.all or (session.ended_at is None and session.expires_at > now)
            ],
            Names(client),
            now,
        ),
    )


def revoke(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    session = args.session if is_id(PREFIX, args.session) else _find(client, args.session)
    client.delete(f"{PATH}/{session}")
    terminal.done(args.json, "revoked", session, f"Ended {session}.")


def _find(client: Client, word: str) -> str:
    known = [session.id for session in client.every(PATH, SessionList).value.items]
    found = [session for session in known if session.startswith(word)]
    if len(found) != 1 or len(word) <= len(f"{PREFIX}_"):
        raise CliError(
            f"{word!r} is the beginning of {len(found) or 'no'} ids of sessions. See: splitplane session list",
            code="session_unknown",
        )
    return found[0]
