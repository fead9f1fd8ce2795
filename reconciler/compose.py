"""Builds, from settings, the world of a process whose loops reach providers and machines.

Only such a process imports this file, so one that runs only money loops loads neither an SSH library nor an adapter.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from control_plane.db import accounts as account_rows
from control_plane.db.clock import DatabaseClock
from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName
from control_plane.vault.unsealing.port import KeyManager
from control_plane.world import uuid7
from data_plane.access.port import Access, Target
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.cluster import k3s_files
from data_plane.cluster.agents import Agents
from data_plane.cluster.clusters import Clusters, LightkubeClusters
from data_plane.cluster.k3s_files import K3sFiles, K3sFilesError
from data_plane.cluster.servers import Servers
from data_plane.cluster.ssh_agents import SshAgents
from data_plane.cluster.ssh_servers import SshServers
from data_plane.heartbeats.port import Collector
from data_plane.heartbeats.ssh_collector import SshCollector
from data_plane.inspection.bundle import Bundle, build_agent, build_collector
from data_plane.mesh.hub import HUB_PRINCIPAL, SshHub
from data_plane.mesh.members import Members, SshMembers
from data_plane.mesh.port import Hub
from data_plane.proof.verifier.jobs import Verifier
from data_plane.proof.verifier.recompute import LocalVerifier
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.settings import ClientSettings
from data_plane.proof.verifier.service.tls import CertificatesError
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.hub import FakeHub
from data_plane.simulation.kubelets import FakeKubelets
from data_plane.simulation.kubernetes import FakeClusters
from data_plane.simulation.servers import FakeServers
from providers.base import Provider
from providers.guard import Guard
from providers.registry import Account, configured, stored
from reconciler import sample_archiving, simulated
from reconciler.audit_keys import AuditKeys, NoAuditKeys, StoredAuditKeys
from reconciler.call_budgets import SharedBudget
from reconciler.enforcement_rules import read_rules
from reconciler.keys import key_manager
from reconciler.live_accounts import LiveAccounts
from reconciler.patient_hub import PatientHub
from reconciler.references import LearningChallenger
from reconciler.remote_write import targets
from reconciler.settings import Reach, SettingsError
from reconciler.ssh_authorities import FixedAuthority, SshAuthorities, StoredAuthorities, certifier
from reconciler.worlds.complete import CompleteWorld
from tracing.tracer import Tracer

log = structlog.get_logger()


def configured_accounts(names: Sequence[AccountName], environ: Mapping[str, str]) -> tuple[Account, ...]:
    """The provider accounts with these names, on or off. Raises SettingsError for an invalid one."""
    try:
        return configured(tuple(names), environ)
    except ValueError as error:
        raise SettingsError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Reached:
    """What the loops reach besides the database. It is built once, before the process waits for its database."""

    reach: Reach
    accounts: Sequence[Account]
    """Those that are on."""
    connected: Mapping[AccountName, Provider]
    verifier: Verifier
    agent: Bundle
    keys: KeyManager | None
    k3s: K3sFiles | None


def connect_all(reach: Reach, environ: Mapping[str, str], closing: AsyncExitStack) -> Reached:
    """Everything that has to be closed at the end is pushed onto `closing`.

    Raises SettingsError when an account, the key manager, the K3s files or the verifier's certificates cannot be used.
    """
    keys = key_manager(reach.keys)
    if keys is None and reach.hub is not None:
        raise SettingsError(
            "set SPLITPLANE_KMS_KEY or SPLITPLANE_UNSEALING_KEYS_PATH: without a key manager there is no key that signs"
            " our SSH certificates"
        )
    verifier = _verifier(reach.verifier)
    if isinstance(verifier, RemoteVerifier):
        closing.push_async_callback(verifier.close)
    accounts = configured_accounts(reach.accounts, environ)
    for account in accounts:
        if not account.on:
            log.error("account_off", account=account.name, why=account.off_because)
    on = [account for account in accounts if account.on]
    connected = {account.name: account.connect() for account in on}
    for provider in connected.values():
        closing.push_async_callback(provider.close)
    if reach.hub is None:
        log.warning("machines_simulated", why="SPLITPLANE_SIMULATED_MACHINES is yes")
    return Reached(reach, on, connected, verifier, build_agent(), keys, _k3s_files(reach.k3s_files))


async def compose(
    reached: Reached,
    db: Database,
    clock: DatabaseClock,
    closing: AsyncExitStack,
    *,
    replica: str,
    tracer: Tracer,
) -> CompleteWorld:
    """The world of every wing. Raises what the database raises."""
    budget = SharedBudget(db, clock.now)

    def guarded(name: AccountName, provider: Provider) -> Provider:
        return Guard(provider, account=name, now=clock.now, budget=budget, tracer=tracer)

    def connect(name: AccountName, given: Mapping[str, str]) -> Provider:
        return guarded(name, stored(name, given).connect())

    async with db.transaction() as connection:
        installation = await account_rows.installation(connection)
        for account in reached.accounts:
            await account_rows.register(connection, account.name, account.provider, now=clock.now())
    live = LiveAccounts(
        db,
        clock.now,
        reached.keys,
        connect,
        {name: guarded(name, provider) for name, provider in reached.connected.items()},
    )
    closing.push_async_callback(live.close)
    await live.refresh()
    authorities = _ssh_authorities(reached.keys, db, clock)
    access, hub, collector = _access_and_hub(reached.reach, db, authorities, clock.now, replica)
    servers, kubernetes, agents, members = _clusters(reached, db, access, clock.now)
    return CompleteWorld(
        db=db,
        now=clock.now,
        new_id=uuid7,
        clock_refusal=clock.refusal,
        replica=replica,
        tracer=tracer,
        account_names=live.keys(),
        refresh_accounts=live.refresh,
        connect=connect,
        installation=installation,
        accounts=live,
        access=access,
        ssh_authorities=authorities,
        hub=hub,
        collector=collector,
        servers=servers,
        kubernetes=kubernetes,
        agents=agents,
        members=members,
        device_plugin=None if reached.k3s is None else reached.k3s.device_plugin,
        agent=reached.agent,
        new_host_key=new_host_key,
        challenger=LearningChallenger(db, reached.verifier, clock.now),
        chance=random.SystemRandom().random,
        accept_emulated=reached.reach.accept_emulated_gpus,
        orphans_dry_run=reached.reach.orphans_dry_run,
        proof_dry_run=reached.reach.proof_dry_run,
        keys=reached.keys,
        data_keys_last=timedelta(days=reached.reach.keys.data_key_days),
        audit_keys=_audit_keys(reached.keys, db, clock),
        stop_times=reached.reach.money.stop_times,
        sla_dry_run=not reached.reach.sla.credits_posted,
        audit_kept=timedelta(days=reached.reach.audit.kept_days),
        targets=targets.read(reached.reach.telemetry.remote_write),
        enforcement_rules=read_rules(reached.reach.enforcement.rules),
        archive=sample_archiving.opened(reached.reach.telemetry),
    )


def _clusters(
    reached: Reached, db: Database, access: Access, now: Callable[[], datetime]
) -> tuple[Servers, Clusters, Agents, Members]:
    """The servers of clusters, their API servers, the agents on machines, and their tunnels."""
    if reached.reach.hub is not None:
        k3s = reached.k3s
        return SshServers(access, k3s), LightkubeClusters(), SshAgents(access, k3s), SshMembers(access)
    agents = FakeAgents()
    kubelets = FakeKubelets(agents, simulated.capacity(db))
    return FakeServers(), FakeClusters(now, kubelets.report), agents, agents.members


def _ssh_authorities(keys: KeyManager | None, db: Database, clock: DatabaseClock) -> SshAuthorities:
    """Without a key manager, machines are simulated, and so is the authority that they trust."""
    return FixedAuthority() if keys is None else StoredAuthorities(db, clock.now, uuid7, keys)


def _audit_keys(keys: KeyManager | None, db: Database, clock: DatabaseClock) -> AuditKeys:
    return NoAuditKeys() if keys is None else StoredAuditKeys(db, clock.now, uuid7, keys)


def _k3s_files(folder: Path | None) -> K3sFiles | None:
    """The K3s release that clusters are built from. Raises SettingsError."""
    try:
        return None if folder is None else k3s_files.read(folder)
    except K3sFilesError as error:
        raise SettingsError(f"SPLITPLANE_K3S_FILES: {error}") from error


def _verifier(chosen: ClientSettings | None) -> Verifier:
    """The verifier that recomputes samples of GPU proofs. Raises SettingsError."""
    if chosen is None:
        log.warning("verifier_in_process", why="SPLITPLANE_VERIFIER_ADDRESS is not set")
        return LocalVerifier()
    try:
        return connect(chosen)
    except CertificatesError as error:
        raise SettingsError(str(error)) from error


def _access_and_hub(
    reach: Reach, db: Database, authorities: SshAuthorities, now: Callable[[], datetime], replica: str
) -> tuple[Access, Hub, Collector]:
    """Access to the machines, to the hub, and to the collector on the hub."""
    if reach.hub is None:
        fake_hub = FakeHub()
        fake_access = simulated.access(db, fake_hub)
        return (
            fake_access,
            fake_hub,
            FakeCollector(fake_access.machines, ingest=simulated.ingest(reach.ingest)),
        )
    access = SshAccess(certifier(authorities, now, replica))
    target = Target(reach.hub.address, reach.hub.ssh_port, reach.hub.host_key, HUB_PRINCIPAL)
    hub = PatientHub(SshHub(access, target, outside=reach.hub.outside), now)
    return access, hub, SshCollector(access, target, build_collector(), reach.ingest)
