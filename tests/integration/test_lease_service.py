"""Leases through the services on a real database."""

import pytest

from control_plane.db.engine import Database
from control_plane.db.leases import Overview
from control_plane.domain.admission import Price
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.proof import Tier
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.services import billing, catalogue, leases, organizations
from control_plane.world import World, uuid7
from tests.support.clock import Clock

pytestmark = pytest.mark.database
H100 = Price(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(3_600_000_000),
)


async def _organization(db: Database, clock: Clock, *, balance: int) -> tuple[World, OrganizationId]:
    world = World(db, now=clock.now)
    organization_id = OrganizationId(uuid7())
    async with db.transaction() as connection:
        await organizations.create(
            connection, world, organization_id, f"org-{organization_id.hex}", gpu_quota=4
        )
        await catalogue.load_price_book(connection, world, [H100])
        if balance:
            await billing.credit(connection, world, organization_id, Nano(balance), key="first")
    return world, organization_id


async def _lease(db: Database, world: World, organization_id: OrganizationId) -> Lease | Refused:
    async with db.transaction(organization_id) as connection:
        return await leases.create(
            connection, world, organization_id, CapacityRequest("h100x1"), name="a", ssh_key_ids=[], actor="test"
        )


async def test_an_admitted_lease_holds_its_first_hour_and_its_gpus(
    db: Database, api_db: Database, clock: Clock
) -> None:
    _, organization_id = await _organization(db, clock, balance=10_000_000_000)
    world = World(api_db, now=clock.now)
    lease = await _lease(api_db, world, organization_id)
    assert isinstance(lease, Lease)
    organization = await organizations.show(world, organization_id)
    assert (organization.gpus_held, organization.held_nano) == (1, 3_600_000_000)
    shown = await leases.get(world, organization_id, lease.id)
    assert not isinstance(shown, Refused)
    assert shown.status.message == "Choosing a machine."


async def test_a_balance_below_the_first_hour_is_refused(db: Database, clock: Clock) -> None:
    world, organization_id = await _organization(db, clock, balance=3_599_999_999)
    refused = await _lease(db, world, organization_id)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.BALANCE_TOO_LOW


async def test_releasing_a_lease_that_was_never_ready_returns_its_hold(
    db: Database, api_db: Database, clock: Clock
) -> None:
    _, organization_id = await _organization(db, clock, balance=10_000_000_000)
    world = World(api_db, now=clock.now)
    lease = await _lease(api_db, world, organization_id)
    assert isinstance(lease, Lease)
    for _ in range(2):
        async with api_db.transaction(organization_id) as connection:
            released = await leases.release(connection, world, organization_id, lease.id, actor="test")
        assert isinstance(released, Overview)
        assert released.lease.state is LeaseState.ENDING
    organization = await organizations.show(world, organization_id)
    assert (organization.gpus_held, organization.held_nano) == (0, 0)
    explained = await leases.explain(world, organization_id, lease.id)
    assert not isinstance(explained, Refused)
    assert [line.event for line in explained.journal] == ["admitted", "released"]
