"""Organizations that are suspended and closed while the cloud lives: nothing is lost, and nothing lives on."""

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from control_plane.db import ledger, organization_events
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.organization import OrganizationEvent, OrganizationState
from control_plane.domain.request import LeaseTerms
from control_plane.outcomes.organizations import settle
from providers.fake import Fault
from reconciler.loops.money.close_organizations import STUCK_AFTER
from tests.support.rows import rows
from tests.support.stage import OPERATOR, Stage

pytestmark = pytest.mark.database

S = OrganizationState
HOUR = 3_600
_BALANCE = text("SELECT posted_nano, held_nano, gpus_held FROM standings WHERE organization_id = :id")
_CHARGED = text(
    "SELECT CAST(coalesce(sum(amount_nano), 0) AS bigint) AS nano FROM charges WHERE organization_id = :id"
)


async def _state(stage: Stage, organization_id: OrganizationId) -> OrganizationState:
    return (await stage.organization_row(organization_id)).state


async def _busy(stage: Stage) -> tuple[OrganizationId, dict[str, Lease]]:
    """An organization with a lease that runs, one that starts, one that waits, and one that is being released."""
    organization_id = await stage.organization()
    leases = {name: await stage.lease(organization_id, name=name) for name in ("running", "releasing")}
    for lease in leases.values():
        await stage.play_until(lease, "ready")
    await stage.play(10 * 60, step=60)
    leases["starting"] = await stage.lease(organization_id, name="starting")
    await stage.play_until(leases["starting"], "starting")
    await stage.release(leases["releasing"])
    leases["waiting"] = await stage.lease(organization_id, name="waiting")
    return organization_id, leases


async def _closes(stage: Stage, organization_id: OrganizationId, *, minutes_max: int = 60) -> None:
    for _ in range(minutes_max):
        await stage.round()
        if await _state(stage, organization_id) is S.CLOSED:
            return
        stage.clock.advance(60)
    raise AssertionError(f"{await _state(stage, organization_id)} after {minutes_max} minutes")


async def _check_books(stage: Stage, organization_id: OrganizationId) -> None:
    """Everything is charged and posted, nothing is held, and the record states the balance."""
    async with stage.db.reading() as connection:
        (standing,) = await rows(connection, _BALANCE, id=organization_id)
        (charged,) = await rows(connection, _CHARGED, id=organization_id)
        totals = await ledger.totals(connection, organization_id)
        settled = await organization_events.latest(connection, organization_id, OrganizationEvent.SETTLED)
    assert (standing.held_nano, standing.gpus_held) == (0, 0)
    assert standing.posted_nano == 1_000 * 10**9 - charged.nano
    assert charged.nano > 0
    assert sum(totals.values()) == 0
    assert settled is not None
    assert (settled.balance_nano, settled.held_nano) == (standing.posted_nano, 0)


