"""The reconciler's composition root: settings to a world, all loops until a signal.

python -m reconciler run          run every loop
python -m reconciler providers    which provider accounts are on, and why others are off
"""

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import Mapping

import structlog
from prometheus_client import start_http_server

from control_plane.db import accounts as account_rows
from control_plane.db.engine import Database, Role
from control_plane.world import utc_now, uuid7
from data_plane.access.port import Access, Target
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.inspection.bundle import build_agent
from data_plane.mesh.hub import SshHub
from data_plane.mesh.port import Hub
from data_plane.proof.verifier.jobs import Verifier
from data_plane.proof.verifier.recompute import LocalVerifier
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.settings import ClientSettings
from data_plane.proof.verifier.service.tls import CertificatesError
from data_plane.simulation.hub import FakeHub
from providers.guard import Guard
from providers.registry import Account, configured
from reconciler import paper, registry, settings
from reconciler.budget import SharedBudget
from reconciler.loop import World
from reconciler.references import LearningChallenger
from reconciler.runner import Runner

log = structlog.get_logger()


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reconciler", description="The only process that touches providers."
    )
    parser.add_argument("command", choices=("run", "providers"))
    command = parser.parse_args(arguments).command
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
        chosen = settings.read(environ)
        accounts = configured(chosen.accounts, environ)
    except ValueError as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 2
    if command == "providers":
        for account in accounts:
            print(f"{account.name:30} {'on' if account.on else 'off: ' + (account.off_because or '')}")
        return 0
    try:
        asyncio.run(_run(chosen, accounts))
    except CertificatesError as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 2
    return 0


async def _run(chosen: settings.Settings, accounts: tuple[Account, ...]) -> None:
    for account in accounts:
        if not account.on:
            log.error("account_off", account=account.name, why=account.off_because)
    start_http_server(chosen.metrics_listen[1], chosen.metrics_listen[0])
    db = Database(chosen.database_url, role=Role.RECONCILER, pool_size=16, readers=16)
    verifier = _verifier(chosen.verifier)
    world = await _world(chosen, tuple(account for account in accounts if account.on), db, verifier)
    runner = Runner(world, registry.discovered().values())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, runner.stop)
    log.info("reconciler_started", replica=chosen.replica, accounts=list(world.accounts))
    try:
        await runner.run()
    finally:
        for provider in world.accounts.values():
            await provider.close()
        if isinstance(verifier, RemoteVerifier):
            await verifier.close()
        await db.close()


def _verifier(chosen: ClientSettings | None) -> Verifier:
    """Who recomputes samples of GPU proofs. Raises CertificatesError."""
    if chosen is None:
        log.warning("verifier_in_process", why="SPLITPLANE_VERIFIER_ADDRESS is not set")
        return LocalVerifier()
    return connect(chosen)


async def _world(
    chosen: settings.Settings, accounts: tuple[Account, ...], db: Database, verifier: Verifier
) -> World:
    now = utc_now()
    async with db.transaction() as connection:
        installation = await account_rows.installation(connection)
        for account in accounts:
            await account_rows.register(connection, account.name, account.provider, now=now)
    budget = SharedBudget(db, utc_now)
    connected = {account.name: account.connect() for account in accounts}
    guarded = {
        name: Guard(provider, account=name, now=utc_now, budget=budget)
        for name, provider in connected.items()
    }
    access, hub, login_key = _ways_in(chosen, db)
    return World(
        db=db,
        now=utc_now,
        new_id=uuid7,
        installation=installation,
        accounts=guarded,
        access=access,
        hub=hub,
        agent=build_agent(),
        login_key_public=login_key,
        new_host_key=new_host_key,
        challenger=LearningChallenger(db, verifier, utc_now),
        chance=random.SystemRandom().random,
        accept_emulated=chosen.accept_emulated_gpus,
        orphans_dry_run=chosen.orphans_dry_run,
        proof_dry_run=chosen.proof_dry_run,
        replica=chosen.replica,
    )


def _ways_in(chosen: settings.Settings, db: Database) -> tuple[Access, Hub, str]:
    """How machines and the hub are reached, and the public key that machines are told to trust."""
    if chosen.ssh_key is None or chosen.hub is None:
        log.warning("machines_on_paper", why="SPLITPLANE_MACHINES_ON_PAPER is yes")
        paper_hub = FakeHub()
        return paper.access(db, paper_hub), paper_hub, new_host_key().public
    access = SshAccess(chosen.ssh_key)
    target = Target(chosen.hub.address, chosen.hub.ssh_port, chosen.hub.host_key)
    return access, SshHub(access, target, outside=chosen.hub.outside), access.public_key


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
