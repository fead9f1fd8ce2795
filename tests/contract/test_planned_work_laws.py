"""The laws of planned work, over every provider: what it announces is listed with its time, whole or not at all."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.planned_work import WorkKind
from providers.base import PlannedWork, Throttled, Unauthorized, Unavailable, Verb
from providers.guard import CALLS, Guard
from providers.optional import TellsPlannedWork
from tests.contract.clouds import Cloud, EmulatedCloud
from tests.contract.test_power_laws import every, launched

EVENT = "event-0a1b2c3d"
TELL = {"aws", "fake", "nebius"}


async def with_a_machine() -> AsyncIterator[tuple[Cloud, TellsPlannedWork, ProviderRef, datetime]]:
    """Each cloud whose provider announces its work, a machine that runs, and the time of work that is not announced."""
    async for cloud in every():
        provider = cloud.provider
        if provider.capabilities.planned_work:
            assert isinstance(provider, TellsPlannedWork), f"{cloud.name} says that it has what it has not"
            ref = await launched(cloud)
            cloud.advance(cloud.seconds_to_run)
            yield cloud, provider, ref, cloud.clock.now().replace(microsecond=0) + timedelta(days=14)


def times(works: tuple[PlannedWork, ...]) -> list[tuple[ProviderRef, str, datetime]]:
    return [(work.provider_ref, work.event, work.begins_at) for work in works]


async def test_where_nothing_is_announced_nothing_is_called() -> None:
    silent = 0
    async for cloud in every():
        if cloud.provider.capabilities.planned_work:
            continue
        assert not isinstance(cloud.provider, TellsPlannedWork), f"{cloud.name} tells and does not say it"
        if isinstance(cloud, EmulatedCloud):
            cloud.network.requests.clear()
        guard = Guard(cloud.provider, account=AccountName("any"), now=cloud.clock.now)
        assert await guard.planned_work() == ()
        if isinstance(cloud, EmulatedCloud):
            assert cloud.network.requests == [], cloud.name
        silent += 1
    assert silent > 1


async def test_work_is_listed_with_its_machine_and_time_follows_changes_and_is_listed_no_more_when_it_is_over() -> (
    None
):
    names = set[str]()
    async for cloud, provider, ref, at in with_a_machine():
        assert await provider.planned_work() == (), cloud.name
        before = await cloud.provider.inventory()
        cloud.plan_work(ref, EVENT, at)
        (work,) = await provider.planned_work()
        assert times((work,)) == [(ref, EVENT, at)], cloud.name
        assert work.begins_at.utcoffset() == timedelta(0), cloud.name
        assert (work.kind, bool(work.native_kind)) == (WorkKind.STOP, True), cloud.name
        later = at + timedelta(days=1)
        cloud.plan_work(ref, EVENT, later)
        assert times(await provider.planned_work()) == [(ref, EVENT, later)], cloud.name
        assert await cloud.provider.inventory() == before, f"{cloud.name}: it is listed as before"
        cloud.call_off_work(ref, EVENT)
        assert await provider.planned_work() == (), cloud.name
        names.add(cloud.name)
    assert names == TELL


async def test_a_list_that_fails_is_an_error_and_never_a_part_of_it() -> None:
    async for cloud, provider, ref, at in with_a_machine():
        cloud.plan_work(ref, EVENT, at)
        verb = cloud.verb_of_planned_work
        cloud.throttle(verb)
        with pytest.raises(Throttled):
            await provider.planned_work()
        for lose in (cloud.lose_the_answer, cloud.fail_after_the_effect):
            lose(verb)
            with pytest.raises(Unavailable):
                await provider.planned_work()
        assert times(await provider.planned_work()) == [(ref, EVENT, at)], cloud.name


async def test_a_revoked_key_and_a_cut_network_say_so() -> None:
    async for cloud, _, _, _ in with_a_machine():
        cloud.revoke_the_key()
        revoked = cloud.provider
        assert isinstance(revoked, TellsPlannedWork)
        with pytest.raises(Unauthorized):
            await revoked.planned_work()
    async for cloud, provider, _, _ in with_a_machine():
        cloud.cut_the_network()
        with pytest.raises(Unavailable):
            await provider.planned_work()


async def test_it_draws_from_the_budget_of_lists() -> None:
    async for cloud, _, _, _ in with_a_machine():
        account = AccountName(f"planned work at {cloud.name}")
        guard = Guard(cloud.provider, account=account, now=cloud.clock.now, sleep=cloud.clock.sleep)
        assert await guard.planned_work() == (), cloud.name
        asked = {
            sample.labels["verb"]: sample.value
            for metric in CALLS.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["account"] == account
        }
        assert asked == {Verb.INVENTORY: 1.0}, cloud.name


async def test_an_event_whose_id_is_none_makes_the_list_unreadable() -> None:
    async for cloud, provider, ref, at in with_a_machine():
        if cloud.name == "fake":
            continue  # Its ids are ours.
        for strange in ("e" * 300, "event\x7f1"):
            cloud.plan_work(ref, strange, at)
            with pytest.raises(Unavailable):
                await provider.planned_work()
            cloud.call_off_work(ref, strange)
