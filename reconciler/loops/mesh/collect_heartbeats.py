"""Tells the collectors which agents may report to them, and stores the last heartbeat of each.

The agents on machines report to the hub, and those on the nodes of a cluster to the cluster's server. The credential of
an agent counts while its claim is open. Afterwards the collector tells the agent to remove itself, for a day. What an
agent reports is stored as evidence for operators and customers; nothing is decided by it.

Replicas may do this side by side: a heartbeat is stored once, by its sequence, and the collector returns it until it is
told that it is stored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from control_plane.db import agents, server_hosts
from control_plane.db.agents import Credential, Reported
from control_plane.domain.agent import KNOWN_AFTER_THE_END, task_due
from control_plane.domain.cluster import ServerHost
from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import SERVER_NUMBER, address_of, range_of
from data_plane.access.port import AccessError
from data_plane.documents.heartbeat import TASKS
from data_plane.heartbeats.collector import exchange
from data_plane.heartbeats.collector.exchange import AGENTS_MAX, Holder, Known, Reports
from data_plane.heartbeats.port import ClusterServer
from reconciler.loop import Loop, Report, each
from reconciler.server_hosts import target
from reconciler.worlds.mesh import MeshWorld

NAME = "collect_heartbeats"


async def activate(world: MeshWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        await agents.end(connection, forget_before=now - KNOWN_AFTER_THE_END)
        credentials = await agents.known(connection, limit=AGENTS_MAX)
        hosts = await server_hosts.every(connection)
    report = Report(looked_at=len(credentials))
    places = _by_place(credentials, hosts)
    await each(places.items(), lambda place: _exchange(world, *place, report), report)
    return report


def _by_place(
    credentials: Iterable[Credential], hosts: Iterable[ServerHost]
) -> Mapping[ServerHost | None, list[Credential]]:
    """Which agents report to which host of a cluster's server; None stands for the hub."""
    host_of = {host.cluster_id: host for host in hosts}
    places: dict[ServerHost | None, list[Credential]] = defaultdict(list)
    for credential in credentials:
        if credential.cluster_id is None or credential.cluster_id in host_of:
            places[host_of[credential.cluster_id] if credential.cluster_id else None].append(credential)
    return places


async def _exchange(
    world: MeshWorld, host: ServerHost | None, credentials: Sequence[Credential], report: Report
) -> None:
    server, now = _server(host, credentials[0]), world.now()
    try:
        reports = await world.collector.exchange(
            [_known(one, now) for one in credentials], server, _holders(credentials)
        )
    except AccessError as error:
        where = "the hub" if host is None else f"the server host {host.name}"
        report.errors.append(f"the collector on {where}: {type(error).__name__}: {error}")
        return
    report.more = report.more or reports.more
    async with world.db.statement() as connection:
        await agents.store(connection, _reported(reports, world.now()))


def _server(host: ServerHost | None, credential: Credential) -> ClusterServer | None:
    if host is None or credential.overlay is None:
        return None
    nodes = str(range_of(credential.overlay))
    return ClusterServer(target(host), address_of(credential.overlay, SERVER_NUMBER), nodes)


def _holders(credentials: Iterable[Credential]) -> list[Holder]:
    """The organization of each network and each node that agents connect from."""
    numbers: dict[OrganizationId, int] = {}
    found: dict[str, int] = {}
    for credential in credentials:
        source = None if credential.ended else _source(credential)
        if source is not None:
            found[source] = numbers.setdefault(credential.organization_id, len(numbers))
    return [Holder(source, number) for source, number in found.items()]


def _source(credential: Credential) -> str | None:
    """Where the connections of an agent come from, as its collector sees it."""
    if credential.number is None:
        return None
    if credential.overlay is None:
        return f"network {credential.number}"
    return address_of(credential.overlay, credential.number)


def _known(credential: Credential, now: datetime) -> Known:
    due = None if credential.ended else task_due(credential.done_at, now)
    task = next((task for task in TASKS if task == due), None)
    return Known(credential.digest, credential.ended, credential.sequence, task)


def _reported(reports: Reports, now: datetime) -> Sequence[Reported]:
    """What came of each agent, in one value."""
    return [
        _last(digest, list(of_one), now)
        for digest, of_one in groupby(reports.reported, lambda one: one.digest)
    ]


def _last(digest: str, reported: Sequence[exchange.Reported], now: datetime) -> Reported:
    last = reported[-1]
    at = now - timedelta(seconds=last.waited_seconds)
    return Reported(
        digest, last.heartbeat.sequence, at, asdict(last.heartbeat), len(reported), _results(reported, now)
    )


def _results(reported: Iterable[exchange.Reported], now: datetime) -> dict[str, dict[str, Any]]:
    """The last result of each task, with the time at which it came by our clock."""
    return {
        one.heartbeat.result.task: asdict(one.heartbeat.result)
        | {"at": (now - timedelta(seconds=one.waited_seconds)).isoformat()}
        for one in reported
        if one.heartbeat.result is not None
    }


LOOP = Loop(NAME, timedelta(seconds=15), activate)
