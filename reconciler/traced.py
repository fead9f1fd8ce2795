"""Spans of loops: each activation is a trace of its own, and its steps for leases belong to the leases' traces.

activation of launch_machines  (a root; linked with every lease that it works for)
request POST /v1/leases        (the customer's)
  `- launch_machines           (the step for this lease; linked with the activation)
       `- provider launch      (the call that costs money)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from control_plane.db import traces
from control_plane.db.connection import Connection
from control_plane.db.traces import Traced
from control_plane.domain.ids import AccountName, LeaseId, MachineId, Prefix, on_wire
from reconciler.loop import Report
from reconciler.world import World
from tracing.attributes import Attribute
from tracing.tracer import Span, Tracer


async def activation(
    world: World, loop: str, account: AccountName | None, activate: Callable[[], Awaitable[Report]]
) -> Report:
    """Run an activation in a trace of its own. It is not exported when there was nothing to do."""
    with world.tracer.span(loop, root=True) as span:
        span.set(Attribute.LOOP, loop)
        span.set(Attribute.ACCOUNT, account)
        span.set(Attribute.REPLICA, world.replica)
        report = await activate()
        span.set(Attribute.LOOKED_AT, report.looked_at)
        span.set(Attribute.ACTED_ON, report.acted_on)
        span.set(Attribute.ERRORS, len(report.errors))
        if report.errors:
            span.fail("reported_errors")
        elif not report.acted_on:
            span.forget_if_childless()
    return report


@dataclass(frozen=True, slots=True)
class Steps:
    """Makes a loop's spans for the leases, or for the machines, that an activation works for."""

    tracer: Tracer
    loop: str
    prefix: Prefix
    """What they are for."""
    found: Mapping[UUID, Traced] = field(default_factory=dict[UUID, Traced])

    def of(self, subject: LeaseId | MachineId) -> Span:
        """A span in the trace of the lease; one inside the activation when the lease has none."""
        traced = self.found.get(subject)
        span = self.tracer.step(self.loop, None if traced is None else traced.traceparent)
        span.set(Attribute.LOOP, self.loop)
        if traced is not None:
            span.set(Attribute.LEASE, on_wire(Prefix.LEASE, traced.lease_id))
        if self.prefix is Prefix.MACHINE:
            span.set(Attribute.MACHINE, on_wire(Prefix.MACHINE, subject))
        return span

    async def around(self, subject: LeaseId | MachineId, work: Awaitable[None]) -> None:
        with self.of(subject):
            await work

    def note(self, subject: LeaseId | MachineId, event: str) -> None:
        """A step that is done: what it stored for this lease or machine."""
        with self.of(subject) as span:
            span.set(Attribute.EVENT, event)


async def of_machines(
    world: World, connection: Connection, loop: str, machine_ids: Sequence[MachineId]
) -> Steps:
    """The steps of a loop for machines, in the traces of their leases. No query is made while traces are off."""
    if not (world.tracer.on and machine_ids):
        return Steps(world.tracer, loop, Prefix.MACHINE)
    return Steps(world.tracer, loop, Prefix.MACHINE, await traces.of_machines(connection, machine_ids))


async def of_leases(world: World, connection: Connection, loop: str, lease_ids: Sequence[LeaseId]) -> Steps:
    """The steps of a loop for leases, in their traces."""
    if not (world.tracer.on and lease_ids):
        return Steps(world.tracer, loop, Prefix.LEASE)
    return Steps(world.tracer, loop, Prefix.LEASE, await traces.of_leases(connection, lease_ids))
