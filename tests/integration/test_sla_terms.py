"""The terms of service levels on a real database: versions that leases keep, and tiers that are not offered."""

from dataclasses import replace
from importlib import resources

import pytest

from control_plane.db.engine import Database
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier, Terms
from control_plane.outcomes.sla_terms import Promised, promised
from control_plane.services import administration, sla_terms
from control_plane.services.sla_terms import parse_terms
from control_plane.world import World
from tests.support.clock import Clock

pytestmark = pytest.mark.database
SHIPPED = (resources.files("control_plane") / "sla_terms.toml").read_text(encoding="utf-8")
GOLD = CapacityRequest("h100x1", sla=SlaTier.GOLD)


@pytest.fixture
def world(db: Database, clock: Clock) -> World:
    return World(db, now=clock.now)


async def _load(world: World, *terms: Terms) -> bool:
    async with world.db.transaction() as connection:
        return await sla_terms.load(connection, world, terms)


async def _promised(world: World, request: CapacityRequest) -> int | Refused | None:
    found = await _found(world, request)
    return found.version if isinstance(found, Promised) else found


async def _found(world: World, request: CapacityRequest) -> Promised | Refused:
    async with world.db.reading() as connection:
        return await promised(connection, request, world.now())


async def test_the_shipped_terms_are_read_as_they_are_written(world: World) -> None:
    assert await administration.load_sla_terms(world, SHIPPED)
    offered = await sla_terms.in_force(world)
    assert [offer.terms for offer in offered] == parse_terms(SHIPPED)
    assert [offer.terms.tier for offer in offered] == list(SlaTier)
    assert {offer.version for offer in offered} == {1}


async def test_terms_that_are_in_force_already_are_no_new_version(world: World, clock: Clock) -> None:
    bronze, *_ = parse_terms(SHIPPED)
    assert await _load(world, bronze)
    clock.advance(60)
    assert not await _load(world, bronze)
    assert await _load(world, replace(bronze, priority=10))
    (offer,) = await sla_terms.in_force(world)
    assert (offer.version, offer.terms.priority) == (2, 10)


async def test_without_terms_nothing_is_promised_and_no_tier_above_bronze_is_offered(world: World) -> None:
    assert await _promised(world, CapacityRequest("h100x1")) is None
    refused = await _promised(world, GOLD)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SLA_NOT_OFFERED


async def test_a_tier_that_the_version_in_force_lacks_is_not_offered(world: World, clock: Clock) -> None:
    bronze, _, gold = parse_terms(SHIPPED)
    await _load(world, bronze, gold)
    assert await _promised(world, GOLD) == 1
    clock.advance(60)
    await _load(world, bronze)
    refused = await _promised(world, GOLD)
    assert isinstance(refused, Refused)
    assert refused.why == "The tier gold is not offered; choose one of bronze."
    assert await _promised(world, CapacityRequest("h100x1")) == 2


async def test_nothing_is_promised_with_spot(world: World) -> None:
    await administration.load_sla_terms(world, SHIPPED)
    spot = CapacityRequest("h100x1", purchase=PurchaseKind.SPOT)
    assert await _promised(world, spot) is None
    assert isinstance(await _promised(world, replace(spot, sla=SlaTier.GOLD)), Refused)


async def test_a_lease_gets_the_priority_of_its_tier_unless_its_customer_names_another_one(
    world: World,
) -> None:
    for request in (GOLD, CapacityRequest("h100x1")):
        assert await _found(world, replace(request, sla=SlaTier.BRONZE)) == Promised(
            None, replace(request, sla=SlaTier.BRONZE)
        )
    await administration.load_sla_terms(world, SHIPPED)
    for request, priority in (
        (GOLD, 80),
        (replace(GOLD, priority=10), 10),
        (replace(GOLD, sla=SlaTier.SILVER), 65),
        (CapacityRequest("h100x1"), 50),
    ):
        found = await _found(world, request)
        assert isinstance(found, Promised)
        assert found.request.priority == priority
