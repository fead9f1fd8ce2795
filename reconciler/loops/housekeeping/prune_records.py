"""Deletes what has served its time: stored answers, sessions, their tokens, terminals, budgets of requests, reports of
replicas that stopped, orphans that went, certificates, kubeconfigs, consoles, quotes, uploads. docs/operating.md says
how long each is kept.

Facts (the journal, usage, the ledger, verification reports) are never deleted. Each kind is deleted in batches of a
bounded size, oldest first; a crash leaves what is left to the next activation.
"""

from datetime import timedelta

from control_plane.db import (
    audit,
    consoles,
    devices,
    idempotency,
    kubeconfigs,
    loops,
    orphans,
    quotes,
    request_budgets,
    sessions,
    ssh_certificates,
    supplier_uploads,
)
from control_plane.db.connection import Connection
from control_plane.domain import console
from control_plane.domain.audit import AuditLine, AuditOutcome, Happening, SubjectKind
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "prune_records"
ANSWERS_KEPT = timedelta(days=7)
"""The answer of an Idempotency-Key."""
ANSWERS_MAX = 100_000
ANSWER_BYTES_MAX = 256 * 2**20
"""How many answers, and how many bytes of them, are kept for an organization; beyond that its oldest ones go early. At
the rate that an organization may send, an answer is still kept for minutes, in which clients repeat their requests."""
SESSIONS_KEPT = timedelta(days=30)
"""A session, from when it expires, ended or not, so that its owner can still see it."""
REPLACED_TOKENS_KEPT = timedelta(days=30)
"""A refresh token that was replaced: as long as a session lasts, because used again it ends its session."""
DEVICES_KEPT = timedelta(hours=1)
"""A terminal that waited to be signed in, from when its code expires."""
BUDGETS_KEPT = timedelta(days=1)
"""A bucket of tokens for requests from which nobody took any. It is full again after a fraction of this time."""
REPORTS_KEPT = timedelta(days=1)
"""The last report of a replica that stopped. Of a loop that no replica runs, the newest one stays."""
ORPHANS_KEPT = timedelta(days=30)
"""An orphan that is gone."""
CERTIFICATES_KEPT = timedelta(days=30)
"""An SSH certificate of an ended lease, from its request, so that customers see who could log in."""
KUBECONFIGS_KEPT = timedelta(days=30)
"""A kubeconfig of which nothing is left in its cluster, from its request."""
CONSOLES_KEPT = console.KEPT
"""What a machine printed, from when it was read, and a request that nobody answered."""
QUOTES_KEPT = timedelta(days=1)
"""A quote that no lease was created for, from when it expires."""
UPLOADS_KEPT = timedelta(days=1)
"""A file of a supplier's invoice that was not imported, from when its upload began."""
DROPPED_PER_ACTIVATION_MAX = 1_000
"""Of each kind."""


async def activate(world: World) -> Report:
    now, limit = world.now(), DROPPED_PER_ACTIVATION_MAX
    async with world.db.transaction() as connection:
        dropped = (
            await idempotency.forget(connection, before=now - ANSWERS_KEPT, limit=limit),
            await idempotency.forget_surplus(
                connection, most=ANSWERS_MAX, most_bytes=ANSWER_BYTES_MAX, limit=limit
            ),
            await sessions.forget_tokens(connection, before=now - REPLACED_TOKENS_KEPT, limit=limit),
            await sessions.forget(connection, before=now - SESSIONS_KEPT, limit=limit),
            await devices.forget(connection, before=now - DEVICES_KEPT, limit=limit),
            await request_budgets.forget(connection, before=now - BUDGETS_KEPT, limit=limit),
            await orphans.forget(connection, before=now - ORPHANS_KEPT, limit=limit),
            await ssh_certificates.forget(connection, before=now - CERTIFICATES_KEPT, limit=limit),
            await kubeconfigs.forget(connection, before=now - KUBECONFIGS_KEPT, limit=limit),
            await consoles.forget(connection, before=now - CONSOLES_KEPT, limit=limit),
            await quotes.forget(connection, before=now - QUOTES_KEPT, limit=limit),
            await supplier_uploads.forget(connection, before=now - UPLOADS_KEPT, limit=limit),
        )
        await loops.forget(connection, before=now - REPORTS_KEPT)
        await _record(connection, world, sum(dropped))
    return Report(looked_at=sum(dropped), acted_on=sum(dropped), more=max(dropped) == limit)


async def _record(connection: Connection, world: World, count: int) -> None:
    """A line of the audit log that says how many records are gone; none when none is."""
    if not count:
        return
    line = AuditLine(
        id=world.new_id(),
        organization_id=None,
        at=world.now(),
        event=Happening.RECORDS_PRUNE,
        outcome=AuditOutcome.ALLOWED,
        subject=NAME,
        subject_kind=SubjectKind.LOOP,
        rule="retention",
        details={"count": count},
    )
    await audit.insert(connection, [line])


LOOP = Loop(NAME, timedelta(minutes=10), activate)
