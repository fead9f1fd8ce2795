"""The fake's own promises, on which every scenario test leans."""

from datetime import timedelta

import pytest

from providers.base import ListedState, NoCapacity, OutcomeUnknown
from providers.fake import Call, FakeProvider, Fault, Settings
from tests.contract.clouds import a_key
from tests.contract.clouds.fake import FakeCloud
from tests.support.clock import Clock

ORDER = FakeCloud().order()


def a_fake(**settings: float) -> tuple[FakeProvider, Clock]:
    clock = Clock()
    return FakeProvider(now=clock.now, settings=Settings(**settings)), clock  # type: ignore[arg-type]


async def test_the_account_pays_by_the_second_from_launch_until_terminate() -> None:
    fake, clock = a_fake()
    ref = await fake.launch(ORDER)
    clock.advance(1_800)
    await fake.terminate(ref)
    clock.advance(1_800)
    assert fake.cost_nano() == 8 * 2_090_000_000 // 2


async def test_a_launch_key_is_carried_and_not_made_unique() -> None:
    fake, _ = a_fake()
    await fake.launch(ORDER)
    await fake.launch(ORDER)
    assert fake.ever(a_key()) == 2
    assert fake.ever_by_key() == {a_key(): 2}


async def test_a_false_no_launches_all_the_same() -> None:
    fake, _ = a_fake()
    fake.faults.script("launch", Fault.FALSE_NO_CAPACITY)
    with pytest.raises(NoCapacity):
        await fake.launch(ORDER)
    assert len(fake.alive(a_key())) == 1


async def test_an_answer_lost_without_effect_leaves_nothing() -> None:
    fake, _ = a_fake()
    fake.faults.script("launch", Fault.LOST_WITHOUT_EFFECT)
    with pytest.raises(OutcomeUnknown):
        await fake.launch(ORDER)
    assert fake.ever(a_key()) == 0


async def test_faults_come_in_order_and_then_calls_succeed() -> None:
    fake, _ = a_fake()
    fake.faults.script("launch", Fault.NONE, Fault.NO_CAPACITY)
    await fake.launch(ORDER)
    with pytest.raises(NoCapacity):
        await fake.launch(ORDER)
    await fake.launch(ORDER)
    assert fake.ever(a_key()) == 2


async def test_only_time_distinguishes_lag_hiding_and_a_wrong_list() -> None:
    fake, clock = a_fake(list_lag_seconds=5.0)
    await fake.launch(ORDER)
    assert await fake.inventory() == ()
    clock.advance(5)
    (only,) = await fake.inventory()
    for fault in (Fault.EMPTY_LISTING, Fault.SHRUNKEN_LISTING):
        fake.faults.script("inventory", fault)
        assert await fake.inventory() == ()
    fake.hide(only.provider_ref)
    assert await fake.inventory() == ()
    assert len(fake.alive()) == 1
    fake.show(only.provider_ref)
    assert await fake.inventory() == (only,)


async def test_machines_die_disappear_and_stay_listed_for_a_while_after_a_terminate() -> None:
    fake, clock = a_fake(terminated_visible_seconds=60.0)
    dead, lost, ended = [await fake.launch(FakeCloud().order(number)) for number in (1, 2, 3)]
    fake.die(dead)
    fake.disappear(lost)
    await fake.terminate(ended)
    states = {each.provider_ref: each.state for each in await fake.inventory()}
    assert states == {dead: ListedState.FAILED, ended: ListedState.GONE}
    clock.advance(60)
    assert {each.provider_ref for each in await fake.inventory()} == {dead}
    assert len(fake.machines) == 3


async def test_stock_is_sold_and_comes_back() -> None:
    fake, _ = a_fake(stock=1)
    ref = await fake.launch(ORDER)
    with pytest.raises(NoCapacity):
        await fake.launch(ORDER)
    await fake.terminate(ref)
    await fake.launch(ORDER)


async def test_a_crash_after_the_effect_leaves_the_machine() -> None:
    class Crash(BaseException):
        """The process dies."""

    fake, clock = a_fake()
    seen: list[Call] = []

    def crash(call: Call) -> None:
        seen.append(call)
        raise Crash

    fake.on_call = crash
    with pytest.raises(Crash):
        await fake.launch(ORDER)
    assert seen == [Call("launch", clock.now(), a_key())]
    assert fake.ever(a_key()) == 1
    assert clock.now() - seen[0].at == timedelta()
