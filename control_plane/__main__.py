"""The API process and the commands around it: `python -m control_plane --help`.

Standard output carries only what a script reads (the new key, the OpenAPI document); everything
else goes to standard error. Exit codes: 0 done, 1 refused or failed, 2 wrong usage or a setting that cannot be used.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import msgspec

from control_plane import settings as configuration
from control_plane.api import server
from control_plane.api.app import create_app
from control_plane.api.openapi.document import document as openapi_document
from control_plane.db import logins
from control_plane.db.logins import LoginError
from control_plane.db.migrate import TableInUseError, migrate
from control_plane.domain.audit import Happening
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano, parse_usd, usd
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.secret import MasterKey
from control_plane.services import administration, health, process
from control_plane.services.catalogue import CatalogueError
from control_plane.services.organizations import GPU_QUOTA_DEFAULT
from control_plane.services.sla_terms import SlaTermsError
from control_plane.settings import Settings, SettingsError
from control_plane.world import World
from tracing import starting as tracing


class Failure(Exception):  # noqa: N818 - an expected end of a command, not a bug
    """Ends the command with exit code 1 and a sentence for the person at the terminal."""


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-12-01T06:00") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _amount(text: str) -> Nano:
    try:
        amount = parse_usd(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if amount <= 0:
        raise argparse.ArgumentTypeError("the amount must be more than zero")
    return amount


def _kms_key(text: str) -> MasterKey:
    try:
        return configuration.kms_key(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m control_plane", description="Splitplane's API process.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    commands.add_parser("serve", help="serve the API until a signal stops it")
    commands.add_parser("migrate", help="migrate the database to the newest schema")
    login = commands.add_parser(
        "logins", help="make the database logins of the processes, or change their passwords"
    )
    login.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="its files api, reconciler, ingest, admin, migrate and backup hold the URL of a login each; those that are"
        " there are read",
    )
    login.add_argument(
        "--also",
        nargs=3,
        metavar=("FILE", "LOGIN", "VERIFIER"),
        help="also make this login for the process that a file is named after, before any file names it: VERIFIER is"
        " what PostgreSQL keeps of its password (SCRAM-SHA-256)",
    )
    login.add_argument(
        "--end",
        metavar="LOGIN",
        help="then close the connections of this login, which no file names any more, and drop it",
    )
    commands.add_parser("openapi", help="print the OpenAPI document")

    bootstrap = commands.add_parser(
        "bootstrap",
        help="create an organization and print its first API key, or with --operator its two, once",
    )
    bootstrap.add_argument(
        "--organization", required=True, metavar="NAME", help="the name of the new organization"
    )
    bootstrap.add_argument(
        "--operator",
        action="store_true",
        help="create the organization of those who run the installation: prints the key of its operator,"
        " and on a second line the key that posts money",
    )
    bootstrap.add_argument("--top-up", type=_amount, metavar="USD", help="first top-up of the organization")
    bootstrap.add_argument(
        "--gpu-quota",
        type=int,
        default=GPU_QUOTA_DEFAULT,
        metavar="N",
        help=f"how many GPUs its leases may hold at a time (default: {GPU_QUOTA_DEFAULT})",
    )

    top_up = commands.add_parser("topup", help="post money that an organization paid in, once per key")
    top_up.add_argument("organization", metavar="ORGANIZATION", help="name or org_ id")
    top_up.add_argument("amount", type=_amount, metavar="USD", help="in US dollars, such as 250 or 99.90")
    top_up.add_argument(
        "--key", required=True, metavar="K", help="identifies the payment; the same key is posted once"
    )

    master = commands.add_parser("master-key", help="let an organization use a key of its own in AWS KMS")
    master.add_argument("organization", metavar="ORGANIZATION", help="name or org_ id")
    chosen = master.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "arn", type=_kms_key, nargs="?", metavar="ARN", help="the ARN of the organization's key"
    )
    chosen.add_argument(
        "--ours", dest="arn", action="store_const", const=None, help="use the installation's key again"
    )

    keys = commands.add_parser(
        "token-keys", help="list the keys that sign access tokens, or remove one that leaked"
    )
    keys.add_argument("--remove", metavar="ID", help="let this key verify no token from now on")

    book = commands.add_parser("price-book", help="put a price book in force")
    book.add_argument("file", type=Path, nargs="?", metavar="FILE", help="default: the shipped price book")
    when = book.add_mutually_exclusive_group()
    when.add_argument(
        "--from",
        dest="effective_from",
        type=_moment,
        metavar="TIME",
        help="when it comes into force, in UTC, such as 2026-12-01 or 2026-12-01T06:00 (default: now)",
    )
    when.add_argument(
        "--withdraw", type=int, metavar="VERSION", help="let a book that is not in force yet never be"
    )

    levels = commands.add_parser("sla-terms", help="put the terms of service levels in force for new leases")
    levels.add_argument("file", type=Path, nargs="?", metavar="FILE", help="default: the shipped terms")
    return parser


def _print_message(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")


async def _bootstrap(world: World, arguments: argparse.Namespace) -> None:
    made = await administration.bootstrap(
        world,
        arguments.organization,
        platform=arguments.operator,
        top_up=arguments.top_up,
        gpu_quota=arguments.gpu_quota,
    )
    if isinstance(made, Refused):
        raise Failure(made.why)
    created = f"Created {arguments.organization} ({on_wire(Prefix.ORGANIZATION, made.id)})."
    if made.finance is None:
        _print_message(f"{created} Its first API key, of its owner, shown once:")
        sys.stdout.write(made.issued.secret + "\n")
        return
    _print_message(
        f"{created} Its first API keys, shown once: the operator's, and then the one that posts money:"
    )
    sys.stdout.write(f"{made.issued.secret}\n{made.finance.secret}\n")


async def _top_up(world: World, arguments: argparse.Namespace) -> None:
    posted = await administration.top_up(world, arguments.organization, arguments.amount, key=arguments.key)
    if isinstance(posted, Refused):
        raise Failure(posted.why)
    if posted:
        _print_message(f"Posted {usd(arguments.amount)} USD to {arguments.organization}.")
    else:
        _print_message(f"Nothing changed: the key {arguments.key!r} was posted before.")


async def _master_key(world: World, arguments: argparse.Namespace) -> None:
    refused = await administration.set_master_key(world, arguments.organization, arguments.arn)
    if refused is not None:
        raise Failure(refused.why)
    _print_message(
        f"The data keys of {arguments.organization} are wrapped under {arguments.arn or 'our key'} within minutes."
    )


async def _token_keys(world: World, arguments: argparse.Namespace) -> None:
    if arguments.remove is not None:
        refused = await administration.remove_key_of_tokens(world, arguments.remove)
        if refused is not None:
            raise Failure(refused.why)
        _print_message(
            "Removed. Its tokens are refused within a second; clients refresh theirs by themselves."
        )
        return
    for key, phase in await administration.keys_of_tokens(world):
        sys.stdout.write(f"{key.id}  {phase:8}  signs until {key.signs_until:%Y-%m-%d %H:%M} UTC\n")


async def _price_book(world: World, arguments: argparse.Namespace) -> None:
    shipped = resources.files("control_plane") / "price_book.toml"
    if arguments.withdraw is not None:
        refused = await administration.withdraw_price_book(world, arguments.withdraw)
        if refused is not None:
            raise Failure(f"{refused.why} ({refused.code})")
        _print_message(f"The price book v{arguments.withdraw} is withdrawn.")
        return
    try:
        text = (arguments.file or shipped).read_text(encoding="utf-8")
        loaded = await administration.load_price_book(world, text, effective_from=arguments.effective_from)
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{arguments.file}: {error}") from error
    except CatalogueError as error:
        raise Failure(f"{arguments.file or 'the shipped price book'}: {error}") from error
    if isinstance(loaded, Refused):
        raise Failure(f"{arguments.file or 'the shipped price book'}: {loaded.why} ({loaded.code})")
    if loaded.version is None:
        _print_message(f"{loaded.skus} SKUs, and no price changed.")
    elif arguments.effective_from is None:
        _print_message(f"{loaded.skus} SKUs are in force: price book v{loaded.version}.")
    else:
        since = f"{arguments.effective_from:%Y-%m-%d %H:%M} UTC"
        _print_message(f"{loaded.skus} SKUs come into force at {since}: price book v{loaded.version}.")


async def _sla_terms(world: World, arguments: argparse.Namespace) -> None:
    shipped = resources.files("control_plane") / "sla_terms.toml"
    try:
        text = (arguments.file or shipped).read_text(encoding="utf-8")
        changed = await administration.load_sla_terms(world, text)
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{arguments.file}: {error}") from error
    except SlaTermsError as error:
        raise Failure(f"{arguments.file or 'the shipped terms'}: {error}") from error
    _print_message(
        "The terms are in force for new leases." if changed else "Nothing changed: they are in force already."
    )


_EVENTS: dict[str, Happening | Permission] = {
    "bootstrap": Permission.ORGANIZATIONS_CREATE,
    "topup": Permission.LEDGER_POST,
    "master-key": Happening.MASTER_KEYS_SET,
    "price-book": Happening.PRICE_BOOKS_LOAD,
    "sla-terms": Happening.SLA_TERMS_LOAD,
    "token-keys": Happening.SIGNING_KEYS_REMOVE,
}
"""What the administrator's commands are in the audit log."""
_AS_ADMINISTRATOR: dict[str, Callable[[World, argparse.Namespace], Coroutine[None, None, None]]] = {
    "bootstrap": _bootstrap,
    "topup": _top_up,
    "master-key": _master_key,
    "price-book": _price_book,
    "sla-terms": _sla_terms,
    "token-keys": _token_keys,
}


