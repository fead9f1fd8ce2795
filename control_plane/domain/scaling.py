"""How many nodes pending pods need, and which nodes are not needed any more: the rules of a ScalingPolicy.

Pods are put on nodes on paper: on those that are open, then on those that are on their way, then on new ones of the
cheapest pool that they fit. What is on its way counts as room, so a look never orders again what an earlier one
ordered. Nothing is ordered beyond the policy's limits and its budget. A node that no pod uses or needs leaves when that
has been so for the policy's time.

The scheduler decides where pods really run. If it puts them elsewhere, the next look sees that.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.money import NOTHING, Nano, short_usd
from control_plane.domain.node_capacity import GPU, MEMORY_SHORTFALL_PERCENT, PODS_MAX
from control_plane.domain.pod_fit import GIB, Amounts, NodeFace, PendingPod, misfit
from control_plane.domain.sku import Shape

GROWN_PER_LOOK_MAX = 16
"""Nodes that one look orders for a policy."""
ENDED_PER_LOOK_MAX = 4
"""Nodes that one look takes away for a policy."""
PODS_PER_LOOK_MAX = 500
"""Pods of a project that one look puts on nodes: the ones that wait longest."""
SHORT_AFTER = timedelta(seconds=60)
"""When a node has waited for stock for so long, another pool is tried for its pods."""
LOOKED_WITHIN = timedelta(minutes=2)
"""If two looks are further apart, nobody saw whether nodes were empty in between."""
STAYS_FOR = timedelta(minutes=10)
"""How long a node stays once it is open, however empty. One that has a machine becomes open first. Without that, pods
that come and go would have us buy machines that nobody uses or pays for."""
VAIN_AFTER = timedelta(minutes=10)
"""A pod that was kept off an open node for so long on which it seems to fit would be kept off another one as well. The
scheduler looks at each pod again after 5 minutes at the latest (flag --pod-max-in-unschedulable-pods-duration)."""
VAIN_FOR = timedelta(hours=1)
"""How long nothing is bought for such a pod."""
VAIN_WHY = "what keeps it off a node on which it seems to fit"
POOLS_NAMED_MAX = 3
"""In a sentence about why a pod fits none."""


def sure_room(shape: Shape) -> Amounts:
    """What a new node is sure to have for pods.

    A node with less memory is not opened (`node_capacity.py`), and one with more is measured once it is open.
    """
    memory = shape.memory_gib * GIB * (100 - MEMORY_SHORTFALL_PERCENT) // 100
    devices = {GPU: shape.gpu_count} if shape.gpu_count else {}
    return Amounts(shape.vcpus * 1_000, memory, PODS_MAX, devices)


class Phase(StrEnum):
    OPEN = "open"
    """Pods may run on it."""
    COMING = "coming"
    """It has a machine, and is not open yet."""
    WAITING = "waiting"
    """It has no machine yet."""
    CLOSED = "closed"
    """Pods may be on it, and no new one lands there: it is not ready, or somebody keeps pods away."""


_LAST_TO_GO = (Phase.OPEN, Phase.COMING, Phase.WAITING)


@dataclass(frozen=True, slots=True)
class Place:
    """A node that a pool has, or will have."""

    key: str
    """Of its lease; or a name of its own where its lease is still to be replaced."""
    pool: str
    phase: Phase
    nano_per_hour: Nano
    gpus: int
    room: Amounts = field(default_factory=Amounts)
    """What is left for pods."""
    face: NodeFace = field(default_factory=NodeFace)
    has_work: bool = False
    """Whether a pod runs there that is of no DaemonSet."""
    open_since: datetime | None = None
    """None while it is not open."""


@dataclass(frozen=True, slots=True)
class ScaledPool:
    """A node pool that a policy scales."""

    name: str
    nodes_min: int
    nodes_max: int
    room: Amounts
    """What a new node of it is sure to have for pods."""
    face: NodeFace
    gpus: int
    """Of a node."""
    nano_per_hour: Nano | None
    """What a node costs now; None when its SKU is not sold."""
    is_short: bool = False
    """Whether a node of it has waited for stock for too long."""
    keeps: str | None = None
    """Why it gets no new node now, as a sentence; None when it may."""


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    nodes_max: int | None = None
    """In all of its pools together."""
    gpus_max: int | None = None
    nano_per_hour_max: Nano | None = None
    """The budget per hour."""
    nano_per_month_max: Nano | None = None
    """The budget per calendar month (UTC)."""
    scale_up_after: timedelta = timedelta(seconds=10)
    """How long a pod has to wait before a node is bought for it."""
    empty_for: timedelta | None = timedelta(minutes=10)
    """How long a node has to be empty before it leaves; None: it stays."""


class Bound(StrEnum):
    """What keeps a policy from ordering a node that pods need."""

    LIMIT = "limit"
    BUDGET = "budget"
    POOL = "pool"
    """The pool gets no new node now."""


@dataclass(frozen=True, slots=True)
class Held:
    bound: Bound
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    grow: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many nodes each pool gets, by its name."""
    end: tuple[str, ...] = ()
    """The keys of nodes that leave."""
    empty: frozenset[str] = frozenset()
    """The keys of nodes that no pod uses or needs now."""
    placed: frozenset[str] = frozenset()
    """The names of the pods that have a place, or that wait because of a bound."""
    held: tuple[Held, ...] = ()
    """What kept nodes from being ordered, each once."""
    unplaced: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why pods fit no node of any pool, by their names."""
    vain: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pods for which nodes were bought in vain, with the pools of these nodes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What all nodes of a policy are together, ordered ones included."""

    nodes: int = 0
    gpus: int = 0
    nano_per_hour: Nano = NOTHING


