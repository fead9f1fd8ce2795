"""What lists of providers leave behind: evidence, strangers, offers, and where a lease failed before."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import accounts, catalogue, machines, usage
from control_plane.db.engine import Database
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LeaseId, MachineId, ProviderRef
from control_plane.domain.machine import FailReason, MachineEvent, MachineMove, MachineState
from control_plane.domain.machine import step as machine_step
from control_plane.domain.money import Nano
from control_plane.domain.placement import Failure, Offer
from control_plane.domain.sku import Shape
from control_plane.domain.sweep import Freeze, Listed
from control_plane.domain.transitions import Moved
from tests.integration.db.sample import OURS, A, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
ACCOUNT = AccountName(a_row("provider_accounts", OURS)["name"])
LEASE = LeaseId(a_row("leases", A)["id"])
MACHINE = MachineId(a_row("machines", A, 2)["id"])
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def filled(own: Database) -> Database:
    """One ready lease on a verified machine that the account listed at START."""
    async with own.transaction() as connection:
        await fill(connection, A)
        await connection.execute(text("DELETE FROM peers"))
        await connection.execute(text("DELETE FROM machines"))
        machine = a_row(
            "machines", A, 2, state="verified", asked_at=START, provider_ref="ref", sighted_at=START
        )
        await insert(connection, "machines", machine)
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
        before = await rows(connection, text("SELECT xmin, ctid FROM machines"))
    for minutes in (1, 2, 3):
        await _listed(filled, START + minutes * MINUTE)
    assert await _evidence(filled) == START + 3 * MINUTE
    async with filled.reading() as connection:
        assert await rows(connection, text("SELECT xmin, ctid FROM machines")) == before


async def test_a_missed_machine_was_last_seen_by_the_list_before(filled: Database) -> None:
    await _listed(filled, START + MINUTE)
    await _listed(filled, START + 2 * MINUTE, missed=True)
    await _listed(filled, START + 3 * MINUTE, missed=True)
    assert await _evidence(filled) == START + MINUTE
    async with filled.reading() as connection:
        (row,) = await rows(connection, text("SELECT missed_since, missed_lists FROM machines"))
    assert tuple(row) == (START + 2 * MINUTE, 2)


async def test_a_machine_that_is_listed_again_is_evident_again(filled: Database) -> None:
    await _listed(filled, START + MINUTE, missed=True)
    await _listed(filled, START + 2 * MINUTE)
    assert await _evidence(filled) == START + 2 * MINUTE
    async with filled.reading() as connection:
        (row,) = await rows(connection, text("SELECT missed_since, missed_lists FROM machines"))
    assert tuple(row) == (None, 0)


async def test_a_list_that_is_not_believed_is_evidence_for_nobody(filled: Database) -> None:
    await _listed(filled, START + MINUTE)
    for minutes in (2, 9, 16):
        freeze = Freeze(START + 2 * MINUTE, minutes, "The list is empty and 1 machines should be on it.")
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
        freeze = Freeze(START, 3, "too short")
        await accounts.record_listing(connection, ACCOUNT, asked_at=START, size=4, foreign=1, freeze=freeze)
        account = await accounts.get(connection, ACCOUNT)
        assert (account.failing_since, account.freeze, account.listing_size) == (None, freeze, 4)


async def test_an_account_registered_again_keeps_what_is_known_of_it(filled: Database) -> None:
    async with filled.transaction() as connection:
        before = await accounts.get(connection, ACCOUNT)
        await accounts.register(connection, ACCOUNT, "another", now=START + MINUTE)
        assert await accounts.get(connection, ACCOUNT) == before


# Strangers.


async def _seen(database: Database, at: datetime, *refs: str) -> dict[str, tuple[datetime, int]]:
    listed = [(Listed(ref, f"key of {ref}"), "running") for ref in refs]
    async with database.transaction() as connection:
        await accounts.see_strangers(connection, ACCOUNT, listed, asked_at=at)
        known = await accounts.strangers(connection, ACCOUNT)
    return {one.provider_ref: (one.first_seen_at, one.lists_seen) for one in known}


async def test_a_stranger_is_counted_while_it_is_listed_and_forgotten_when_it_is_not(own: Database) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
    assert await _seen(own, START, "one", "two") == {"one": (START, 1), "two": (START, 1)}
    assert await _seen(own, START + MINUTE, "two", "three") == {
        "two": (START, 2),
        "three": (START + MINUTE, 1),
    }
    assert await _seen(own, START + 2 * MINUTE, "one") == {"one": (START + 2 * MINUTE, 1)}
    assert await _seen(own, START + 3 * MINUTE) == {}


async def test_strangers_of_another_account_are_its_own(own: Database) -> None:
    other = AccountName("other")
    async with own.transaction() as connection:
        for name in (ACCOUNT, other):
            await accounts.register(connection, name, "a", now=START)
            await accounts.see_strangers(connection, name, [(Listed("one", "k"), "running")], asked_at=START)
        await accounts.see_strangers(connection, other, [], asked_at=START)
        assert [one.provider_ref for one in await accounts.strangers(connection, ACCOUNT)] == ["one"]
        assert await accounts.strangers(connection, other) == []
        assert [row["account"] for row in await accounts.strangers_shown(connection)] == [ACCOUNT]


async def test_what_was_tried_on_a_stranger_is_kept_from_the_first_time_on(own: Database) -> None:
    async with own.transaction() as connection:
        await accounts.register(connection, ACCOUNT, "a", now=START)
        await accounts.see_strangers(connection, ACCOUNT, [(Listed("one", "k"), "running")], asked_at=START)
        for minutes, note in ((1, "could not be ended"), (2, "ended")):
            at = START + minutes * MINUTE
            await accounts.note_stranger(connection, ACCOUNT, ProviderRef("one"), note=note, now=at)
        (shown,) = await accounts.strangers_shown(connection)
    assert (shown["terminate_asked_at"], shown["note"]) == (START + MINUTE, "ended")


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


# Where a lease failed before.


async def _fails(
    database: Database, number: int, reason: FailReason, at: datetime, *, gone_at: datetime | None
) -> None:
    """An attempt on one offer that began at `at` less a minute, failed at `at`, and was gone later or not yet."""
    row = a_row(
        "machines",
        A,
        number,
        state="booting",
        asked_at=at,
        offer_key="offer",
        created_at=at - MINUTE,
        step_at=at - MINUTE,
    )
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM peers"))
        await connection.execute(text("DELETE FROM machines WHERE state IN ('intended', 'verified')"))
        await insert(connection, "machines", row)
        for state, event, when in (
            (MachineState.BOOTING, MachineEvent.FAILED, at),
            (MachineState.TERMINATING, MachineEvent.CONFIRMED_GONE, gone_at),
        ):
            moved = machine_step(state, event)
            assert isinstance(moved, Moved)
            if when is None:
                continue
            failed = event is MachineEvent.FAILED
            move = MachineMove(
                MachineId(row["id"]),
                1 if failed else 2,
                moved,
                why="a test",
                fail_reason=reason if failed else None,
                gone_evidence=None if failed else "it says so",
            )
            assert await machines.move(connection, [move], actor="test", now=when)


async def _failures(database: Database) -> dict[str, Failure]:
    async with database.reading() as connection:
        return (await machines.failures(connection, [LEASE])).get(LEASE, {})


async def test_an_attempt_failed_when_it_was_given_up_and_not_when_its_last_step_was(
    filled: Database,
) -> None:
    at = START + 20 * MINUTE
    await _fails(filled, 3, FailReason.NEVER_BOOTED, at, gone_at=None)
    assert await _failures(filled) == {"offer": Failure(FailReason.NEVER_BOOTED, at)}


async def test_a_machine_that_takes_long_to_go_does_not_hide_a_later_failure(filled: Database) -> None:
    # The first attempt never booted and was gone an hour later; the second showed the wrong GPUs meanwhile.
    await _fails(filled, 3, FailReason.NEVER_BOOTED, START + 20 * MINUTE, gone_at=START + 80 * MINUTE)
    wrong = START + 30 * MINUTE
    await _fails(filled, 4, FailReason.GPU_MISMATCH, wrong, gone_at=START + 31 * MINUTE)
    assert await _failures(filled) == {"offer": Failure(FailReason.GPU_MISMATCH, wrong)}


async def test_a_lease_without_failures_has_none(filled: Database) -> None:
    assert await _failures(filled) == {}
