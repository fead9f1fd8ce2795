"""Repairs: machines that are not healthy, what is done about each, and what customers and operators ask for."""

from typing import Annotated

from control_plane.wire.common import (
    NextCursor,
    Request,
    Sentence,
    Timestamp,
    View,
    require_a_year_of_ours,
)
from control_plane.wire.vocabulary import MachineIdText, one_of

VerdictWord = Annotated[
    str,
    one_of(
        "HealthVerdict",
        "How healthy a machine is.",
        healthy="No fault is known.",
        degraded="It works, and something about it is wrong, or in doubt.",
        maintenance_required="It has to be reset, or will be taken back.",
        quarantined="A part of what was sold does not work.",
        lost="Its provider says that it does not run.",
    ),
]
FaultWord = Annotated[
    str,
    one_of(
        "MachineFault",
        "What is wrong with a machine.",
        machine_error="The driver reported an error that takes the machine out.",
        gpu_error="The driver reported an error that takes a GPU out until it is reset.",
        unknown_error="The driver reported an error whose meaning is not documented.",
        memory_wears="Memory wears out: many errors were corrected or contained, or many rows remapped.",
        program_errors="Errors that programs usually cause come again and again on one GPU, which is to prove itself.",
        gpu_lost="A GPU does not answer.",
        gpu_missing="There are fewer GPUs than were sold.",
        recovery_needed="The driver asks for a recovery, and work cannot go on before.",
        reset_advised="The driver asks for a reset when what runs has ended.",
        memory_broken="A memory row could not be remapped.",
        memory_repair_pending="The next reset of a GPU remaps a memory row.",
        nvlink_down="An NVLink is down.",
        pcie_reduced="Under load, the PCIe link of a GPU is narrower or slower than it was.",
        fabric_unhealthy="The NVLink fabric is not healthy.",
        hardware_slowdown="The hardware slows a GPU down, because of heat or power.",
        proof_failed="It failed its last GPU proof.",
        provider_down="Its provider lists it as failed or stopped, though nobody asked for that.",
        provider_missing="Its provider does not list it.",
        eviction_announced="Its provider announced to take it back.",
        under_maintenance="An operator took it out for maintenance.",
        provider_maintenance="Its provider announced that it will work on it.",
        handed_back="Its customer asked for another machine.",
    ),
]
FaultSourceWord = Annotated[
    str,
    one_of(
        "FaultSource",
        "Who reports a fault.",
        sample="The agent on the machine.",
        look="We, in a reading that we took over SSH.",
        proof="A GPU proof.",
        provider="The lists of its provider.",
        operator="An operator, or its customer.",
    ),
]
RepairStepWord = Annotated[
    str,
    one_of(
        "RepairStep",
        "What is done about a machine.",
        watch="We look at it ourselves.",
        challenge="Its GPUs have to prove themselves again.",
        reset="It is rebooted, once its customer was told.",
        replace="Its customer gets another one, once they were told; one that nobody uses ends.",
        ticket="Its provider has to repair it.",
    ),
]
RepairOutcomeWord = Annotated[
    str,
    one_of(
        "RepairOutcome",
        "How a repair was closed.",
        recovered="The machine is healthy again.",
        replaced="Its customer got another machine.",
        ended="Nobody used it, and it was ended.",
        gone="It ended for another reason.",
    ),
]


class ReplacementRequest(Request):
    """A request to give a lease another machine."""

    why: Sentence
    """What does not work. We read it, and so do those who repair the machine."""


class RepairView(View):
    """What is done about a machine that is not healthy."""

    id: str
    """The id of the repair."""
    machine_id: MachineIdText
    """The machine."""
    fault: FaultWord
    """The fault that it was opened for."""
    opened_verdict: VerdictWord
    """How healthy the machine was then."""
    opened_why: str
    """Why, as a sentence."""
    verdict: VerdictWord
    """How healthy the machine is now."""
    verdict_why: str
    """Why, as a sentence."""
    step: RepairStepWord
    """What is being done."""
    step_at: Timestamp
    """When that was begun."""
    why: str
    """What it waits for."""
    opened_at: Timestamp
    """When the repair was opened."""
    notified_at: Timestamp | None
    """When the machine's customer was told what comes next."""
    closed_at: Timestamp | None
    """When it was closed; null while it is open."""
    outcome: RepairOutcomeWord | None
    """How it was closed."""


class RepairPage(View):
    """Repairs, the latest first."""

    items: tuple[RepairView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""


class RepairFaultView(View):
    """A fault that was found while a machine was repaired."""

    fault: FaultWord
    """What is wrong."""
    gpu: int | None
    """The index of the GPU; null when it concerns the machine."""
    gpu_uuid: str | None
    """Its UUID, where it is known."""
    xid: int | None
    """The number of the driver's error; null when it is none."""
    source: FaultSourceWord
    """Who reported it first."""
    first_at: Timestamp
    """When it was reported first."""
    last_at: Timestamp
    """When it was reported last."""
    confirmed_at: Timestamp | None
    """When we saw it ourselves first; null when only the machine says so."""
    detail: str
    """What exactly."""


class HealthChangeView(View):
    """A change of the verdict about a machine."""

    at: Timestamp
    """When."""
    verdict_before: VerdictWord
    """How healthy it was before."""
    verdict: VerdictWord
    """How healthy it was from then on."""
    fault: FaultWord | None
    """The worst fault; null when none is known."""
    why: str
    """Why, as a sentence."""


class RepairActView(View):
    """A thing that we did."""

    at: Timestamp
    """When."""
    what: str
    """What, as a sentence."""


class RepairDetailView(View):
    """A repair with its evidence."""

    repair: RepairView
    """The repair."""
    provider: str
    """The provider of the machine."""
    account: str
    """The account of ours there."""
    region: str
    """The region, as the provider names it."""
    native_type: str
    """The type of the machine, as the provider names it."""
    provider_ref: str | None
    """The provider's id of the machine; null when it never told us one."""
    gpu_uuids: tuple[str, ...]
    """The UUIDs of its GPUs, in the order of their indices; empty when they were never read."""
    faults: tuple[RepairFaultView, ...]
    """Every fault that was found, the oldest first."""
    changes: tuple[HealthChangeView, ...]
    """How the verdict changed, the oldest first."""
    done: tuple[RepairActView, ...]
    """What we did, the oldest first."""
    ticket: tuple[str, ...]
    """The lines of a text for the provider, which can be sent as it is. It names no customer."""


class MaintenanceRequest(Request):
    """A request to take a machine out for maintenance."""

    why: Sentence
    """Why. Its customer reads it."""
    planned_at: Timestamp | None = None
    """When the work begins, which its customer is told; null when it is not known yet."""

    def __post_init__(self) -> None:
        require_a_year_of_ours("planned_at", self.planned_at)


class MaintenanceView(View):
    """A machine that an operator took out for maintenance."""

    machine_id: MachineIdText
    """The machine."""
    since: Timestamp
    """Since when."""
    taken_by: str
    """The user or the service account that took it out."""
    why: str
    """Why."""
    planned_at: Timestamp | None
    """When the work begins; null when it is not known."""
    ended_at: Timestamp | None
    """When it was given back; null while it is out."""
