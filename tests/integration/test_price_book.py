"""The price book on a real database: a version for every load that changed a price, and for no other."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db.engine import Database
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from control_plane.domain.price import ListPrice, OtherPrice
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.sla import SlaTier
from control_plane.services import catalogue
from control_plane.services.catalogue import CatalogueError, parse_price_book
from control_plane.world import World
from tests.support.cases import case
from tests.support.clock import Clock

pytestmark = pytest.mark.database
ONE = ListPrice(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(2_000_000_000),
)
EIGHT = ListPrice(
    Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 900), CapacityShape.VM, Tier.PROVEN),
    Nano(1_900_000_000),
)

BRONZE, SILVER, GOLD = SlaTier


@pytest.fixture
def world(db: Database, clock: Clock) -> World:
    return World(db, now=clock.now)


async def _load(world: World, *book: ListPrice, since: datetime | None = None) -> int | None:
    loaded = await _asked(world, *book, since=since)
    assert not isinstance(loaded, Refused), loaded.why
    return loaded


async def _asked(world: World, *book: ListPrice, since: datetime | None = None) -> int | Refused | None:
    async with world.db.transaction() as connection:
        return await catalogue.load_price_book(connection, world, book, effective_from=since)


async def _in_force(world: World) -> dict[str, tuple[int, int]]:
    """Price per GPU-hour, and the version it is from, by SKU."""
    return {price.sku.name: (price.nano_per_unit_hour, price.book) for price in await catalogue.skus(world)}


async def test_a_price_names_the_version_that_it_is_from(world: World, clock: Clock) -> None:
    first = await _load(world, ONE, EIGHT)
    assert first is not None
    assert await _in_force(world) == {"h100x1": (2_000_000_000, first), "h100x8": (1_900_000_000, first)}
    clock.advance(60)
    second = await _load(world, replace(ONE, nano_per_unit_hour=Nano(2_100_000_000)), EIGHT)
    assert second is not None
    assert second > first
    assert await _in_force(world) == {"h100x1": (2_100_000_000, second), "h100x8": (1_900_000_000, first)}


async def test_a_book_in_which_no_price_changed_is_no_new_version(world: World, clock: Clock) -> None:
    version = await _load(world, ONE, EIGHT)
    clock.advance(60)
    assert await _load(world, ONE, EIGHT) is None
    assert await _load(world, EIGHT) is None
    assert await _load(world, replace(EIGHT, sku=replace(EIGHT.sku, proof=Tier.LISTED))) is None
    assert {book for _, book in (await _in_force(world)).values()} == {version}
    demanded = {price.sku.name: price.sku.proof for price in await catalogue.skus(world)}
    assert demanded["h100x8"] is Tier.LISTED, "new leases go by what the book demands now"


async def test_a_price_that_comes_back_is_a_new_version_again(world: World, clock: Clock) -> None:
    versions = []
    for nano in (2, 3, 2):
        versions.append(await _load(world, replace(ONE, nano_per_unit_hour=Nano(nano))))
        clock.advance(60)
    assert len({version for version in versions if version is not None}) == 3
    assert await _in_force(world) == {"h100x1": (2, versions[-1])}


async def test_the_price_while_stopped_is_a_part_of_the_price(world: World, clock: Clock) -> None:
    same = await _load(world, ONE)
    clock.advance(60)
    cheaper = replace(ONE, stopped_nano_per_unit_hour=Nano(1))
    first = await _load(world, cheaper)
    assert first is not None
    assert first != same
    assert await _load(world, cheaper) is None
    assert {price.stopped_nano for price in await catalogue.skus(world)} == {1}


async def test_a_region_has_its_own_price_until_a_book_leaves_it_out(world: World, clock: Clock) -> None:
    dear = OtherPrice("eu", Nano(2_500_000_000))
    first = await _load(world, replace(ONE, others=(dear,)))
    clock.advance(60)
    assert await _load(world, replace(ONE, others=(dear,))) is None
    (price,) = await catalogue.skus(world)
    assert price.within("eu-central-1", BRONZE).nano_per_unit_hour == 2_500_000_000
    second = await _load(world, replace(ONE, nano_per_unit_hour=Nano(2_600_000_000), others=(dear,)))
    (price,) = await catalogue.skus(world)
    assert (price.book, price.within("eu", BRONZE).book, price.within("us", BRONZE).book) == (
        second,
        first,
        second,
    )
    clock.advance(60)
    await _load(world, replace(ONE, nano_per_unit_hour=Nano(2_600_000_000)))
    (price,) = await catalogue.skus(world)
    assert (price.others, price.within("eu", BRONZE).nano_per_unit_hour) == ((), 2_600_000_000)


async def test_a_tier_has_its_own_price_until_a_book_leaves_it_out(world: World, clock: Clock) -> None:
    with_gold = replace(
        ONE,
        others=(
            OtherPrice("eu", Nano(2_200_000_000)),
            OtherPrice(None, Nano(2_500_000_000), Nano(7), sla=GOLD),
            OtherPrice("eu", Nano(2_700_000_000), sla=GOLD),
        ),
    )
    first = await _load(world, with_gold)
    clock.advance(60)
    assert await _load(world, with_gold) is None
    (price,) = await catalogue.skus(world)
    found = [
        (price.within(region, sla).nano_per_unit_hour, price.within(region, sla).stopped_nano)
        for region in (None, "us", "eu-central-1")
        for sla in (SILVER, GOLD)
    ]
    assert found == [
        (2_000_000_000, 2_000_000_000),
        (2_500_000_000, 7),
        (2_000_000_000, 2_000_000_000),
        (2_500_000_000, 7),
        (2_200_000_000, 2_200_000_000),
        (2_700_000_000, 2_700_000_000),
    ]
    dearer = replace(
        with_gold, others=(*with_gold.others[:2], replace(with_gold.others[2], nano_per_unit_hour=Nano(3)))
    )
    second = await _load(world, dearer)
    (price,) = await catalogue.skus(world)
    assert (price.within("eu", GOLD).book, price.within(None, GOLD).book) == (second, first)
    clock.advance(60)
    third = await _load(world, replace(ONE, others=(OtherPrice("eu", Nano(2_200_000_000)),)))
    (price,) = await catalogue.skus(world)
    assert price.within("eu", GOLD) == price.within("eu", BRONZE), "its price is that of all tiers again"
    assert third is not None
    clock.advance(60)
    assert await _load(world, with_gold) is not None


async def test_a_term_has_its_own_price_and_its_days_are_a_part_of_it(world: World, clock: Clock) -> None:
    term = replace(
        ONE,
        committed_nano_per_unit_hour=Nano(1_500_000_000),
        committed_days=365,
        others=(
            OtherPrice("eu", Nano(2_200_000_000)),
            OtherPrice(None, Nano(2_500_000_000), sla=GOLD, committed_nano_per_unit_hour=Nano(1_900_000_000)),
        ),
    )
    first = await _load(world, term)
    clock.advance(60)
    assert await _load(world, term) is None
    (price,) = await catalogue.skus(world)
    found = [
        price.within(region, sla).bought(PurchaseKind.COMMITTED)
        for region in (None, "eu")
        for sla in (BRONZE, GOLD)
    ]
    assert [(each.nano_per_unit_hour, each.term_days) for each in found if each is not None] == [
        *((1_500_000_000, 365), (1_900_000_000, 365)),
        *((1_500_000_000, 365), (1_900_000_000, 365)),
    ]
    second = await _load(world, replace(term, committed_days=180))
    assert second != first
    clock.advance(60)
    third = await _load(world, ONE)
    assert third is not None
    (price,) = await catalogue.skus(world)
    assert price.bought(PurchaseKind.COMMITTED) is None


def test_a_fault_in_the_price_for_a_term_is_one_sentence() -> None:
    sku = "[[sku]]\n" + "".join(f"{name} = {value}\n" for name, value in _SKU.items())
    good = 'committed_usd_per_gpu_hour = "1.2"\ncommitted_days = 365\n'
    gold = '[[sku.tier]]\ntier = "gold"\nusd_per_gpu_hour = "1.75"\ncommitted_usd_per_gpu_hour = "1.3"\n'
    (price,) = parse_price_book(sku + good + gold)
    assert (price.committed_nano_per_unit_hour, price.committed_days) == (1_200_000_000, 365)
    assert price.others[0].committed_nano_per_unit_hour == 1_300_000_000
    for term, part in (
        ('committed_usd_per_gpu_hour = "1.2"\n', "the field 'committed_days' is missing"),
        ("committed_days = 365\n", "the price for a term is missing"),
        (gold, "the price for a term is missing"),
        (good.replace("365", "0"), "'committed_days' must be a whole number from 1 to 1,100"),
        (good.replace("365", "1101"), "'committed_days' must be a whole number from 1 to 1,100"),
        (good.replace("1.2", "1.6"), "a lease for a term must not cost more than one on demand"),
        (good + gold + "committed_days = 30\n", "a tier has no field 'committed_days'"),
        (good + gold.replace("1.3", "1.1"), "gold would cost 1.100000000 USD for its term, less than silver"),
        (
            good.replace("365", "1100") + '[[sku.region]]\nregion = "eu"\nusd_per_gpu_hour = "999999"\n',
            "a term of 1,100 days would cost more than the ledger can hold",
        ),
    ):
        with case(term):
            with pytest.raises(CatalogueError) as refused:
                parse_price_book(sku + term)
            assert part in str(refused.value)


async def test_the_database_knows_the_tiers_and_no_price_of_spot_for_one(world: World) -> None:
    version = await _load(world, ONE)

    async def put(sla: str, spot: int | None) -> None:
        async with world.db.transaction() as connection:
            await connection.execute(_TIER, {"book": version, "sla": sla, "spot": spot})

    with pytest.raises(DBAPIError, match="ck_prices_sla_known"):
        await put("platinum", None)
    with pytest.raises(DBAPIError, match="ck_prices_nothing_is_promised_with_spot"):
        await put("gold", 1)


_TIER = text("""
INSERT INTO prices (sku, region, sla, effective_from, price_book, nano_per_unit_hour, spot_nano_per_unit_hour)
VALUES ('h100x1', 'anywhere', :sla, now(), :book, 5, :spot)
""")


async def test_a_book_comes_into_force_at_its_time_and_none_is_loaded_before_it(
    world: World, clock: Clock
) -> None:
    now = await _load(world, ONE)
    tomorrow = clock.now() + timedelta(days=1)
    dearer, other = (replace(ONE, nano_per_unit_hour=Nano(nano)) for nano in (3, 4))
    later = await _load(world, dearer, since=tomorrow)
    assert await _in_force(world) == {"h100x1": (2_000_000_000, now)}
    for since, code in (
        (None, RefusalCode.PRICE_OVERLAPS),
        (tomorrow, RefusalCode.PRICE_OVERLAPS),
        (clock.now() - timedelta(seconds=1), RefusalCode.PRICE_IN_PAST),
    ):
        refused = await _asked(world, other, since=since)
        assert isinstance(refused, Refused)
        assert refused.code is code
    clock.advance(86_400)
    assert await _in_force(world) == {"h100x1": (3, later)}


async def test_a_book_is_withdrawn_before_it_is_in_force_and_never_after(world: World, clock: Clock) -> None:
    now = await _load(world, ONE)
    tomorrow = clock.now() + timedelta(days=1)
    later = await _load(world, replace(ONE, nano_per_unit_hour=Nano(3)), since=tomorrow)
    for version, code in (
        (later, None),
        (later, RefusalCode.NOT_FOUND),
        (now, RefusalCode.PRICE_IN_PAST),
    ):
        assert version is not None
        async with world.db.transaction() as connection:
            refused = await catalogue.withdraw_price_book(connection, world, version)
        assert (None if refused is None else refused.code) is code
    clock.advance(86_400)
    assert await _in_force(world) == {"h100x1": (2_000_000_000, now)}


def test_a_book_that_names_a_sku_twice_is_refused() -> None:
    entry = """
