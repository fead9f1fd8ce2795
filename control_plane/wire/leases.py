"""Leases: the request, the four faces of a lease, and the explanation of how it came to be where it is."""

from typing import Annotated

from msgspec import Meta, field

from control_plane.wire.agents import LeaseAgentView
from control_plane.wire.catalogue import NETWORK_GBPS_MAX, PRIORITY_MAX, EvictionChoice, QuoteRequest
from control_plane.wire.common import (
    NAME_LENGTH_MAX,
    NAME_PATTERN,
    Labels,
    Money,
    Name,
    NextCursor,
    PositiveUsdText,
    ProviderName,
    RegionName,
    Request,
    RequestError,
    SkuName,
    SshKeyIdText,
    Timestamp,
    UsdText,
    View,
)
from control_plane.wire.lease_ends import EndReasonWord
from control_plane.wire.power import PowerView
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import (
    EnvironmentIdText,
    GpuModelWord,
    LeaseIdText,
    LeaseKindWord,
    LeaseStateWord,
    MachineIdText,
    MachineStateWord,
    NetworkIdText,
    NodePoolIdText,
    OnEvictionWord,
    ProjectIdText,
    ProofIdText,
    ProofOutcomeWord,
    PurchaseWord,
    QuoteIdText,
    StepWord,
    StoredKeyIdText,
    StreamEndWord,
    TierWord,
)

WAIT_SECONDS_DEFAULT = 1_800
WAIT_SECONDS_MAX = 604_800
SSH_KEYS_MAX = 100
BATCH_SIZE_MAX = 64


class AutoReleaseRequest(Request):
    """When the lease is released by itself: at the first of the limits that are given."""

    after_seconds: Annotated[int, Meta(ge=60, le=31_536_000, examples=[43_200])] | None = None
    """This many seconds after the lease is ready: from a minute to 365 days."""
    spend_usd: PositiveUsdText | None = None
    """Before the lease costs more than this."""

    def __post_init__(self) -> None:
        if self.spend_usd is not None and not self.spend_usd.strip("0."):
            raise RequestError("must have a `spend_usd` of more than zero")


class LeaseRequest(QuoteRequest):
    """The lease that is wanted."""

    name: Name | None = None
    """Generated when it is left out. No two live leases of a project have the same name."""
    network: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of the project's private network that the machine joins; the default one when it is left
    out."""
    ssh_key_ids: Annotated[tuple[SshKeyIdText, ...], Meta(max_length=SSH_KEYS_MAX)] | None = None
    """The stored SSH keys that the lease is limited to: certificates to log in are signed for these alone, while they
    are stored. When it is left out, for any key of whoever may log in; when it is empty, for nobody."""
    wait_timeout_seconds: Annotated[int, Meta(ge=0, le=WAIT_SECONDS_MAX)] = WAIT_SECONDS_DEFAULT
    """How long the lease waits for stock before it ends with `no_capacity`, counted from its creation, and again from
    each eviction after which it is replaced: up to seven days. With 0 it ends at once when nothing is in stock."""
    labels: Labels = field(default_factory=dict)
    """Words of your own, to find leases and to divide costs by."""
    auto_release: AutoReleaseRequest | None = None
    """When the lease is released by itself; only when you release it, if this is left out. What is committed to ends
    with its term, and takes no limits."""
    on_eviction: EvictionChoice = "end"
    """What happens when the machine of a ready lease is taken back, by its provider (spot) or by us (interruptible):
    the lease ends with `evicted` or `preempted`, or, with `replace`, it waits for another machine as long as
    `wait_timeout_seconds` says, and nothing is billed meanwhile. The next machine is empty, and has another address and
    host key."""
    quote_id: QuoteIdText | None = None
    """A quote that was kept: the lease has its price. Regions, providers, the highest price, project and environment
    are the quote's where the request leaves them out, and must be the quote's where it does not."""


_BATCH_NAME_LENGTH_MAX = NAME_LENGTH_MAX - len(f"-{BATCH_SIZE_MAX}")
_BATCH_NAME = (
    f"1 to {_BATCH_NAME_LENGTH_MAX} letters, digits, spaces or . _ @ : + -, starting with a letter or digit"
)
BatchName = Annotated[
    str,
    Meta(
        pattern=NAME_PATTERN,
        max_length=_BATCH_NAME_LENGTH_MAX,
        description=f"{_BATCH_NAME}. Numbers are added to it.",
        examples=["train"],
        extra={"must": f"a text of {_BATCH_NAME}, because numbers are added to it"},
    ),
]


class LeaseBatchRequest(LeaseRequest, kw_only=True):
    """Several equal leases that are wanted, all or none."""

    name: BatchName | None = None
    """The beginning of their names; generated when it is left out."""
    count: Annotated[int, Meta(ge=1, le=BATCH_SIZE_MAX, examples=[4])]
    """How many. They are called `name` with `-1`, `-2` and so on."""


class LeaseChangeRequest(Request):
    """What is to be different. What is left out or null stays as it is.

    Only `auto_release` can change at any time; the other fields can while the lease waits for a machine. Afterwards
    they are refused with `lease_has_machine`: no provider changes a machine that runs.
    """

    sku: SkuName | None = None
    """Another SKU, at its price of today."""
    regions: Annotated[tuple[RegionName, ...], Meta(max_length=16)] | None = None
    """Where it may be; empty means anywhere."""
    providers: Annotated[tuple[ProviderName, ...], Meta(max_length=16)] | None = None
    """Whose machine it may be; empty means anybody's."""
    price_usd_per_hour_max: UsdText | None = None
    """The highest acceptable price of the whole machine."""
    network_gbps_min: Annotated[int, Meta(ge=0, le=NETWORK_GBPS_MAX, examples=[400])] | None = None
    """At least so many gigabits per second between machines; 0 means any."""
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX, examples=[80])] | None = None
    """Your leases with a higher number are placed first."""
    wait_timeout_seconds: Annotated[int, Meta(ge=0, le=WAIT_SECONDS_MAX, examples=[600])] | None = None
    """How long the lease waits for stock before it ends, counted from its creation or from its eviction."""
    auto_release: AutoReleaseRequest | None = None
    """When the lease is released by itself: these limits replace those that it has. An empty object removes them."""


