"""Which events of a watch are a reason to look at a cluster."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from control_plane.domain.ids import OrganizationId, ProjectId
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Change, ChangeKind, Snapshot
from data_plane.cluster.resource import NODE_POOL, POD, Object, Resource
from reconciler import scaling_watch
from reconciler.cluster_tenants import tenant_of
from tests.support import scaling

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
TENANT: Tenant = tenant_of(OrganizationId(UUID(int=1)), ProjectId(UUID(int=2)))


def stored(thing: Object, uid: str = "1", **metadata: Any) -> Object:
    return {**thing, "metadata": {**thing["metadata"], "uid": uid, **metadata}}


def pool(**spec: Any) -> Object:
    return stored(scaling.node_pool("ns", **spec))


def pod(uid: str = "1", **more: Any) -> Object:
    return {**stored(scaling.pending(TENANT, "trainer", AT), uid), **more}


async def looks(resource: Resource, events: Sequence[Snapshot | Change]) -> list[bool]:
    """For each event, whether it leads to a look."""
    changed, found = asyncio.Event(), list[bool]()

    async def come() -> AsyncGenerator[Snapshot | Change, None]:
        for event in events:
            yield event
            found.append(changed.is_set())
            changed.clear()

    await scaling_watch.look_out(come(), resource, changed)
    return found


async def test_a_change_of_what_is_asked_for_leads_to_a_look_and_our_own_words_do_not() -> None:
    told = {**pool(), "status": {"nodes": 1}}
    deleted = stored(told, deletionTimestamp="2026-11-28T12:00:00Z")
    events: list[tuple[Snapshot | Change, bool]] = [
        (Snapshot((pool(),)), True),
        (Change(ChangeKind.MODIFIED, told), False),
        (Change(ChangeKind.MODIFIED, pool(nodes=2)), True),
        (Change(ChangeKind.MODIFIED, deleted), True),
        (Change(ChangeKind.DELETED, deleted), True),
    ]
    assert await looks(NODE_POOL, [event for event, _ in events]) == [expected for _, expected in events]


async def test_a_pod_counts_once_when_the_scheduler_finds_no_node_for_it() -> None:
    young = pod(status={"phase": "Pending"})
    events: list[tuple[Snapshot | Change, bool]] = [
        (Snapshot(()), True),
        (Change(ChangeKind.ADDED, young), False),
        (Change(ChangeKind.MODIFIED, pod()), True),
        (Change(ChangeKind.MODIFIED, pod()), False),
        (Change(ChangeKind.DELETED, pod()), False),
        (Change(ChangeKind.ADDED, pod("2")), True),
    ]
    assert await looks(POD, [event for event, _ in events]) == [expected for _, expected in events]


async def test_a_list_after_events_were_missed_leads_to_a_look_if_it_is_another_one() -> None:
    same = {**pool(), "status": {"nodes": 1}}
    events = [Snapshot((pool(),)), Snapshot((same,)), Snapshot((pool(nodes=2),)), Snapshot(())]
    assert await looks(NODE_POOL, events) == [True, False, True, True]