[[sku]]
name = "h100x1"
gpu_model = "h100-sxm-80gb"
gpu_count = 1
vcpus = 8
memory_gib = 64
disk_gib = 100
usd_per_gpu_hour = "2.00"
"""
    assert len(parse_price_book(entry)) == 1
    with pytest.raises(CatalogueError, match="SKU number 2: there is another 'h100x1' before it"):
        parse_price_book(entry * 2)


def test_a_fault_in_the_price_of_a_region_is_one_sentence_that_names_the_field() -> None:
    sku = "[[sku]]\n" + "".join(f"{name} = {value}\n" for name, value in _SKU.items())
    good = '[[sku.region]]\nregion = "eu"\nusd_per_gpu_hour = "1.75"\n'
    (price,) = parse_price_book(sku + good)
    assert price.others == (OtherPrice("eu", Nano(1_750_000_000)),)
    for regions, part in (
        ('region = "eu"\n', "write [[sku.region]]"),
        (good.replace('"eu"', '"Europe"'), "'region' is 'Europe', and must be a region or a jurisdiction"),
        (good.replace('"1.75"', '"-1"'), "'usd_per_gpu_hour' must not be negative"),
        (good.replace("region = ", "place = "), "a region has no field 'place'"),
        (good + 'stopped_usd_per_gpu_hour = "2"\n', "that is stopped must not cost more"),
        (good + good, "there is another price for the region 'eu' before it"),
    ):
        with case(regions):
            with pytest.raises(CatalogueError) as refused:
                parse_price_book(sku + regions)
            assert part in str(refused.value)


def test_a_fault_in_the_price_of_a_tier_is_one_sentence_that_names_the_field() -> None:
    sku = "[[sku]]\n" + "".join(f"{name} = {value}\n" for name, value in _SKU.items())
    good = '[[sku.tier]]\ntier = "gold"\nusd_per_gpu_hour = "1.75"\n'
    in_eu = good + 'region = "eu"\n'
    (price,) = parse_price_book(sku + good + in_eu)
    assert price.others == (
        OtherPrice(None, Nano(1_750_000_000), sla=GOLD),
        OtherPrice("eu", Nano(1_750_000_000), sla=GOLD),
    )
    for tiers, part in (
        ('tier = "gold"\n', "write [[sku.tier]]"),
        (
            good.replace('"gold"', '"platinum"'),
            "'tier' is 'platinum', and must be one of bronze, gold, silver",
        ),
        (good.replace('"1.75"', '"-1"'), "'usd_per_gpu_hour' must not be negative"),
        (good + 'spot_usd_per_gpu_hour = "1"\n', "a tier has no field 'spot_usd_per_gpu_hour'"),
        (good + 'stopped_usd_per_gpu_hour = "2"\n', "that is stopped must not cost more"),
        (good + good, "there is another price for the tier 'gold' before it"),
        (in_eu + in_eu, "there is another price for the tier 'gold' in 'eu' before it"),
        (
            good.replace('"1.75"', '"1.49"'),
            "gold would cost 1.490000000 USD, less than silver with 1.500000000 USD",
        ),
        (good.replace("gold", "silver"), "gold would cost 1.500000000 USD, less than silver"),
        (good + '[[sku.region]]\nregion = "eu"\nusd_per_gpu_hour = "1.76"\n', "gold in eu would cost"),
    ):
        with case(tiers):
            with pytest.raises(CatalogueError) as refused:
                parse_price_book(sku + tiers)
            assert part in str(refused.value)
            assert "\n" not in str(refused.value)


_SKU = {
    "name": '"x"',
    "gpu_model": '"l4-24gb"',
    "gpu_count": "1",
    "vcpus": "1",
    "memory_gib": "1",
    "disk_gib": "1",
    "usd_per_gpu_hour": '"1.5"',
}
_CPUS = {"gpu_count": "0", "gpu_model": "", "usd_per_gpu_hour": "", "usd_per_machine_hour": '"0.40"'}
"""What a SKU without GPUs has instead; a field without a value is left out."""
_NO_COUNTS = ('"1"', "1.5", "true", "-1", "inf", "3000000000")


def test_a_fault_in_a_price_book_is_one_sentence_that_names_the_field() -> None:
    changed: list[tuple[dict[str, str], str]] = [
        *(({field: ""}, f"the field {field!r} is missing") for field in _SKU),
        *(({field: bad}, repr(field)) for field in ("gpu_count", "vcpus", "disk_gib") for bad in _NO_COUNTS),
        *(
            ({field: bad}, field)
            for field in ("name", "gpu_model", "usd_per_gpu_hour")
            for bad in ("1", "[]", '""')
        ),
        ({"gpu_count": "0"}, "'gpu_model' must be left out where 'gpu_count' is 0"),
        ({**_CPUS, "usd_per_gpu_hour": '"1"'}, "is 'usd_per_machine_hour', and not 'usd_per_gpu_hour'"),
        ({**_CPUS, "usd_per_machine_hour": ""}, "the field 'usd_per_machine_hour' is missing"),
        ({**_CPUS, "proof": '"proven"'}, "without GPUs nothing can be proven"),
        ({**_CPUS, "proof": '"attested"'}, "without GPUs nothing can be proven"),
        ({"usd_per_machine_hour": '"1"'}, "is 'usd_per_gpu_hour', and not 'usd_per_machine_hour'"),
        ({"gpu_model": '"l4"'}, "'gpu_model' is 'l4', and must be one of"),
        ({"capacity": '"container"'}, "'capacity' is 'container', and must be one of"),
        ({"proof": '"none"'}, "'proof' is 'none', and must be one of"),
        ({"usd_per_gpu_hour": '"-1"'}, "'usd_per_gpu_hour' must not be negative"),
        ({"usd_per_gpu_hour": '"much"'}, "not an amount in US dollars"),
        ({"stopped_usd_per_gpu_hour": '"1.51"'}, "that is stopped must not cost more"),
        ({"stopped_usd_per_gpu_hour": '"-1"'}, "'stopped_usd_per_gpu_hour' must not be negative"),
        ({**_CPUS, "stopped_usd_per_gpu_hour": '"0.1"'}, "and not 'stopped_usd_per_gpu_hour'"),
        ({"usd_per_hour": '"1"'}, "there is no field 'usd_per_hour'"),
    ]
    texts = [
        (
            "[[sku]]\n" + "".join(f"{name} = {value}\n" for name, value in (_SKU | fields).items() if value),
            part,
        )
        for fields, part in changed
    ]
    for text_of_book, part in [
        *texts,
        ("sku = 5", "[[sku]]"),
        ("[sku]\nname = 1", "[[sku]]"),
        ("sku", "not TOML"),
    ]:
        with case(text_of_book):
            with pytest.raises(CatalogueError) as refused:
                parse_price_book(text_of_book)
            assert part in str(refused.value)
            assert "\n" not in str(refused.value)
