"""Starts the reconciler: builds its world from the settings and runs loops until a signal.

python -m reconciler run                 run every loop
python -m reconciler run --only money    run the loops of some wings; may be given more than once
python -m reconciler ssh-authority list  list the keys that sign SSH certificates; also: keys, rotate
python -m reconciler audit-bucket NAME   export the audit log to an S3 bucket
python -m reconciler verify-audit        check every chain of the audit log

A process that runs only the wings money, housekeeping, sla and enforcement works on rows alone, and needs no provider
account, SSH key or hub. `run` waits for a database that is away, starting or not migrated.

Exit codes: 0 stopped by a signal, 1 had to be ended by force after one or could not begin its loops, 2 wrong usage or a
setting that cannot be used.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import structlog
from prometheus_client import REGISTRY

from control_plane.db.clock import DatabaseClock, PostgresTime
from control_plane.db.connect import place
from control_plane.db.engine import Database, Role
from control_plane.db.errors import is_database_trouble, sentence
from control_plane.db.listen import Listener as Notifications
from control_plane.db.privileges import LoginRefused
from control_plane.pool_metrics import PoolCollector
from control_plane.vault.errors import KeyManagerError
from control_plane.world import utc_now, uuid7
from reconciler import audit_bucket, audit_verification, registry, sample_archiving, settings
from reconciler.enforcement_rules import read_rules
from reconciler.health import Health
from reconciler.keys import key_manager
from reconciler.listener import Listener
from reconciler.process import BuildWorld, Process, stop_on_signals
from reconciler.remote_write import targets
from reconciler.world import World
from reconciler.worlds.rows import RowsWorld
from tracing import starting as tracing
from tracing.tracer import Tracer

log = structlog.get_logger()


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    parsed = parse(arguments)
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
        if parsed.command != "run":
            return asyncio.run(_command(environ, parsed))
        asyncio.run(_run(environ, parsed.only))
    except (settings.SettingsError, registry.MalformedLoop, LoginRefused) as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 2
    return 0


async def _command(environ: Mapping[str, str], parsed: argparse.Namespace) -> int:
    """Any command but `run`. Returns its exit code."""
    try:
        if parsed.command == "ssh-authority":
            return await _ssh_authority(environ, parsed)
        if parsed.command == "audit-bucket":
            return await _audit_bucket(environ, parsed)
        return await _verify_audit(environ)
    except Exception as error:
        if not is_database_trouble(error):
            raise
        print(f"reconciler: {sentence(error, place(settings.read(environ).database_url))}", file=sys.stderr)
        return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command with its options; `only` are the wings to run, each once."""
    parser = argparse.ArgumentParser(
        prog="python -m reconciler", description="The only process that calls providers and machines."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="run the loops until a signal stops them", usage="%(prog)s [-h] [--only WING]..."
    )
    run.add_argument(
        "--only",
        action="append",
        type=_wing,
        metavar="WING",
        help=f"run only the loops of this wing; give it once for each wing. One of {', '.join(registry.wings())}",
    )
    commands.add_parser(
        "verify-audit",
        help="check every chain of the audit log in the database; exits with 1 when one is broken",
    )
    bucket = commands.add_parser(
        "audit-bucket", help="print or choose the S3 bucket that the audit log is exported to"
    )
    which = bucket.add_mutually_exclusive_group()
    which.add_argument(
        "bucket", nargs="?", metavar="NAME", help="export to this bucket; left out: print the one in use"
    )
    which.add_argument("--none", action="store_true", help="export no more, and prune what was not exported")
    authority = commands.add_parser(
        "ssh-authority", help="list or replace the keys that sign SSH certificates"
    )
    verbs = authority.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("list", help="list them all, and what a rotation waits for")
    verbs.add_parser("keys", help="print the public keys that machines and the hub trust, one a line")
    rotate = verbs.add_parser("rotate", help="make a new one, which signs when every machine trusts it")
    rotate.add_argument(
        "--leaked",
        action="store_true",
        help="the current one leaked: the new one signs at once, and machines are told not to trust the others",
    )
    parsed = parser.parse_args(arguments)
    parsed.only = tuple(dict.fromkeys(getattr(parsed, "only", None) or registry.wings()))
    return parsed


def _wing(text: str) -> str:
    if text in registry.wings():
        return text
    if "," in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not one wing; give --only once for each wing")
    raise argparse.ArgumentTypeError(f"there is no wing {text!r}; one of {', '.join(registry.wings())}")


async def _ssh_authority(environ: Mapping[str, str], parsed: argparse.Namespace) -> int:
    from reconciler.ssh_authorities import NoAuthority  # noqa: PLC0415 - load an SSH library only where it is used
    from reconciler.ssh_authority_command import (  # noqa: PLC0415 - it loads an SSH library
        Refused,
        SshAuthorityCommand,
    )

    keys = key_manager(settings.read_keys(environ))
    if keys is None:
        raise settings.SettingsError(
            "set SPLITPLANE_KMS_KEY or SPLITPLANE_UNSEALING_KEYS_PATH: they seal these keys"
        )
    db = Database(settings.read(environ).database_url, role=Role.RECONCILER, pool_size=1, readers=1)
    try:
        clock = DatabaseClock(PostgresTime(db), host=utc_now)
        await clock.reread()
        command = SshAuthorityCommand(db, clock.now, uuid7, keys)
        if parsed.verb == "rotate":
            print(await command.rotate(leaked=parsed.leaked))
        else:
            for line in await (command.listed() if parsed.verb == "list" else command.trusted()):
                print(line)
    except (Refused, NoAuthority, KeyManagerError) as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 1
    finally:
        await db.close()
    return 0