async def _as_administrator(arguments: argparse.Namespace, settings: Settings) -> None:
    async with process.administrator(settings.database_url) as world:
        about = getattr(arguments, "organization", None)
        recorded = administration.recorded(world, _EVENTS[arguments.command], about)
        await _AS_ADMINISTRATOR[arguments.command](recorded, arguments)


def document() -> bytes:
    """Render the OpenAPI document. No database is needed."""
    world = process.api_process("postgresql://nowhere/none", connections=1).world
    app = create_app(world, Settings(database_url=""))
    return msgspec.json.format(msgspec.json.encode(openapi_document(app)), indent=1) + b"\n"


def _run(arguments: argparse.Namespace, settings: Settings) -> None:
    if arguments.command == "serve":
        configuration.refuse_secrets(os.environ)
        # Once here, because the worker that makes traces could not say in one sentence what is wrong.
        tracing.tracer(os.environ, "splitplane-api", _print_message).close()
        server.serve(settings)
    elif arguments.command == "migrate":
        asyncio.run(migrate(settings.database_url, tell=_print_message))
        _print_message("The database is at the newest schema.")
    elif arguments.command == "logins":
        named = logins.in_folder(arguments.folder)
        if arguments.also is not None:
            named.append(logins.described(*arguments.also))
        for sentence in asyncio.run(logins.make(settings.database_url, named)):
            _print_message(sentence)
        if arguments.end is not None:
            _print_message(asyncio.run(logins.end(settings.database_url, arguments.end, named)))
    else:
        asyncio.run(_as_administrator(arguments, settings))


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.command == "openapi":
        sys.stdout.buffer.write(document())
        return 0
    try:
        settings = configuration.read(os.environ)
        return _ran(arguments, settings)
    except (SettingsError, process.LoginRefused) as error:
        _print_message(str(error))
        return 2


def _ran(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run a command that needs the database. Raises SettingsError."""
    try:
        _run(arguments, settings)
    except (Failure, TableInUseError, LoginError) as error:
        _print_message(str(error))
        return 1
    except process.ClockDiffers as error:
        _print_message(str(error))
        return 1
    except process.NotMigrated as error:
        _print_message(f"The database cannot be used: {error}.")
        return 1
    except Exception as error:
        if not health.is_database_trouble(error):
            raise
        _print_message(f"The database cannot be used: {process.fault(error, settings.database_url)}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