@pytest.mark.parametrize(
    ("faults", "minutes", "step"),
    [
        # The account is frozen.
        ({"inventory": Fault.EMPTY_LISTING, "terminate": Fault.LOST_WITHOUT_EFFECT}, 8, 1),
        ({"inventory": Fault.LISTING_FAILS}, 90, 5),
        ({"terminate": Fault.LOST_WITHOUT_EFFECT}, 90, 5),
    ],
)
async def test_an_organization_closed_while_its_provider_is_away_is_closed_when_it_returns(
    stage: Stage, faults: dict[str, Fault], minutes: int, step: int
) -> None:
    neighbour = await stage.organization()  # Whose machines are missed in a list that is empty.
    neighbours = [await stage.lease(neighbour) for _ in range(3)]
    organization_id, leases = await _busy(stage)
    for call, fault in faults.items():
        stage.cloud.faults.always(call, fault)
    ended = await stage.close_organization(organization_id)
    assert (ended.waiting_leases, ended.starting_leases, ended.ready_leases, ended.ending_leases) == (
        1,
        1,
        1,
        1,
    )
    closed_at = stage.clock.now()
    assert stage.cloud.alive()
    for _ in range(minutes // step):
        await stage.round()
        stage.clock.advance(60 * step)
    await stage.check()
    assert await _state(stage, organization_id) is S.CLOSING, "a machine may still be alive"
    (report,) = await stage.run("close_organizations")
    assert any("leases have not ended" in error for error in report.errors) is (minutes > 60), report.errors
    await stage.run("read_figures")
    since = REGISTRY.get_sample_value(
        "splitplane_organizations_unfinished_since_timestamp_seconds", {"state": "closing"}
    )
    assert since == closed_at.timestamp()

    stage.cloud.faults.clear()
    await _closes(stage, organization_id)
    alive = {machine.launch_key for machine in stage.cloud.alive()}
    serving = {machine.launch_key for lease in neighbours for machine in await stage.machines(lease)}
    assert alive == serving, "gone by the provider's own inventory, and nobody else's"
    for name, lease in leases.items():
        row = await stage.lease_row(lease)
        reason = EndReason.RELEASED if name == "releasing" else EndReason.ORGANIZATION_CLOSED
        assert (row.state, row.end_reason) == ("ended", reason), name
        assert row.billed_until is None or row.billed_until <= closed_at, "nobody pays for our wait"
    await _check_books(stage, organization_id)
    assert [await stage.state(lease) for lease in neighbours] == ["ready"] * 3
    await stage.finish()


async def test_an_organization_without_anything_open_is_closed_within_seconds(stage: Stage) -> None:
    organization_id = await stage.organization()
    await stage.close_organization(organization_id)
    (report,) = await stage.run("close_organizations")
    assert (report.acted_on, report.errors) == (1, [])
    assert await _state(stage, organization_id) is S.CLOSED
    (report,) = await stage.run("close_organizations")
    assert report.looked_at == 0


async def test_books_with_anything_open_are_not_closed_whoever_asks(stage: Stage) -> None:
    organization_id = await stage.organization()
    await stage.lease(organization_id)
    for _ in range(2):  # An open organization, and one that is closing.
        async with stage.db.transaction() as connection:
            assert not await settle(connection, organization_id, actor=OPERATOR, now=stage.clock.now())
        await stage.close_organization(organization_id)
    assert await _state(stage, organization_id) is S.CLOSING
    await _closes(stage, organization_id)


async def test_an_organization_is_not_closed_before_its_last_usage_is_posted(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    await stage.play(10 * 60, step=60)
    await stage.close_organization(organization_id)
    money = {"meter_usage", "rate_usage"}
    await stage.play(10 * 60, step=30, without=money)
    assert await stage.state(lease) == "ended"
    assert await _state(stage, organization_id) is S.CLOSING
    await stage.run("meter_usage")
    await stage.run("close_organizations")
    assert await _state(stage, organization_id) is S.CLOSING, "an interval is not rated"
    await stage.run("rate_usage")
    await stage.run("close_organizations")
    assert await _state(stage, organization_id) is S.CLOSED
    await _check_books(stage, organization_id)


async def test_what_keeps_an_organization_from_being_closed_is_reported_after_an_hour(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    await stage.close_organization(organization_id)
    (report,) = await stage.run("close_organizations")
    assert report.errors == []
    stage.clock.advance(STUCK_AFTER.total_seconds() + 1)
    (report,) = await stage.run("close_organizations")
    (error,) = report.errors
    assert "has been closing for 1:00:01: 1 leases have not ended" in error
    await _closes(stage, organization_id)


async def test_a_suspended_organization_runs_on_what_is_held_and_not_longer(stage: Stage) -> None:
    organization_id = await stage.organization(usd=1_000)
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    ready_at = stage.clock.now()
    await stage.suspend_organization(organization_id)
    await stage.play(50 * 60, step=60)
    assert await stage.state(lease) == "ready", "the hour that was set aside is the customer's"
    await stage.play_until(lease, "ended", seconds_max=900, step=15)
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.UNFUNDED
    assert row.end_why is not None
    assert "suspended" in row.end_why
    assert row.billed_until is not None
    assert (row.billed_until - ready_at).total_seconds() < HOUR
    await stage.check()


async def test_a_lease_of_an_organization_that_is_resumed_in_time_runs_on(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    await stage.suspend_organization(organization_id)
    await stage.play(40 * 60, step=120)
    await stage.resume_organization(organization_id)
    await stage.play(2 * HOUR, step=300)
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_nothing_is_bought_for_a_suspended_organization_until_it_is_resumed(stage: Stage) -> None:
    organization_id, other = await stage.organization(), await stage.organization()
    waiting = await stage.lease(organization_id)
    await stage.suspend_organization(organization_id)
    foreign = await stage.lease(other)
    await stage.play_until(foreign, "ready")
    row = await stage.lease_row(waiting)
    assert (row.state, row.attempts) == ("placing", 0)
    assert row.waiting_why is not None
    assert "suspended" in row.waiting_why
    await stage.resume_organization(organization_id)
    await stage.play_until(waiting, "ready")
    await stage.finish()


async def test_a_lease_of_a_suspended_organization_gives_up_when_it_waited_long_enough(stage: Stage) -> None:
    organization_id = await stage.organization()
    waiting = await stage.lease(organization_id, terms=LeaseTerms(wait_timeout_seconds=600))
    await stage.suspend_organization(organization_id)
    await stage.play_until(waiting, "ended", seconds_max=900, step=10)
    row = await stage.lease_row(waiting)
    assert row.end_reason is EndReason.NO_CAPACITY
    assert row.end_why is not None
    assert "suspended" in row.end_why


async def test_a_suspension_that_ends_leases_ends_all_of_them_at_once(stage: Stage) -> None:
    organization_id, leases = await _busy(stage)
    ended = await stage.suspend_organization(organization_id, end_leases=True)
    assert (ended.waiting_leases, ended.starting_leases, ended.ready_leases) == (1, 1, 1)
    await stage.play(10 * 60, step=30)
    assert set((await stage.states()).values()) == {"ended"}
    assert not stage.cloud.alive()
    assert (await stage.lease_row(leases["running"])).end_reason is EndReason.ORGANIZATION_SUSPENDED
    assert await _state(stage, organization_id) is S.SUSPENDED
    await stage.check_finished()


async def test_a_deleted_organization_is_erased_once(stage: Stage) -> None:
    organization_id = await stage.organization()
    name = (await stage.organization_row(organization_id)).name
    await stage.close_organization(organization_id)
    await stage.run("erase_organizations")
    await stage.run("close_organizations")
    await stage.delete_organization(organization_id)
    (report,) = await stage.run("erase_organizations")
    assert report.acted_on == 1
    erased = await stage.organization_row(organization_id)
    assert erased.name != name
    assert erased.erased_at == stage.clock.now()
    (report,) = await stage.run("erase_organizations")
    assert report.looked_at == 0
