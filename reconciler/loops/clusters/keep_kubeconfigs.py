"""Issues the kubeconfigs that customers request, and takes back those that are revoked or over.

The API stores requests, because it holds no credential of a cluster. A token is made by the cluster, and the file with
it is sealed for the public key of the request before it is stored, so that nobody of ours can read it later. When a
worker dies in between, the next activation has another token made for the same ServiceAccount, and nobody has the first
one. A kubeconfig that was revoked meanwhile is not stored, and its ServiceAccount is deleted.
"""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import audit, cluster_tenants, clusters, kubeconfigs
from control_plane.db.connection import Connection
from control_plane.domain.audit import AuditLine, AuditOutcome, Happening, SubjectKind
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster, server_name
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.kubeconfig import (
    LASTS_MIN,
    Close,
    Issue,
    IssuingRefusal,
    Kubeconfig,
    KubeconfigState,
    Refuse,
    Wait,
    decide,
)
from control_plane.domain.secret import Plain
from control_plane.vault.errors import KeyManagerError, UnusableKey
from control_plane.vault.recipient import seal_for
from data_plane.cluster import kubeconfig as in_cluster
from data_plane.cluster.kubeconfig import Address
from data_plane.cluster.port import ClusterError
from reconciler.cluster_tenants import tenant_of
from reconciler.loop import Loop, Report, each
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "keep_kubeconfigs"
KUBECONFIGS_PER_ACTIVATION_MAX = 50
SECONDS_MAX = 60
"""How long one may take in its cluster."""
HELD_FOR = timedelta(seconds=90)
"""Longer than that, so that nothing is taken back while it is still being issued. A revocation waits this long at most
when the worker that issues dies."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=1), timedelta(seconds=30)
NOT_YET = timedelta(seconds=1)
"""When we look again whether the namespace is ready."""


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await kubeconfigs.take(
            connection, token=token, now=now, until=now + HELD_FOR, limit=KUBECONFIGS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == KUBECONFIGS_PER_ACTIVATION_MAX)
    await each(due, lambda kubeconfig: _act(world, kubeconfig, token, report), report)
    return report


async def _act(world: ClusterWorld, kubeconfig: Kubeconfig, token: UUID, report: Report) -> None:
    async with world.db.reading() as connection:
        cluster = await clusters.get(connection, kubeconfig.cluster_id)
        is_ready = await cluster_tenants.is_ready(connection, kubeconfig.cluster_id, kubeconfig.project_id)
    if cluster is None:
        raise LookupError(f"{kubeconfig.wire_id} is of a cluster that never was")
    decision = decide(kubeconfig, cluster.state, world.now())
    try:
        async with asyncio.timeout(SECONDS_MAX):
            match decision:
                case Wait(until):
                    await _wait(world, kubeconfig, until, token)
                case Refuse(why):
                    report.count(await _refuse(world, kubeconfig, why, token))
                case Issue() if not is_ready:
                    await _wait(world, kubeconfig, world.now() + NOT_YET, token)
                case Issue(until):
                    report.count(await _issue(world, kubeconfig, cluster, until, token))
                case Close():
                    report.count(await _removed(world, kubeconfig, token))
                case _:
                    async with connected(world, cluster) as port:
                        await in_cluster.revoke(
                            port,
                            tenant_of(kubeconfig.organization_id, kubeconfig.project_id),
                            kubeconfig.wire_id,
                        )
                    report.count(await _removed(world, kubeconfig, token))
    except (ClusterError, KeyManagerError, TimeoutError) as error:
        await _retry(world, kubeconfig, error, token, report)


async def _issue(
    world: ClusterWorld, kubeconfig: Kubeconfig, cluster: Cluster, until: datetime, token: UUID
) -> int:
    address = Address(cluster.name, cluster.endpoint or "", cluster.ca_pem or "", server_name(cluster.id))
    # Kubernetes makes no token of less. We take it back when it is over for us.
    life = max(until - world.now(), LASTS_MIN)
    async with connected(world, cluster) as port:
        issued = await in_cluster.issue(
            port,
            address,
            tenant_of(kubeconfig.organization_id, kubeconfig.project_id),
            kubeconfig.wire_id,
            role=in_cluster.Role(kubeconfig.role),
            all_nodes=cluster.organization_id is not None,
            life=life,
        )
    try:
        sealed = seal_for(
            kubeconfig.recipient, Plain(issued.text.encode()), purpose=kubeconfig.wire_id.encode()
        )
    except UnusableKey:
        return await _refuse(world, kubeconfig, IssuingRefusal.KEY_UNUSABLE, token)
    now = world.now()
    async with world.db.transaction() as connection:
        ends_at = min(until, issued.expires_at)
        old = await _replaced(connection, kubeconfig)
        stored = await kubeconfigs.issue(
            connection, kubeconfig.id, sealed, expires_at=ends_at, token=token, now=now
        )
        if stored:
            await _shorten(connection, old, kubeconfig, now)
            await _note(connection, world, kubeconfig, Happening.KUBECONFIGS_ISSUE, None)
        else:  # It was revoked meanwhile, and is due.
            await kubeconfigs.give_back(connection, kubeconfig.id, token=token)
    return int(stored)


async def _replaced(connection: Connection, kubeconfig: Kubeconfig) -> Kubeconfig | None:
    """The kubeconfig that it replaces, locked before it like everywhere."""
    if kubeconfig.rotates is None:
        return None
    return await kubeconfigs.get(connection, kubeconfig.organization_id, kubeconfig.rotates, lock=True)


async def _shorten(connection: Connection, old: Kubeconfig | None, new: Kubeconfig, now: datetime) -> None:
    """The old one ends after the overlap, which begins now that its owner has another one."""
    if old is None or new.overlap_seconds is None or old.state(now) is not KubeconfigState.ISSUED:
        return
    end = old.end_of_overlap(now, timedelta(seconds=new.overlap_seconds))
    await kubeconfigs.expire(connection, old.organization_id, old.id, at=end)


async def _refuse(world: ClusterWorld, kubeconfig: Kubeconfig, why: IssuingRefusal, token: UUID) -> int:
    async with world.db.transaction() as connection:
        stored = await kubeconfigs.refuse(connection, kubeconfig.id, why, token=token, now=world.now())
        if stored:
            await _note(connection, world, kubeconfig, Happening.KUBECONFIGS_ISSUE, why)
        else:
            await kubeconfigs.give_back(connection, kubeconfig.id, token=token)
    return int(stored)


async def _removed(world: ClusterWorld, kubeconfig: Kubeconfig, token: UUID) -> int:
    now = world.now()
    async with world.db.transaction() as connection:
        stored = await kubeconfigs.removed(connection, kubeconfig.id, token=token, now=now)
        # A refusal has its line already, and nobody had it.
        if stored and kubeconfig.state(now) is not KubeconfigState.REFUSED:
            await _note(connection, world, kubeconfig, Happening.KUBECONFIGS_END, None)
    return int(stored)


async def _wait(world: ClusterWorld, kubeconfig: Kubeconfig, until: datetime, token: UUID) -> None:
    async with world.db.transaction() as connection:
        await kubeconfigs.wait(connection, kubeconfig.id, token=token, until=until)
        await kubeconfigs.give_back(connection, kubeconfig.id, token=token)


async def _retry(
    world: ClusterWorld, kubeconfig: Kubeconfig, error: Exception, token: UUID, report: Report
) -> None:
    report.errors.append(f"{kubeconfig.wire_id}: {type(error).__name__}: {error}")
    now = world.now()
    due_at = now + delay(kubeconfig.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        await kubeconfigs.retry(connection, kubeconfig.id, token=token, now=now, due_at=due_at)


async def _note(
    connection: Connection,
    world: ClusterWorld,
    kubeconfig: Kubeconfig,
    event: Happening,
    refused: IssuingRefusal | None,
) -> None:
    """A line of the audit log, which tells why a kubeconfig was issued, was not, or has ended."""
    if refused is not None:
        rule = f"refusal:{refused}"
    elif event is Happening.KUBECONFIGS_ISSUE:
        rule = f"request:{kubeconfig.credential}"
    else:
        rule = f"revocation:{kubeconfig.revoked_why}" if kubeconfig.revoked_why else "expiry"
    project = on_wire(Prefix.PROJECT, kubeconfig.project_id)
    line = AuditLine(
        id=world.new_id(),
        organization_id=kubeconfig.organization_id,
        at=world.now(),
        event=event,
        outcome=AuditOutcome.ALLOWED if refused is None else AuditOutcome.REFUSED,
        code=refused,
        subject=NAME,
        subject_kind=SubjectKind.LOOP,
        project=project,
        targets=(kubeconfig.wire_id, on_wire(Prefix.CLUSTER, kubeconfig.cluster_id)),
        rule=rule,
    )
    await audit.insert(connection, [line])


LOOP = Loop(NAME, timedelta(seconds=1), activate, lasts=HELD_FOR)
