"""Enforcement: what is found about leases that run, what is done about it, and what customers and operators set."""

from typing import Annotated, Any

from msgspec import Meta

from control_plane.wire.common import NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText, one_of

IDLE_SECONDS_MIN, IDLE_SECONDS_MAX = 1_800, 2_592_000

DetectorWord = Annotated[
    str,
    one_of(
        "Detector",
        "What was found about a lease.",
        sla_violation="A promise of the lease was broken.",
        memory_pressure="GPU memory and KV cache are full, or the memory of the host is.",
        kv_cache_growth="The KV cache of an inference server will soon be full.",
        throughput_degradation="An inference server is slower than it usually is with as many requests.",
        idle="The GPUs do nothing.",
        envelope_breach="The lease is outside of an envelope.",
        unfunded="The next hour of the lease cannot be set aside.",
    ),
]
EnforcementActionWord = Annotated[
    str,
    one_of(
        "EnforcementAction",
        "What is done about it, mildest first.",
        notify="The customer is told.",
        check_machine="We look at the machine ourselves, and have its GPUs prove themselves.",
        throttle_admission="The workload is asked to take new work more slowly.",
        smaller_batch="The workload is asked for smaller batches.",
        stop_admission="The workload is asked to take no new work.",
        evict="The workload is asked to save what it has and to end before `planned_at`.",
        shutdown="The machine is stopped at `planned_at`.",
        credit="Money was given back, by the clocks of the SLA.",
    ),
]
BasisWord = Annotated[
    str,
    one_of(
        "EnforcementBasis",
        "What it was found by.",
        claim="The machine says so, which only leads to advice.",
        consent="The machine says so, and the lease's customer wants it to have consequences.",
        ours="We know it ourselves: from the ledger, an envelope or the clock of a promise.",
    ),
]
ActionEndWord = Annotated[
    str,
    one_of(
        "EnforcementEnd",
        "How an action ended.",
        expired="Its time was over.",
        superseded="The next action was taken, or the same one again.",
        over="The condition is over, or the lease.",
        done="What it announced was done.",
        undone="An operator undid it.",
    ),
]
EnforcementActionIdText = Annotated[
    str,
    Meta(
        description="The id of an action.",
        examples=["ea_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra_json_schema={"pattern": "^ea_[0-9a-f]{32}$"},
    ),
]


class EnforcementView(View):
    """An action about a lease that runs."""

    id: EnforcementActionIdText
    """The id of the action."""
    lease_id: LeaseIdText
    """The lease."""
    machine_id: MachineIdText
    """The machine that the lease had then."""
    detector: DetectorWord
    """What was found."""
    action: EnforcementActionWord
    """What is done."""
    armed: bool
    """Whether it was done. Otherwise it was only decided, because no operator has armed the detector."""
    at: Timestamp
    """When."""
    expires_at: Timestamp
    """When it ends, unless it is taken again."""
    planned_at: Timestamp | None
    """When the machine is stopped, or the lease ends; null when neither is announced."""
    basis: BasisWord
    """What it was found by."""
    why: str
    """The reason, as a sentence without its stop."""
    evidence: dict[str, Any]
    """What it was decided by: times and values of samples, or our own records."""
    rules: str
    """The digest of the rules that it was decided by."""
    ended_at: Timestamp | None
    """When it ended; null while it is in force."""
    ended: ActionEndWord | None
    """How it ended; null while it is in force."""
    ended_by: str | None
    """Who ended it: a loop of ours, or an operator; null while it is in force."""
    ended_why: str | None
    """Why it ended; null while it is in force."""


class EnforcementPage(View):
    """Actions about leases, the latest first."""

    items: tuple[EnforcementView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""


class LeaseEnforcementPage(View):
    """What was done about a lease that runs, the latest first."""

    idle_stop_seconds: int | None
    """After how many idle seconds its machine is stopped, as you wish; null: never."""
    items: tuple[EnforcementView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""


class IdleStopRequest(Request):
    """Whether an idle machine is stopped."""

    after_seconds: Annotated[int, Meta(ge=IDLE_SECONDS_MIN, le=IDLE_SECONDS_MAX, examples=[7_200])] | None
    """Stop it after it was idle for so long, from half an hour to 30 days; null: never."""


class IdleStopView(View):
    """Whether the idle machine of a lease is stopped."""

    lease_id: LeaseIdText
    """The lease."""
    after_seconds: int | None
    """After how many idle seconds; null: never."""


class UndoRequest(Request):
    """A request to undo an action."""

    why: Sentence
    """Why. The lease's customer reads it."""


class DetectorRequest(Request):
    """A request to let a detector act, or only decide."""

    why: Sentence
    """Why."""


class DetectorView(View):
    """A detector, and whether it acts."""

    detector: DetectorWord
    """What it finds."""
    armed: bool
    """Whether its actions are taken. Otherwise they are only decided and stored."""
    since: Timestamp | None
    """Since when it is so; null when nobody has armed it yet."""
    set_by: str | None
    """The user or the service account that said so."""
    why: str | None
    """Why."""
    leases: int
    """For how many leases its condition holds now."""


class DetectorList(View):
    """All detectors."""

    items: tuple[DetectorView, ...]
    """In a fixed order."""
