"""What AWS announces about machines: the scheduled events of `DescribeInstanceStatus`.

Codes, times and what they mean are those of "InstanceStatusEvent" (API reference of EC2) and of "Scheduled events for
Amazon EC2 instances" (its User Guide; docs.aws.amazon.com, both read 2026-11-29). Times may change. An event that is
over is listed for up to a week more, with `[Completed]` before its description; that `[Canceled]` stands there is not
documented. A machine with volumes that is stopped and started before a stop or a retirement gets another host.
"""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from control_plane.domain.planned_work import WorkKind
from providers.aws_client import AwsClient, Operation, filter_of
from providers.aws_machines import reference
from providers.base import Page, PlannedWork, Verb
from providers.listings import reference_of, whole_listing

CODES = {
    "instance-reboot": WorkKind.REBOOT,
    "system-reboot": WorkKind.REBOOT,
    "system-maintenance": WorkKind.NETWORK_OR_POWER,
    "instance-stop": WorkKind.STOP,
    "instance-retirement": WorkKind.RETIREMENT,
}
"""Every code that EC2 has. The list is filtered by them, so that it has machines with events alone."""
OVER = ("[Completed]", "[Canceled]")
PAGE_SIZE = 1_000


async def planned_work(aws: AwsClient, region: str) -> tuple[PlannedWork, ...]:
    """What is planned on the machines of a region, stopped ones too."""

    async def page(cursor: str | None) -> Page[PlannedWork]:
        return await aws.call(
            Verb.INVENTORY,
            region,
            Operation("ec2", "describe_instance_status"),
            lambda answer: _page(region, answer),
            Filters=[filter_of("event.code", *CODES)],
            IncludeAllInstances=True,
            MaxResults=PAGE_SIZE,
            **({"NextToken": cursor} if cursor else {}),
        )

    return await whole_listing(Verb.INVENTORY, page)


def _page(region: str, answer: Mapping[str, Any]) -> Page[PlannedWork]:
    """An event without an id or a time makes a page unreadable: nothing is guessed."""
    events = [(status, event) for status in answer["InstanceStatuses"] for event in status.get("Events", ())]
    works = [_work(region, status, event) for status, event in events if not _is_over(event)]
    return Page(works, answer.get("NextToken") or None)


def _is_over(event: Mapping[str, Any]) -> bool:
    return str(event.get("Description", "")).startswith(OVER)


def _work(region: str, status: Mapping[str, Any], event: Mapping[str, Any]) -> PlannedWork:
    code = event["Code"]
    return PlannedWork(
        provider_ref=reference(region, status),
        event=reference_of(event["InstanceEventId"]),
        kind=CODES[code],
        native_kind=code,
        begins_at=event["NotBefore"].astimezone(UTC),
    )
