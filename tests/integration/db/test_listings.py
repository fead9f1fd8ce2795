"""What lists of providers leave behind: evidence, orphans, offers, and where a lease failed before."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import accounts, attempts, catalogue, machines, offer_blocks, orphans, usage
from control_plane.db.engine import Database
from control_plane.db.offer_cache import OfferCache
from control_plane.domain.attempt import Attempt, AttemptOutcome
from control_plane.domain.block import block_after
from control_plane.domain.failure import FailReason
from control_plane.domain.freeze import Freeze
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LaunchKey, LeaseId, MachineId, ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.orphan import Held, HeldCode
from control_plane.domain.placement import Failure, Offer
from control_plane.domain.sku import Shape
from tests.integration.db.sample import OURS, A, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows
from tests.support.values import a_ref, a_sighting

pytestmark = pytest.mark.database
ACCOUNT = AccountName(a_row("provider_accounts", OURS)["name"])
LEASE = LeaseId(a_row("leases", A)["id"])
MACHINE = MachineId(a_row("machines", A)["id"])
MINUTE = timedelta(minutes=1)
MISSED = text("SELECT missed_since, missed_lists FROM machines WHERE provider_ref = 'ref'")


@pytest.fixture
async def filled(own: Database) -> Database:
    """One ready lease on a verified machine that the account listed at START."""
    async with own.transaction() as connection:
        await fill(connection, A)
        await connection.execute(
            text("""
            UPDATE machines SET state = 'verified', asked_at = :at, provider_ref = 'ref', sighted_at = :at
            WHERE id = :id
            """),
            {"at": START, "id": MACHINE},
        )
        await connection.execute(text("UPDATE claims SET admitted_at = :at"), {"at": START})
        await connection.execute(text("UPDATE leases SET state = 'ready', ready_at = :at"), {"at": START})
    await _listed(own, START)
    return own


async def _listed(
    database: Database, at: datetime, *, missed: bool = False, freeze: Freeze | None = None
) -> None:
    """One listing as the observing loop writes it; on a frozen account no absence is recorded."""
    async with database.transaction() as connection:
        if missed and freeze is None:
            await machines.record_missed(connection, [MACHINE], asked_at=at)
        if not missed:
            await machines.record_sighted(connection, [MACHINE], asked_at=at)
        await accounts.record_listing(connection, ACCOUNT, asked_at=at, size=1, foreign=0, freeze=freeze)


async def _evidence(database: Database) -> datetime | None:
    """When the machine was last listed: as shown, and as billed."""
    async with database.transaction() as connection:
        shown = await machines.get(connection, MACHINE)
        (billed,) = await usage.take_meters(connection, hour=START + timedelta(days=1), limit=10)
    assert shown is not None
    assert shown.sighted_at == billed.evidence_at
    return billed.evidence_at


async def test_a_steady_machine_is_evident_without_a_write_to_its_row(filled: Database) -> None:
    async with filled.reading() as connection:
        before = await rows(connection, text("SELECT xmin, ctid FROM machines ORDER BY id"))
    for minutes in (1, 2, 3):
        await _listed(filled, START + minutes * MINUTE)
    assert await _evidence(filled) == START + 3 * MINUTE
    async with filled.reading() as connection:
        assert await rows(connection, text("SELECT xmin, ctid FROM machines ORDER BY id")) == before


async def test_a_missed_machine_was_last_seen_by_the_list_before(filled: Database) -> None:
    await _listed(filled, START + MINUTE)
    await _listed(filled, START + 2 * MINUTE, missed=True)
    await _listed(filled, START + 3 * MINUTE, missed=True)
    assert await _evidence(filled) == START + MINUTE
    async with filled.reading() as connection:
        (row,) = await rows(connection, MISSED)
    assert tuple(row) == (START + 2 * MINUTE, 2)


async def test_a_machine_that_is_listed_again_is_evident_again(filled: Database) -> None:
    await _listed(filled, START + MINUTE, missed=True)
    await _listed(filled, START + 2 * MINUTE)
    assert await _evidence(filled) == START + 2 * MINUTE
    async with filled.reading() as connection:
        (row,) = await rows(connection, MISSED)
    assert tuple(row) == (None, 0)


async def test_a_list_that_is_not_believed_is_evidence_for_nobody(filled: Database) -> None:
    await _listed(filled, START + MINUTE)
    for minutes in (2, 9, 16):
        freeze = Freeze(START + 2 * MINUTE, minutes, "The list is empty and 1 machines should be on it.", 1)
        await _listed(filled, START + minutes * MINUTE, missed=True, freeze=freeze)
    assert await _evidence(filled) == START + MINUTE, "billed for time in which no list showed the machine"
    # Believed at last: the machine was last seen before the freeze.
    await _listed(filled, START + 17 * MINUTE, missed=True)
    assert await _evidence(filled) == START + MINUTE
    await _listed(filled, START + 18 * MINUTE)
    assert await _evidence(filled) == START + 18 * MINUTE


async def test_a_late_answer_does_not_take_evidence_back(filled: Database) -> None:
    await _listed(filled, START + 5 * MINUTE)
    await _listed(filled, START + MINUTE)
    assert await _evidence(filled) == START + 5 * MINUTE


async def test_a_listing_ends_a_failure_and_remembers_its_freeze(filled: Database) -> None:
    async with filled.transaction() as connection:
        for minutes in (1, 2):
            why = f"Unavailable: {minutes}"
            await accounts.record_failure(connection, ACCOUNT, why=why, now=START + minutes * MINUTE)
        failing = await accounts.get(connection, ACCOUNT)
        assert (failing.failing_since, failing.failing_why) == (START + MINUTE, "Unavailable: 2")
        freeze = Freeze(START, 3, "too short", 5)
        await accounts.record_listing(connection, ACCOUNT, asked_at=START, size=4, foreign=1, freeze=freeze)
        account = await accounts.get(connection, ACCOUNT)
        assert (account.failing_since, account.freeze, account.listing_size) == (None, freeze, 4)


async def test_an_account_registered_again_keeps_what_is_known_of_it(filled: Database) -> None:
    async with filled.transaction() as connection:
        before = await accounts.get(connection, ACCOUNT)
        await accounts.register(connection, ACCOUNT, "another", now=START + MINUTE)
        assert await accounts.get(connection, ACCOUNT) == before


# Orphans.


async def _seen(
    database: Database, at: datetime, *numbers: int, believed: bool = True
) -> dict[str, tuple[datetime, int]]:
    listed = [a_sighting(number) for number in numbers]
    async with database.transaction() as connection:
        await orphans.see(connection, ACCOUNT, listed, believed=believed, asked_at=at)
        known = await orphans.of_account(connection, ACCOUNT)
    return {orphan.provider_ref: (orphan.first_seen_at, orphan.lists_seen) for orphan in known}


async def _gone(database: Database) -> dict[str, datetime | None]:
    async with database.reading() as connection:
        found = await orphans.page(connection, gone=True, after=None, limit=9)
    return {orphan.provider_ref: orphan.gone_at for orphan in found}


async def test_an_orphan_is_counted_while_it_is_listed_and_anew_when_it_is_listed_again(
    own: Database,
) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
    assert await _seen(own, START, 1, 2) == {"ref-1": (START, 1), "ref-2": (START, 1)}
    assert await _seen(own, START + MINUTE, 2, 3) == {"ref-2": (START, 2), "ref-3": (START + MINUTE, 1)}
    assert await _seen(own, START + 2 * MINUTE, 1) == {"ref-1": (START + 2 * MINUTE, 1)}
    assert await _seen(own, START + 3 * MINUTE) == {}
    gone = {"ref-1": START + 3 * MINUTE, "ref-2": START + 2 * MINUTE, "ref-3": START + 2 * MINUTE}
    assert await _gone(own) == gone
    assert list(await _gone(own)) == ["ref-1", "ref-2", "ref-3"], "those that went last come first"


async def test_pages_of_orphans_of_any_size_are_the_whole_list(own: Database) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
    for minutes, numbers in ((0, range(1, 9)), (1, range(3, 9)), (2, range(4, 9)), (3, range(5, 9))):
        await _seen(own, START + minutes * MINUTE, *numbers)
    whole = ["ref-5", "ref-6", "ref-7", "ref-8", "ref-4", "ref-3", "ref-1", "ref-2"]
    for gone, expected in ((True, whole), (False, whole[:4])):
        for limit in range(1, 10):
            found, after = [], None
            async with own.reading() as connection:
                while page := await orphans.page(connection, gone=gone, after=after, limit=limit):
                    assert len(page) <= limit
                    found += [orphan.provider_ref for orphan in page]
                    after = page[-1].place
            assert found == expected, (gone, limit)


async def test_a_list_that_is_not_believed_ends_no_orphan(own: Database) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
    await _seen(own, START, 1)
    assert await _seen(own, START + MINUTE, believed=False) == {"ref-1": (START, 1)}
    assert await _gone(own) == {"ref-1": None}


async def test_an_orphan_that_a_record_adopts_was_none_and_leaves_no_record(filled: Database) -> None:
    listed = replace(a_sighting(), provider_ref=ProviderRef("ref"))
    async with filled.transaction() as connection:
        await orphans.see(connection, ACCOUNT, [listed], believed=True, asked_at=START)
        await orphans.see(connection, ACCOUNT, [], believed=True, asked_at=START + MINUTE)
    assert "ref" not in await _gone(filled)


async def test_an_orphan_that_is_gone_is_erased_when_its_time_is_over_and_a_listed_one_never(
    own: Database,
) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
    for minutes, numbers in ((0, (1, 2, 3)), (1, (2, 3)), (2, (3,))):
        await _seen(own, START + minutes * MINUTE, *numbers)
    async with own.transaction() as connection:
        assert await orphans.forget(connection, before=START + 2 * MINUTE, limit=10) == 1
    assert set(await _gone(own)) == {"ref-2", "ref-3"}
    async with own.transaction() as connection:
        assert await orphans.forget(connection, before=START + 60 * MINUTE, limit=10) == 1
    assert set(await _gone(own)) == {"ref-3"}


async def test_orphans_of_another_account_are_its_own(own: Database) -> None:
    other = AccountName("other")
    async with own.transaction() as connection:
        for name in (ACCOUNT, other):
            await accounts.register(connection, name, "a", now=START)
            await orphans.see(connection, name, [a_sighting()], believed=True, asked_at=START)
        await orphans.see(connection, other, [], believed=True, asked_at=START)
        assert [orphan.provider_ref for orphan in await orphans.of_account(connection, ACCOUNT)] == ["ref-1"]
        assert await orphans.of_account(connection, other) == []
        (orphan,) = await orphans.page(connection, gone=False, after=None, limit=9)
    assert orphan.account == ACCOUNT


async def test_an_orphan_that_a_record_claimed_since_the_last_list_is_passed_over(filled: Database) -> None:
    """By the machine's reference, or by its launch key while the answer to its launch is lost."""
    key = LaunchKey("sp-00000000-" + "c" * 32)
    claim = text("UPDATE machines SET provider_ref = :ref, launch_key = :key, state = :state WHERE id = :id")
    for ref, launch_key, state, claimed in (
        (None, "other", "launching", False),
        (None, key, "launching", True),
        (None, key, "gone", False),
        ("ref-1", "other", "verified", True),
        ("ref-1", "other", "gone", False),
        ("another", key, "verified", False),
    ):
        async with filled.transaction() as connection:
            listed = a_sighting(launch_key=key)
            await orphans.see(connection, ACCOUNT, [listed], believed=True, asked_at=START)
            await connection.execute(text("UPDATE machines SET gone_evidence = 'x', gone_at = created_at"))
            values = {"id": MACHINE, "ref": ref, "key": launch_key, "state": state}
            await connection.execute(claim, values)
            found = [orphan.provider_ref for orphan in await orphans.of_account(connection, ACCOUNT)]
        assert found == ([] if claimed else ["ref-1"]), (ref, launch_key, state)


