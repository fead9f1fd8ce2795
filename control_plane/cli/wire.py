"""The answers of the API as the CLI reads them: the fields it uses, and room for those it does not know.

The CLI may be older or newer than the API it talks to, so nothing here refuses a field too many.
"""

from typing import NotRequired, TypedDict


class Money(TypedDict):
    usd: str
    nano: int


class Organization(TypedDict):
    id: str
    name: str
    suspended: bool
    gpu_quota: int
    gpus_held: int
    balance: Money
    held: Money
    available: Money


class SshKey(TypedDict):
    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: str


class Sku(TypedDict):
    name: str
    gpu_model: str
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    proof: NotRequired[str]
    price_per_gpu_hour: Money
    price_per_hour: Money


class Offer(TypedDict):
    key: str
    provider: str
    region: str
    native_type: str
    gpu_model: str
    gpu_count: int
    available: bool
    confidence: str
    age_seconds: int
    price_per_hour: Money | None
    cost_per_hour: Money | None
    skus: list[str]


class Verdict(TypedDict):
    admitted: bool
    code: str | None
    why: str | None


class Candidate(TypedDict):
    key: str
    provider: str
    region: str
    native_type: str
    confidence: str | None
    cost_per_hour: Money | None


class Rejected(TypedDict):
    key: str
    provider: str
    region: str
    native_type: str
    code: str
    why: str


class Quote(TypedDict):
    verdict: Verdict
    sku: str
    price_per_gpu_hour: Money | None
    price_per_hour: Money | None
    first_hour: Money | None
    candidates: list[Candidate]
    rejected: list[Rejected]


class CapacityRequest(TypedDict):
    sku: str
    regions: list[str]
    providers: list[str]
    price_per_hour_max: Money | None


class Status(TypedDict):
    phase: str
    step: str | None
    steps_done: int
    steps_total: int
    message: str


class Machine(TypedDict):
    instance_id: str
    provider: str
    region: str
    state: str
    address: str | None
    ssh_port: int
    ssh_user: str
    host_key: str | None
    mesh_address: str | None
    sighted_at: str | None


class LeaseProof(TypedDict):
    demanded: str
    tier: str
    id: str | None
    outcome: str | None
    at: str | None


class Lease(TypedDict):
    id: str
    name: str
    wish: CapacityRequest
    gpu_model: str
    gpu_count: int
    price_per_gpu_hour: Money
    price_per_hour: Money
    state: str
    status: Status
    machine: Machine | None
    proof: NotRequired[LeaseProof]
    attempts: int
    end_reason: str | None
    end_why: str | None
    created_at: str
    ready_at: str | None
    billed_until: str | None
    ended_at: str | None


class JournalLine(TypedDict):
    number: int
    at: str
    actor: str
    event: str
    instance_id: str | None
    state_before: str | None
    state_after: str | None
    why: str | None


class Placement(TypedDict):
    number: int
    decided_at: str
    chosen: str | None
    candidates: list[Candidate]
    rejected: list[Rejected]


class Attempt(TypedDict):
    instance_id: str
    provider: str
    region: str
    native_type: str
    state: str
    step: str | None
    asked_at: str | None
    sighted_at: str | None
    fail_reason: str | None
    fail_why: str | None


class Gpu(TypedDict):
    name: str
    uuid: str
    memory_mib: int


class Report(TypedDict):
    instance_id: str
    at: str
    verdict: str
    why: str | None
    source: str
    gpus: list[Gpu]


class ProvenGpu(TypedDict):
    uuid: str
    proven_bytes: int | None
    sold_bytes: int


class Finding(TypedDict):
    code: str
    gpu: int | None
    why: str


class Rate(TypedDict):
    gpu: int
    phase: str
    seconds: float
    per_second: float
    most_seconds: float | None


class Proof(TypedDict):
    id: str
    lease_id: str
    instance_id: str
    at: str
    occasion: str
    outcome: str
    code: str | None
    why: str | None
    gpu_model: str
    source: str
    driver: str
    reference: str
    attested: bool
    gpus: list[ProvenGpu]
    findings: list[Finding]
    hints: list[Finding]
    rates: list[Rate]
    seconds: float


class ProofRecord(TypedDict):
    id: str
    account: str
    offer: str
    gpu_model: str
    occasion: str
    outcome: str
    code: str | None
    why: str | None
    ended: bool
    at: str


class Explanation(TypedDict):
    lease: Lease
    admission: JournalLine | None
    placements: list[Placement]
    attempts: list[Attempt]
    journal: list[JournalLine]
    reports: list[Report]
    proofs: NotRequired[list[Proof]]


class UsageRow(TypedDict):
    id: str
    lease_id: str
    lease_name: str
    number: int
    sku: str
    started_at: str
    ended_at: str
    gpu_seconds: int
    price_per_gpu_hour: Money
    amount: Money


class BillLine(TypedDict):
    lease_id: str
    name: str
    sku: str
    price_per_gpu_hour: Money
    gpu_seconds: int
    amount: Money
    unrated_gpu_seconds: int
    unrated: Money


class Bill(TypedDict):
    since: str
    until: str
    lines: list[BillLine]
    amount: Money
    unrated: Money
    balance: Money
    held: Money
    available: Money


class Loop(TypedDict):
    loop: str
    account: str
    replica: str
    finished_at: str
    every_seconds: int
    looked_at: int
    acted_on: int
    errors: list[str]
    notes: list[str]
    activations: int
    age_seconds: int
    late_after_seconds: int
    late: bool


class Orphan(TypedDict):
    account: str
    provider_ref: str
    launch_key: str
    native_status: str
    first_seen_at: str
    last_seen_at: str
    lists_seen: int
    terminate_asked_at: str | None
    note: str | None


class Permit(TypedDict):
    account: str
    why: str
    actor: str
    at: str
    until: str


class Account(TypedDict):
    name: str
    provider: str
    listing_asked_at: str | None
    listing_size: int
    frozen_since: str | None
    frozen_why: str | None
    failing_since: str | None
    failing_why: str | None
    ending_permit: Permit | None