def usage(places: Collection[Place]) -> Usage:
    return Usage(
        len(places),
        sum(place.gpus for place in places),
        Nano(sum(place.nano_per_hour for place in places)),
    )


def plan(
    policy: Policy,
    pools: Sequence[ScaledPool],
    places: Sequence[Place],
    pods: Sequence[PendingPod],
    *,
    empty_since: Mapping[str, datetime],
    now: datetime,
    spent: Nano = NOTHING,
) -> Plan:
    """What is to be done now. The same facts give the same plan, in whatever order they come.

    `empty_since` says since when nodes are known to be empty, without interruption; `spent` is what the pools of the
    policy were charged this month.
    """
    packing = _Packing(policy, pools, places, now, spent)
    for pool in packing.pools:
        packing.keep_minimum(pool)
    waiting = sorted(pods, key=lambda pod: (pod.pending_since, pod.name))[:PODS_PER_LOOK_MAX]
    young_after = now - policy.scale_up_after
    for pod in sorted(waiting, key=lambda pod: (pod.pending_since > young_after, *_largest_first(pod))):
        packing.put(pod)  # A pod that has just come takes no place that was ordered for another one.
    empty = frozenset(
        place.key
        for place in places
        if place.phase is not Phase.CLOSED and not place.has_work and place.key not in packing.used
    )
    due = [] if policy.empty_for is None else _due(places, empty, empty_since, now, policy.empty_for)
    ends = tuple(_ends(pools, places, due))
    placed = frozenset(pod.name for pod in pods) - packing.unplaced.keys()
    held = tuple(packing.held.values())
    return Plan(packing.grown, ends, empty, placed, held, packing.unplaced, packing.vain)


def _largest_first(pod: PendingPod) -> tuple[int, int, int, str]:
    asks = pod.asks
    return (-sum(asks.devices.values()), -asks.cpu_millis, -asks.memory_bytes, pod.name)


@dataclass
class _Room:
    key: str
    pool: str
    left: Amounts
    face: NodeFace
    open_since: datetime | None = None


