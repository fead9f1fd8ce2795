"""Warm pools: machines that are kept ready ahead of demand, as operators read and change them."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.catalogue import SlaChoice
from control_plane.wire.common import (
    Money,
    Name,
    NextCursor,
    RegionName,
    Request,
    SkuName,
    Timestamp,
    UsdText,
    View,
)
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import one_of

TRACE_REQUESTS_MAX = 7_000
"""So many requests fit into a trace."""
SERIES_MAX = 20
"""So many pairs of a SKU and a region."""
TRACE_DAYS_MAX = 31
"""So long a trace may last."""
PoolIdText = Annotated[
    str,
    Meta(
        description="The id of a warm pool: pl_ and 32 hexadecimal digits.",
        examples=["pl_019aa000000070008000000000000001"],
    ),
]
PoolStateWord = Annotated[
    str,
    one_of(
        "PoolState",
        "How far a warm pool is.",
        dry_run="What it would do is decided and shown, and not done.",
        active="It orders machines, and ends surplus ones.",
        deleting="Its waiting machines are being terminated.",
        deleted="No machine of it is left that no lease claimed.",
    ),
]
PoolPolicyWord = Annotated[
    str,
    one_of(
        "PoolPolicy",
        "How the number of a pool's machines is decided.",
        fixed="As many as its minimum.",
        newsvendor="From measured demand, boot times and costs, between its bounds.",
    ),
]
PolicyChoice = Literal["fixed", "newsvendor"]
Machines = Annotated[int, Meta(ge=0, le=1_000, description="A number of machines.", examples=[2])]
Step = Annotated[int, Meta(ge=1, le=100, description="A number of machines, 1 to 100.", examples=[2])]


class PoolRequest(Request):
    """A warm pool of a SKU in a region. docs/pools.md says how to choose its figures."""

    name: Name
    """Unique among the pools."""
    sku: SkuName
    """The SKU whose leases it serves; one with GPUs."""
    region: RegionName
    """One of our regions, or a jurisdiction such as `eu`, for all of its regions."""
    machines_max: Machines
    """How many machines it has at the most."""
    idle_usd_per_day: UsdText
    """What its waiting machines may cost in a day (UTC). Not even the minimum is kept beyond it."""
    waiting_usd_per_hour: UsdText = "20"
    """What an hour in which a customer waits counts as. The dearer it is, the more machines wait instead."""
    machines_min: Machines = 0
    """How many machines it has at least, if the budget allows it."""
    step_max: Step = 2
    """How many machines are ordered or ended in one look at the most."""
    policy: PolicyChoice = "newsvendor"
    """`newsvendor`, or `fixed` for as many as the minimum."""
    sla: SlaChoice | None = None
    """The only service level whose leases it serves, to which its idle cost belongs; null for all."""
    dry_run: bool = True
    """Whether it only shows what it would do."""


class PoolChangeRequest(Request):
    """What changes of a pool. What is null, or left out, stays."""

    machines_max: Machines | None = None
    """How many machines it has at the most."""
    machines_min: Machines | None = None
    """How many machines it has at least."""
    step_max: Step | None = None
    """How many machines are ordered or ended in one look at the most."""
    idle_usd_per_day: UsdText | None = None
    """What its waiting machines may cost in a day (UTC)."""
    waiting_usd_per_hour: UsdText | None = None
    """What an hour in which a customer waits counts as."""
    policy: PolicyChoice | None = None
    """`newsvendor` or `fixed`."""
    dry_run: Annotated[bool, Meta(examples=[False])] | None = None
    """Whether it only shows what it would do."""


class PoolFiguresView(View):
    """What a pool did for its customers in a time, and what that cost."""

    since: Timestamp
    """The beginning of the first hour that is counted."""
    requests: int
    """Leases that it could have served."""
    hits: int
    """Leases that claimed one of its machines."""
    hit_rate: float | None
    """Hits by requests; null without requests."""
    idle_cost: Money
    """What its machines cost from their order to their claim or their end."""
    waited_seconds_hit: float | None
    """The mean time from a request that hit until its lease was ready; null without any."""
    waited_seconds_miss: float | None
    """The same for the other requests that are ready."""
    avoided_wait_seconds: float
    """How much longer all hits together would have waited for machines of their own."""


class PoolView(View):
    """A warm pool."""

    id: PoolIdText
    """Its id."""
    name: str
    """Its name."""
    sku: str
    """The SKU whose leases it serves."""
    region: str
    """Where its machines are."""
    sla: SlaTierWord | None
    """The only service level that it serves; null for all."""
    state: PoolStateWord
    """How far it is."""
    policy: PoolPolicyWord
    """How its number of machines is decided."""
    machines_min: int
    """How many machines it has at least."""
    machines_max: int
    """How many it has at the most."""
    step_max: int
    """How many are ordered or ended in one look at the most."""
    idle_per_day: Money
    """What its waiting machines may cost in a day."""
    waiting_per_hour: Money
    """What an hour in which a customer waits counts as."""
    wanted: int
    """How many machines its policy asked for at the last look."""
    target: int
    """How many it keeps."""
    verified: int
    """How many could be claimed at the last look."""
    starting: int
    """How many were being set up."""
    why: str | None
    """Why it keeps so many, or cannot; null before the first look."""
    created_at: Timestamp
    """When it was created."""
    decided_at: Timestamp | None
    """When it was looked at last."""
    last_day: PoolFiguresView | None = None
    """Its figures of the last 24 hours; null before the first hour."""


class PoolPage(View):
    """A page of pools."""

    items: tuple[PoolView, ...]
    """The pools, in order of name."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class PoolDecisionView(View):
    """What was decided about a pool, stored whenever it changed."""

    at: Timestamp
    """When."""
    wanted: int
    """How many machines its policy asked for."""
    target: int
    """How many it kept from then on."""
    verified: int
    """How many could be claimed then."""
    starting: int
    """How many were being set up."""
    ordered: int
    """How many were ordered."""
    ended: int
    """How many were to be ended."""
    dry_run: bool
    """Whether nothing of it was done."""
    why: str
    """Why."""


