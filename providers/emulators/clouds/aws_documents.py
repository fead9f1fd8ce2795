"""Answers of EC2 that moto has not, or has otherwise."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from xml.sax.saxutils import escape

REQUEST_ID = "9c0ab5f1-0000-4000-8000-000000000000"


def ended_before(instance: str, name: str, code: int) -> bytes:
    """EC2's answer for a machine whose end was accepted before: nothing changes. moto fails there."""
    state = f"<code>{code}</code><name>{name}</name>"
    return (
        '<TerminateInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>{REQUEST_ID}</requestId><instancesSet><item><instanceId>{instance}</instanceId>"
        f"<currentState>{state}</currentState><previousState>{state}</previousState>"
        "</item></instancesSet></TerminateInstancesResponse>"
    ).encode()


def console_output(instance: str, printed: str, at: datetime) -> bytes:
    """What a machine printed; moto has the same for every one."""
    return (
        '<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>{REQUEST_ID}</requestId><instanceId>{instance}</instanceId>"
        f"<timestamp>{at:%Y-%m-%dT%H:%M:%S.000Z}</timestamp>"
        f"<output>{base64.b64encode(printed.encode()).decode()}</output></GetConsoleOutputResponse>"
    ).encode()


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """Work that AWS announces about a machine."""

    id: str
    code: str
    not_before: datetime
    description: str


def instance_statuses(events: Mapping[str, Sequence[ScheduledEvent]], token: str | None) -> bytes:
    """The machines of a page, by their ids, with the events of each; moto knows no events."""
    statuses = "".join(
        f"<item><instanceId>{instance}</instanceId><eventsSet>{_events(found)}</eventsSet></item>"
        for instance, found in events.items()
    )
    following = f"<nextToken>{token}</nextToken>" if token else ""
    return (
        '<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>{REQUEST_ID}</requestId><instanceStatusSet>{statuses}</instanceStatusSet>{following}"
        "</DescribeInstanceStatusResponse>"
    ).encode()


def _events(events: Iterable[ScheduledEvent]) -> str:
    return "".join(
        f"<item><instanceEventId>{event.id}</instanceEventId><code>{event.code}</code>"
        f"<description>{escape(event.description)}</description>"
        f"<notBefore>{event.not_before:%Y-%m-%dT%H:%M:%S.000Z}</notBefore></item>"
        for event in events
    )
