"""Leases through the services on a real database, in the role of the API."""

from uuid import UUID

import pytest

from control_plane.db import accounts
from control_plane.db import catalogue as catalogue_rows
from control_plane.db.engine import Database
from control_plane.db.lease_overviews import Overview
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.lease import AdmittedKey, Lease, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.position import Position
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.services import (
    catalogue,
    lease_overviews,
    leases,
    ledger,
    organizations,
    projects,
    quotes,
    ssh_keys,
)
from control_plane.services.leases import WantedLease
from control_plane.world import World, uuid7
from tests.support.clock import Clock
from tests.support.values import PAID, an_offer

pytestmark = pytest.mark.database
H100 = ListPrice(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(3_600_000_000),
)
REQUEST = CapacityRequest("h100x1")
FAKE, OTHER = AccountName("fake"), AccountName("fake/other")
CUSTOMER = Actor(ActorKind.CUSTOMER, "key_1", request_id="a-request")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4zFKSdNQWf1l0TuHUxz5p0F2XQwC4Cn4k2O0m0Z0Xk"


@pytest.fixture
def world(api_db: Database, clock: Clock) -> World:
    return World(api_db, now=clock.now)


async def _organization(db: Database, world: World, *, balance: int = 10_000_000_000) -> OrganizationId:
    """An organization with money, made by an operator; and a price book."""
    organization_id = OrganizationId(uuid7())
    async with db.transaction() as connection:
        await organizations.create(
            connection, world, organization_id, f"org-{organization_id.hex}", gpu_quota=4
        )
        await catalogue.load_price_book(connection, world, [H100])
        if balance:
            await ledger.top_up(connection, world, organization_id, Nano(balance), key="first", approval=PAID)
    return organization_id


async def _create(
    world: World,
    organization_id: OrganizationId,
    *,
    keys: tuple[UUID, ...] | None = (),
    project: str | None = None,
    name: str | None = None,
    request: CapacityRequest = REQUEST,
    terms: LeaseTerms | None = None,
) -> Lease | Refused:
    async with world.db.transaction(organization_id) as connection:
        return await leases.create(
            connection,
            world,
            organization_id,
            WantedLease(request, name, project, ssh_key_ids=keys, terms=terms or LeaseTerms()),
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )


async def _lease(world: World, organization_id: OrganizationId) -> Lease:
    lease = await _create(world, organization_id)
    assert isinstance(lease, Lease), lease
    return lease


async def test_an_admitted_lease_holds_its_first_hour_and_its_gpus(db: Database, world: World) -> None:
    organization_id = await _organization(db, world)
    lease = await _lease(world, organization_id)
    organization = await organizations.show(world, organization_id)
    assert (organization.gpus_held, organization.held_nano) == (1, 3_600_000_000)
    shown = await lease_overviews.get(world, organization_id, lease.id, reach=EVERYWHERE)
    assert not isinstance(shown, Refused)
    assert shown.overview == Overview(lease)
    assert (shown.status.message, shown.tier) == ("Choosing a machine.", Tier.LISTED)


async def test_a_lease_keeps_the_price_the_book_and_the_request_that_it_was_admitted_with(
    db: Database, world: World
) -> None:
    lease = await _lease(world, await _organization(db, world))
    (price,) = await catalogue.skus(world)
    assert (lease.nano_per_unit_hour, lease.price_book) == (H100.nano_per_unit_hour, price.book)
    assert (lease.request, lease.purchase, lease.gpu_count) == (REQUEST, PurchaseKind.ON_DEMAND, 1)


async def test_a_balance_below_the_first_hour_is_refused(db: Database, world: World) -> None:
    refused = await _create(world, await _organization(db, world, balance=3_599_999_999))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.BALANCE_TOO_LOW


async def test_a_lease_belongs_to_the_project_that_it_names_or_to_the_default_one(
    db: Database, world: World
) -> None:
    organization_id = await _organization(db, world)
    async with world.db.transaction(organization_id) as connection:
        research = await projects.create(connection, world, organization_id, name="research")
        default = await projects.of_lease(connection, organization_id, None, reach=EVERYWHERE)
    assert not isinstance(research, Refused)
    assert not isinstance(default, Refused)
    assert (await _lease(world, organization_id)).project_id == default.id
    named = await _create(world, organization_id, project="research")
    assert isinstance(named, Lease)
    assert named.project_id == research.id
    unknown = await _create(world, organization_id, project="reserch")
    assert isinstance(unknown, Refused)
    assert unknown.code is RefusalCode.PROJECT_UNKNOWN


