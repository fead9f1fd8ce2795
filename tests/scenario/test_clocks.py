"""Replicas on hosts whose clocks are wrong. All of them work with the database's time, which here is the virtual one."""

import dataclasses
from datetime import timedelta
from itertools import cycle

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.services import billing
from reconciler.loops.machines import observe_machines
from reconciler.loops.providers import refresh_offers
from tests.support.cases import case
from tests.support.clock import Clock, Host
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

HOUR = 3_600.0
_DUE = text("SELECT listing_due_at, offers_due_at FROM provider_accounts")
_TOO_EARLY = text("UPDATE leases SET billed_until = ready_at - interval '1 microsecond'")


async def _is_due_on_time(stage: Stage) -> bool:
    """Whether nobody has put off a list, or an account's offers, for longer than the loops' own interval."""
    async with stage.db.reading() as connection:
        (account,) = await rows(connection, _DUE)
    now = stage.clock.now()
    listed: bool = account.listing_due_at <= now + observe_machines.EVERY
    refreshed: bool = account.offers_due_at <= now + refresh_offers.EVERY
    return listed and refreshed


async def test_replicas_an_hour_apart_list_accounts_on_time_and_bill_to_the_second(stage: Stage) -> None:
    """Even a replica that works although its host is wrong does no harm; and it does not work: see test_runner.py."""
    organization_id = await stage.organization()
    ahead = await stage.on_a_host(Host(stage.clock, ahead=HOUR))
    behind = await stage.on_a_host(Host(stage.clock, ahead=-HOUR))
    lease = await ahead.lease(organization_id)
    turns = cycle((ahead, stage, behind))

    async def play(seconds: float, step: float) -> None:
        for _ in range(int(seconds / step)):
            await next(turns).round()
            stage.clock.advance(step)
            assert await _is_due_on_time(stage)

    while await stage.state(lease) != "ready":
        assert stage.clock.now() < lease.created_at + timedelta(minutes=10), await stage.story(lease)
        await play(2, 2)
    await play(300, 20)
    await ahead.release(lease)
    released_at = stage.clock.now()
    await play(60, 5)

    row = await stage.lease_row(lease)
    assert row.ready_at is not None
    assert row.ready_at < released_at
    assert row.billed_until == released_at
    totals = await billing.reconcile(stage.api, organization_id)
    assert totals.gpu_seconds == int((released_at - row.ready_at).total_seconds())
    await stage.finish()


async def test_a_release_right_after_the_admission_is_never_billed_before_it_began(stage: Stage) -> None:
    """The clocks of two processes differ by the error of their readings, or by 90 s in a process that is refused."""
    organization_id = await stage.organization()
    api = stage.api
    for number, behind in enumerate((0.001, 90.0)):
        with case(behind):
            lease = await stage.lease(organization_id, name=f"short-{number}")
            await stage.play_until(lease, "ready")
            late = Clock(stage.clock.now() - timedelta(seconds=behind))
            stage.api = dataclasses.replace(api, now=late.now)
            await stage.release(lease)
            stage.api = api
            row = await stage.lease_row(lease)
            assert row.ready_at is not None
            assert row.billed_until is not None
            assert row.billed_until >= row.ready_at
    with pytest.raises(IntegrityError, match="billed_no_earlier_than_ready"):
        async with stage.db.transaction() as connection:
            await connection.execute(_TOO_EARLY)
    await stage.finish()
