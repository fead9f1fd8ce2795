"""Business figures in which every metric has a sample."""

from datetime import UTC, datetime

from control_plane.db.cluster_figures import ClusterFigures, PoolCount
from control_plane.db.figures import (
    AccountFigures,
    LeaseCount,
    Liability,
    MachineCount,
    OrganizationCount,
    UnratedMoney,
)
from control_plane.db.repair_figures import RepairCount, RepairFigures, UnhealthyCount
from control_plane.db.sla_credits import Undecided
from control_plane.db.warm_pool_figures import WarmPoolFigures
from control_plane.domain.cluster import ClusterState
from control_plane.domain.health import Verdict
from control_plane.domain.ids import AccountName
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.node_pool import NodePoolState
from control_plane.domain.organization import OrganizationState
from control_plane.domain.repair import RepairStep
from reconciler.figures import Audit, Figures, Reconciled

AT = datetime(2026, 1, 1, tzinfo=UTC)
ACCOUNT = AccountName("fake")
SAMPLE_FIGURES = Figures(
    at=AT,
    leases=[LeaseCount(LeaseState.PLACING, leases=2, waiting=1)],
    unmetered=0,
    silent_agents=0,
    machines=[
        MachineCount(
            ACCOUNT, "fake", "eu", "h100-sxm-80gb", MachineState.VERIFIED, machines=1, gpus=8, missed=0
        )
    ],
    unclaimed=Liability(machines=1, nano_per_hour=Nano(2_000_000_000), nano=Nano(500_000_000)),
    accounts=[
        AccountFigures(
            name=ACCOUNT,
            frozen_since=AT,
            failing_since=None,
            offers_failing_since=None,
            offers_at=AT,
            listing_asked_at=AT,
            orphans=1,
            orphans_unpriced=0,
            oldest_orphan_at=AT,
            orphans_nano_per_hour=Nano(1),
            orphans_nano=Nano(1),
        )
    ],
    unrated=UnratedMoney(intervals=1, oldest_at=AT, nano=Nano(1)),
    undecided=Undecided(breaches=1, nano=1, oldest_at=AT),
    organizations=[OrganizationCount(OrganizationState.CLOSING, organizations=1, oldest_at=AT)],
    clusters=[
        ClusterFigures(
            name="eu-1",
            state=ClusterState.READY,
            failing_since=None,
            joining=1,
            ready=2,
            leaving=0,
            unready=1,
            without_gpus=1,
            tunnels_read_at=AT,
            handshake_at=AT,
            kubeconfigs=3,
            kubeconfig_wanted_at=AT,
        )
    ],
    node_pools=[PoolCount(NodePoolState.READY, pools=1, waiting_since=AT)],
    warm_pools=[
        WarmPoolFigures(
            name="eu",
            wanted=3,
            target=2,
            verified=1,
            starting=1,
            idle_nano_per_day=Nano(1),
            requests=8,
            hits=7,
            avoided_ms=1,
            idle_nano=Nano(1),
            idle_today_nano=Nano(1),
        )
    ],
    repairs=RepairFigures(
        unhealthy=[UnhealthyCount(ACCOUNT, Verdict.QUARANTINED, planned=False, machines=1)],
        repairs=[RepairCount(RepairStep.TICKET, repairs=1, oldest_at=AT)],
    ),
)
SAMPLE_AUDIT = Audit(AT, postings=2, difference=Nano(0))
SAMPLE_RECONCILED = [Reconciled("running", AT, differing_customers=0, difference=Nano(0))]
