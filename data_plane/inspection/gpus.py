"""What a machine says its GPUs are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from data_plane.access.port import Session, StepFailed
from data_plane.access.step import Answer, Step
from data_plane.documents.inventory import Gpu, Inventory, Sharing
from data_plane.inspection.agent import agent_step, document, run_agent
from data_plane.inspection.bundle import AgentBundle

# Without a persistence daemon a driver wakes its cards at every start, seconds for each.
RUN_AGENT = agent_step("run agent", "inventory", seconds=40)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One card as the machine shows it."""

    index: int
    name: str
    """NVML's product name, such as `NVIDIA H100 80GB HBM3`."""
    uuid: str
    memory_mib: int
    """NVML's total, MiB (1,048,576 bytes), rounded down."""
    sharing: Sharing = "none"
    pci_device_id: str | None = None
    """Vendor and device, such as `10de:2330`; None where the machine did not say."""
    compute_capability: str | None = None
    """Such as `9.0`."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What the machine says its GPUs are. A claim by a hostile node: check it, do not bill by it."""

    source: Literal["nvml", "emulated"]
    """`emulated` readings come from a file, for machines without GPUs; they prove nothing."""
    driver_version: str
    gpus: tuple[GpuReading, ...]
    """By index, ascending."""
    agent_sha256: str
    """The digest of the agent that we pushed, checked on the machine before it ran; not the machine's word."""
    inventory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The agent's whole document, parsed and bounded (`protocol.DOCUMENT_BYTES_MAX`): evidence, not to decide by."""


async def read_gpus(session: Session, agent: AgentBundle) -> GpuReport:
    """Run the agent and read its GPUs. Raises Unreachable and StepFailed."""
    return gpu_report(RUN_AGENT, await run_agent(session, RUN_AGENT, agent), agent.sha256)


def gpu_report(step: Step, answer: Answer, agent_sha256: str) -> GpuReport:
    """Read the agent's inventory, or StepFailed."""
    message = document(step, answer)
    if not isinstance(message, Inventory):
        raise StepFailed(step.name, None, "the agent did not answer with an inventory")
    return GpuReport(
        source=message.source,
        driver_version=message.driver_version,
        gpus=tuple(_reading(gpu) for gpu in message.gpus),
        agent_sha256=agent_sha256,
        inventory=asdict(message),
    )


def _reading(gpu: Gpu) -> GpuReading:
    return GpuReading(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        memory_mib=gpu.memory_total_mib,
        sharing=gpu.sharing,
        pci_device_id=gpu.pci_device_id,
        compute_capability=gpu.compute_capability,
    )
