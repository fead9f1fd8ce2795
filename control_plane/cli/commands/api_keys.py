"""API keys, with which people and programs log in."""

from argparse import Namespace
from collections.abc import Sequence

import msgspec

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import named
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun, suggestion
from control_plane.cli.render.api_keys import api_key_table, issued_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.api_keys import ApiKeyList, ApiKeyRequest, ApiKeyView, IssuedApiKey

PATH = "/v1/api-keys"
ROLES = ("customer", "operator")


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
    parser.add_argument("--all", action="store_true", help="include keys that were revoked")
    _add_create(keys)
    _add_rotate(keys)
    _add_revoke(keys)


def _add_create(keys: Commands) -> None:
    parser = command(
        keys,
        "create",
        create,
        "Create an API key. Its secret is printed once and cannot be shown again.",
        examples="""
        splitplane api-key create ci
        splitplane api-key create ci --quiet | pass insert -e splitplane/ci
        splitplane api-key create on-call --role operator
        """,
    )
    parser.add_argument("name", metavar="NAME", help="what you will recognize the key by")
    parser.add_argument(
        "--role", choices=ROLES, default="customer", help="what the key may do (default: customer)"
    )


def _add_rotate(keys: Commands) -> None:
    parser = command(
        keys,
        "rotate",
        rotate,
        "Replace an API key: by default the one that you are logged in with.",
        more=(
            "Creates a key with the same name and role, and then revokes the old one. Your\n"
            "login is changed to the new key. The secret of any other key, or of a key that\n"
            "is in the environment, is printed once."
        ),
        examples="""
        splitplane api-key rotate
        splitplane api-key rotate ci --yes
        """,
    )
    parser.add_argument(
        "key", metavar="API_KEY", nargs="?", help="name, or beginning of the id (default: the one in use)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_revoke(keys: Commands) -> None:
    parser = command(
        keys,
        "revoke",
        revoke,
        "Revoke an API key. Programs that use it are refused at once.",
        examples="splitplane api-key revoke ci --yes",
    )
    parser.add_argument("key", metavar="API_KEY", help="name, or beginning of the id")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def list_keys(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, ApiKeyList)
    if not args.all:
        answer = _in_force(answer)
    terminal.present(args.json, answer, lambda page: api_key_table(page.items, terminal.now()))


def _in_force(answer: Answer[ApiKeyList]) -> Answer[ApiKeyList]:
    items = [item for item in answer.content["items"] if item["revoked_at"] is None]
    kept = tuple(key for key in answer.value.items if key.revoked_at is None)
    return Answer({**answer.content, "items": items}, ApiKeyList(kept))


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(PATH, IssuedApiKey, _request(args.name, args.role))
    terminal.present(args.json, answer, lambda issued: issued_page(issued, terminal.now()))


def rotate(terminal: Terminal, args: Namespace) -> None:
    login = config.current(terminal.environ)
    client = terminal.client(login)
    keys = client.whole(PATH, ApiKeyList).value.items
    old = find(keys, args.key) if args.key else _in_use(keys, login.api_key)
    in_use = _hints_at(old.hint, login.api_key)
    if not args.yes:
        terminal.confirm(
            f"Replace the API key {old.name} ({old.hint})? Programs that use it are refused from then on.",
            otherwise="--yes",
        )
    answer = client.post(PATH, IssuedApiKey, _request(old.name, old.role))
    new = config.Login(login.url, _secret(answer.value), "the new one")
    stored = in_use and login.stored
    if stored:
        _store(terminal, client, new, answer.value.key)
    terminal.present(args.json, answer, lambda issued: issued_page(issued, terminal.now(), stored=stored))
    # A key cannot revoke itself.
    (terminal.client(new) if in_use else client).delete(f"{PATH}/{old.id}")
    terminal.note(f"The old key {old.id} is revoked.")


def _secret(issued: IssuedApiKey) -> str:
    if issued.secret is None:
        raise CliError(
            f"The API did not send the secret of the new key {issued.key.id}, and the old key is in force."
            f" Run: splitplane api-key revoke {issued.key.id}",
            code="secret_missing",
        )
    return issued.secret


def _store(terminal: Terminal, client: Client, new: config.Login, key: ApiKeyView) -> None:
    """Change the login to the new key. When that fails, the new key is revoked and the old one stays in force."""
    try:
        config.store(terminal.environ, new)
    except CliError:
        client.delete(f"{PATH}/{key.id}")
        raise


def _request(name: str, role: str) -> ApiKeyRequest:
    """A request for a key. A role that only a newer API knows is refused here."""
    try:
        return msgspec.convert({"name": name, "role": role}, ApiKeyRequest)
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
    key = find(client.whole(PATH, ApiKeyList).value.items, args.key)
    if not args.yes:
        terminal.confirm(
            f"Revoke the API key {key.name} ({key.hint})? Programs that use it are refused at once.",
            otherwise="--yes",
        )
    client.delete(f"{PATH}/{key.id}")
    if args.json:
        terminal.json({"revoked": key.id})
    elif terminal.quiet:
        terminal.write(f"{key.id}\n")
    else:
        terminal.say(f"Revoked {key.name} ({key.hint}).")


def find(keys: Sequence[ApiKeyView], word: str) -> ApiKeyView:
    """The key in force with this name or id. Names need not be unique: an ambiguous one is refused."""
    known = [key for key in keys if key.revoked_at is None]
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