async def test_what_holds_an_orphan_back_is_stored_for_its_account_and_while_it_is_listed(
    own: Database,
) -> None:
    other = AccountName("other")
    watched, many = Held(HeldCode.WATCHED, "watched"), Held(HeldCode.TOO_MANY, "many")
    async with own.transaction() as connection:
        for name in (ACCOUNT, other):
            await accounts.register(connection, name, "a", now=START)
            listed = [a_sighting(number) for number in (1, 2, 3)]
            await orphans.see(connection, name, listed, believed=True, asked_at=START)
            await orphans.hold(connection, name, dict.fromkeys(map(a_ref, (1, 2, 3)), watched))
        await orphans.see(connection, ACCOUNT, listed[:2], believed=True, asked_at=START + MINUTE)
        await orphans.hold(connection, ACCOUNT, {a_ref(1): many, a_ref(3): many})
        found = await orphans.page(connection, gone=True, after=None, limit=9)
    assert {(orphan.account, orphan.provider_ref): orphan.held_code for orphan in found} == {
        (ACCOUNT, "ref-1"): HeldCode.TOO_MANY,
        (ACCOUNT, "ref-2"): None,
        (ACCOUNT, "ref-3"): HeldCode.WATCHED,
        **dict.fromkeys([(other, f"ref-{number}") for number in (1, 2, 3)], HeldCode.WATCHED),
    }, "one that is not named is not held; one that is gone keeps its last reason"


