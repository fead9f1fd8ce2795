"""Users: the people of an organization."""

from argparse import Namespace

from control_plane.cli.commands import subjects
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.subjects import user_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.subjects import UserPage, UserRequest, UserView

PATH = "/v1/users"
USER_HELP = "its email address or its id"


def add(to: Commands) -> None:
    users = noun(to, "user", "Invite, list, suspend and remove the people of your organization.")
    parser = command(
        users,
        "invite",
        invite,
        "Invite a person, who has no role until somebody grants one.",
        examples="""
        splitplane user invite ada@example.com "Ada Lovelace"
        splitplane role grant member ada@example.com --project research
        """,
    )
    parser.add_argument("email", metavar="EMAIL", help="unique in your organization")
    parser.add_argument("name", metavar="NAME", help="the name of the person")
    command(users, "list", list_users, "List your users, oldest first.", examples="splitplane user list")
    subjects.add(users, USERS)


def invite(terminal: Terminal, args: Namespace) -> None:
    login = terminal.login()
    answer = terminal.client(login).post(PATH, UserView, UserRequest(args.email, args.name))
    terminal.present(args.json, answer, lambda user: user_table([user], terminal.now()))
    if not args.json:
        terminal.note(f"Give them a role, such as: splitplane role grant member {args.email}")
        terminal.note(f"They sign in with: splitplane login --url {login.url}")


def list_users(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, UserPage)
    terminal.present(args.json, answer, lambda page: user_table(page.items, terminal.now()))


USERS = subjects.Kind(
    PATH,
    UserView,
    lambda user, terminal: user_table([user], terminal.now()),
    word="user",
    example="ada@example.com",
    metavar="USER",
    help=USER_HELP,
    summaries={
        "show": "Show one user.",
        "suspend": "End a user's sessions, and refuse sign-ins and API keys until resumed.",
        "resume": "Let a suspended user sign in and use API keys again.",
        "remove": "Remove a user for good: its API keys are revoked and its roles end.",
    },
)
