"""Sessions: where people are signed in."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.sessions import session_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.sessions import SessionList

PATH = "/v1/sessions"


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
    parser.add_argument("session", metavar="SESSION", help="its id")


def list_sessions(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, SessionList)
    now = terminal.now()
    terminal.present(
        args.json,
        answer,
        lambda page: session_table(
            [
                session
                for session in page.items
                if args.all or (session.ended_at is None and session.expires_at > now)
            ],
            now,
        ),
    )


def revoke(terminal: Terminal, args: Namespace) -> None:
    terminal.client().delete(f"{PATH}/{args.session}")
    if args.json:
        terminal.json({"id": args.session, "revoked": True})
        return
    terminal.say(f"Ended {args.session}.")
