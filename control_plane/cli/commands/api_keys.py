"""API keys, with which people and programs log in."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.commands.lookup import find_subject, named
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command, noun, suggestion
from control_plane.cli.render.api_keys import api_key_table, issued_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.api_keys import (
    OVERLAP_HOURS_DEFAULT,
    ApiKeyList,
    ApiKeyRequest,
    ApiKeyView,
    IssuedApiKey,
    RotationRequest,
)

PATH = "/v1/api-keys"


def add(to: Commands) -> None:
    keys = noun(to, "api-key", "List, create, rotate and revoke the API keys of your organization.")
    parser = command(
        keys,
        "list",
        list_keys,
        "List your API keys.",
        examples="""
        splitplane api-key list
        splitplane api-key list --all
        """,
    )
    parser.add_argument("--all", action="store_true", help="include keys that have ended")
    _add_create(keys)
    _add_rotate(keys)
    _add_revoke(keys)


def _add_create(keys: Commands) -> None:
    parser = command(
        keys,
        "create",
        create,
        "Create an API key. Its secret is printed once and cannot be shown again.",
        more=(
            "The key is yours, and can do what you may do, unless you limit it. With --owner\n"
            "it belongs to somebody else, who may do no more than you."
        ),
        examples="""
        splitplane api-key create ci
        splitplane api-key create ci --quiet | pass insert -e splitplane/ci
        splitplane api-key create nightly --owner ci-runner --days 90
        splitplane api-key create reader --scope leases.read --project research
        """,
    )
    parser.add_argument("name", metavar="NAME", help="what you will recognize the key by")
    parser.add_argument(
        "--owner", metavar="SUBJECT", help="a service account by its name, a user by its email, or an id"
    )
    parser.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="PERMISSION",
        help="limit it to this permission, such as leases.read; may be repeated",
    )
    parser.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="PROJECT",
        help="limit it to this project; may be repeated",
    )
    parser.add_argument("--days", type=int, metavar="N", help="it ends after N days (default: never)")


def _add_rotate(keys: Commands) -> None:
    parser = command(
        keys,
        "rotate",
        rotate,
        "Replace an API key: by default the one that you are logged in with.",
        more=(
            "Creates a key with the same name, owner, limits and end. The old one ends after\n"
            "the overlap. Your login is changed to the new key. The secret of any other key,\n"
            "or of a key that is in the environment, is printed once."
        ),
        examples="""
        splitplane api-key rotate
        splitplane api-key rotate ci --overlap-hours 0 --yes
        """,
    )
    parser.add_argument(
        "key", metavar="API_KEY", nargs="?", help="name, or beginning of the id (default: the one in use)"
    )
    parser.add_argument(
        "--overlap-hours",
        type=int,
        default=OVERLAP_HOURS_DEFAULT,
        metavar="N",
        help=f"how long the old key is still valid (default: {OVERLAP_HOURS_DEFAULT}; 0: not at all)",
    )
    add_yes(parser)


def _add_revoke(keys: Commands) -> None:
    parser = command(
        keys,
        "revoke",
        revoke,
        "Revoke an API key. Programs that use it are refused at once.",
        examples="splitplane api-key revoke ci --yes",
    )
    parser.add_argument("key", metavar="API_KEY", help="name, or beginning of the id")
    add_yes(parser)


def list_keys(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.whole(PATH, ApiKeyList)
    if not args.all:
        answer = _in_force(answer, terminal.now())
    terminal.present(
        args.json, answer, lambda page: api_key_table(page.items, terminal.now(), Names(client).subject)
    )


def _in_force(answer: Answer[ApiKeyList], now: datetime) -> Answer[ApiKeyList]:
    kept = tuple(key for key in answer.value.items if is_valid(key, now))
    ids = {key.id for key in kept}
    items = [item for item in answer.content["items"] if item["id"] in ids]
    return Answer({**answer.content, "items": items}, ApiKeyList(kept))


def is_valid(key: ApiKeyView, now: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def create(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    subject = None if args.owner is None else find_subject(client, args.owner)
    try:
        expires_at = None if args.days is None else terminal.now() + timedelta(days=args.days)
    except OverflowError:
        raise usage(
            f"--days {args.days} is later than the year 2200; leave it out for a key that does not end."
        ) from None
    request = _request(args.name, subject, args.scope, args.project, expires_at)
    answer = client.post(PATH, IssuedApiKey, request)
    terminal.present(args.json, answer, lambda issued: issued_page(issued, terminal.now(), owner=args.owner))


def rotate(terminal: Terminal, args: Namespace) -> None:
    login = terminal.login()
    client = terminal.client(login)
    keys = client.whole(PATH, ApiKeyList).value.items
    old = find(keys, args.key, terminal.now()) if args.key else _in_use(keys, login.api_key)
    in_use = _hints_at(old.hint, login.api_key)
    if args.overlap_hours == 0:
        confirm(
            terminal,
            args,
            f"Replace the API key {old.name} ({old.hint})? Programs that use it are refused from then on.",
        )
    answer = client.post(f"{PATH}/{old.id}/rotations", IssuedApiKey, RotationRequest(args.overlap_hours))
    new = replace(login, api_key=_secret(answer.value))
    stored = in_use and login.stored
    if stored:
        _store(terminal, new, answer.value)
    terminal.present(args.json, answer, lambda issued: issued_page(issued, terminal.now(), stored=stored))
    ends = "has ended" if args.overlap_hours == 0 else f"ends in {args.overlap_hours} h at the latest"
    terminal.note(f"The old key {old.id} {ends}.")


def _secret(issued: IssuedApiKey) -> str:
    if issued.secret is None:
        raise CliError(
            f"The API did not send the secret of the new key {issued.key.id}."
            f" Run: splitplane api-key revoke {issued.key.id}",
            code="secret_missing",
        )
    return issued.secret


def _store(terminal: Terminal, new: config.Login, issued: IssuedApiKey) -> None:
    """Change the login to the new key. When that fails, its secret is shown, because the old key may have ended."""
    try:
        with config.locked(terminal.environ):
            config.update(terminal.environ, new)
    except CliError:
        terminal.write(f"{issued.secret}\n")
        raise


def _request(
    name: str,
    subject: str | None,
    scopes: Sequence[str],
    projects: Sequence[str],
    expires_at: datetime | None,
) -> ApiKeyRequest:
    given = {
        "subject": subject,
        "scopes": scopes or None,
        "projects": projects or None,
        "expires_at": expires_at,
    }
    try:
        return msgspec.convert({"name": name, **given}, ApiKeyRequest)
    except msgspec.ValidationError as error:
        raise usage(f"{error}.") from None


def _in_use(keys: Sequence[ApiKeyView], secret: str) -> ApiKeyView:
    """The key whose secret this is, found by its hint: the first and last characters of the secret."""
    found = [key for key in keys if key.revoked_at is None and _hints_at(key.hint, secret)]
    if len(found) != 1:
        raise CliError(
            "The list of keys does not show which one is in use; name it: splitplane api-key rotate API_KEY",
            code="ambiguous",
        )
    return found[0]


def _hints_at(hint: str, secret: str) -> bool:
    first, _, last = hint.partition("...")
    return secret.startswith(first) and secret.endswith(last)


def revoke(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    key = find(client.whole(PATH, ApiKeyList).value.items, args.key, terminal.now())
    confirm(
        terminal,
        args,
        f"Revoke the API key {key.name} ({key.hint})? Programs that use it are refused at once.",
    )
    client.delete(f"{PATH}/{key.id}")
    terminal.done(args.json, "revoked", key.id, f"Revoked {key.name} ({key.hint}).")


def find(keys: Sequence[ApiKeyView], word: str, now: datetime) -> ApiKeyView:
    """The key in force with this name or id. Names need not be unique: an ambiguous one is refused."""
    known = [key for key in keys if is_valid(key, now)]
    found = named(known, word)
    if not found:
        near = suggestion(word, (key.name for key in known))
        raise CliError(f"There is no API key {word!r}.{near}", code="api_key_unknown")
    if len(found) > 1:
        choices = "\n".join(f"  {key.id}  {key.hint}" for key in found)
        raise CliError(
            f"{word!r} names {len(found)} API keys; use one of their ids:\n{choices}", code="ambiguous"
        )
    return found[0]
