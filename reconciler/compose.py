"""Builds, from settings, the world of a process whose loops reach providers and machines.

Only such a process imports this file, so one that runs only money loops loads neither an SSH library nor an adapter.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import structlog

from control_plane.db import accounts as account_rows
from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName
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
from reconciler import simulated
from reconciler.budget import SharedBudget
from reconciler.references import LearningChallenger
from reconciler.settings import Reach, SettingsError
from reconciler.worlds.complete import CompleteWorld

log = structlog.get_logger()


def configured_accounts(names: Sequence[AccountName], environ: Mapping[str, str]) -> tuple[Account, ...]:
    """The provider accounts with these names, on or off. Raises SettingsError for an invalid one."""
    try:
        return configured(tuple(names), environ)
    except ValueError as error:
        raise SettingsError(str(error)) from error


async def compose(
    reach: Reach, accounts: Sequence[Account], db: Database, *, replica: str, closing: AsyncExitStack
) -> CompleteWorld:
    """The world of every wing. Everything that has to be closed at the end is pushed onto `closing`.

    Raises SettingsError when the verifier's certificates cannot be used.
    """
    verifier = _verifier(reach.verifier)
    if isinstance(verifier, RemoteVerifier):
        closing.push_async_callback(verifier.close)
    on = [account for account in accounts if account.on]
    for account in accounts:
        if not account.on:
            log.error("account_off", account=account.name, why=account.off_because)
    async with db.transaction() as connection:
        installation = await account_rows.installation(connection)
        for account in on:
            await account_rows.register(connection, account.name, account.provider, now=utc_now())
    connected = {account.name: account.connect() for account in on}
    for provider in connected.values():
        closing.push_async_callback(provider.close)
    budget = SharedBudget(db, utc_now)
    access, hub, login_key = _access_and_hub(reach, db)
    return CompleteWorld(
        db=db,
        now=utc_now,
        new_id=uuid7,
        replica=replica,
        account_names=tuple(connected),
        installation=installation,
        accounts={
            name: Guard(provider, account=name, now=utc_now, budget=budget)
            for name, provider in connected.items()
        },
        access=access,
        hub=hub,
        agent=build_agent(),
        login_key_public=login_key,
        new_host_key=new_host_key,
        challenger=LearningChallenger(db, verifier, utc_now),
        chance=random.SystemRandom().random,
        accept_emulated=reach.accept_emulated_gpus,
        orphans_dry_run=reach.orphans_dry_run,
        proof_dry_run=reach.proof_dry_run,
    )


def _verifier(chosen: ClientSettings | None) -> Verifier:
    """The verifier that recomputes samples of GPU proofs. Raises SettingsError."""
    if chosen is None:
        log.warning("verifier_in_process", why="SPLITPLANE_VERIFIER_ADDRESS is not set")
        return LocalVerifier()
    try:
        return connect(chosen)
    except CertificatesError as error:
        raise SettingsError(str(error)) from error


def _access_and_hub(reach: Reach, db: Database) -> tuple[Access, Hub, str]:
    """Access to the machines and to the hub, and our public key that machines trust."""
    if reach.ssh_key is None or reach.hub is None:
        log.warning("machines_simulated", why="SPLITPLANE_SIMULATED_MACHINES is yes")
        fake_hub = FakeHub()
        return simulated.access(db, fake_hub), fake_hub, new_host_key().public
    access = SshAccess(reach.ssh_key)
    target = Target(reach.hub.address, reach.hub.ssh_port, reach.hub.host_key)
    return access, SshHub(access, target, outside=reach.hub.outside), access.public_key
