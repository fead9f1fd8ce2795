"""The wire: every body that goes in or out. Nothing here decides anything.

Times are RFC 3339 in UTC. Money is an exact decimal text in US dollars with nine places, and the
same amount as integer nano-US-dollars. Ids wear a prefix (`le_`, `org_`, `key_`, `ssh_`, `in_`, `pf_`).
A request with a field that is not listed here is refused; an answer may grow fields.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

# A dollar before a newline would match in Python: `(?!\n)` makes these mean the whole text everywhere.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@:+-]*$(?!\n)",
        max_length=63,
        description="1 to 63 letters, digits, spaces or . _ @ : + -, starting with a letter or digit.",
    ),
]
SkuName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)", max_length=64)]
RegionName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]{2}(-[a-z0-9]+)*$(?!\n)",
        max_length=48,
        description="A jurisdiction (`eu`) or a region in it (`eu-central-1`).",
    ),
]
ProviderName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)", max_length=48)]
AccountText = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9-]*)?$(?!\n)",
        max_length=100,
        description="A provider account, such as `lambda_cloud/research`.",
    ),
]
# Neither control characters nor those that turn or hide text: a terminal and an auditor read it.
Sentence = Annotated[
    str,
    Meta(
        pattern=r"^(?=.*\S)[^\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$(?!\n)",
        max_length=500,
        description="Kept, with whose key it was: one line of up to 500 characters.",
    ),
]
SshKeyIdText = Annotated[str, Meta(pattern=r"^ssh_[0-9a-f]{32}$(?!\n)", max_length=36)]
UsdText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$(?!\n)",
        max_length=19,
        description="A decimal amount in US dollars with at most nine places, as text: `25` or `2.49`.",
    ),
]


class Request(Struct, forbid_unknown_fields=True):
    """A body we read."""


class View(Struct):
    """A body we write."""


class Money(View):
    usd: str
    """Exact, with nine decimal places: `2.490000000`."""
    nano: int
    """The same in nano-US-dollars (1e-9 USD). May exceed 2^53."""


class FieldError(View):
    field: str
    """Where: `regions[0]`, a query parameter, or `body`."""
    detail: str


class Problem(View, omit_defaults=True):
    """RFC 9457 problem details. `code` is stable; docs/errors.md lists every one."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: tuple[FieldError, ...] = ()


# Organizations and keys


class OrganizationView(View):
    id: str
    name: str
    suspended: bool
    gpu_quota: int
    gpus_held: int
    balance: Money
    """Paid in less posted charges."""
    held: Money
    """Set aside for running leases."""
    available: Money
    """Balance less holds: what a new lease can be admitted on."""
    created_at: datetime


class ApiKeyRequest(Request):
    name: Name
    operator: bool = False
    """Only an operator's key may make another operator's key."""


class ApiKeyView(View):
    id: str
    name: str
    operator: bool
    hint: str
    created_at: datetime
    revoked_at: datetime | None


class ApiKeyList(View):
    items: tuple[ApiKeyView, ...]


class IssuedApiKey(View):
    key: ApiKeyView
    secret: str | None
    """Shown once. A replay of the request (same Idempotency-Key) answers null."""


class SshKeyRequest(Request):
    name: Name
    public_key: Annotated[str, Meta(min_length=1, max_length=16_384)]
    """One line of OpenSSH: `ssh-ed25519 AAAA... you@host`."""


class SshKeyView(View):
    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class SshKeyList(View):
    items: tuple[SshKeyView, ...]


# Catalogue


class SkuView(View):
    name: str
    gpu_model: str
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    proof: str
    """What its machines have to prove before they are leased: `listed` (nothing), `proven` or `attested`."""
    price_per_gpu_hour: Money
    price_per_hour: Money
    """For the whole machine."""


class SkuList(View):
    items: tuple[SkuView, ...]


