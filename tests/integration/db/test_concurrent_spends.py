"""Many connections spend one balance at once: it is never overdrawn, and totals are the same whoever comes first.

What is tried is drawn at random, and each failure names the number that it was drawn with.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import text

from control_plane.db import ledger
from control_plane.db import organizations as organizations_db
from control_plane.db.engine import Database, Role
from control_plane.db.rows import read_one
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.lease import Lease
from control_plane.domain.ledger import (
    AccountKind,
    Transaction,
    TransactionKind,
    credit,
    refund,
    top_up,
    usage,
)
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.services import catalogue, organizations
from control_plane.services import leases as lease_service
from control_plane.services import ledger as ledger_service
from control_plane.services.leases import WantedLease
from control_plane.services.ledger import Deciding
from control_plane.world import uuid7
from reconciler.loops.money import fund_leases, meter_usage, rate_usage
from reconciler.world import World as LoopWorld
from tests.integration.db.leased import ACTOR, PRICE, Leased
from tests.support.clock import START, Clock
from tests.support.database import fresh_database, login_url
from tests.support.rows import rows
from tests.support.values import PAID

pytestmark = pytest.mark.database
CONNECTIONS = 6
DRAWS = 6
HOUR = PRICE.nano_per_hour
_STANDING = text("""
SELECT s.posted_nano, s.held_nano, s.transaction_count,
       (SELECT coalesce(sum(p.amount_nano), 0)::bigint FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
        WHERE p.organization_id = s.organization_id AND a.kind = 'wallet') AS wallet,
       (SELECT coalesce(sum(h.amount_nano), 0)::bigint FROM holds h WHERE h.organization_id = s.organization_id) AS held,
       (SELECT coalesce(sum(c.amount_nano), 0)::bigint FROM charges c WHERE c.organization_id = s.organization_id)
         AS charged