class LabelsRequest(Request):
    """The labels that a lease shall have."""

    labels: Labels
    """They replace all labels that the lease has."""


class LeaseRequestView(View):
    """Desired: what the customer asked for."""

    sku: str
    """The SKU."""
    regions: tuple[str, ...]
    """Where it may be; empty means anywhere."""
    providers: tuple[str, ...]
    """Whose machine it may be; empty means anybody's."""
    price_usd_per_hour_max: str | None
    """The most that the machine may cost per hour in US dollars, exact: `25.000000000`."""
    priority: int
    """Leases of your organization with a higher number are placed first."""
    purchase: PurchaseWord = "on_demand"
    """How it is bought."""
    sla: SlaTierWord = "bronze"
    """How much is promised with it."""
    network_gbps_min: int | None = None
    """At least so many gigabits per second between machines; null means any."""
    committed_days: int | None = None
    """The term that was committed to, in days; null unless it is bought so."""


class WaitingView(View):
    """No offer can serve the lease now; it starts as soon as one can."""

    since: Timestamp
    """Since when it waits."""
    gives_up_at: Timestamp
    """When the lease ends with `no_capacity` if it still waits then."""
    why: str
    """Why nothing can serve it, as a sentence."""


class UnconfirmedView(View):
    """The lease is ready, and it is uncertain whether its machine still is what was sold."""

    since: Timestamp
    """Since when it is uncertain."""
    why: str
    """What is uncertain, as a sentence."""


class StatusView(View):
    """Projected: what the lease is to its customer now."""

    state: LeaseStateWord
    """The same as the `state` of the lease."""
    step: StepWord | None
    """The last step done: `placed`, `launched`, `booted`, `connected`, `gpus_verified`, `gpus_proven` where the
    SKU demands proof, and then `mesh_joined`, `certificates_accepted`. A node has `prepared`, `tunnelled`, `started`,
    `registered`, `measured`, `healthy` and `opened` instead of these two."""
    steps_done: int
    """How many steps are done."""
    steps_total: int
    """How many steps there are for this lease."""
    message: str
    """The status as a sentence."""
    waiting: WaitingView | None = None
    """Null unless the lease waits for stock."""
    unconfirmed: UnconfirmedView | None = None
    """Null unless the lease is ready and its machine is in doubt."""


class MachineView(View):
    """Observed: the latest attempt's machine."""

    machine_id: MachineIdText
    """The id of the machine."""
    provider: str
    """Whose machine it is."""
    region: str
    """Where it is."""
    state: MachineStateWord
    """Where the machine is."""
    address: str | None
    """Its public address; null before it has one."""
    ssh_port: int
    """The port on which SSH listens."""
    ssh_user: str
    """The user to log in as."""
    host_key: str | None
    """The SSH host key to pin. A machine that presents another one is not yours."""
    mesh_address: str | None
    """The machine's address in the lease's private network."""
    sighted_at: Timestamp | None
    """When the provider last listed the machine."""


class LeaseProofView(View):
    """Observed: what the latest attempt's machine has proven of its GPUs."""

    demanded: TierWord
    """What the SKU demanded when the lease was admitted: `listed`, `proven` or `attested`."""
    tier: TierWord
    """What the machine is now: `listed`, `proven`, `watched` or `attested`."""
    id: ProofIdText | None
    """The latest proof; null before the first."""
    outcome: ProofOutcomeWord | None
    """The outcome of the latest proof; null before the first."""
    at: Timestamp | None
    """When the latest proof ended; null before the first."""


def _no_proof() -> LeaseProofView:
    """What an API that knows no GPU proofs means by leaving them out."""
    return LeaseProofView("listed", "listed", None, None, None)


