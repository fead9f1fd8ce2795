"""Which machine of a pool a lease gets, and why the others do not fit."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from control_plane.domain.envelope import Envelope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LeaseId, MachineId, NodePoolId, PoolId
from control_plane.domain.machine import Machine, MachineState, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.placement import RejectCode
from control_plane.domain.pool import PoolState
from control_plane.domain.pool_claim import (
    CONSIDERED_NAMED_MAX,
    PoolChoice,
    PooledMachine,
    PoolRejectCode,
    Request,
    choose,
)
from control_plane.domain.proof import FRESH_FOR, Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.ranking import Ranking, digest, is_news
from control_plane.domain.sku import Shape
from control_plane.domain.sla import SlaTier
from tests.support.clock import START
from tests.support.values import a_lease, a_machine

SHAPE = Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100)
LEASE = a_lease(nano_per_unit_hour=Nano(3_600_000_000))
PRICE = LEASE.nano_per_hour


def pooled(number: int = 1, **other: Any) -> PooledMachine:
    """A verified machine of the pool `warm`, which costs us half of what it is sold for."""
    machine = a_machine(number, purpose=Purpose.POOL, pool_id=PoolId(UUID(int=7)))
    values: dict[str, Any] = {field.name: getattr(machine, field.name) for field in fields(Machine)}
    values |= {
        "sku": LEASE.sku,
        "pool": "warm",
        "pool_state": PoolState.ACTIVE,
        "pool_sla": None,
        "cost_nano_per_hour": Nano(PRICE // 2),
        "vcpus": 8,
        "memory_gib": 64,
        "created_at": START,
    }
    return PooledMachine(**(values | other))


def asked(**other: Any) -> Request:
    values: dict[str, Any] = {
        "lease": LEASE,
        "shape": SHAPE,
        "envelopes": (),
        "unhealthy_accounts": {},
        "now": START,
    }
    return Request(**(values | other))


def chosen(request: Request, *machines: PooledMachine) -> PoolChoice:
    choice = choose(request, machines, taken=())
    assert choice is not None
    return choice


def test_a_verified_machine_of_the_skus_pool_is_claimed() -> None:
    assert chosen(asked(), pooled()) == PoolChoice(pooled().id, "warm", ())


def test_machines_of_other_skus_are_not_considered_and_nothing_is_said_of_them() -> None:
    assert choose(asked(), [pooled(sku="h100x8")], taken=()) is None
    assert choose(asked(), [], taken=()) is None


UNFIT: list[tuple[PoolRejectCode, dict[str, Any], dict[str, Any]]] = [
    (PoolRejectCode.POOL_CLOSED, {}, {"pool_state": PoolState.DELETING}),
    (PoolRejectCode.OTHER_TIER, {}, {"pool_sla": SlaTier.GOLD}),
    (PoolRejectCode.NODE, {"lease": replace(LEASE, node_pool_id=NodePoolId(UUID(int=3)))}, {}),
    (PoolRejectCode.SPOT, {"lease": replace(LEASE, purchase=PurchaseKind.SPOT)}, {}),
    (PoolRejectCode.INTERRUPTIBLE, {"lease": replace(LEASE, purchase=PurchaseKind.INTERRUPTIBLE)}, {}),
    (PoolRejectCode.REGION_EXCLUDED, {"lease": replace(LEASE, regions=("eu",))}, {}),
    (PoolRejectCode.PROVIDER_EXCLUDED, {"lease": replace(LEASE, providers=("lambda_cloud",))}, {}),
    (PoolRejectCode.ENVELOPE_EXCLUDED, {"envelopes": (Envelope(regions=frozenset({"eu"})),)}, {}),
    (PoolRejectCode.ENVELOPE_EXCLUDED, {"envelopes": (Envelope(providers=frozenset({"aws"})),)}, {}),
    (PoolRejectCode.COSTS_MORE_THAN_SOLD, {}, {"cost_nano_per_hour": Nano(PRICE + 1)}),
    (PoolRejectCode.SHAPE_DIFFERS, {"shape": replace(SHAPE, memory_gib=65)}, {}),
    (PoolRejectCode.ACCOUNT_UNHEALTHY, {"unhealthy_accounts": {AccountName("fake"): "frozen"}}, {}),
    (PoolRejectCode.NOT_READY, {}, {"state": MachineState.BOOTSTRAPPING}),
    (PoolRejectCode.NOT_READY, {}, {"missed_since": START}),
    (PoolRejectCode.NOT_READY, {}, {"down_since": START}),
    (PoolRejectCode.NOT_READY, {}, {"eviction_announced_at": START}),
    (PoolRejectCode.NOT_READY, {"lease": replace(LEASE, proof=Tier.PROVEN)}, {}),
    (
        PoolRejectCode.NOT_READY,
        {"lease": replace(LEASE, proof=Tier.PROVEN), "now": START + FRESH_FOR + timedelta(seconds=1)},
        {"proof": Tier.PROVEN, "passes": 1, "first_passed_at": START, "last_passed_at": START},
    ),
    (PoolRejectCode.NOT_READY, {}, {"suspect_since": START}),
]


@pytest.mark.parametrize(("code", "request_", "machine"), UNFIT)
def test_a_machine_that_an_offer_like_it_would_not_serve_is_left_with_the_reason(
    code: PoolRejectCode, request_: dict[str, Any], machine: dict[str, Any]
) -> None:
    choice = chosen(asked(**request_), pooled(**machine))
    assert (choice.machine_id, [each.code for each in choice.unfit]) == (None, [code])
    assert choice.unfit[0].why.endswith((".", "frozen")), choice.unfit[0].why


def test_every_code_but_that_of_a_taken_machine_is_tried_above() -> None:
    assert {code for code, _, _ in UNFIT} | {PoolRejectCode.TAKEN} == set(PoolRejectCode)


def test_a_machine_that_an_earlier_lease_gets_is_taken() -> None:
    choice = choose(asked(), [pooled()], taken={pooled().id})
    assert choice is not None
    assert [each.code for each in choice.unfit] == [PoolRejectCode.TAKEN]


def test_what_is_reserved_for_the_lease_goes_first_and_then_what_costs_least_and_waited_longest() -> None:
    reserved = {"pool_id": None, "reserved_for": LEASE.id, "sku": None, "pool": None, "pool_state": None}
    dear = pooled(1, cost_nano_per_hour=PRICE, **reserved)
    young, old = pooled(2, created_at=START), pooled(3, created_at=START - timedelta(hours=1))
    cheap = pooled(4, cost_nano_per_hour=Nano(1), created_at=START)
    machines = [young, old, dear, cheap]
    order = []
    while machines:
        choice = chosen(asked(), *machines)
        order.append(choice.machine_id)
        assert choice.more_fit == len(machines) - 1
        machines = [each for each in machines if each.id != choice.machine_id]
    assert order == [dear.id, cheap.id, old.id, young.id]


def test_what_is_reserved_for_another_lease_is_nobody_elses() -> None:
    other = pooled(pool_id=None, reserved_for=LeaseId(UUID(int=99)), sku=None, pool=None, pool_state=None)
    assert choose(asked(), [other], taken=()) is None


def test_a_placement_names_some_of_the_machines_that_do_not_fit_and_counts_all() -> None:
    many = [pooled(number, missed_since=START) for number in range(1, CONSIDERED_NAMED_MAX + 6)]
    choice = chosen(asked(), *many)
    assert (len(choice.unfit), choice.more_unfit) == (CONSIDERED_NAMED_MAX, 5)


def test_a_claim_is_news_and_so_is_another_reason_why_a_machine_does_not_fit() -> None:
    waits = Ranking((), (), pooled=chosen(asked(), pooled(missed_since=START)))
    claims = Ranking((), (), pooled=chosen(asked(), pooled()))
    taken = Ranking((), (), pooled=choose(asked(), [pooled()], taken={MachineId(UUID(int=1))}))
    assert not is_news(waits, digest(waits))
    assert is_news(waits, digest(taken))
    assert is_news(waits, digest(Ranking((), ())))
    assert is_news(claims, digest(claims))


def test_codes_that_offers_have_too_mean_the_same() -> None:
    shared = {code.value for code in PoolRejectCode} & {code.value for code in RejectCode}
    assert shared >= {"region_excluded", "provider_excluded", "envelope_excluded", "costs_more_than_sold"}