async def test_what_was_tried_on_an_orphan_is_kept_from_the_first_time_on(own: Database) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
        listed = a_sighting(native_status="odd")
        await orphans.see(connection, ACCOUNT, [listed], believed=True, asked_at=START)
        for minutes, note in ((1, "could not be terminated"), (2, "terminated")):
            at = START + minutes * MINUTE
            await orphans.ask(connection, ACCOUNT, ProviderRef("ref-1"), now=at)
            await orphans.note(connection, ACCOUNT, ProviderRef("ref-1"), note=note)
        (shown,) = await orphans.page(connection, gone=False, after=None, limit=9)
    assert (shown.terminate_asked_at, shown.note) == (START + MINUTE, "terminated")
    assert (shown.launch_key, shown.native_status) == (listed.launch_key, "odd")


# Offers.

OFFER = Offer(
    key="a:native:gpu",
    account=ACCOUNT,
    provider="a",
    region="eu-central-1",
    native_region="native",
    native_type="gpu",
    shape=Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100),
    capacity="vm",
    cost_nano_per_hour=Nano(7),
    available=True,
    confidence="live",
    observed_at=START,
)


async def _offered(database: Database, at: datetime, *listed: Offer) -> list[Offer]:
    async with database.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
        await catalogue.replace_offers(connection, ACCOUNT, listed, now=at)
        return await catalogue.offers(connection)


