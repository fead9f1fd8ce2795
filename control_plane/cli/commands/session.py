"""Login, logout, and who is logged in."""

import os
import re
import socket
import stat
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import httpx

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.config import PROFILE_DEFAULT, Holder, Login
from control_plane.cli.errors import CliError, unreachable, usage
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.roles import me_page
from control_plane.cli.signing_in import session, start, wait
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
        "Sign in with your browser, or store an API key.",
        more=(
            "Prints a URL and a code, and waits until you have confirmed the code in a\n"
            "browser. With --key it asks for an API key instead, which is read from the\n"
            "terminal or from standard input, never from the command line. The login is\n"
            "stored in $XDG_CONFIG_HOME/splitplane/config.toml, which only you can read, as a\n"
            "profile that is named after your organization. A profile with another login is\n"
            "replaced only if you name it with --profile."
        ),
        examples="""
        splitplane login --url https://splitplane.example.com
        splitplane login --organization heliotrope --no-browser
        splitplane login --key
        pass show splitplane | splitplane login --key-stdin
        SPLITPLANE_URL=... SPLITPLANE_API_KEY=... splitplane whoami   (without login)
        """,
    )
    parser.add_argument("--url", help="URL of the API (default: the one in use)")
    parser.add_argument(
        "--organization", metavar="NAME", help="refuse a sign-in to any other organization (name or id)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the URL, and open no browser")
    parser.add_argument("--key", action="store_true", help="store an API key, typed at the terminal")
    parser.add_argument("--key-stdin", action="store_true", help="store an API key from standard input")
    command(
        to,
        "logout",
        logout,
        "Sign out, or delete the stored API key.",
        examples="""
        splitplane logout
        splitplane logout --profile heliotrope
        """,
    )
    command(
        to,
        "whoami",
        whoami,
        "Show who you are, your roles, and your organization's balance and quota.",
        examples="splitplane whoami --json",
    )


def login(terminal: Terminal, args: Namespace) -> None:
    url = config.checked_url(args.url or _url_in_use(terminal), terminal.environ)
    if args.key or args.key_stdin:
        key = _read_key(terminal, url, from_stdin=args.key_stdin)
        attempt = Login(url, key, "the one you gave")
    else:
        attempt = _sign_in(terminal, url, browser=not args.no_browser)
    answer = terminal.client(attempt).get(PATH, MeView)
    me = answer.value
    if args.organization not in (None, me.organization, me.organization_id):
        _end(terminal, attempt)
        raise CliError(
            f"You signed in to {me.organization} and not to {args.organization}; nothing was stored.",
            code="other_organization",
        )
    name = args.profile or _profile(me.organization)
    holder = Holder(me.organization_id, me.organization, me.subject)
    stored = replace(attempt, profile=name, stored=True, holder=holder)
    try:
        path = config.store(terminal.environ, stored, replace=args.profile is not None)
    except CliError:
        _end(terminal, attempt)
        raise
    _present(terminal, args, answer, replace(stored, source=f"stored as {name} in {path}"))
    if terminal.environ.get(config.ENV_KEY):
        terminal.note(
            f"{config.ENV_KEY} is set and takes precedence over this login; unset it to use the login."
        )


def _profile(organization: str) -> str:
    """The profile of an organization, by its name: `Heliotrope Labs` becomes `heliotrope-labs`."""
    return re.sub(r"[^a-z0-9]+", "-", organization.lower()).strip("-") or PROFILE_DEFAULT


def _sign_in(terminal: Terminal, url: str, *, browser: bool) -> Login:
    """A session that a person has confirmed in a browser."""
    post = terminal.oauth(url)
    try:
        code = start(post, f"splitplane on {socket.gethostname()}")
    except httpx.TransportError as error:
        why = f"{type(error).__name__}"
        raise unreachable(
            f"Cannot reach {url}: {why}. Check the URL and your network.",
            reason="cannot be reached",
            since=terminal.clock.seconds(),
        ) from None
    opened = browser and not terminal.quiet and terminal.open_url(code.whole_url)
    # Neither is cut or wrapped, so that both can be copied.
    terminal.tell(f"{'Your browser opens' if opened else 'Open'} {code.whole_url}")
    terminal.tell(f"and confirm the code  {code.user_code}")
    with terminal.waiting("Waiting for you to confirm the code. Ctrl-C gives up."):
        found = wait(post, code, now=terminal.clock.seconds, sleep=terminal.clock.sleep)
    return Login(url, "", "the one that you signed in to", session=session(found, terminal.seconds()))


def _end(terminal: Terminal, held: Login) -> bool:
    """End a session at the API. False when the API did not answer."""
    if held.session is None:
        return True
    try:
        answer = terminal.oauth(held.url)("/oauth/revoke", {"token": held.session.refresh})
    except httpx.TransportError:
        return False
    return answer.is_success


def _url_in_use(terminal: Terminal) -> str:
    if url := terminal.environ.get(config.ENV_URL):
        return url
    try:
        saved = config.stored(terminal.environ, terminal.profile)
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
    held = config.stored(terminal.environ, terminal.profile)
    ended = held is None or _end(terminal, held)
    path = config.forget(terminal.environ, terminal.profile)
    if args.json:
        terminal.json({"logged_out": path is not None})
        return
    if held is None or path is None:
        terminal.say("Nothing was stored.")
    elif held.session is None:
        terminal.say(f"Deleted the API key in {path}.")
        terminal.note("The key itself is still valid; revoke it if it may have leaked.")
    else:
        terminal.say(f"Signed out of {held.profile}.")
        if not ended:
            terminal.warn(
                f"{held.url} did not answer; the session ends by itself, or: splitplane session list"
            )


def whoami(terminal: Terminal, args: Namespace) -> None:
    login = terminal.login()
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
        lambda me: me_page(
            me, organization, Names(terminal.client(login)), url=login.url, source=login.source
        ),
    )
    if not (args.json or answer.value.roles):
        terminal.note(f"You have no role yet; ask an owner or admin of {answer.value.organization} for one.")
