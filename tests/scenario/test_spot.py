"""Spot leases: what they are placed on, what they cost, and what an eviction leaves of them."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import Nano
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.tariff import unit_seconds_total
from providers.fake import CAPABILITIES, Fault
from providers.fake import Settings as FakeSettings
from providers.fake_offers import a_spot_offer, an_offer
from reconciler.worlds.complete import CompleteWorld
from tests.support.clock import Clock
from tests.support.crash import Crash
from tests.support.power import ask
from tests.support.rows import rows
from tests.support.stage import CHEAP_STOPS, H100, Stage, set_stage

pytestmark = pytest.mark.database

ON_DEMAND = an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="2.20")
SPOT = a_spot_offer(ON_DEMAND, usd_per_gpu_hour="1.10")
assert H100.spot_nano_per_unit_hour is not None
SPOT_PRICE = H100.spot_nano_per_unit_hour
WANTED = CapacityRequest("h100x1", price_nano_per_hour_max=SPOT_PRICE, purchase=PurchaseKind.SPOT)
REPLACED = LeaseTerms(on_eviction=OnEviction.REPLACE)
_CHARGES = text("SELECT purchase, unit_seconds, nano_per_unit_hour, amount_nano FROM charges ORDER BY number")


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    return await spot_stage(db, api_db, clock)


async def spot_stage(db: Database, api_db: Database, clock: Clock, *, sells_spot: bool = True) -> Stage:
    """A provider that lists the same machine on demand and as spot."""
    capabilities = replace(CAPABILITIES, sells_spot=sells_spot)
    stage = await set_stage(
        db, clock, api_db=api_db, settings=FakeSettings(boot_seconds=20.0), capabilities=capabilities
    )
    stage.cloud.listing = (ON_DEMAND, SPOT)
    for name in (ON_DEMAND.native_type, f"{SPOT.native_type}:spot"):
        stage.cloud.stock[name, ON_DEMAND.native_region] = 8
    return stage


async def listed(stage: Stage) -> OrganizationId:
    """An organization, with the offers in the catalogue."""
    organization_id = await stage.organization()
    await stage.run("refresh_offers")
    return organization_id


async def ready(stage: Stage, organization_id: OrganizationId, request: CapacityRequest) -> Lease:
    lease = await stage.lease(organization_id, request)
    await stage.play_until(lease, "ready", seconds_max=90)
    return await stage.lease_row(lease)


async def bought_as_spot(stage: Stage, lease: Lease) -> list[bool]:
    return [machine.spot for machine in await stage.machines(lease)]


async def test_a_spot_lease_gets_a_spot_machine_at_its_price_and_an_eviction_ends_it_with_its_bill(
    stage: Stage,
) -> None:
    lease = await ready(stage, await listed(stage), WANTED)
    assert (lease.purchase, lease.nano_per_hour) == (PurchaseKind.SPOT, SPOT_PRICE)
    (bought,) = stage.cloud.alive()
    assert (bought.order.spot, bought.order.cost_nano_per_hour_max) == (True, SPOT_PRICE)
    assert await bought_as_spot(stage, lease) == [True]
    offered = (await stage.shown(lease)).overview.power_offered
    assert set(offered) == set(PowerAction) - {PowerAction.STOP, PowerAction.START}
    await stage.play(1_800, step=300)
    last_seen = stage.clock.now()
    stage.clock.advance(5)
    stage.cloud.evict(bought.provider_ref)
    await stage.play_until(lease, "ended", seconds_max=120)
    row = await stage.lease_row(lease)
    assert (row.end_reason, row.billed_until) == (EndReason.EVICTED, last_seen)
    await stage.play(60, step=20)
    await stage.check_finished()
    async with stage.db.reading() as connection:
        charges = await rows(connection, _CHARGES)
    assert {(row.purchase, row.nano_per_unit_hour) for row in charges} == {("spot", SPOT_PRICE)}
    assert row.ready_at is not None
    used = unit_seconds_total(row.ready_at, 1, last_seen)
    assert sum(charge.unit_seconds for charge in charges) == used


async def test_neither_kind_lands_on_the_other_whatever_is_cheaper_or_in_stock(stage: Stage) -> None:
    organization_id = await listed(stage)
    on_demand = await ready(stage, organization_id, CapacityRequest("h100x1"))
    assert await bought_as_spot(stage, on_demand) == [False], "spot is cheaper"
    stage.cloud.stock[f"{SPOT.native_type}:spot", SPOT.native_region] = 0
    await stage.play(60, step=30)
    spot = await stage.lease(organization_id, WANTED)
    await stage.play(10)
    waiting = (await stage.lease_row(spot)).waiting_why
    assert waiting == "None of 2 offers can serve it now: 1 only on demand, 1 sold out."
    stage.cloud.listing = (ON_DEMAND,)
    await stage.play(60, step=30)
    assert await stage.state(spot) == "placing"
    assert [machine.order.spot for machine in stage.cloud.alive()] == [False]
    await stage.finish()


async def test_spot_that_is_refused_leaves_the_same_type_on_demand_alone(stage: Stage) -> None:
    organization_id = await listed(stage)
    stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    spot = await stage.lease(organization_id, WANTED)
    await stage.play(6)
    assert [attempt.fail_reason for attempt in await stage.attempts(spot)] == [FailReason.NO_CAPACITY]
    on_demand = await ready(stage, organization_id, CapacityRequest("h100x1"))
    assert await bought_as_spot(stage, on_demand) == [False]
    assert await stage.state(spot) == "placing"
    assert len(await stage.attempts(on_demand)) == 1
    await stage.play_until(spot, "ready", seconds_max=400, step=10)
    assert await bought_as_spot(stage, spot) == [True, True]
    await stage.finish()


async def test_a_market_that_rises_above_the_price_of_the_lease_is_not_bought(stage: Stage) -> None:
    organization_id = await listed(stage)
    stage.cloud.listing = (ON_DEMAND, replace(SPOT, cost_nano_per_hour=Nano(SPOT_PRICE + 1)))
    lease = await stage.lease(organization_id, WANTED)
    await stage.play(10)
    assert [attempt.fail_reason for attempt in await stage.attempts(lease)] == [FailReason.NO_CAPACITY]
    await stage.play(60, step=30)
    assert stage.cloud.alive() == ()
    assert (await stage.lease_row(lease)).waiting_why == (
        "None of 2 offers can serve it now: 1 not sold at this price, 1 only on demand."
    )
    await stage.finish()


async def test_spot_is_refused_without_a_price_a_ceiling_an_offer_or_an_envelope_that_allows_it(
    stage: Stage,
) -> None:
    organization_id = await listed(stage)
    for request, code in (
        (replace(WANTED, sku="h100x8"), RefusalCode.PURCHASE_NOT_OFFERED),
        (replace(WANTED, sku="potato"), RefusalCode.SKU_UNKNOWN),
        (replace(WANTED, price_nano_per_hour_max=None), RefusalCode.PRICE_CEILING_MISSING),
        (replace(WANTED, price_nano_per_hour_max=Nano(SPOT_PRICE - 1)), RefusalCode.PRICE_ABOVE_CEILING),
    ):
        refused = await stage.try_lease(organization_id, request)
        assert isinstance(refused, Refused), code
        assert refused.code is code
    await stage.narrow(organization_id, Envelope(purchases=frozenset({PurchaseKind.ON_DEMAND})))
    refused = await stage.try_lease(organization_id, WANTED)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.ENVELOPE_EXCLUDES
    assert isinstance(await stage.try_lease(organization_id), Lease)
    await stage.finish()


async def test_spot_capacity_that_we_cannot_order_is_listed_and_serves_nobody(
    db: Database, api_db: Database, clock: Clock
) -> None:
    stage = await spot_stage(db, api_db, clock, sells_spot=False)
    refused = await stage.try_lease(await listed(stage), WANTED)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SKU_NOT_OFFERED


async def test_a_loop_killed_before_any_call_buys_one_spot_machine_and_never_another_kind(
    stage: Stage,
) -> None:
    organization_id = await listed(stage)
    for at in range(1, CALLS + 2):
        lease = await stage.lease(organization_id, WANTED)
        await stage.run("place_leases")
        assert await killed(stage, "launch_machines", at) is (at <= CALLS), at
        await stage.play_until(lease, "ready", seconds_max=600, step=20)
        assert set(await bought_as_spot(stage, lease)) == {True}, at
        await stage.check()
    assert {machine.order.spot for machine in stage.cloud.machines.values()} == {True}
    await stage.finish()


CALLS = 3
"""How many calls an activation makes that launches a machine. Killed before a call is killed after the one before it."""


async def killed(stage: Stage, loop: str, at: int) -> bool:
    """Run one activation that is killed before this call; False when it makes fewer."""

    async def activation(world: CompleteWorld) -> None:
        await stage.run(loop, world=world)

    return await Crash(at=at, when="before").kills(activation, stage.replica("doomed"))


async def test_replicas_that_see_an_eviction_at_once_end_the_lease_once(stage: Stage) -> None:
    lease = await ready(stage, await listed(stage), WANTED)
    last_seen = stage.clock.now()
    stage.clock.advance(3)
    stage.cloud.evict(stage.cloud.alive()[0].provider_ref)
    replicas = [stage.replica(f"replica {number}") for number in range(3)]
    await asyncio.gather(*(stage.run("observe_machines", world=world) for world in replicas))
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.EVICTED
    assert row.billed_until is not None
    assert last_seen - timedelta(seconds=2) <= row.billed_until <= last_seen
    assert (await stage.story(lease)).count("lease evicted") == 1
    await stage.finish()


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_laws_of_money_hold_whatever_happens_to_leases_of_both_kinds_in_any_order(
    stage: Stage, seed: int
) -> None:
    """Every step is followed by the check of all laws, and the end by the one that nothing is left."""
    chosen = random.Random(seed)
    stage.sell_cheap_stops()
    organization_id = await listed(stage)
    on_demand = CapacityRequest("h100x1")
    leases = [await stage.lease(organization_id, request) for request in (WANTED, on_demand, WANTED)]
    leases.append(await stage.lease(organization_id, WANTED, terms=REPLACED))
    switched = leases[1]
    await stage.play(40, step=10)
    for _ in range(12):
        alive = [machine for machine in stage.cloud.alive() if machine.order.spot]
        match chosen.choice(
            ("announce", "withdraw", "evict", "evict", "release", "lists fail", "lease", "switch", "switch")
        ):
            case "announce" | "withdraw" | "evict" as word if alive:
                ref = chosen.choice(alive).provider_ref
                step = {
                    "announce": stage.cloud.announce_eviction,
                    "withdraw": stage.cloud.withdraw_eviction,
                    "evict": stage.cloud.evict,
                }[word]
                step(ref)
            case "release":
                await stage.release(chosen.choice([lease for lease in leases if lease is not switched]))
            case "switch":
                shown = (await stage.shown(switched)).overview.power
                off = shown is not None and shown.state is PowerState.OFF
                await ask(stage, switched, PowerAction.START if off else PowerAction.STOP)
            case "lists fail":
                stage.cloud.faults.script("inventory", Fault.LISTING_FAILS)
            case _:
                terms = chosen.choice((None, REPLACED))
                leases.append(await stage.lease(organization_id, WANTED, terms=terms))
        await stage.play(chosen.choice((2, 30, 60)), step=15)
        await stage.check()
    for terms in (None, REPLACED):
        leases.append(await stage.lease(organization_id, WANTED, terms=terms))
        await stage.play_until(leases[-1], "ready", seconds_max=600, step=20)
    for machine in stage.cloud.alive():
        if machine.order.spot:
            stage.cloud.evict(machine.provider_ref)
    await stage.play(60, step=15)
    await stage.check()
    rows_now = [await stage.lease_row(lease) for lease in leases]
    evicted = [row for row in rows_now if row.end_reason is EndReason.EVICTED]
    assert evicted, "no lease was evicted"
    assert any(row.paused_at for row in rows_now), "no lease was replaced"
    assert {row.purchase for row in evicted} == {PurchaseKind.SPOT}
    assert stage.cloud.cost_nano() > 0
    await stage.finish()
    async with stage.db.reading() as connection:
        charges = await rows(connection, _CHARGES)
    assert {(charge.purchase, charge.nano_per_unit_hour) for charge in charges} == {
        ("spot", SPOT_PRICE),
        ("on_demand", H100.nano_per_unit_hour),
        ("on_demand", CHEAP_STOPS[0].stopped_nano),
    }