class OfferView(View):
    key: str
    """Names the offer across refreshes; placements refer to it."""
    provider: str
    region: str
    native_type: str
    gpu_model: str
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    available: bool
    confidence: str
    """How the provider knows its stock: `live`, `advisory` or `static`."""
    observed_at: datetime
    age_seconds: int
    price_per_hour: Money | None
    """Ours, of the dearest SKU this offer can serve; null when we sell nothing of its shape."""
    skus: tuple[str, ...]
    """SKUs that this offer can serve."""
    cost_per_hour: Money | None
    """What we pay; null except for operators."""


class OfferList(View):
    items: tuple[OfferView, ...]


# Quotes and leases


class QuoteRequest(Request):
    sku: SkuName
    regions: Annotated[tuple[RegionName, ...], Meta(max_length=16)] = ()
    """Empty means anywhere."""
    providers: Annotated[tuple[ProviderName, ...], Meta(max_length=16)] = ()
    """Empty means any."""
    price_usd_per_hour_max: UsdText | None = None
    """Ceiling for the whole machine."""


class LeaseRequest(QuoteRequest):
    name: Name | None = None
    """A name is made up when there is none. It need not be unique."""
    ssh_key_ids: Annotated[tuple[SshKeyIdText, ...], Meta(max_length=32)] = ()


class VerdictView(View):
    admitted: bool
    code: str | None
    """The refusal's stable code."""
    why: str | None
    """A sentence that says what to change."""


class CandidateView(View):
    key: str
    provider: str
    region: str
    native_type: str
    confidence: str | None
    cost_per_hour: Money | None
    """What we pay; null except for operators."""


class RejectedView(View):
    key: str
    provider: str
    region: str
    native_type: str
    code: str
    why: str
    proofs: tuple[str, ...] = ()
    """The failed GPU proofs that speak against it; empty except for operators."""


class QuoteView(View):
    verdict: VerdictView
    sku: str
    price_per_gpu_hour: Money | None
    """Null when we do not sell the SKU."""
    price_per_hour: Money | None
    first_hour: Money | None
    """The expected bill of the first hour, which is also the hold that an admitted lease takes."""
    candidates: tuple[CandidateView, ...]
    """Best first."""
    rejected: tuple[RejectedView, ...]


class WishView(View):
    """Desired: what the customer asked for."""

    sku: str
    regions: tuple[str, ...]
    providers: tuple[str, ...]
    price_per_hour_max: Money | None


class StatusView(View):
    """Projected: what the lease is to its customer now."""

    phase: str
    """`pending`, `starting`, `ready`, `unconfirmed`, `ending` or `ended`."""
    step: str | None
    """The last step done: `placed`, `launched`, `booted`, `connected`, `mesh_joined`, `gpus_verified`,
    `gpus_proven` where the SKU demands proof, `keys_installed`."""
    steps_done: int
    steps_total: int
    message: str


class MachineView(View):
    """Observed: the latest attempt's machine."""

    instance_id: str
    provider: str
    region: str
    state: str
    address: str | None
    ssh_port: int
    ssh_user: str
    host_key: str | None
    """The SSH host key to pin; a machine that shows another one is not yours."""
    mesh_address: str | None
    sighted_at: datetime | None


class LeaseProofView(View):
    """Observed: what the latest attempt's machine has shown of its GPUs."""

    demanded: str
    """What the SKU demanded when the lease was admitted: `listed`, `proven` or `attested`."""
    tier: str
    """What the machine is now: `listed`, `proven`, `watched` or `attested`."""
    id: str | None
    """Of the latest proof; null before the first."""
    outcome: str | None
    at: datetime | None