async def _audit_bucket(environ: Mapping[str, str], parsed: argparse.Namespace) -> int:
    db = Database(settings.read(environ).database_url, role=Role.RECONCILER, pool_size=1, readers=1)
    try:
        if parsed.bucket is None and not parsed.none:
            print(await audit_bucket.shown(db))
        else:
            clock = DatabaseClock(PostgresTime(db), host=utc_now)
            await clock.reread()
            print(await audit_bucket.choose(db, parsed.bucket, now=clock.now, new_id=uuid7))
    finally:
        await db.close()
    return 0


async def _verify_audit(environ: Mapping[str, str]) -> int:
    db = Database(settings.read(environ).database_url, role=Role.RECONCILER, pool_size=1, readers=1)
    try:
        checks = [check async for check in audit_verification.every_chain(db)]
    finally:
        await db.close()
    for check in checks:
        print(check)
    return int(any(check.why is not None for check in checks))


async def _run(environ: Mapping[str, str], wings: Sequence[str]) -> None:
    """Run the loops of `wings` until a signal. Raises SettingsError, before anything is done."""
    chosen = settings.read(environ)
    tracer = tracing.tracer(environ, "splitplane-reconciler", _note_traces)
    async with AsyncExitStack() as closing:
        closing.callback(tracer.close)
        db = Database(chosen.database_url, role=Role.RECONCILER, pool_size=16, readers=16, rings=True)
        closing.push_async_callback(db.close)
        build = _world_of(environ, wings, db, replica=chosen.replica, tracer=tracer, closing=closing)
        pools = PoolCollector(db.pools)
        REGISTRY.register(pools)
        closing.callback(REGISTRY.unregister, pools)
        health = Health()
        process = Process(
            db,
            build,
            registry.discovered(wings).values(),
            health,
            lambda: Notifications(chosen.database_url, role=Role.RECONCILER.value),
        )
        listener = _listen(chosen, health)
        closing.callback(listener.close)
        stop_on_signals(process)
        log.info(
            "reconciler_started",
            replica=chosen.replica,
            wings=list(wings),
            metrics_listen=f"{chosen.metrics_listen[0]}:{listener.port}",
            database=db.place,
            traces=tracer.on,
        )
        await process.run()
    log.info("reconciler_stopped", replica=chosen.replica)


def _note_traces(why: str) -> None:
    """Log that traces are not exported as they should be. It never stops anything else."""
    log.warning("traces_not_exported", why=why)


def _listen(chosen: settings.Settings, health: Health) -> Listener:
    host, port = chosen.metrics_listen
    try:
        return Listener(host, port, loop=asyncio.get_running_loop(), not_ready=health.not_ready)
    except OSError as error:
        raise settings.SettingsError(
            f"SPLITPLANE_RECONCILER_METRICS_LISTEN is {host}:{port}, where we cannot listen: {error.strerror}"
        ) from error


def _world_of(
    environ: Mapping[str, str],
    wings: Sequence[str],
    db: Database,
    *,
    replica: str,
    tracer: Tracer,
    closing: AsyncExitStack,
) -> BuildWorld:
    """How the world of these wings is built, once the database is there. Raises SettingsError."""
    if registry.ROWS_ONLY.issuperset(wings):
        stop_times = settings.read_money(environ).stop_times
        credits_posted = settings.read_sla(environ).credits_posted
        telemetry = settings.read_telemetry(environ)
        stores, archive = targets.read(telemetry.remote_write), sample_archiving.opened(telemetry)
        rules = read_rules(settings.read_enforcement(environ).rules)

        async def build_rows(clock: DatabaseClock) -> World:
            return RowsWorld(
                db=db,
                now=clock.now,
                new_id=uuid7,
                clock_refusal=clock.refusal,
                stop_times=stop_times,
                sla_dry_run=not credits_posted,
                replica=replica,
                tracer=tracer,
                targets=stores,
                enforcement_rules=rules,
                archive=archive,
            )

        return build_rows
    from reconciler.compose import compose, connect_all  # noqa: PLC0415 - load adapters only where they are used

    reached = connect_all(settings.read_reach(environ), environ, closing)

    async def build(clock: DatabaseClock) -> World:
        return await compose(reached, db, clock, closing, replica=replica, tracer=tracer)

    return build


if __name__ == "__main__":
    # The user of a container may have neither a name nor a home, and asyncssh asks for both.
    os.environ.setdefault("LOGNAME", "reconciler")
    os.environ.setdefault("HOME", "/")
    sys.exit(main(sys.argv[1:], os.environ))