async def test_a_lease_takes_the_keys_that_it_names_and_an_unknown_one_is_refused(
    db: Database, world: World
) -> None:
    organization_id = await _organization(db, world)
    async with world.db.transaction(organization_id) as connection:
        key = await ssh_keys.add(
            connection, world, organization_id, name="laptop", public_key=KEY, reach=EVERYWHERE
        )
    assert not isinstance(key, Refused)
    lease = await _create(world, organization_id, keys=(key.id,))
    assert isinstance(lease, Lease)
    assert [admitted.public_key for admitted in lease.ssh_keys or ()] == [KEY]
    refused = await _create(world, organization_id, keys=(key.id, uuid7()))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SSH_KEY_UNKNOWN


async def test_releasing_a_lease_that_was_never_ready_returns_its_hold(db: Database, world: World) -> None:
    organization_id = await _organization(db, world)
    lease = await _lease(world, organization_id)
    for _ in range(2):
        async with world.db.transaction(organization_id) as connection:
            released = await leases.release(
                connection, world, organization_id, lease.id, actor=CUSTOMER, reach=EVERYWHERE
            )
        assert isinstance(released, Overview)
        assert released.lease.state is LeaseState.ENDING
    organization = await organizations.show(world, organization_id)
    assert (organization.gpus_held, organization.held_nano) == (0, 0)
    explained = await lease_overviews.explain(world, organization_id, lease.id, reach=EVERYWHERE)
    assert not isinstance(explained, Refused)
    assert [line.event for line in explained.journal] == ["admitted", "released"]
    assert {(line.actor_kind, line.actor, line.request_id) for line in explained.journal} == {
        (ActorKind.CUSTOMER, "key_1", "a-request")
    }


async def test_another_organization_finds_no_lease_of_this_one(db: Database, world: World) -> None:
    lease = await _lease(world, await _organization(db, world))
    other = await _organization(db, world)
    for found in (
        await lease_overviews.get(world, other, lease.id, reach=EVERYWHERE),
        await lease_overviews.explain(world, other, lease.id, reach=EVERYWHERE),
        await lease_overviews.journal_page(
            world, other, lease.id, position=Position(), limit=1, reach=EVERYWHERE
        ),
        await lease_overviews.watch(world, other, lease.id, position=Position(), limit=1),
    ):
        assert isinstance(found, Refused)
        assert found.code is RefusalCode.LEASE_NOT_FOUND
    async with world.db.transaction(other) as connection:
        refused = await leases.release(connection, world, other, lease.id, actor=CUSTOMER, reach=EVERYWHERE)
    assert isinstance(refused, Refused)
    assert (
        await lease_overviews.page(world, other, before=None, states=None, limit=10, reach=EVERYWHERE) == []
    )


async def test_the_name_of_a_live_lease_is_unique_in_its_project_and_free_again_after_it(
    db: Database, world: World
) -> None:
    organization_id = await _organization(db, world)
    async with world.db.transaction(organization_id) as connection:
        await projects.create(connection, world, organization_id, name="research")
    first = await _create(world, organization_id, name="train")
    assert isinstance(first, Lease)
    before = await organizations.show(world, organization_id)
    second = await _create(world, organization_id, name="train")
    assert isinstance(second, Refused)
    assert second.code is RefusalCode.NAME_TAKEN
    assert f"le_{first.id.hex}" in second.why
    assert await organizations.show(world, organization_id) == before, "nothing is held for it"
    assert isinstance(await _create(world, organization_id, name="train", project="research"), Lease)
    async with world.db.transaction(organization_id) as connection:
        await leases.release(connection, world, organization_id, first.id, actor=CUSTOMER, reach=EVERYWHERE)
    assert isinstance(await _create(world, organization_id, name="train"), Lease)


async def test_generated_names_do_not_collide_although_their_digits_are_the_same(
    db: Database, api_db: Database, clock: Clock
) -> None:
    numbers = iter(range(1, 100))

    def ends_the_same() -> UUID:
        return UUID(int=(uuid7().int >> 32 << 32) ^ (next(numbers) << 40))

    world = World(api_db, now=clock.now, new_id=ends_the_same)
    organization_id = await _organization(db, World(api_db, now=clock.now), balance=20_000_000_000)
    made = [await _lease(world, organization_id) for _ in range(3)]
    assert made[0].name == "h100x1-00000000"
    assert len({lease.name for lease in made}) == 3
    assert all(len(lease.name) <= 63 for lease in made)