class IdleCostsView(View):
    """What machines of a pool cost from their order to their claim or their end: the last 200 of seven days."""

    machines: int
    """How many were measured."""
    mean: Money
    """What one cost on average."""
    median: Money
    """Half of them cost at most so much."""
    p90: Money
    """Nine of ten cost at most so much."""
    mean_per_hour: Money
    """What an hour of waiting cost on average, as their providers billed it."""
    p90_per_hour: Money
    """Nine of ten hours of waiting cost at most so much each. With ten machines or more, the budget counts with it."""


class PoolDetailView(PoolView):
    """A warm pool with its figures and its decisions."""

    idle_costs: IdleCostsView | None = None
    """What its machines cost while they waited; null before one was claimed or let go."""
    last_week: PoolFiguresView | None = None
    """Its figures of the last seven days; null before the first hour."""
    decisions: tuple[PoolDecisionView, ...] = ()
    """The latest 20, newest first."""


Moments = Annotated[
    tuple[Annotated[int, Meta(ge=0, le=TRACE_DAYS_MAX * 86_400)], ...],
    Meta(
        min_length=1,
        max_length=TRACE_REQUESTS_MAX,
        description=f"Whole seconds since the trace began, up to {TRACE_DAYS_MAX} days.",
        examples=[[0, 60, 75]],
    ),
]


class TracedSeriesRequest(Request):
    """The requests for one SKU in one region. A pool serves one series."""

    sku: SkuName
    """What was requested."""
    region: RegionName
    """Where."""
    seconds: Moments
    """When they came, in seconds since the beginning of the trace, in any order."""


class PoolSimulationRequest(Request):
    """A trace of requests, and what machines and waiting cost."""

    series: Annotated[
        tuple[TracedSeriesRequest, ...],
        Meta(min_length=1, max_length=SERIES_MAX, description="One for each pair of a SKU and a region."),
    ]
    """The requests, 7,000 at most."""
    idle_usd_per_hour: UsdText
    """What a machine costs while it waits."""
    waiting_usd_per_hour: UsdText = "20"
    """What an hour in which a customer waits counts as."""
    lead_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="Seconds, up to a day.", examples=[300])
    ] = 300
    """What a machine takes from its order until it is verified."""
    machines_max: Machines = 50
    """How many machines a pool has at the most."""


class SimulatedPolicyView(View):
    """What a policy would have cost."""

    policy: str
    """`none`, `fixed` or `newsvendor`."""
    parameter: float | None
    """The number of machines of each pool of `fixed`; what an hour of waiting counts as, in USD, of `newsvendor`."""
    requests: int
    """How many requests there were."""
    hits: int
    """How many found a machine that was ready."""
    idle_cost: Money
    """What waiting machines cost."""
    idle_machine_hours: float
    """For how long machines waited, together."""
    idle_cost_median: Money
    """Half of the machines cost at most so much while they waited."""
    idle_cost_p90: Money
    """Nine of ten cost at most so much."""
    waited_seconds_mean: float
    """How long a request waited on average."""
    waited_seconds_p95: float
    """95 % of the requests waited at most so long."""
    waiting_cost: Money
    """What the waits count as at the given price."""
    total_cost: Money
    """Both together."""


class PoolSimulationView(View):
    """The policies side by side, and the trade-off between idle cost and waiting."""

    requests: int
    """How many requests the trace has."""
    pools: int
    """How many pairs of a SKU and a region."""
    hours: float
    """From the first request to the last."""
    policies: tuple[SimulatedPolicyView, ...]
    """No pools, the best fixed number, and the newsvendor at the given price of waiting."""
    curve: tuple[SimulatedPolicyView, ...]
    """Fixed numbers and the newsvendor at other prices of waiting."""
