"""Tells the collector on the hub which agents may report, and stores the last heartbeat of each.

The credential of an agent counts while its claim is open. Afterwards the hub tells the agent to remove itself, for a
day. What an agent reports is stored as evidence for operators; nothing is decided by it.

Replicas may do this side by side: a heartbeat is stored once, by its sequence, and the collector returns it until it is
told that it is stored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from control_plane.db import agents
from control_plane.db.agents import Credential, Reported
from control_plane.domain.agent import KNOWN_AFTER_THE_END, task_due
from data_plane.access.port import AccessError
from data_plane.documents.heartbeat import TASKS
from data_plane.heartbeats.collector import exchange
from data_plane.heartbeats.collector.exchange import AGENTS_MAX, Known, Reports
from reconciler.loop import Loop, Report
from reconciler.worlds.mesh import MeshWorld

NAME = "collect_heartbeats"


async def activate(world: MeshWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        await agents.end(connection, forget_before=now - KNOWN_AFTER_THE_END)
        credentials = await agents.known(connection, limit=AGENTS_MAX)
    report = Report(looked_at=len(credentials))
    if not credentials:
        return report
    try:
        reports = await world.collector.exchange([_known(each, now) for each in credentials])
    except AccessError as error:
        report.errors.append(f"the collector on the hub: {type(error).__name__}: {error}")
        return report
    report.more = reports.more
    async with world.db.statement() as connection:
        await agents.store(connection, _reported(reports, world.now()))
    return report


def _known(credential: Credential, now: datetime) -> Known:
    due = None if credential.ended else task_due(credential.done_at, now)
    task = next((each for each in TASKS if each == due), None)
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