async def test_a_lease_is_limited_to_no_key_to_some_or_not_at_all_and_keeps_their_names(
    db: Database, world: World
) -> None:
    organization_id = await _organization(db, world, balance=20_000_000_000)
    async with world.db.transaction(organization_id) as connection:
        key = await ssh_keys.add(
            connection, world, organization_id, name="laptop", public_key=KEY, reach=EVERYWHERE
        )
    assert not isinstance(key, Refused)
    kept = {}
    for name, keys in (("any", None), ("none", ()), ("one", (key.id,))):
        lease = await _create(world, organization_id, keys=keys)
        assert isinstance(lease, Lease), name
        kept[name] = lease.id
    await ssh_keys.delete(world, organization_id, key.id, reach=EVERYWHERE)
    admitted = AdmittedKey(key.id, "laptop", KEY, key.fingerprint)
    for name, expected in (("any", None), ("none", ()), ("one", (admitted,))):
        shown = await lease_overviews.get(world, organization_id, kept[name], reach=EVERYWHERE)
        assert not isinstance(shown, Refused)
        assert shown.overview.lease.ssh_keys == expected, name


async def test_labels_are_stored_replaced_and_found_and_a_change_is_in_the_journal(
    db: Database, world: World
) -> None:
    organization_id = await _organization(db, world)
    labelled = await _create(world, organization_id, terms=LeaseTerms(labels={"team": "vision", "run": "7"}))
    assert isinstance(labelled, Lease)
    plain = await _lease(world, organization_id)

    async def found(**labels: str) -> list[UUID]:
        page = await lease_overviews.page(
            world, organization_id, before=None, states=None, labels=labels, limit=9, reach=EVERYWHERE
        )
        assert not isinstance(page, Refused)
        return [shown.overview.lease.id for shown in page]

    assert await found(team="vision") == await found(team="vision", run="7") == [labelled.id]
    assert await found(team="vision", run="8") == []
    assert await found() == [plain.id, labelled.id]
    for _ in range(2):
        shown = await leases.label(
            world, organization_id, plain.id, {"team": "speech"}, actor=CUSTOMER, reach=EVERYWHERE
        )
        assert not isinstance(shown, Refused)
        assert shown.overview.lease.labels == {"team": "speech"}
    assert await found(team="speech") == [plain.id]
    explained = await lease_overviews.explain(world, organization_id, plain.id, reach=EVERYWHERE)
    assert not isinstance(explained, Refused)
    assert [(line.event, line.why) for line in explained.journal][1:] == [
        ("labelled", "the labels are now: team=speech")
    ]
    other = await _organization(db, world)
    refused = await leases.label(world, other, plain.id, {}, actor=CUSTOMER, reach=EVERYWHERE)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.LEASE_NOT_FOUND


async def test_a_sku_that_no_provider_offers_is_refused_once_every_account_was_listed(
    db: Database, world: World, clock: Clock
) -> None:
    organization_id = await _organization(db, world)
    shape = Shape(GpuModel.H100_SXM_80GB, 2, 64, 512, 800)
    h100x2 = ListPrice(Sku("h100x2", shape, CapacityShape.VM, Tier.LISTED), Nano(1))
    async with db.transaction() as connection:
        await catalogue.load_price_book(connection, world, [H100, h100x2])
        for name in (FAKE, OTHER):
            await accounts.register(connection, name, "fake", now=clock.now())
        await catalogue_rows.replace_offers(
            connection, FAKE, [an_offer(available=False, observed_at=clock.now())], now=clock.now()
        )
        await accounts.record_refresh(connection, FAKE, now=clock.now())
    double = CapacityRequest("h100x2")
    assert isinstance(await _create(world, organization_id), Lease), "sold out: it waits"
    quote = await quotes.quote(world, organization_id, double, reach=EVERYWHERE)
    assert not isinstance(quote, Refused)
    assert not isinstance(quote.verdict, Refused), "an account that was never listed may offer it"
    async with db.transaction() as connection:
        await accounts.record_refresh(connection, OTHER, now=clock.now())
    for refused in (
        await _create(world, organization_id, request=double),
        getattr(await quotes.quote(world, organization_id, double, reach=EVERYWHERE), "verdict", None),
    ):
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.SKU_NOT_OFFERED
        assert "h100x1" in refused.why
