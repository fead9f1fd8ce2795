"""Pods on nodes on paper: what is ordered, what leaves, and what is refused."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.pod_fit import (
    Amounts,
    NodeFace,
    NodeTaint,
    Operator,
    PendingPod,
    Requirement,
    Toleration,
    misfit,
)
from control_plane.domain.scaling import (
    ENDED_PER_LOOK_MAX,
    GROWN_PER_LOOK_MAX,
    LOOKED_WITHIN,
    STAYS_FOR,
    VAIN_AFTER,
    Bound,
    Phase,
    Place,
    Plan,
    Policy,
    ScaledPool,
    known_empty,
    plan,
    still_known,
    usage,
)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
GPU = "nvidia.com/gpu"
GIB = 2**30
USD = 1_000_000_000


def _room(gpus: int = 8) -> Amounts:
    return Amounts(64_000, 512 * GIB, 110, {GPU: gpus} if gpus else {})


def _pod(name: str, gpus: int = 1, waits: int = 60, **more: object) -> PendingPod:
    asks = Amounts(1_000, GIB, 1, {GPU: gpus} if gpus else {})
    made = PendingPod(name, NOW - timedelta(seconds=waits), asks)
    return replace(made, **more)  # type: ignore[arg-type] # Fields of a pod.


def _pool(
    name: str = "train", *, most: int = 10, least: int = 0, usd: int = 20, gpus: int = 8, **more: object
) -> ScaledPool:
    made = ScaledPool(name, least, most, _room(gpus), NodeFace(), gpus, Nano(usd * USD))
    return replace(made, **more)  # type: ignore[arg-type] # Fields of a pool.


def _place(
    key: str, phase: Phase = Phase.OPEN, *, pool: str = "train", left: int = 8, **more: object
) -> Place:
    made = Place(key, pool, phase, Nano(20 * USD), 8, _room(left))
    return replace(made, **more)  # type: ignore[arg-type] # Fields of a place.


def _plan(
    pods: list[PendingPod],
    pools: list[ScaledPool] | None = None,
    places: list[Place] | None = None,
    *,
    policy: Policy | None = None,
    empty_since: Mapping[str, datetime] | None = None,
    spent: Nano = NOTHING,
) -> Plan:
    return plan(
        policy or Policy("grow"),
        [_pool()] if pools is None else pools,
        places or [],
        pods,
        empty_since=empty_since or {},
        now=NOW,
        spent=spent,
    )


def test_pods_share_a_node_as_long_as_they_fit_and_the_next_one_gets_another() -> None:
    assert _plan([_pod(str(n), 4) for n in range(2)]).grow == {"train": 1}
    assert _plan([_pod(str(n), 4) for n in range(3)]).grow == {"train": 2}
    assert _plan([_pod("big", 8), _pod("a", 3), _pod("b", 3), _pod("c", 2)]).grow == {"train": 2}


def test_nodes_that_are_open_or_on_their_way_are_used_before_any_is_ordered() -> None:
    for phase in (Phase.OPEN, Phase.COMING, Phase.WAITING):
        made = _plan([_pod("a", 8)], places=[_place("1", phase)])
        assert not made.grow, phase
        assert (made.placed, made.empty) == (frozenset({"a"}), frozenset()), phase
    assert _plan([_pod("a", 8)], places=[_place("1", Phase.CLOSED)]).grow == {"train": 1}


def test_a_pod_that_has_just_come_waits_before_a_node_is_bought_for_it() -> None:
    assert _plan([_pod("young", waits=9)]).grow == {}
    assert _plan([_pod("due", waits=10)]).grow == {"train": 1}


def test_the_cheapest_pool_that_fits_grows() -> None:
    pools = [_pool("dear", usd=30), _pool("cheap", usd=10, gpus=4), _pool("cpu", usd=1, gpus=0)]
    assert _plan([_pod("small", 4)], pools).grow == {"cheap": 1}
    assert _plan([_pod("large", 8)], pools).grow == {"dear": 1}
    assert _plan([_pod("none", 0)], pools).grow == {"cpu": 1}


def test_a_pool_that_waits_for_stock_is_passed_over_and_its_order_stands_meanwhile() -> None:
    pools = [_pool("scarce", usd=10, is_short=True), _pool("there", usd=30)]
    waiting = _place("1", Phase.WAITING, pool="scarce")
    made = _plan([_pod("a", 8)], pools, [waiting])
    assert made.grow == {"there": 1}
    assert made.empty == {"1"}, "what is not needed any more is given up in its time"
    assert _plan([_pod("a", 8)], pools[:1], [waiting]).grow == {}, "with nothing else, it goes on waiting"
    assert _plan([_pod("a", 8)], pools[:1]).grow == {"scarce": 1}


def test_limits_and_the_budget_are_never_passed_and_say_why() -> None:
    pods = [_pod(str(n), 8) for n in range(5)]
    one = [_place("1", left=0, has_work=True)]
    cases = [
        (Policy("p", nodes_max=3), _pool(), 2, Bound.LIMIT, "there are 3 of 3 nodes"),
        (
            Policy("p", gpus_max=20),
            _pool(),
            1,
            Bound.LIMIT,
            "there are 16 of 20 GPUs, and a node of train has 8",
        ),
        (Policy("p"), _pool(most=2), 1, Bound.LIMIT, "train has 2 of 2 nodes"),
        (
            Policy("p", nano_per_hour_max=Nano(70 * USD + 1)),
            _pool(),
            2,
            Bound.BUDGET,
            "nodes cost 60.00 of 70.000000001 USD per hour, and one more of train costs 20.00",
        ),
        (Policy("p"), _pool(keeps="the balance is too low"), 0, Bound.POOL, "the balance is too low"),
        (Policy("p"), _pool(nano_per_hour=None), 0, Bound.POOL, "not sold at present"),
    ]
    for policy, pool, count, bound, why in cases:
        made = _plan(pods, [pool], one, policy=policy)
        assert sum(made.grow.values()) == count, why
        (held,) = made.held
        assert held.bound is bound
        assert why in held.why
        assert made.unplaced == {}, "they fit, and are held"


def test_the_budget_is_exact_to_the_nano_dollar() -> None:
    exact = Policy("p", nano_per_hour_max=Nano(20 * USD))
    assert _plan([_pod("a", 8)], policy=exact).grow == {"train": 1}
    assert _plan([_pod("a", 8)], policy=Policy("p", nano_per_hour_max=Nano(20 * USD - 1))).grow == {}


def test_what_fits_no_pool_is_named_with_the_reason_for_each() -> None:
    made = _plan(
        [_pod("huge", 16), _pod("picky", selector={"disk": "fast"})], [_pool(), _pool("cpu", gpus=0)]
    )
    assert made.grow == {}
    assert "cpu: it asks for 16 nvidia.com/gpu, and there are 0" in made.unplaced["huge"]
    assert "train: it selects nodes with the label disk=fast" in made.unplaced["picky"]


def test_a_pod_that_asks_for_more_than_scaling_understands_is_never_bought_for() -> None:
    made = _plan([_pod("pair", beyond="required podAffinity")])
    assert made.grow == {}
    assert "required podAffinity" in made.unplaced["pair"]


def test_a_pod_that_the_scheduler_keeps_off_a_node_is_not_bought_for_again_and_the_node_leaves() -> None:
    place = _place("1", open_since=NOW - VAIN_AFTER)
    stuck = _pod("stuck", waits=int(VAIN_AFTER.total_seconds()))
    made = _plan([stuck], places=[place])
    assert made.vain == {"stuck": "train"}
    assert not made.grow
    assert made.empty == {"1"}
    assert "what keeps it off a node" in made.unplaced["stuck"]
    for pod, node in (
        (_pod("young", waits=int(VAIN_AFTER.total_seconds()) - 1), place),
        (stuck, replace(place, open_since=NOW - VAIN_AFTER + timedelta(seconds=1))),
        (stuck, replace(place, phase=Phase.COMING, open_since=None)),
    ):
        assert not _plan([pod], places=[node]).vain


def test_a_minimum_is_kept_without_pods_and_takes_them_when_they_come() -> None:
    assert _plan([], [_pool(least=2)]).grow == {"train": 2}
    assert _plan([_pod("a", 8)], [_pool(least=2)]).grow == {"train": 2}
    assert _plan([], [_pool(least=2)], policy=Policy("p", nodes_max=1)).grow == {"train": 1}


def test_an_empty_node_leaves_after_its_time_and_never_below_the_minimum() -> None:
    places = [_place(key, open_since=LONG_AGO, has_work=key == "3") for key in ("1", "2", "3")]
    since = {
        "1": NOW - timedelta(minutes=10),
        "2": NOW - timedelta(minutes=9, seconds=59),
        "3": NOW - timedelta(days=1),
    }
    assert _plan([], places=places, empty_since=since).end == ("1",)
    assert _plan([], [_pool(least=3)], places, empty_since=since).end == ()
    assert _plan([], places=places, empty_since=since, policy=Policy("p", empty_for=None)).end == ()
    assert _plan([_pod("a", 8)], places=places[:1], empty_since=since).end == (), "a pod needs it"
    assert _plan([], places=[_place("1", Phase.CLOSED)], empty_since=since).end == (), "nobody knows about it"


def test_empty_nodes_without_a_machine_go_first_then_the_dearest_and_few_at_a_time() -> None:
    places = [
        _place("open", open_since=LONG_AGO),
        _place("dear", open_since=LONG_AGO, nano_per_hour=Nano(50 * USD)),
        _place("waiting", Phase.WAITING),
        *(_place(f"z{n}", open_since=LONG_AGO) for n in range(5)),
    ]
    since = {place.key: NOW - timedelta(hours=1) for place in places}
    ends = _plan([], places=places, empty_since=since).end
    assert ends == ("waiting", "dear", "open", "z0")
    assert len(ends) == ENDED_PER_LOOK_MAX


def test_a_machine_that_was_bought_becomes_a_node_and_stays_for_a_while_however_empty() -> None:
    places = [
        _place("coming", Phase.COMING),
        _place("young", open_since=NOW - STAYS_FOR + timedelta(seconds=1)),
        _place("old", open_since=NOW - STAYS_FOR),
    ]
    since = {place.key: NOW - timedelta(hours=1) for place in places}
    policy = Policy("p", empty_for=timedelta(minutes=1))
    assert _plan([], places=places, empty_since=since, policy=policy).end == ("old",)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 9))
def test_a_budget_per_month_is_not_passed_by_an_hour_of_all_nodes(
    spent: int, budget: int, nodes: int
) -> None:
    policy = Policy("p", nano_per_month_max=Nano(budget * USD))
    places = [_place(str(n), has_work=True, left=0) for n in range(nodes)]
    made = _plan(
        [_pod(str(n), 8) for n in range(9)],
        [_pool(most=64)],
        places,
        policy=policy,
        spent=Nano(spent * USD),
    )
    more = made.grow.get("train", 0)
    assert more == min(9, max(0, (budget - spent) // 20 - nodes))
    assert bool(made.held) == (more < 9)
    assert all(
        held.bound is Bound.BUDGET and "were charged this month (UTC)" in held.why for held in made.held
    )


def test_nobody_knows_what_was_between_looks_that_are_far_apart() -> None:
    before = {"1": NOW - timedelta(hours=1)}
    recent = still_known(before, looked_at=NOW - LOOKED_WITHIN, now=NOW)
    assert known_empty({"1", "2"}, recent, NOW) == {"1": before["1"], "2": NOW}
    late = still_known(before, looked_at=NOW - LOOKED_WITHIN - timedelta(seconds=1), now=NOW)
    assert known_empty({"1"}, late, NOW) == {"1": NOW}
    assert still_known(before, looked_at=None, now=NOW) == {}


def test_labels_affinity_and_taints_are_read_as_the_scheduler_reads_them() -> None:
    face = NodeFace(
        {"zone": "a", "cores": "64"},
        (NodeTaint("gpu", "only", "NoSchedule"), NodeTaint("x", "", "PreferNoSchedule")),
    )
    tolerant = (Toleration("gpu", "Equal", "only", "NoSchedule"),)

    def fits(*terms: tuple[Requirement, ...]) -> bool:
        return misfit(_pod("a", tolerations=tolerant, terms=terms), face, _room()) is None

    assert fits()
    for tolerations, wanted in (
        ((), False),
        ((Toleration(operator="Exists"),), True),
        ((Toleration("gpu", "Exists"),), True),
        ((Toleration("gpu", "Equal", "other"),), False),
        ((Toleration("gpu", "Equal", "only", "NoExecute"),), False),
        ((Toleration("", "Equal", "only"),), False),
    ):
        found = misfit(_pod("a", tolerations=tolerations), face, _room()) is None
        assert found is wanted, tolerations
    op = Operator
    for term, wanted in (
        ((Requirement("zone", op.IN, ("a", "b")),), True),
        ((Requirement("zone", op.NOT_IN, ("a",)),), False),
        ((Requirement("disk", op.NOT_IN, ("slow",)),), True),
        ((Requirement("disk", op.DOES_NOT_EXIST),), True),
        ((Requirement("zone", op.EXISTS), Requirement("cores", op.GT, ("63",))), True),
        ((Requirement("cores", op.LT, ("64",)),), False),
        ((Requirement("zone", op.GT, ("1",)),), False),
    ):
        assert fits(term) is wanted, term
    one_of = ((Requirement("zone", op.IN, ("b",)),), (Requirement("zone", op.EXISTS),))
    assert fits(*one_of), "one of the terms is enough"


_PODS = st.lists(
    st.builds(
        lambda number, gpus, waits: _pod(f"pod-{number}", gpus, waits),
        st.integers(0, 10_000),
        st.integers(0, 9),
        st.integers(0, 100),
    ),
    max_size=40,
    unique_by=lambda pod: pod.name,
)
_PLACES = st.lists(
    st.builds(
        lambda number, phase, pool, left, work: _place(
            f"n{number}", phase, pool=pool, left=left, has_work=work
        ),
        st.integers(0, 100),
        st.sampled_from(list(Phase)),
        st.sampled_from(["train", "cheap"]),
        st.integers(0, 8),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda place: place.key,
)
_POOLS = st.tuples(
    st.builds(
        lambda least, more: _pool(least=least, most=least + more), st.integers(0, 3), st.integers(0, 12)
    ),
    st.builds(
        lambda most, short: _pool("cheap", most=most, usd=5, gpus=2, is_short=short),
        st.integers(0, 12),
        st.booleans(),
    ),
)
_POLICIES = st.builds(
    lambda nodes, gpus, usd: Policy(
        "p", nodes_max=nodes, gpus_max=gpus, nano_per_hour_max=None if usd is None else Nano(usd * USD)
    ),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(0, 300),
)


@given(_PODS, _POOLS, _PLACES, _POLICIES, st.randoms())
def test_whatever_is_asked_for_stays_within_all_bounds_and_does_not_depend_on_the_order(
    pods: list[PendingPod],
    pools: tuple[ScaledPool, ScaledPool],
    places: list[Place],
    policy: Policy,
    chance: object,
) -> None:
    since = {place.key: NOW - timedelta(hours=1) for place in places}
    made = _plan(pods, list(pools), places, policy=policy, empty_since=since)
    before = usage(places)
    grown = sum(made.grow.values())
    assert grown <= GROWN_PER_LOOK_MAX
    by_name = {pool.name: pool for pool in pools}
    for name, count in made.grow.items():
        assert sum(place.pool == name for place in places) + count <= by_name[name].nodes_max
    if grown:
        gpus = before.gpus + sum(count * by_name[name].gpus for name, count in made.grow.items())
        cost = before.nano_per_hour + sum(
            count * (by_name[name].nano_per_hour or 0) for name, count in made.grow.items()
        )
        assert policy.nodes_max is None or before.nodes + grown <= policy.nodes_max
        assert policy.gpus_max is None or gpus <= policy.gpus_max
        assert policy.nano_per_hour_max is None or cost <= policy.nano_per_hour_max
    ends = {place.key: place for place in places if place.key in made.end}
    assert len(ends) == len(made.end) <= ENDED_PER_LOOK_MAX
    for place in ends.values():
        assert not place.has_work
        assert place.phase is not Phase.CLOSED
    for pool in pools:
        kept = sum(place.pool == pool.name and place.key not in ends for place in places)
        had = sum(place.pool == pool.name for place in places)
        assert kept >= min(had, pool.nodes_min)
    assert made.placed.isdisjoint(made.unplaced)
    assert made.placed | made.unplaced.keys() == {pod.name for pod in pods}
    again = [list(pods), list(pools), list(places)]
    for values in again:
        chance.shuffle(values)  # type: ignore[attr-defined] # A Random.
    assert plan(policy, again[1], again[2], again[0], empty_since=since, now=NOW) == made  # type: ignore[arg-type]


@given(_PODS, _PLACES)
def test_what_one_look_orders_is_enough_for_the_next(pods: list[PendingPod], places: list[Place]) -> None:
    made = _plan(pods, places=places)
    ordered = [_place(f"~{number:02}", Phase.WAITING) for number in range(made.grow.get("train", 0))]
    for phase in (Phase.WAITING, Phase.COMING, Phase.OPEN):
        now_there = [replace(place, phase=phase) for place in ordered]
        if len(ordered) < GROWN_PER_LOOK_MAX:
            assert _plan(pods, places=[*places, *now_there]).grow == {}, phase