class _Packing:
    """Pods on nodes, on paper."""

    def __init__(
        self,
        policy: Policy,
        pools: Sequence[ScaledPool],
        places: Sequence[Place],
        now: datetime,
        spent: Nano,
    ) -> None:
        self._spent = spent
        self._policy = policy
        self._now = now
        self.pools = sorted(pools, key=lambda pool: (pool.nano_per_hour or NOTHING, pool.name))
        short = {pool.name for pool in pools if pool.is_short}
        ordered = sorted(places, key=_used_first)
        rooms = [
            (_Room(place.key, place.pool, place.room, place.face, place.open_since), place)
            for place in ordered
            if place.phase is not Phase.CLOSED
        ]
        self._rooms = [room for room, place in rooms if not _is_late(place, short)]
        self._late = [room for room, place in rooms if _is_late(place, short)]
        self._usage = usage(places)
        self._nodes = {pool.name: sum(place.pool == pool.name for place in places) for pool in pools}
        self.used: set[str] = set()
        self.grown: dict[str, int] = {}
        self.held: dict[tuple[Bound, str], Held] = {}
        self.unplaced: dict[str, str] = {}
        self.vain: dict[str, str] = {}
        self._first: dict[tuple[bool, str], int] = {}
        """The first room, of those on time or late, in which a pod of a kind may fit: rooms only become smaller."""

    def keep_minimum(self, pool: ScaledPool) -> None:
        while self._nodes[pool.name] < pool.nodes_min and not self._is_enough():
            held = self._refuses(pool)
            if held is not None:
                self._hold(held)
                return
            self._add(pool)

    def _is_enough(self) -> bool:
        """Whether this look has ordered as much as it may. The next one goes on."""
        return sum(self.grown.values()) >= GROWN_PER_LOOK_MAX

    def put(self, pod: PendingPod) -> None:
        if pod.beyond is not None:
            self.unplaced[pod.name] = _beyond_why(pod.beyond)
            return
        if self._put_on(self._rooms, pod, is_late=False):
            return
        fitting = [pool for pool in self.pools if misfit(pod, pool.face, pool.room) is None]
        if not fitting and not self._put_on(self._late, pod, is_late=True):
            self.unplaced[pod.name] = self._why_none(pod)
        elif fitting:
            self._order_for(pod, fitting)

    def _order_for(self, pod: PendingPod, fitting: Sequence[ScaledPool]) -> None:
        """A new node of the cheapest pool that may have one; what waits in vain for stock counts only after that."""
        is_due = self._now - pod.pending_since >= self._policy.scale_up_after
        refusals: list[Held] = []
        for pool in (each for each in fitting if is_due and not each.is_short):
            if self._grow(pool, pod, refusals):
                return
        if self._put_on(self._late, pod, is_late=True) or not is_due:
            return
        for pool in (each for each in fitting if each.is_short):
            if self._grow(pool, pod, refusals):
                return
        for held in refusals:
            self._hold(held)

    def _grow(self, pool: ScaledPool, pod: PendingPod, refusals: list[Held]) -> bool:
        held = self._refuses(pool)
        if held is not None:
            refusals.append(held)
            return False
        return self._is_enough() or self._put_in(self._add(pool), pod)

    def _put_on(self, rooms: Sequence[_Room], pod: PendingPod, *, is_late: bool) -> bool:
        kind = (is_late, repr((pod.asks, pod.selector, pod.terms, pod.tolerations)))
        for number in range(self._first.get(kind, 0), len(rooms)):
            if self._put_in(rooms[number], pod):
                self._first[kind] = number
                return True
        self._first[kind] = len(rooms)
        return False

    def _put_in(self, room: _Room, pod: PendingPod) -> bool:
        if misfit(pod, room.face, room.left) is not None:
            return False
        if self._is_kept_off(room, pod):
            self.vain[pod.name] = room.pool
            self.unplaced[pod.name] = _beyond_why(VAIN_WHY)
            return True
        room.left = room.left.minus(pod.asks)
        self.used.add(room.key)
        return True

    def _is_kept_off(self, room: _Room, pod: PendingPod) -> bool:
        since = None if room.open_since is None else max(room.open_since, pod.pending_since)
        return since is not None and self._now - since >= VAIN_AFTER

    def _add(self, pool: ScaledPool) -> _Room:
        number = self.grown[pool.name] = self.grown.get(pool.name, 0) + 1
        self._nodes[pool.name] += 1
        spent = Nano(self._usage.nano_per_hour + (pool.nano_per_hour or NOTHING))
        self._usage = Usage(self._usage.nodes + 1, self._usage.gpus + pool.gpus, spent)
        room = _Room(f"new {pool.name} {number}", pool.name, pool.room, pool.face)
        self._rooms.append(room)
        return room

    def _refuses(self, pool: ScaledPool) -> Held | None:
        """What keeps the policy from another node of this pool; None when nothing does."""
        policy, used = self._policy, self._usage
        if pool.keeps is not None or pool.nano_per_hour is None:
            return Held(
                Bound.POOL, f"{pool.name} gets no node: {pool.keeps or 'its SKU is not sold at present'}"
            )
        if self._nodes[pool.name] >= pool.nodes_max:
            return Held(Bound.LIMIT, f"{pool.name} has {self._nodes[pool.name]} of {pool.nodes_max} nodes")
        if policy.nodes_max is not None and used.nodes >= policy.nodes_max:
            return Held(Bound.LIMIT, f"there are {used.nodes} of {policy.nodes_max} nodes")
        if policy.gpus_max is not None and used.gpus + pool.gpus > policy.gpus_max:
            return Held(
                Bound.LIMIT,
                f"there are {used.gpus} of {policy.gpus_max} GPUs, and a node of {pool.name} has {pool.gpus}",
            )
        budget = policy.nano_per_hour_max
        if budget is not None and used.nano_per_hour + pool.nano_per_hour > budget:
            return Held(
                Bound.BUDGET,
                f"nodes cost {short_usd(used.nano_per_hour)} of {short_usd(budget)} USD per hour, and one more of"
                f" {pool.name} costs {short_usd(pool.nano_per_hour)}",
            )
        return self._beyond_month(pool, pool.nano_per_hour)

    def _beyond_month(self, pool: ScaledPool, nano_per_hour: Nano) -> Held | None:
        """A node is ordered only if all of them together can be paid for another hour of this month."""
        budget, next_hour = self._policy.nano_per_month_max, self._usage.nano_per_hour + nano_per_hour
        if budget is None or self._spent + next_hour <= budget:
            return None
        return Held(
            Bound.BUDGET,
            f"{short_usd(self._spent)} of {short_usd(budget)} USD were charged this month (UTC), and an hour of all"
            f" nodes with one more of {pool.name} costs {short_usd(Nano(next_hour))}",
        )

    def _hold(self, held: Held) -> None:
        self.held.setdefault((held.bound, held.why), held)

    def _why_none(self, pod: PendingPod) -> str:
        reasons = [f"{pool.name}: {misfit(pod, pool.face, pool.room)}" for pool in self.pools]
        more = len(reasons) - POOLS_NAMED_MAX
        named = "; ".join(reasons[:POOLS_NAMED_MAX])
        return f"it fits no node pool ({named}{f'; and {more} more' if more > 0 else ''})"


