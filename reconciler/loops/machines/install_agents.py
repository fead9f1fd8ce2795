"""Installs the agent as a service on machines with customers, and replaces it when ours is a newer one.

A machine gets it once its customer is admitted, because it reports through the tunnel of the lease's network; a node
once it is open, through the overlay of its cluster. Each installation has a new credential, which is good for reports
of this lease alone. Its digest is stored before the machine gets it, so a crash leaves no credential that we do not
know; the next activation replaces it. Until a newer agent is installed, the one before it may report, too.

An agent that cannot be installed costs nobody a machine: the lease goes on without it, and operators see why.
"""

import hashlib
import secrets
from datetime import timedelta

from control_plane.db import agents
from control_plane.db.agents import Installing
from control_plane.domain import network, overlay
from control_plane.domain.backoff import delay
from control_plane.domain.ids import AccountName
from control_plane.domain.overlay import SERVER_NUMBER
from data_plane.access.port import AccessError, NotCertified, Target
from data_plane.documents.agent_config import Config
from data_plane.inspection.agent_service import install_agent
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "install_agents"
MACHINES_PER_ACTIVATION_MAX = 8
AGAIN = timedelta(minutes=3)
"""When a machine is taken again whose worker died. Longer than an installation may take."""
RETRY_FIRST, RETRY_CEILING = timedelta(minutes=1), timedelta(hours=1)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        due = await agents.take_due(
            connection,
            account,
            world.agent.sha256,
            now=now,
            again=now + AGAIN,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    await each(due, lambda machine: _install(world, machine, report), report)
    return report


async def _install(world: MachineWorld, machine: Installing, report: Report) -> None:
    if machine.machine_address is None or machine.host_key is None:
        raise ValueError(f"{machine.machine_id} has a customer without an address or a host key")
    credential = secrets.token_hex(32)
    digest = hashlib.sha256(credential.encode()).hexdigest()
    async with world.db.statement() as connection:
        if not await agents.issued(connection, machine.claim_id, digest):
            return  # The lease has ended meanwhile.
    target = Target(machine.machine_address, machine.ssh_port, machine.host_key, machine.launch_key)
    try:
        async with world.access.connect(target) as session:
            await install_agent(session, world.agent, _config(machine, credential))
    except AccessError as error:
        await _try_again(world, machine, error, report)
        return
    async with world.db.statement() as connection:
        now = world.now()
        report.count(
            await agents.installed(connection, machine.claim_id, digest, world.agent.sha256, now=now)
        )


def _config(machine: Installing, credential: str) -> Config:
    """Whom its agent reports to, and from which address."""
    if machine.overlay is not None and machine.number is not None:
        server = overlay.address_of(machine.overlay, SERVER_NUMBER)
        return Config(credential, server, overlay.address_of(machine.overlay, machine.number))
    if machine.network is None or machine.own_address is None:
        raise ValueError(f"{machine.machine_id} is in no network and in no cluster")
    hub = network.range_of(machine.network).network_address + 1
    return Config(credential, str(hub), machine.own_address)


async def _try_again(world: MachineWorld, machine: Installing, error: AccessError, report: Report) -> None:
    why = f"{type(error).__name__}: {error}"
    (report.errors if isinstance(error, NotCertified) else report.notes).append(
        f"{machine.launch_key}: {why}"
    )
    due_at = world.now() + delay(machine.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        await agents.failed(connection, machine.claim_id, why, due_at=due_at)


LOOP = AccountLoop(NAME, timedelta(seconds=5), activate)
