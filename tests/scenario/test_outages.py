"""Who pays after an outage of the reconciler: nobody more than was set aside, whichever loop comes back first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import permutations

import pytest
from sqlalchemy import text

from control_plane.db import organizations
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import NANO_PER_USD
from control_plane.domain.tariff import billing_start
from control_plane.services import billing
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

HOURS_AWAY = 3
MONEY = ("meter_usage", "rate_usage", "fund_leases")
_NOTES = text("SELECT why FROM journal WHERE lease_id = :id AND event = 'use_not_billed'")
_CHARGED = text("SELECT coalesce(sum(unit_seconds), 0)::bigint AS seconds FROM charges WHERE lease_id = :id")


@dataclass(frozen=True)
class _Paid:
    """What a customer has, and what became of their leases."""

    balance_nano: int
    ends: tuple[EndReason | None, ...]
    seconds: tuple[int, ...]
    """The unit-seconds that were charged for each lease."""


async def _ready(stage: Stage, *, usd: int, count: int) -> list[Lease]:
    """Leases on one H100 each, of one organization, at 3.60 USD an hour."""
    organization_id = await stage.organization(usd=usd)
    return [await stage.lease(organization_id, name=f"{usd} USD {n}") for n in range(count)]


async def _charged(stage: Stage, lease: Lease) -> int:
    async with stage.db.reading() as connection:
        return int((await rows(connection, _CHARGED, id=lease.id))[0].seconds)


async def _not_billed(stage: Stage, lease: Lease) -> list[str]:
    async with stage.db.reading() as connection:
        return [row.why for row in await rows(connection, _NOTES, id=lease.id)]


async def _balance(stage: Stage, organization_id: OrganizationId) -> int:
    async with stage.db.reading() as connection:
        organization = await organizations.get(connection, organization_id)
    assert organization is not None
    assert organization.posted_nano >= 0, "the balance is overdrawn"
    return organization.posted_nano


async def _paid(stage: Stage, leases: Sequence[Lease]) -> _Paid:
    return _Paid(
        balance_nano=await _balance(stage, leases[0].organization_id),
        ends=tuple([(await stage.lease_row(lease)).end_reason for lease in leases]),
        seconds=tuple([await _charged(stage, lease) for lease in leases]),
    )


async def _after_an_outage(stage: Stage, order: Sequence[str]) -> list[_Paid]:
    """Three hours without any loop, then the loops of money in this order until nothing changes."""
    poor = await _ready(stage, usd=4, count=1)
    rich = await _ready(stage, usd=100, count=1)
    share_enough_for_one = await _ready(stage, usd=20, count=2)
    one_is_released = await _ready(stage, usd=17, count=2)
    groups = (poor, rich, share_enough_for_one, one_is_released)
    for lease in [lease for group in groups for lease in group]:
        await stage.play_until(lease, "ready", seconds_max=120)
    stage.clock.advance(600)
    await stage.release(one_is_released[1])
    stage.clock.advance(HOURS_AWAY * 3_600)
    await stage.run("observe_machines")
    for _ in range(2):
        for loop in order:
            await stage.run(loop)
            await stage.check()
    await stage.release_all()
    for _ in range(2):
        for loop in order:
            await stage.run(loop)
            await stage.check()
    return [await _paid(stage, group) for group in groups]


async def test_it_does_not_matter_which_loop_comes_back_first(stage: Stage) -> None:
    found = {order: await _after_an_outage(stage, order) for order in permutations(MONEY)}
    expected = found[MONEY]
    for order, paid in found.items():
        assert paid == expected, order
    poor, rich, shared, released = expected
    assert poor.ends == (EndReason.UNFUNDED,)
    assert poor.seconds == (3_600,), "no more than the hour that was set aside"
    assert rich.ends == (EndReason.RELEASED,)
    assert rich.seconds[0] > HOURS_AWAY * 3_600, (
        "the machine ran all the time, and its customer has the money"
    )
    assert shared.ends == (EndReason.RELEASED, EndReason.UNFUNDED)
    assert shared.seconds[0] > HOURS_AWAY * 3_600
    assert shared.seconds[1] == 3_600
    assert released.ends == (EndReason.RELEASED, EndReason.RELEASED)
    assert released.seconds[0] > HOURS_AWAY * 3_600, (
        "what the released lease no longer needs pays for the other"
    )


async def test_a_release_while_no_hold_is_renewed_is_billed_until_the_money_was_used_up(
    stage: Stage,
) -> None:
    (lease,) = await _ready(stage, usd=100, count=1)
    await stage.play_until(lease, "ready", seconds_max=120)
    ready_at = (await stage.lease_row(lease)).ready_at
    assert ready_at is not None
    until = billing_start(ready_at) + timedelta(hours=1)
    await stage.play(HOURS_AWAY * 3_600, step=600, without={"fund_leases"})
    used = int((stage.clock.now() - until).total_seconds())
    await stage.release(lease)
    assert (await stage.lease_row(lease)).billed_until == until
    (why,) = await _not_billed(stage, lease)
    assert f"{used} s of use ({used / 1_000:.9f} USD) are not billed" in why
    await stage.finish()
    assert await _balance(stage, lease.organization_id) == 100 * NANO_PER_USD - 3_600_000_000
    assert await _charged(stage, lease) == 3_600


async def test_operators_read_what_an_outage_cost_us(stage: Stage) -> None:
    (lease,) = await _ready(stage, usd=4, count=1)
    await stage.play_until(lease, "ready", seconds_max=120)
    stage.clock.advance(HOURS_AWAY * 3_600)
    (report,) = await stage.run("fund_leases")
    (note,) = report.notes
    assert "USD of use beyond its hold is not billed." in note
    (why,) = await _not_billed(stage, lease)
    assert why.endswith("are not billed: the money set aside for the lease was used up")
    await stage.finish()


async def test_an_end_in_time_leaves_nothing_unbilled(stage: Stage) -> None:
    (lease,) = await _ready(stage, usd=4, count=1)
    await stage.play_until(lease, "ending", seconds_max=4_000, step=60)
    assert (await stage.lease_row(lease)).end_reason is EndReason.UNFUNDED
    assert await _not_billed(stage, lease) == []
    await stage.finish()


async def test_the_meter_waits_for_a_hold_that_nobody_renews_and_goes_on_once_it_is(stage: Stage) -> None:
    (lease,) = await _ready(stage, usd=100, count=1)
    await stage.play_until(lease, "ready", seconds_max=120)
    await stage.play(HOURS_AWAY * 3_600, step=600, without={"fund_leases"})
    assert 0 < await _charged(stage, lease) <= 3_600
    (line,) = (await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)).lines
    assert line.unit_seconds + line.unrated_unit_seconds == 3_600, "the bill follows the same rule"
    await stage.check()
    await stage.play(60, step=20)
    assert await _charged(stage, lease) > 2 * 3_600
    await stage.finish()
