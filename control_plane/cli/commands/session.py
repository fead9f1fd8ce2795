"""Login, logout, and who is logged in."""

import os
import stat
from argparse import Namespace
from pathlib import Path

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.roles import me_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.organizations import OrganizationView
from control_plane.wire.roles import MeView

PATH = "/v1/me"
KEY_LENGTH_MAX = 200


def add(to: Commands) -> None:
    parser = command(
        to,
        "login",
        login,
        "Check an API key and store it.",
        more=(
            "The key is read from the terminal or from standard input, never from the\n"
            "command line. It is stored after the API has accepted it, in\n"
            "$XDG_CONFIG_HOME/splitplane/config.toml, which only you can read."
        ),
        examples="""
        splitplane login --url https://splitplane.example.com
        pass show splitplane | splitplane login --key-stdin
        SPLITPLANE_URL=... SPLITPLANE_API_KEY=... splitplane whoami   (without login)
        """,
    )
    parser.add_argument("--url", help="URL of the API (default: the one in use)")
    parser.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    command(to, "logout", logout, "Delete the stored API key.", examples="splitplane logout")
    command(
        to,
        "whoami",
        whoami,
        "Show who you are, your roles, and your organization's balance and quota.",
        examples="splitplane whoami --json",
    )


def login(terminal: Terminal, args: Namespace) -> None:
    url = config.checked_url(args.url or _url_in_use(terminal), terminal.environ)
    attempt = Login(url, _read_key(terminal, url, from_stdin=args.key_stdin), "the one you gave")
    answer = terminal.client(attempt).get(PATH, MeView)
    path = config.store(terminal.environ, attempt)
    _present(terminal, args, answer, Login(url, attempt.api_key, f"stored in {path}"))
    if terminal.environ.get(config.ENV_KEY):
        terminal.note(
            f"{config.ENV_KEY} is set and takes precedence over this login; unset it to use the login."
        )


def _url_in_use(terminal: Terminal) -> str:
    if url := terminal.environ.get(config.ENV_URL):
        return url
    try:
        saved = config.stored(terminal.environ)
    except CliError:
        saved = None  # A damaged or exposed login is replaced by the new one.
    return saved.url if saved else config.URL_DEFAULT


def _read_key(terminal: Terminal, url: str, *, from_stdin: bool) -> str:
    if from_stdin:
        _check_redirected(terminal)
        key = terminal.stdin.readline().strip()
    elif terminal.stdin.isatty():
        key = terminal.ask_secret(f"API key for {url}: ").strip()
    else:
        raise usage("Standard input is not a terminal; pipe the API key in and add --key-stdin.")
    # The key becomes the value of a header, so it must be a valid one.
    if not (key and key.isascii() and key.isprintable() and " " not in key and len(key) <= KEY_LENGTH_MAX):
        raise usage("That is not an API key; paste the one line that begins with spk_.")
    return key


def _check_redirected(terminal: Terminal) -> None:
    """Refuse a key from a file (`--key-stdin < FILE`) that others can read. Pipes have no such file."""
    try:
        status = os.fstat(terminal.stdin.fileno())
    except (OSError, ValueError):  # Not a file of the system, as in tests.
        return
    if stat.S_ISREG(status.st_mode):
        config.check_private(Path("the file on standard input"), status, "an API key")


def logout(terminal: Terminal, args: Namespace) -> None:
    path = config.forget(terminal.environ)
    if args.json:
        terminal.json({"logged_out": path is not None})
        return
    terminal.say(f"Deleted the API key in {path}." if path else "No API key was stored.")
    terminal.note("The key itself is still valid; revoke it if it may have leaked.")


def whoami(terminal: Terminal, args: Namespace) -> None:
    login = config.current(terminal.environ)
    answer = terminal.client(login).get(PATH, MeView)
    _present(terminal, args, answer, login)


def _present(terminal: Terminal, args: Namespace, answer: Answer[MeView], login: Login) -> None:
    organization = None
    sees = {permission.permission for permission in answer.value.permissions if permission.everywhere}
    if "organizations.read" in sees and not (args.json or terminal.quiet):
        organization = terminal.client(login).get("/v1/organization", OrganizationView).value
    terminal.present(
        args.json,
        answer,
        lambda me: me_page(me, organization, url=login.url, source=login.source),
    )
