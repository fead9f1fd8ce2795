"""Reads how well a machine says its GPUs are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from data_plane.access.port import Session, StepFailed
from data_plane.access.step import Answer, Step
from data_plane.documents import health
from data_plane.inspection.agent import agent_step, document, run_agent
from data_plane.inspection.bundle import Bundle

READ_HEALTH = agent_step("read health", "health", seconds=40)


@dataclass(frozen=True, slots=True)
class SeenXid:
    """An error that a driver reported. A machine gains nothing by inventing one, so it can be believed."""

    number: int
    at: int
    """Unix seconds by the machine's clock."""
    bus_id: str | None
    """Such as `0000:3b:00.0`; None if the card could no longer say."""
    of_switch: bool
    """True for an SXid, which an NVSwitch reports; `bus_id` is then the switch's."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """The state of one card. None where the driver does not say."""

    index: int
    uuid: str | None
    """None if the card was lost before it could say."""
    lost: bool
    """The card has fallen off the bus, or does not answer until it is reset."""
    processes: int | None
    """Compute and graphics processes together; None if compute processes were not counted."""
    utilisation_percent: int | None
    """None with MIG, for which NVML does not measure it."""
    memory_used_mib: int | None
    recovery_action: int | None
    """NVML's advice: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX domain, 6 bus reset,
    7 system reboot."""
    throttle: int | None
    """NVML's clocks-event reason bits: 1 is idle; 8 (hardware), 64 (thermal) and 128 (power brake) are faults."""
    xids: tuple[int, ...]
    """Numbers of the errors that this card reported, oldest first."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What a machine says about the state of its GPUs. Faults can be believed; that there are none is only a claim."""

    source: Literal["nvml", "emulated"]
    gpus: tuple[GpuHealth, ...]
    """In ascending order of their indices."""
    xids: tuple[SeenXid, ...]
    """Every error, oldest first. Errors of switches and of unidentified cards are only in this list."""
    kernel_log_read: bool
    """If False, earlier errors could not be looked for, so an empty list of them means nothing."""
    agent_sha256: str
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The agent's whole document, parsed and bounded. It is kept as evidence only."""


async def read_health(session: Session, agent: Bundle) -> HealthReport:
    """Run the agent once and read the state of the GPUs. Raises Unreachable and StepFailed."""
    return health_report(READ_HEALTH, await run_agent(session, READ_HEALTH, agent), agent.sha256)


async def read_health_document(session: Session, agent: Bundle) -> health.Health:
    """Run the agent once and read everything that it says about the GPUs. Raises Unreachable and StepFailed."""
    return _health_document(READ_HEALTH, await run_agent(session, READ_HEALTH, agent))


def _health_document(step: Step, answer: Answer) -> health.Health:
    message = document(step, answer)
    if not isinstance(message, health.Health):
        raise StepFailed(step.name, None, "the agent did not answer with a health document")
    return message


def health_report(step: Step, answer: Answer, agent_sha256: str) -> HealthReport:
    """The health document that the agent printed. Raises StepFailed for anything else."""
    message = _health_document(step, answer)
    return HealthReport(
        source=message.source,
        gpus=tuple(_health(gpu, message.xids) for gpu in message.gpus),
        xids=tuple(SeenXid(xid.number, xid.at, xid.bus_id, xid.kind == "sxid") for xid in message.xids),
        kernel_log_read=message.kernel_log != "unreadable",
        agent_sha256=agent_sha256,
        document=asdict(message),
    )


def _health(gpu: health.GpuHealth, xids: Sequence[health.Xid]) -> GpuHealth:
    usage = gpu.usage
    # If compute processes were not counted, the number of graphics processes alone tells nothing.
    processes = usage.compute_processes

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