class AdmittedKeyView(View):
    """An SSH key that the lease is limited to."""

    id: StoredKeyIdText
    """The id of the key."""
    name: str
    """As it was when the lease was created."""
    fingerprint: str
    """Its fingerprint, as `ssh-keygen -l` prints it."""


class AutoReleaseView(View):
    """The limits at the first of which the lease is released by itself; null where there is none."""

    after_seconds: int | None
    """Seconds after the lease was ready; null without this limit."""
    spend: Money | None
    """The most that the lease may cost; null without this limit."""


class LeaseView(View, kw_only=True):
    """A lease: what was asked for, what it is now, and what it costs."""

    id: LeaseIdText
    """The id of the lease."""
    name: str
    """The name of the lease, for people."""
    project: str
    """The name of the project that the lease belongs to."""
    project_id: ProjectIdText
    """The id of the project that the lease belongs to."""
    environment: str
    """The name of the environment that it belongs to."""
    environment_id: EnvironmentIdText
    """The id of that environment."""
    network: str | None
    """The name of the private network that its machine joins; null for a node, which joins its cluster instead."""
    network_id: NetworkIdText | None
    """The id of that network; null for a node."""
    kind: LeaseKindWord = "machine"
    """What it is: a machine to log in to, or a node of a node pool."""
    node_pool: str | None = None
    """The name of the node pool that it is a node of; null for a machine."""
    node_pool_id: NodePoolIdText | None = None
    """The id of that node pool; null for a machine."""
    cluster: str | None = None
    """The name of the cluster that it is a node of; null for a machine."""
    request: LeaseRequestView
    """What was asked for."""
    quote_id: QuoteIdText | None = None
    """The quote whose price it has; null when it has the price of its creation."""
    sla_version: int | None = None
    """The version of the terms that are promised with it; null when nothing is."""
    gpu_model: GpuModelWord | None
    """The model of its GPUs; null when it has none."""
    gpu_count: int
    """How many GPUs it has; 0 for a machine without GPUs."""
    price_per_gpu_hour: Money | None
    """Fixed when the lease was admitted; null when it has no GPUs."""
    price_per_hour: Money
    """For the whole machine."""
    state: LeaseStateWord
    """What `?state=` filters by."""
    status: StatusView
    """The state in detail."""
    machine: MachineView | None
    """The machine of the latest attempt; null before the first."""
    power: PowerView | None = None
    """Whether that machine is on; null before the first one, and once the lease ends."""
    proof: LeaseProofView = field(default_factory=_no_proof)
    """What the GPUs of the machine have proven."""
    agent: LeaseAgentView | None = None
    """What the agent on the machine reported last; null before there is one."""
    ssh_keys: tuple[AdmittedKeyView, ...] | None = None
    """The SSH keys that the lease is limited to; null when whoever may log in can use any key. A key that is deleted no
    longer opens it."""
    labels: dict[str, str] = field(default_factory=dict)
    """The words that you gave it, to find leases and to divide costs by."""
    wait_timeout_seconds: int = WAIT_SECONDS_DEFAULT
    """How long it waits for stock before it ends, in seconds from its creation, and from each eviction."""
    on_eviction: OnEvictionWord = "end"
    """What happens when its machine is taken back."""
    auto_release: AutoReleaseView | None = None
    """When the lease is released by itself; null when only you release it."""
    attempts: int
    """How many machines were tried."""
    end_reason: EndReasonWord | None
    """The reason as a word; null before it ends."""
    end_why: str | None
    """Why it ends, as a sentence; null before that."""
    created_at: Timestamp
    """When it was admitted."""
    ready_at: Timestamp | None
    """The bill starts at the first full second after this."""
    paused_since: Timestamp | None = None
    """Since when nothing is billed, because its machine was taken back and it waits for another one; null while it
    does not."""
    release_at: Timestamp | None = None
    """When the lease is released by itself; null before it is ready, and without a limit."""
    committed_until: Timestamp | None = None
    """The end of the term that was committed to, and of the lease; null before it is ready, and without a term."""
    release_fee: Money | None = None
    """What releasing it now costs at once: the rest of its term. Null without a term, and 0 while nothing is due."""
    unused: Money | None = None
    """What was charged for the rest of this term, because it was released earlier; null without a term."""
    taken_back_at: Timestamp | None = None
    """When we take the machine of the interruptible lease back, as you were told; null unless that is announced."""
    billed_until: Timestamp | None
    """When the bill stopped; null before that."""
    ended_at: Timestamp | None
    """When the last machine was gone; null before that."""


class LeaseBatchView(View):
    """Leases that one request created."""

    items: tuple[LeaseView, ...]
    """The leases, in the order of their numbers."""


class LeasePage(View):
    """A page of leases."""

    items: tuple[LeaseView, ...]
    """The leases, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class StreamEnd(View):
    """The data of a stream's `end` event."""

    reason: StreamEndWord
    """`ended`; with `?until=ready` also `ready`, or `ending` when the lease will never be ready. `revoked` when the
    API key of the stream was revoked. A stream that closes without `end` can be opened again."""
