"""Planned work as AWS and Nebius list it: page by page, and without what is over or has no time."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from providers import aws_events
from providers.emulators.clouds.aws_documents import ScheduledEvent
from providers.nebius_api import maintenance
from tests.contract.clouds.aws import EmulatedAws
from tests.contract.clouds.nebius import EmulatedNebius
from tests.contract.test_power_laws import launched

DAYS = timedelta(days=14)


@pytest.fixture
async def aws() -> AsyncIterator[EmulatedAws]:
    made = EmulatedAws()
    yield made
    await made.provider.close()


def _later(cloud: EmulatedAws | EmulatedNebius) -> datetime:
    return cloud.clock.now().replace(microsecond=0) + DAYS


async def test_every_page_of_the_events_of_aws_is_read(
    aws: EmulatedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_events, "PAGE_SIZE", 1)
    refs = [
        await launched(aws),
        await aws.provider.launch(aws.order(2)),
        await aws.provider.launch(aws.order(3)),
    ]
    aws.advance(aws.seconds_to_run)
    for number, ref in enumerate(refs):
        aws.plan_work(ref, f"event-{number}", _later(aws))
    assert {work.provider_ref for work in await aws.provider.planned_work()} == set(refs)


@pytest.mark.parametrize("mark", ["[Completed]", "[Canceled]"])
async def test_an_event_of_aws_that_is_over_is_left_out_and_another_one_of_the_machine_is_not(
    aws: EmulatedAws, mark: str
) -> None:
    ref = await launched(aws)
    aws.advance(aws.seconds_to_run)
    aws.plan_work(ref, "event-1", _later(aws))
    over = ScheduledEvent("event-2", "system-reboot", _later(aws), f"{mark} A reboot")
    aws.account.events[aws.machine(ref).id].append(over)
    assert [work.event for work in await aws.provider.planned_work()] == ["event-1"]


async def test_every_page_of_the_events_of_nebius_and_of_its_machines_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "PAGE_SIZE", 1)
    cloud = EmulatedNebius()
    cloud.native_type = "gpu-h100-sxm/1gpu-16vcpu-200gb"
    refs = [await cloud.provider.launch(cloud.order(number)) for number in range(1, 4)]
    for number, ref in enumerate(refs[1:]):
        cloud.plan_work(ref, f"event-{number}", _later(cloud))
    works = await cloud.provider.planned_work()
    assert [(work.provider_ref, work.event) for work in works] == [(refs[1], "event-0"), (refs[2], "event-1")]


async def test_an_event_of_nebius_that_is_over_or_has_no_time_or_no_machine_is_left_out() -> None:
    cloud = EmulatedNebius()
    cloud.native_type = "gpu-h100-sxm/1gpu-16vcpu-200gb"
    refs = [await cloud.provider.launch(cloud.order(number)) for number in range(1, 5)]
    for number, ref in enumerate(refs):
        cloud.plan_work(ref, f"event-{number}", _later(cloud))
    events = cloud.account.maintenance
    events["event-0"].status.finished_at.FromDatetime(cloud.clock.now())
    events["event-1"].status.ClearField("sla_deadline_ts")
    del cloud.account.named_events[refs[2]]
    assert [work.provider_ref for work in await cloud.provider.planned_work()] == [refs[3]]
