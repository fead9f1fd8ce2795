"""Conditions of leases that enforcement finds, as tests bring them about."""

from datetime import timedelta

from control_plane.db import claims, enforcement
from control_plane.db.enforcement import NewAction
from control_plane.domain.enforcement import (
    Basis,
    Case,
    Detector,
    EnforcementAction,
    Present,
    WatchedLease,
)
from control_plane.domain.ids import EnforcementActionId, FindingId
from control_plane.domain.lease import Lease
from control_plane.world import uuid7
from data_plane.documents.sample import Gpu, Server
from tests.support import machine_samples
from tests.support.stage import Stage

FULL = Gpu(0, memory_total_mib=80_000, memory_used_mib=79_600, utilisation_percent=95)


async def full_memory(stage: Stage, lease: Lease) -> None:
    """The machine of a lease has said for 75 s that its memory is full."""
    server = Server(8000, "vllm", kv_cache_bp=9_900, running=8, waiting=3)
    for seconds in (75, 60, 45, 30, 15, 0):
        await machine_samples.sent(stage, lease, FULL, servers=(server,), ago=timedelta(seconds=seconds))


async def taken(
    stage: Stage,
    lease: Lease,
    *,
    detector: Detector = Detector.KV_CACHE_GROWTH,
    action: EnforcementAction = EnforcementAction.STOP_ADMISSION,
    armed: bool = True,
    lasts: timedelta = timedelta(minutes=15),
) -> EnforcementActionId:
    """An action about a lease that was taken a minute ago."""
    machine = (await stage.machines(lease))[-1]
    at = stage.clock.now() - timedelta(minutes=1)
    async with stage.db.transaction() as connection:
        (claim,) = await claims.open_of_machine(connection, machine.id)
        watched = WatchedLease(
            lease_id=lease.id,
            claim_id=claim.id,
            machine_id=machine.id,
            organization_id=lease.organization_id,
            project_id=lease.project_id,
            account=machine.account,
            region=machine.region,
            tier=lease.sla,
            priority=50,
            created_at=at,
        )
        present = Present(at, "it holds", Basis.CLAIM)
        finding = FindingId(uuid7())
        case = Case(watched, detector, present, None)
        assert await enforcement.open_finding(connection, finding, case, since=at, why="it holds", now=at)
        made = EnforcementActionId(uuid7())
        await enforcement.take(
            connection,
            NewAction(
                id=made,
                finding_id=finding,
                action=action,
                armed=armed,
                at=at,
                expires_at=at + lasts,
                planned_at=None,
                basis=Basis.CLAIM,
                why="it holds",
                evidence={},
                rules="0" * 16,
            ),
        )
    return made