class LeaseView(View):
    id: str
    name: str
    wish: WishView
    gpu_model: str
    gpu_count: int
    price_per_gpu_hour: Money
    """Fixed when the lease was admitted."""
    price_per_hour: Money
    state: str
    """`placing`, `starting`, `ready`, `ending` or `ended`; what `?state=` filters by."""
    status: StatusView
    machine: MachineView | None
    proof: LeaseProofView
    attempts: int
    end_reason: str | None
    end_why: str | None
    created_at: datetime
    ready_at: datetime | None
    """The bill starts at the first full second after this."""
    billed_until: datetime | None
    ended_at: datetime | None


class LeasePage(View):
    items: tuple[LeaseView, ...]
    next_cursor: str | None
    """Pass as `?cursor=` for the next page; null on the last one."""


class JournalLine(View):
    number: int
    """Grows; not without gaps."""
    at: datetime
    actor: str
    event: str
    instance_id: str | None
    state_before: str | None
    state_after: str | None
    why: str | None


class JournalPage(View):
    items: tuple[JournalLine, ...]
    next_cursor: str | None


class PlacementView(View):
    number: int
    decided_at: datetime
    chosen: str | None
    """The chosen candidate's key; null when there was none."""
    candidates: tuple[CandidateView, ...]
    rejected: tuple[RejectedView, ...]


class AttemptView(View):
    instance_id: str
    provider: str
    region: str
    native_type: str
    state: str
    step: str | None
    asked_at: datetime | None
    sighted_at: datetime | None
    fail_reason: str | None
    fail_why: str | None


class GpuReading(View):
    name: str
    uuid: str
    memory_mib: int


class ReportView(View):
    """What a machine said of its GPUs, and what we made of it."""

    id: str
    instance_id: str
    at: datetime
    verdict: str
    why: str | None
    source: str
    """`nvml`, or `emulated`."""
    gpus: tuple[GpuReading, ...]


class FindingView(View):
    code: str
    gpu: int | None
    """Null when it is about the machine as a whole."""
    why: str


class RateView(View):
    """What one GPU did in one timed phase, on our clock."""

    gpu: int
    phase: str
    """`fill`, `walk`, `int8` or `bf16`."""
    seconds: float
    per_second: float
    """Bytes read for `walk`, multiply-adds for tiles, units times iterations for `fill`."""
    least_seconds: float | None
    """What was allowed, where it is known: faster or slower is another GPU."""
    most_seconds: float | None


class ProvenGpu(View):
    uuid: str
    proven_bytes: int | None
    """Shown to be fast memory of one device; null when the memory was not asked about."""
    sold_bytes: int
    """What a whole card of this model has."""


class ProofView(View):
    """What one challenge of a machine's GPUs came to."""

    id: str
    lease_id: str
    instance_id: str
    at: datetime
    occasion: str
    """`start`, `recheck`, `idle` or `end`."""
    outcome: str
    """`passed`, `failed`, `unanswered` (nothing is known) or `emulated` (right, and no proof)."""
    code: str | None
    """Of the first finding."""
    why: str | None
    gpu_model: str
    source: str
    """`cuda`, `emulated`, or empty when the machine never said."""
    driver: str
    reference: str
    """Whose times it was held against: `measured`, `learnt` or `estimated`, and of when."""
    attested: bool
    """Whether every GPU's own signature was verified on our side."""
    gpus: tuple[ProvenGpu, ...]
    findings: tuple[FindingView, ...]
    hints: tuple[FindingView, ...]
    """Signs of sharing or throttling. They fail no one; they bring the next challenge forward."""
    rates: tuple[RateView, ...]
    seconds: float
    """The whole conversation."""


class ProofDetail(ProofView):
    evidence: dict[str, Any]
    """All that is needed to check it again: docs/gpu-proof.md says how. Its keys may grow and change."""


class ProofPage(View):
    items: tuple[ProofView, ...]
    next_cursor: str | None


class ExplanationView(View):
    """Everything that led a lease to where it is."""

    lease: LeaseView
    admission: JournalLine | None
    placements: tuple[PlacementView, ...]
    attempts: tuple[AttemptView, ...]
    journal: tuple[JournalLine, ...]
    """The first 1,000 lines; `/journal` pages through all."""
    reports: tuple[ReportView, ...]
    proofs: tuple[ProofView, ...]
    """The latest 200, newest first; `/proofs` pages through all."""


