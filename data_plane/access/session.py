"""The steps of a machine's bootstrap over a logged-in shell, and the parsing of what it answers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from data_plane.access import bootstrap
from data_plane.access.line import Line
from data_plane.access.port import (
    AgentBundle,
    GpuHealth,
    GpuReading,
    GpuReport,
    HealthReport,
    MeshLink,
    SeenXid,
    StepFailed,
)
from data_plane.access.shell import Answer, Shell, Step
from data_plane.documents import health, inventory, protocol, strict


class MachineSession:
    """`port.Session` over a shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def install_keys(self, authorized_keys: Sequence[str]) -> None:
        step = bootstrap.INSTALL_KEYS
        try:
            text = bootstrap.authorized_keys_text(authorized_keys)
        except ValueError as error:
            raise StepFailed(step.name, None, str(error)) from None
        await must(self._shell, step, stdin=text.encode())

    async def mesh_public_key(self) -> str:
        step = bootstrap.MESH_KEY
        return public_key(step, await must(self._shell, step))

    async def join_mesh(self, link: MeshLink) -> None:
        step = bootstrap.JOIN_MESH
        try:
            config = bootstrap.machine_config(link)
        except ValueError as error:
            raise StepFailed(step.name, None, str(error)) from None
        await must(self._shell, step, [link.hub_address, bootstrap.JOIN_MESH_PROOF], stdin=config.encode())

    async def read_gpus(self, agent: AgentBundle) -> GpuReport:
        step = bootstrap.RUN_AGENT
        return gpu_report(step, await self._run_agent(step, agent), agent.sha256)

    async def read_health(self, agent: AgentBundle) -> HealthReport:
        step = bootstrap.READ_HEALTH
        return health_report(step, await self._run_agent(step, agent), agent.sha256)

    @asynccontextmanager
    async def prover(self, agent: AgentBundle) -> AsyncIterator[Line]:
        found = await self._run_agent(bootstrap.FIND_AGENT, agent)
        if found.exit_status != 0:
            raise StepFailed(bootstrap.FIND_AGENT.name, found.exit_status, found.detail)
        async with self._shell.converse(bootstrap.PROVE, [agent.sha256]) as line:
            yield line

    async def end_customer(self) -> None:
        await must(self._shell, bootstrap.END_CUSTOMER)

    async def _run_agent(self, step: Step, agent: AgentBundle) -> Answer:
        answer = await self._shell.run(step, [agent.sha256])
        if answer.exit_status != bootstrap.MISSING:
            return answer
        await must(self._shell, bootstrap.PUSH_AGENT, [agent.sha256], stdin=agent.content)
        return await self._shell.run(step, [agent.sha256])


async def must(shell: Shell, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"") -> Answer:
    """Run a step; any exit status but 0 is StepFailed."""
    answer = await shell.run(step, arguments, stdin=stdin)
    if answer.exit_status != 0:
        raise StepFailed(step.name, answer.exit_status, answer.detail)
    return answer


def public_key(step: Step, answer: Answer) -> str:
    """The WireGuard public key that a step printed, or StepFailed."""
    try:
        return bootstrap.wireguard_key(answer.output.decode("ascii"))
    except ValueError:  # UnicodeDecodeError is one too.
        raise StepFailed(step.name, None, "the machine did not answer with a WireGuard public key") from None


def gpu_report(step: Step, answer: Answer, agent_sha256: str) -> GpuReport:
    """Read the agent's inventory, or StepFailed."""
    message = _document(step, answer)
    if not isinstance(message, inventory.Inventory):
        raise StepFailed(step.name, None, "the agent did not answer with an inventory")
    return GpuReport(
        source=message.source,
        driver_version=message.driver_version,
        gpus=tuple(_reading(gpu) for gpu in message.gpus),
        agent_sha256=agent_sha256,
        inventory=asdict(message),
    )


def health_report(step: Step, answer: Answer, agent_sha256: str) -> HealthReport:
    """Read the agent's health document, or StepFailed."""
    message = _document(step, answer)
    if not isinstance(message, health.Health):
        raise StepFailed(step.name, None, "the agent did not answer with a health document")
    return HealthReport(
        source=message.source,
        gpus=tuple(_health(gpu, message.xids) for gpu in message.gpus),
        xids=tuple(SeenXid(xid.number, xid.at, xid.bus_id, xid.kind == "sxid") for xid in message.xids),
        kernel_log_read=message.kernel_log != "unreadable",
        agent_sha256=agent_sha256,
        document=asdict(message),
    )


def _document(step: Step, answer: Answer) -> protocol.Message:
    """What the agent printed. The exit status is checked last: a failure document says more."""
    try:
        message = protocol.decode(answer.output)
    except strict.Malformed as error:
        if answer.exit_status != 0:
            raise StepFailed(step.name, answer.exit_status, answer.detail) from None
        raise StepFailed(step.name, None, f"the agent's answer is malformed: {error}") from None
    if isinstance(message, protocol.Failure):
        raise StepFailed(step.name, answer.exit_status, f"{message.code}: {message.detail}")
    if answer.exit_status != 0:
        raise StepFailed(step.name, answer.exit_status, answer.detail)
    return message


def _reading(gpu: inventory.Gpu) -> GpuReading:
    return GpuReading(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        memory_mib=gpu.memory_total_mib,
        sharing=gpu.sharing,
        pci_device_id=gpu.pci_device_id,
        compute_capability=gpu.compute_capability,
    )


def _health(gpu: health.GpuHealth, xids: Sequence[health.Xid]) -> GpuHealth:
    usage = gpu.usage
    processes = usage.compute_processes  # Without these, that there are no others says nothing.
    return GpuHealth(
        index=gpu.index,
        uuid=gpu.uuid,
        lost=gpu.lost,
        processes=None if processes is None else processes + (usage.graphics_processes or 0),
        utilisation_percent=usage.utilisation_percent,
        memory_used_mib=usage.memory_used_mib,
        recovery_action=gpu.recovery.action,
        throttle=gpu.throttle.reasons,
        xids=tuple(
            xid.number
            for xid in xids
            if xid.kind == "xid" and xid.bus_id is not None and xid.bus_id == gpu.bus_id
        ),
    )