def _beyond_why(what: str) -> str:
    return f"scaling does not understand {what}, so no node is bought for it"


def _used_first(place: Place) -> tuple[bool, str]:
    """Nodes that have work first, so that the others become empty; then the oldest, whatever became of them since.

    Ids grow with time. So a node that was ordered for a pod is the one that the pod is put on at each later look, and
    another order would now and then need one more node.
    """
    return (not place.has_work, place.key)


def _is_late(place: Place, short: Collection[str]) -> bool:
    return place.phase is Phase.WAITING and place.pool in short


def _due(
    places: Sequence[Place],
    empty: Collection[str],
    empty_since: Mapping[str, datetime],
    now: datetime,
    empty_for: timedelta,
) -> list[Place]:
    """The nodes that were empty without interruption for long enough, and that may leave by now."""
    return [
        place
        for place in places
        if place.key in empty
        and _is_by(empty_since.get(place.key), now - empty_for)
        and (place.phase is Phase.WAITING or _is_by(place.open_since, now - STAYS_FOR))
    ]


def _is_by(since: datetime | None, by: datetime) -> bool:
    return since is not None and since <= by


def _ends(pools: Sequence[ScaledPool], places: Sequence[Place], due: Collection[Place]) -> Iterator[str]:
    """Those of the due nodes that leave: without a machine first, then the dearest; never below the minimum."""
    over = {pool.name: sum(place.pool == pool.name for place in places) - pool.nodes_min for pool in pools}
    left = ENDED_PER_LOOK_MAX
    for place in sorted(due, key=_first_to_go):
        if left and over.get(place.pool, 0) > 0:
            over[place.pool] -= 1
            left -= 1
            yield place.key


def _first_to_go(place: Place) -> tuple[int, int, str]:
    return (-_LAST_TO_GO.index(place.phase), -place.nano_per_hour, place.key)


def still_known(
    empty_since: Mapping[str, datetime], *, looked_at: datetime | None, now: datetime
) -> Mapping[str, datetime]:
    """Since when nodes are known to be empty. When the last look is long ago, nobody knows what was in between."""
    is_known = looked_at is not None and now - looked_at <= LOOKED_WITHIN
    return empty_since if is_known else {}


def known_empty(empty: Collection[str], known: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    """Since when each of the nodes that are empty now is known to be so."""
    return {key: known.get(key, now) for key in sorted(empty)}