FROM standings s WHERE s.organization_id = :id
""")
_NUMBERS = text(
    "SELECT number, wallet_after_nano FROM transactions WHERE organization_id = :id ORDER BY number"
)
_LEASE = text("SELECT state, billed_until, ready_at FROM leases WHERE id = :id")
_ALIVE = text("UPDATE machines SET sighted_at = :now")


@pytest.fixture
async def crowd(server_url: str, template: str, clock: Clock) -> AsyncIterator[Leased]:
    """A database with as many connections as spend at once."""
    async with fresh_database(server_url, template) as url:
        db = Database(
            login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=CONNECTIONS, readers=CONNECTIONS
        )
        yield await Leased(db, clock).begin()
        await db.close()


async def _organization(crowd: Leased, balance: int) -> OrganizationId:
    organization_id = OrganizationId(uuid7())
    async with crowd.db.transaction() as connection:
        await organizations.create(
            connection, crowd.world, organization_id, organization_id.hex, gpu_quota=64
        )
        await catalogue.load_price_book(connection, crowd.world, [PRICE])
        if balance:
            paid = top_up(organization_id, Nano(balance), key="first", at=START, approval=PAID)
            await ledger.post(connection, [(uuid7(), paid)], now=crowd.clock.now())
    return organization_id


async def _lease(crowd: Leased, organization_id: OrganizationId) -> int:
    """Lease a machine, which sets an hour aside. Returns what that took of the balance."""
    async with crowd.db.transaction() as connection:
        made = await lease_service.create(
            connection,
            crowd.world,
            organization_id,
            WantedLease(CapacityRequest(PRICE.sku.name), ssh_key_ids=[]),
            actor=ACTOR,
            reach=EVERYWHERE,
        )
    if isinstance(made, Lease):
        return HOUR
    assert made.code is RefusalCode.BALANCE_TOO_LOW, made
    return 0


async def _refund(crowd: Leased, organization_id: OrganizationId, amount: int) -> int:
    deciding = Deciding(organization_id, TransactionKind.REFUND, Nano(amount), PAID, back_to=organization_id)
    async with crowd.db.transaction() as connection:
        found = await ledger_service.post(connection, crowd.world, deciding)
    if isinstance(found, Refused):
        assert found.code is RefusalCode.BALANCE_TOO_LOW
        return 0
    return amount


async def _look(crowd: Leased, organization_id: OrganizationId) -> tuple[int, int]:
    """The balance and what is held, while others spend."""
    async with crowd.db.reading() as connection:
        (found,) = await rows(connection, _STANDING, id=organization_id)
    assert found.posted_nano - found.held_nano >= 0, "more is promised than there is"
    return found.posted_nano, found.held_nano


async def _at_once(tasks: Sequence[Awaitable[int]]) -> list[int]:
    """Run them at once, on as many connections as there are."""
    free = asyncio.Semaphore(CONNECTIONS)

    async def one(task: Awaitable[int]) -> int:
        async with free:
            return await task

    return await asyncio.gather(*map(one, tasks))


@pytest.mark.parametrize("draw", range(DRAWS))
async def test_leases_and_refunds_at_once_never_take_more_than_there_is(crowd: Leased, draw: int) -> None:
    chance = random.Random(draw)
    balance = chance.randrange(0, 8 * HOUR)
    organization_id = await _organization(crowd, balance)
    spends: list[Awaitable[int]] = [_lease(crowd, organization_id) for _ in range(chance.randrange(3, 9))]
    spends += [
        _refund(crowd, organization_id, chance.randrange(1, 3 * HOUR)) for _ in range(chance.randrange(2, 8))
    ]
    chance.shuffle(spends)
    looking = asyncio.create_task(_watch(crowd, organization_id))
    taken = sum(await _at_once(spends))
    looking.cancel()
    posted, held = await _look(crowd, organization_id)
    assert balance - taken == posted - held >= 0, draw
    # What was refused did not fit: less than the smallest spend is left, or everybody got theirs.
    async with crowd.db.reading() as connection:
        (found,) = await rows(connection, _STANDING, id=organization_id)
    assert (found.wallet, found.held) == (posted, held), draw


async def _watch(crowd: Leased, organization_id: OrganizationId) -> None:
    while True:
        await _look(crowd, organization_id)


def _moves(
    chance: random.Random, organization_id: OrganizationId, project_id: ProjectId
) -> list[Transaction]:
    """Transactions of every kind that needs no decision on what there is, some of them twice."""
    moves: list[Transaction] = []
    for number in range(chance.randrange(8, 24)):
        amount, at = Nano(chance.randrange(1, 10**12)), START + timedelta(seconds=number)
        kind = chance.choice(("top_up", "usage", "credit", "refund"))
        if kind == "top_up":
            moves.append(top_up(organization_id, amount, key=str(number), at=at, approval=PAID))
        elif kind == "usage":
            moves.append(usage(organization_id, project_id, amount, charge_id=uuid7(), at=at))
        elif kind == "credit":
            moves.append(credit(organization_id, amount, key=str(number), at=at, approval=PAID))
        else:
            moves.append(refund(organization_id, amount, key=str(number), at=at, approval=PAID))
    return moves + chance.sample(moves, len(moves) // 2)


async def _post(crowd: Leased, some: Sequence[Transaction]) -> int:
    async with crowd.db.transaction() as connection:
        await organizations_db.standing(connection, some[0].organization_id, lock=True)
        posted = await ledger.post(connection, [(uuid7(), one) for one in some], now=crowd.clock.now())
    return len(posted)


@pytest.mark.parametrize("draw", range(DRAWS))
async def test_totals_are_the_same_in_whichever_order_and_batches_facts_are_posted_and_repeated(
    crowd: Leased, draw: int
) -> None:
    chance = random.Random(draw)
    organization_id = await _organization(crowd, 0)
    async with crowd.db.reading() as connection:
        project_id = await read_one(
            connection,
            text("SELECT id FROM projects WHERE organization_id = :id"),
            ProjectId,
            id=organization_id,
        )
    assert project_id is not None
    moves = _moves(chance, organization_id, project_id)
    once = {move.key: move for move in moves}
    expected: Counter[AccountKind] = Counter()
    for move in once.values():
        for posting in move.postings:
            expected[posting.kind] += posting.amount_nano
    chance.shuffle(moves)
    cuts = sorted({0, len(moves), *(chance.randrange(len(moves)) for _ in range(6))})
    batches = [moves[start:end] for start, end in pairwise(cuts)]
    assert sum(await _at_once([_post(crowd, batch) for batch in batches])) == len(once), draw
    async with crowd.db.reading() as connection:
        totals = await ledger.totals(connection, organization_id)
        numbered = await rows(connection, _NUMBERS, id=organization_id)
        (found,) = await rows(connection, _STANDING, id=organization_id)
    assert {kind: amount for kind, amount in totals.items() if amount} == {
        kind: amount for kind, amount in expected.items() if amount
    }, draw
    assert [row.number for row in numbered] == list(range(1, len(once) + 1)), draw
    assert numbered[-1].wallet_after_nano == found.posted_nano == expected[AccountKind.WALLET], draw


async def _loops(crowd: Leased, chance: random.Random) -> int:
    """One replica of the loops of money, in some order."""
    world = LoopWorld(db=crowd.db, now=crowd.clock.now, new_id=uuid7)
    loops = [fund_leases, meter_usage, rate_usage]
    chance.shuffle(loops)
    for loop in loops:
        report = await loop.activate(world)
        assert not report.errors, report.errors
    return 0


@pytest.mark.parametrize("draw", range(DRAWS))
async def test_leases_that_use_up_one_balance_end_within_one_hold_of_it(
    crowd: Leased, draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several replicas of the loops of money at once, at uneven times, until nothing of the balance is left."""
    chance = random.Random(draw)
    monkeypatch.setattr(rate_usage, "RATED_PER_ACTIVATION_MAX", 3)
    monkeypatch.setattr(fund_leases, "FUNDED_PER_ACTIVATION_MAX", 2)
    count = chance.randrange(2, 4)
    balance = count * HOUR + chance.randrange(0, 3 * HOUR)
    organization_id = await _organization(crowd, balance)
    lease_ids: list[LeaseId] = []
    for _ in range(count):
        claim = await crowd.admitted(
            await crowd.verified(await crowd.placed(await crowd.lease(organization_id)))
        )
        lease_ids.append(claim.lease_id)
    for _ in range(60):
        crowd.clock.advance(chance.randrange(20, 900))
        async with crowd.db.transaction() as connection:
            await connection.execute(_ALIVE, {"now": crowd.clock.now()})
        await asyncio.gather(*(_loops(crowd, chance) for _ in range(3)))
        async with crowd.db.reading() as connection:
            (found,) = await rows(connection, _STANDING, id=organization_id)
            states = [(await rows(connection, _LEASE, id=lease_id))[0].state for lease_id in lease_ids]
        assert found.posted_nano >= -HOUR, draw
        assert found.posted_nano - found.held_nano >= NOTHING, draw
        assert (found.wallet, found.held) == (found.posted_nano, found.held_nano), draw
        assert balance - found.charged == found.posted_nano, draw
        if set(states) == {"ending"}:
            break
    assert set(states) == {"ending"}, f"{draw}: {states}"
    for _ in range(5):
        await _loops(crowd, chance)
    async with crowd.db.reading() as connection:
        (found,) = await rows(connection, _STANDING, id=organization_id)
        ended = [(await rows(connection, _LEASE, id=lease_id))[0] for lease_id in lease_ids]
    used = sum(int((lease.billed_until - lease.ready_at).total_seconds()) * HOUR // 3_600 for lease in ended)
    assert found.charged == used, draw
    assert (found.posted_nano, found.held) == (balance - used, 0), draw
