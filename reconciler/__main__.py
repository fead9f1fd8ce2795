"""Starts the reconciler: builds its world from the settings and runs loops until a signal.

python -m reconciler run                 run every loop
python -m reconciler run --only money    run the loops of some wings; may be given more than once
python -m reconciler providers           print which provider accounts are on, and why others are off

A process that runs only the wings money and housekeeping works on rows alone, and needs no provider account, SSH key
or hub.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import structlog
from prometheus_client import start_http_server

from control_plane.db.engine import Database, Role
from control_plane.world import utc_now, uuid7
from reconciler import registry, settings
from reconciler.runner import Runner
from reconciler.world import World

ROWS_ONLY = frozenset({"money", "housekeeping"})
"""Wings whose loops use only the database."""

log = structlog.get_logger()


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    command, only = _parse(arguments)
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        if command == "providers":
            _print_accounts(environ)
        else:
            asyncio.run(_run(environ, only))
    except settings.SettingsError as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 2
    return 0


def _parse(arguments: list[str]) -> tuple[str, tuple[str, ...]]:
    """The command, and the wings to run."""
    parser = argparse.ArgumentParser(
        prog="python -m reconciler", description="The only process that calls providers and machines."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the loops until a signal stops them")
    run.add_argument(
        "--only",
        action="append",
        choices=registry.wings(),
        metavar="WING",
        help=f"run only the loops of this wing; may be repeated. One of {', '.join(registry.wings())}",
    )
    commands.add_parser("providers", help="print which provider accounts are on, and why others are off")
    parsed = parser.parse_args(arguments)
    return parsed.command, tuple(getattr(parsed, "only", None) or registry.wings())


def _print_accounts(environ: Mapping[str, str]) -> None:
    from reconciler.compose import configured_accounts  # noqa: PLC0415 - load adapters only where they are used

    for account in configured_accounts(settings.read_accounts(environ), environ):
        print(f"{account.name:30} {'on' if account.on else 'off: ' + (account.off_because or '')}")


async def _run(environ: Mapping[str, str], wings: Sequence[str]) -> None:
    """Run the loops of `wings` until a signal. Raises SettingsError."""
    chosen = settings.read(environ)
    start_http_server(chosen.metrics_listen[1], chosen.metrics_listen[0])
    async with AsyncExitStack() as closing:
        db = Database(chosen.database_url, role=Role.RECONCILER, pool_size=16, readers=16)
        closing.push_async_callback(db.close)
        world = await _world(environ, wings, db, replica=chosen.replica, closing=closing)
        runner = Runner(world, registry.discovered(wings).values())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        log.info("reconciler_started", replica=chosen.replica, wings=list(wings))
        await runner.run()


async def _world(
    environ: Mapping[str, str],
    wings: Sequence[str],
    db: Database,
    *,
    replica: str,
    closing: AsyncExitStack,
) -> World:
    if ROWS_ONLY.issuperset(wings):
        return World(db=db, now=utc_now, new_id=uuid7, replica=replica)
    from reconciler.compose import compose, configured_accounts  # noqa: PLC0415 - as above

    reach = settings.read_reach(environ)
    accounts = configured_accounts(reach.accounts, environ)
    return await compose(reach, accounts, db, replica=replica, closing=closing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
