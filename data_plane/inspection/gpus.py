"""Reads which GPUs a machine says it has."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from data_plane.access.port import Session, StepFailed
from data_plane.access.step import Answer, Step
from data_plane.documents.inventory import Gpu, Inventory, Sharing
from data_plane.inspection.agent import agent_step, document, run_agent
from data_plane.inspection.bundle import Bundle

# Without a persistence daemon, the driver initialises every card anew, which takes seconds for each.
RUN_AGENT = agent_step("run agent", "inventory", seconds=40)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One card, as the machine describes it."""

    index: int
    name: str
    """NVML's product name, such as `NVIDIA H100 80GB HBM3`."""
    uuid: str
    memory_mib: int
    """NVML's total, MiB (1,048,576 bytes), rounded down."""
    sharing: Sharing = "none"
    pci_device_id: str | None = None
    """Vendor and device, such as `10de:2330`; None if the machine did not say."""
    compute_capability: str | None = None
    """Such as `9.0`."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """The GPUs that a machine says it has. A hostile node claims this: check it, and do not bill by it."""

    source: Literal["nvml", "emulated"]
    """`emulated` readings come from a file on a machine without GPUs. They prove nothing."""
    driver_version: str
    gpus: tuple[GpuReading, ...]
    """In ascending order of their indices."""
    agent_sha256: str
    """The digest of the agent that we pushed and ran. It does not come from the machine."""

    inventory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The agent's whole document, parsed and bounded (`protocol.DOCUMENT_BYTES_MAX`). It is kept as evidence only."""


async def read_gpus(session: Session, agent: Bundle) -> GpuReport:
    """Run the agent and read its GPUs. Raises Unreachable and StepFailed."""
    return gpu_report(RUN_AGENT, await run_agent(session, RUN_AGENT, agent), agent.sha256)


def gpu_report(step: Step, answer: Answer, agent_sha256: str) -> GpuReport:
    """The inventory that the agent printed. Raises StepFailed for anything else."""
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