# Money


class UsageRow(View):
    """One charge: a rated interval of one lease."""

    id: str
    lease_id: str
    lease_name: str
    number: int
    sku: str
    started_at: datetime
    ended_at: datetime
    gpu_seconds: int
    price_per_gpu_hour: Money
    amount: Money


class UsagePage(View):
    items: tuple[UsageRow, ...]
    next_cursor: str | None


class BillLineView(View):
    lease_id: str
    name: str
    sku: str
    price_per_gpu_hour: Money
    gpu_seconds: int
    amount: Money
    """Rated and posted."""
    unrated_gpu_seconds: int
    unrated: Money
    """Used since, not rated yet."""


class BillView(View):
    since: datetime
    until: datetime
    """The period is a calendar month in UTC: `since` is in it, `until` is not."""
    lines: tuple[BillLineView, ...]
    amount: Money
    unrated: Money
    balance: Money
    held: Money
    available: Money


class ReconciliationView(View):
    gpu_seconds: int
    rated: Money
    posted: Money
    balance: Money
    difference: Money
    """Rated less posted; anything but zero is a fault of ours."""


# Operators


class LoopView(View):
    loop: str
    account: str
    replica: str
    started_at: datetime
    finished_at: datetime
    every_seconds: int
    looked_at: int
    acted_on: int
    errors: tuple[str, ...]
    notes: tuple[str, ...]
    activations: int
    age_seconds: int
    late_after_seconds: int
    """How long it may be silent and be well: three of its turns, and what one of them may take."""
    late: bool
    """Whether it has been silent for longer than that."""


class LoopList(View):
    items: tuple[LoopView, ...]


class OrphanView(View):
    account: str
    provider_ref: str
    launch_key: str
    native_status: str
    first_seen_at: datetime
    last_seen_at: datetime
    lists_seen: int
    terminate_asked_at: datetime | None
    note: str | None


class OrphanList(View):
    items: tuple[OrphanView, ...]


class PermitRequest(Request):
    account: AccountText
    why: Sentence
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class PermitView(View):
    """Machines of an account that fail their proof may be ended, however many fail."""

    account: str
    why: str
    actor: str
    at: datetime
    until: datetime


class AccountView(View):
    name: str
    provider: str
    listing_asked_at: datetime | None
    listing_size: int
    frozen_since: datetime | None
    frozen_why: str | None
    failing_since: datetime | None
    failing_why: str | None
    ending_permit: PermitView | None


class AccountList(View):
    items: tuple[AccountView, ...]


class ProofRecordView(View):
    """One proof in the record of a provider account; says nothing of whose machine it was."""

    id: str
    instance_id: str
    account: str
    offer: str
    gpu_model: str
    occasion: str
    outcome: str
    code: str | None
    why: str | None
    ended: bool
    """Whether the machine was ended because of it."""
    at: datetime


class ProofRecordPage(View):
    items: tuple[ProofRecordView, ...]
    next_cursor: str | None


class OrganizationRequest(Request):
    name: Name
    gpu_quota: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    key_name: Name = "first key"


class CreatedOrganization(View):
    organization: OrganizationView
    key: ApiKeyView
    secret: str | None
    """Of the organization's first key; shown once, null in a replay."""


class CreditRequest(Request):
    amount_usd: UsdText

    def __post_init__(self) -> None:
        if not self.amount_usd.strip("0."):
            raise ValueError("a credit is more than zero")


class CreditView(View):
    organization_id: str
    amount: Money
    balance: Money


# Health


class Health(View):
    status: str


class StreamEnd(View):
    """The data of a stream's `end` event."""

    reason: str
    """`ended`; with `?until=ready` also `ready`, or `ending` when it will never be."""