async def test_offers_come_back_as_they_were_listed(own: Database) -> None:
    assert await _offered(own, START, OFFER) == [OFFER]


async def test_an_offer_that_is_no_longer_listed_stays_unavailable_with_its_age(own: Database) -> None:
    other = replace(OFFER, key="b", cost_nano_per_hour=Nano(9))
    await _offered(own, START, OFFER, other)
    later = START + MINUTE
    assert await _offered(own, later, replace(other, observed_at=later)) == [
        replace(OFFER, available=False),
        replace(other, observed_at=later),
    ]
    assert [offer.available for offer in await _offered(own, later)] == [False, False]
    assert (await _offered(own, later, OFFER))[0].available


@pytest.mark.parametrize(
    "change",
    [
        {"region": "us-east-1"},
        {"capacity": "baremetal"},
        {"shape": Shape(GpuModel.H100_PCIE_80GB, 4, 1, 2, 3)},
        {"cost_nano_per_hour": Nano(8)},
        {"available": False},
        {"confidence": "static"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_an_offer_listed_anew_is_what_the_list_says_now(own: Database, change: dict[str, Any]) -> None:
    await _offered(own, START, OFFER)
    changed = replace(OFFER, observed_at=START + MINUTE, **change)
    assert await _offered(own, START + MINUTE, changed) == [changed]


async def test_a_list_of_one_account_does_not_touch_the_offers_of_another(own: Database) -> None:
    other = replace(OFFER, key="other", account="other")
    async with own.transaction() as connection:
        await accounts.register(connection, AccountName("other"), "a", now=START)
        await catalogue.replace_offers(connection, AccountName("other"), [other], now=START)
    assert other in await _offered(own, START + MINUTE)


async def test_the_cache_has_what_the_table_has_whatever_is_refreshed_or_removed(own: Database) -> None:
    cache, other = OfferCache(), AccountName("other")
    shape = OFFER.shape

    async def refresh(account: AccountName, at: datetime, *listed: Offer) -> None:
        async with own.transaction() as connection:
            await accounts.register(connection, account, "a", now=START)
            await catalogue.replace_offers(connection, account, listed, now=at)
            await accounts.record_refresh(connection, account, now=at)

    async def same() -> int:
        async with own.reading() as connection:
            table = await catalogue.offers_of_shape(connection, shape.gpu_model, shape.gpu_count)
            for _ in range(2):
                lots = await cache.lots(connection, shape.gpu_model, shape.gpu_count)
                cached = [offer for lot in lots for offer in lot.offers]
                assert sorted(cached, key=str) == sorted(table, key=str)
        return len(table)

    assert await same() == 0
    await refresh(ACCOUNT, START, OFFER)
    assert await same() == 1
    await refresh(other, START, replace(OFFER, key="other", account=other))
    assert await same() == 2
    for minute, cost in ((1, 5), (2, 9)):
        await refresh(
            other, START + minute * MINUTE, replace(OFFER, key="other", cost_nano_per_hour=Nano(cost))
        )
        assert await same() == 2
    await refresh(ACCOUNT, START + 3 * MINUTE)
    assert await same() == 2, "it is listed no longer, and stays as sold out"
    async with own.transaction() as connection:
        await connection.execute(text("DELETE FROM offers WHERE account = 'other'"), {})
        await connection.execute(
            text("UPDATE provider_accounts SET removed_at = :at WHERE name = 'other'"), {"at": START}
        )
    assert await same() == 1


# What is not ordered because orders were refused.


async def test_a_block_is_stored_once_for_its_machine_and_deleted_after_its_end(filled: Database) -> None:
    async with filled.transaction() as connection:
        await offer_blocks.forget(connection, ACCOUNT, now=START)  # That of the sample.
        for at in (START, START + MINUTE):
            block = block_after(OFFER, FailReason.NO_CAPACITY, now=at)
            assert block is not None
            await offer_blocks.insert(connection, MACHINE, block)
        (stored,) = await offer_blocks.in_force(connection, now=START + MINUTE)
        assert (stored.machine_id, stored.since, stored.reason) == (MACHINE, START, FailReason.NO_CAPACITY)
        assert (stored.scope, stored.native_type) == ("offer", OFFER.native_type)
        for account, now, deleted in (
            (ACCOUNT, stored.until - MINUTE, 0),
            (AccountName("other"), stored.until, 0),
            (ACCOUNT, stored.until, 1),
        ):
            assert await offer_blocks.forget(connection, account, now=now) == deleted
        assert await offer_blocks.in_force(connection, now=START) == []


# Where a lease failed before.


async def _fails(
    database: Database, number: int, reason: FailReason, at: datetime, *, offer: str = "offer"
) -> None:
    """An attempt on an offer that began a minute before `at`, and failed then."""
    attempt = Attempt(LEASE, number, MACHINE, offer, at - MINUTE, None, None, None, None)
    async with database.transaction() as connection:
        await attempts.insert(connection, [attempt])
        await attempts.fail(connection, LEASE, number, reason, "a test", now=at)


async def _failures(database: Database) -> dict[str, Failure]:
    async with database.reading() as connection:
        return (await attempts.failures(connection, [LEASE])).get(LEASE, {})


async def test_a_lease_without_failures_has_none(filled: Database) -> None:
    assert await _failures(filled) == {}


async def test_an_attempt_failed_when_it_was_given_up_however_long_its_machine_takes_to_go(
    filled: Database,
) -> None:
    at = START + 20 * MINUTE
    await _fails(filled, 2, FailReason.NEVER_BOOTED, at)
    gone = {"state": "gone", "gone_evidence": "it says so", "gone_at": at + 60 * MINUTE}
    async with filled.transaction() as connection:
        await insert(connection, "machines", a_row("machines", A, 2, asked_at=START, **gone))
    assert await _failures(filled) == {"offer": Failure(FailReason.NEVER_BOOTED, at)}


async def test_the_latest_failure_on_an_offer_counts(filled: Database) -> None:
    wrong = START + 30 * MINUTE
    await _fails(filled, 2, FailReason.NEVER_BOOTED, START + 20 * MINUTE)
    await _fails(filled, 3, FailReason.GPU_MISMATCH, wrong)
    await _fails(filled, 4, FailReason.NO_CAPACITY, wrong + MINUTE, offer="another")
    assert await _failures(filled) == {
        "offer": Failure(FailReason.GPU_MISMATCH, wrong, times=2),
        "another": Failure(FailReason.NO_CAPACITY, wrong + MINUTE),
    }


async def test_an_attempt_whose_customer_was_admitted_keeps_its_outcome_when_its_machine_is_lost(
    filled: Database,
) -> None:
    async with filled.transaction() as connection:
        await attempts.close(connection, [LEASE], AttemptOutcome.ADMITTED, now=START)
        await attempts.fail(connection, LEASE, 1, FailReason.VANISHED, "a test", now=START + MINUTE)
        (attempt,) = await attempts.of_leases(connection, [LEASE])
    assert (attempt.outcome, attempt.ended_at) == (AttemptOutcome.ADMITTED, START)
    assert (attempt.fail_reason, attempt.fail_why) == (FailReason.VANISHED, "a test")
