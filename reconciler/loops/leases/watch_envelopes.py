"""Holds the live leases of every envelope against it: warns those that are outside, and ends them if it says so.

Leases come to be outside when an envelope is narrowed, when the time of a burst is over, or when the spend of the month
is used up. A lease ends only under an envelope that says after which grace, and only when it was warned for as long, in
which this loop looked again and again: after an outage of ours the grace begins anew
(`control_plane/domain/envelope_watch.py`).

An envelope is looked at when it has changed, and otherwise every few minutes, while leases of its scope are live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import admission_decisions, envelopes, journal, leases
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.db.envelopes import NewWarning, WatchedEnvelope
from control_plane.domain.envelope_watch import (
    Clear,
    End,
    Step,
    StillOutside,
    Warn,
    Watched,
    over_since,
    watch,
)
from control_plane.domain.ids import AdmissionDecisionId, EnvelopeId, LeaseId
from control_plane.domain.journal import Note
from control_plane.domain.lease import LeaseEvent
from control_plane.outcomes.leases import end
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "watch_envelopes"
WATCHED_PER_ACTIVATION_MAX = 200
WATCH_AGAIN_AFTER = timedelta(minutes=5)
WATCH_WARNED_AGAIN_AFTER = timedelta(minutes=1)


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        due = await envelopes.due(
            connection,
            before=now - WATCH_AGAIN_AFTER,
            warned_before=now - WATCH_WARNED_AGAIN_AFTER,
            limit=WATCHED_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due))
    for envelope_id in due:
        await each([envelope_id], partial(_watch, world, report, now), report)
    report.more = len(due) == WATCHED_PER_ACTIVATION_MAX and not report.errors
    return report


async def _watch(world: World, report: Report, now: datetime, envelope_id: EnvelopeId) -> None:
    """Warn and clear in one transaction, which locks the envelope alone; end leases in one transaction each."""
    async with world.db.transaction() as connection:
        found = await envelopes.take_watched(
            connection,
            envelope_id,
            before=now - WATCH_AGAIN_AFTER,
            warned_before=now - WATCH_WARNED_AGAIN_AFTER,
            now=now,
        )
        if found is None:
            return  # Another replica was faster.
        live, steps = await _steps(connection, found, now)
        report.count(await _record(connection, world, _Seen(found, live, steps), now))
    for step in steps:
        if isinstance(step, End):
            report.count(await _end(world, envelope_id, step.lease_id))
            report.notes.append(f"{step.lease_id}: {step.why}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """An envelope with the live leases of its scope, and what is to be done about them."""

    envelope: WatchedEnvelope
    live: Mapping[LeaseId, Watched]
    steps: tuple[Step, ...]


async def _steps(
    connection: Connection, found: WatchedEnvelope, now: datetime
) -> tuple[Mapping[LeaseId, Watched], tuple[Step, ...]]:
    live = await envelopes.live_leases(connection, found.id)
    warned = await envelopes.warned(connection, found.id)
    return {lease.id: lease for lease in live}, watch(found.applied, live, warned, now)


async def _record(connection: Connection, world: World, seen: _Seen, now: datetime) -> int:
    """Store warnings, that leases are within again, and the decisions. Returns how many of them are new."""
    envelope_id, actor = seen.envelope.id, world.actor(NAME)
    warnings = [step for step in seen.steps if isinstance(step, Warn)]
    cleared = [step for step in seen.steps if isinstance(step, Clear)]
    still = [step.lease_id for step in seen.steps if isinstance(step, StillOutside | End)]
    fresh = [NewWarning(step.lease_id, step.ends_at, step.why) for step in warnings]
    await envelopes.warn(connection, envelope_id, fresh, now=now)
    await envelopes.confirm(connection, envelope_id, still, now=now)
    await envelopes.clear(connection, envelope_id, [step.lease_id for step in cleared])
    await envelopes.looked(connection, envelope_id, over_since(seen.envelope.applied, now), now=now)
    for step in warnings:
        ends = "" if step.ends_at is None else f" The lease ends at {step.ends_at:%Y-%m-%d %H:%M} UTC."
        await journal.note_lease(
            connection,
            step.lease_id,
            event=Note.ENVELOPE_WARNED,
            why=f"{step.why}{ends}",
            actor=actor,
            now=now,
        )
    for lease_id in (step.lease_id for step in cleared if step.lease_id in seen.live):
        why = "The lease is within its envelopes again."
        await journal.note_lease(
            connection, lease_id, event=Note.ENVELOPE_CLEARED, why=why, actor=actor, now=now
        )
    await _store_decisions(connection, world, seen, [*warnings, *cleared], now)
    return len(warnings) + len(cleared)


async def _store_decisions(
    connection: Connection, world: World, seen: _Seen, steps: Sequence[Warn | Clear | End], now: datetime
) -> None:
    """Store what the envelope said of leases, with every rule."""
    made = [
        (AdmissionDecisionId(world.new_id()), _about(seen, step.lease_id), step.decision)
        for step in steps
        if step.decision is not None
    ]
    await admission_decisions.insert(connection, made, actor=world.actor(NAME), now=now)


def _about(seen: _Seen, lease_id: LeaseId) -> About:
    lease = seen.live[lease_id]
    return About(seen.envelope.organization_id, lease.project_id, lease.environment_id, lease_id)


async def _end(world: World, envelope_id: EnvelopeId, lease_id: LeaseId) -> int:
    """End one lease, unless it came within its envelope, or ended, in the meantime."""
    async with world.db.transaction() as connection:
        lease = (await leases.lock(connection, [lease_id])).get(lease_id)
        now = world.now()  # Not when the activation began: use may have been metered since.
        found = await envelopes.watched(connection, envelope_id, now=now)
        if lease is None or found is None:
            return 0
        live, steps = await _steps(connection, found, now)
        ends = [step for step in steps if isinstance(step, End) and step.lease_id == lease_id]
        for step in ends:
            await end(
                connection,
                lease,
                LeaseEvent.ENVELOPE_EXCEEDED,
                why=step.why,
                actor=world.actor(NAME),
                now=now,
            )
        await _store_decisions(connection, world, _Seen(found, live, steps), ends, now)
        return len(ends)


LOOP = Loop(NAME, timedelta(seconds=15), activate, wakes=("release_machines", "meter_usage"))
