"""Admits customers to verified machines, after which the lease is READY and billed.

A machine is verified before any customer has access, whether it was ordered for the lease or waited in a pool. The
remaining steps belong to the claim: the machine closes every port that the firewall of the claim's lease does not open,
joins the private network of that lease, and last, its sshd learns which lease's certificates may log in as the
customer. All steps can be repeated: when a worker crashes, its hold on the claim expires, and the next worker starts
again from the first step.

A machine that repeatedly fails a step is given up, and its lease tries another one. A machine that cannot be reached
is given up after the claim's deadline (expire_machines).

This loop is for whole machines. A slot's customer shares the node with others and must not get the node's keys, so
the cluster's own loop will admit customers to slots (`outcomes/claims.py`, `admit`).
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from control_plane.db import claims, firewalls, network_links
from control_plane.db.claims import Target as ClaimTarget
from control_plane.db.firewalls import Rules
from control_plane.domain.claim import Claim
from control_plane.domain.firewall import LOOK_EVERY
from control_plane.domain.ids import AccountName, Prefix, on_wire
from control_plane.domain.progress import Step
from control_plane.domain.waiting import WaitsFor
from control_plane.outcomes import claims as outcomes
from control_plane.outcomes import machines as machine_outcomes
from data_plane.access.customer import admit_customer
from data_plane.access.port import AccessError, NotCertified, Session, Target
from data_plane.mesh.firewall import apply_firewall
from data_plane.mesh.machine import join_mesh, mesh_public_key
from data_plane.mesh.port import MeshLink
from reconciler import network, patience, traced
from reconciler.figures import READY_SECONDS
from reconciler.firewalls import openings
from reconciler.loop import AccountLoop, Report, both, each
from reconciler.worlds.leases import LeaseWorld
from tracing.tracer import Kind

NAME = "admit_customers"
CLAIMS_PER_ACTIVATION_MAX = 16
LANES = 4
"""Several, because a machine that hangs uses up the whole time limit of each step."""
HELD_FOR = timedelta(seconds=90)
"""Longer than any single step may take; every step renews it. A claim waits this long when its worker dies."""
LASTS = timedelta(minutes=3)

OURS_AGAIN = timedelta(seconds=5)


async def activate(world: LeaseWorld, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        waiting = await claims.take_admitting(
            connection, account, token=token, until=now + HELD_FOR, now=now, limit=CLAIMS_PER_ACTIVATION_MAX
        )
        targets = await claims.targets(connection, [claim.id for claim in waiting])
        steps = await traced.of_leases(world, connection, NAME, [claim.lease_id for claim in waiting])
    report = Report(looked_at=len(waiting), more=len(waiting) == CLAIMS_PER_ACTIVATION_MAX)
    await each(
        waiting,
        lambda claim: steps.around(claim.lease_id, _admit(world, claim, targets[claim.id], token, report)),
        report,
    )
    return report


async def _admit(world: LeaseWorld, claim: Claim, target: ClaimTarget, token: UUID, report: Report) -> None:
    if target.address is None or target.host_key is None:
        raise ValueError(f"{claim.machine_id} is verified without an address or a host key")
    reached = Target(target.address, target.ssh_port, target.host_key, target.launch_key)
    try:
        with world.tracer.span("machine session", Kind.CLIENT):
            async with AsyncExitStack() as opened:
                known_key = _known_key(claim, target)
                closed = await _prepare(world, claim, opened, reached, known_key=known_key, token=token)
    except (network.HubAway, network.NetworkBusy, NotCertified) as error:
        await _wait_for_us(world, claim, _waits_for(error), token)
        report.errors.append(f"{target.launch_key}: {type(error).__name__}: {error}")
        return
    except AccessError as error:
        await _try_again_or_fail(world, claim, error, token)
        report.notes.append(f"{target.launch_key}: {type(error).__name__}: {error}")
        return
    if closed is None:
        return
    async with world.db.transaction() as connection:
        now = world.now()
        admitted = await outcomes.admit(connection, claim, token=token, actor=world.actor(NAME), now=now)
        if admitted:
            await firewalls.admitted(
                connection, claim, closed.version, closed.digest, now=now, look_at=now + LOOK_EVERY
            )
        took = await claims.time_to_ready(connection, claim.lease_id, now=now) if admitted else None
    if took is not None:
        READY_SECONDS.observe(took.total_seconds())
    report.count(admitted)


@dataclass(frozen=True, slots=True)
class _Closed:
    """Which version of the rules a machine has, and what its kernel has as a digest."""

    version: int
    digest: str


def _known_key(claim: Claim, target: ClaimTarget) -> str | None:
    """With which key the machine will join; None to ask the machine. After a failed try it is asked in any case."""
    return target.mesh_key if claim.tries == 0 else None


async def _close(session: Session, wanted: Rules, ssh_port: int) -> _Closed:
    """Close the ports of a machine that its lease does not open."""
    return _Closed(wanted.version, await apply_firewall(session, openings(wanted.rules), ssh_port=ssh_port))


async def _ask_key(world: LeaseWorld, claim: Claim, session: Session, token: UUID) -> MeshLink | None:
    """Let the hub know the machine by its key; None when the work on the claim has to stop."""
    return await _know(world, claim, await mesh_public_key(session), token)


async def _know(world: LeaseWorld, claim: Claim, public_key: str, token: UUID) -> MeshLink | None:
    if not await _step(world, claim, None, token):
        return None
    return await network.join(world, claim.id, public_key)


async def _prepare(
    world: LeaseWorld,
    claim: Claim,
    opened: AsyncExitStack,
    reached: Target,
    *,
    known_key: str | None,
    token: UUID,
) -> _Closed | None:
    """The steps in their order; None when the claim ended, or another worker took it over meanwhile.

    The ports are closed while the hub learns of the machine: neither depends on the other, and a customer waits. Where
    the machine's key is known, the hub learns it while we log in to the machine, which is then asked for nothing more.
    """
    async with world.db.reading() as connection:
        wanted = await firewalls.rules_of(connection, claim.lease_id)

    async def log_in() -> Session:
        return await opened.enter_async_context(world.access.connect(reached))

    async def log_in_and_close() -> tuple[Session, _Closed]:
        session = await log_in()
        return session, await _close(session, wanted, reached.port)

    if known_key is None:
        session = await log_in()
        closed, mesh_link = await both(
            _close(session, wanted, reached.port), _ask_key(world, claim, session, token)
        )
    else:
        (session, closed), mesh_link = await both(log_in_and_close(), _know(world, claim, known_key, token))
    if mesh_link is None or not await _step(world, claim, None, token):
        return None
    await join_mesh(session, mesh_link)
    async with world.db.statement() as connection:
        hub = mesh_link.hub_public_key, mesh_link.hub_endpoint
        await network_links.joined(connection, claim.id, *hub, now=world.now())
    if not await _step(world, claim, Step.MESH_JOINED, token):
        return None
    await admit_customer(session, on_wire(Prefix.LEASE, claim.lease_id))
    return closed


async def _step(world: LeaseWorld, claim: Claim, step: Step | None, token: UUID) -> bool:
    """Store a step and extend the hold on the claim; False when the work on it has to stop."""
    async with world.db.statement() as connection:
        now = world.now()
        return await claims.record_step(
            connection, claim.id, step, token=token, now=now, until=now + HELD_FOR
        )


def _waits_for(error: AccessError) -> WaitsFor | None:
    """What the customer reads that it waits for. Another replica is done with the network in a moment."""
    if isinstance(error, NotCertified):
        return WaitsFor.SSH_AUTHORITY
    return WaitsFor.HUB if isinstance(error, network.HubAway) else None


async def _wait_for_us(world: LeaseWorld, claim: Claim, waits_for: WaitsFor | None, token: UUID) -> None:
    """Not a failed try of the machine, so its deadline moves on while our hub or our SSH authority is away
    (`domain/deadline.py`).
    """
    async with world.db.statement() as connection:
        now = world.now()
        await claims.wait(
            connection, claim.id, token=token, due_at=now + OURS_AGAIN, waits_for=waits_for, now=now
        )


async def _try_again_or_fail(world: LeaseWorld, claim: Claim, error: AccessError, token: UUID) -> None:
    now = world.now()
    failure = patience.failure(error, claim.tries)
    async with world.db.transaction() as connection:
        if failure is None:
            due_at = patience.next_try(claim.tries, now)
            await claims.retry(connection, claim.id, token=token, now=now, due_at=due_at)
            return
        if not await claims.is_held(connection, claim.id, token=token):
            return  # Another worker tries now, and may have admitted the customer.
        await machine_outcomes.fail(connection, claim.machine_id, failure, actor=world.actor(NAME), now=now)


LOOP = AccountLoop(
    NAME,
    timedelta(seconds=1),
    activate,
    lasts=LASTS,
    wakes=("place_leases", "terminate_machines"),
    lanes=LANES,
)
