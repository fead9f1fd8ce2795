"""Leases and samples for tests of enforcement."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from control_plane.domain.enforcement import WatchedLease
from control_plane.domain.enforcement_rules import EnforcementRules
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.reading import GpuReading, Reading, ServerReading
from control_plane.domain.sla import SlaTier
from control_plane.domain.throughput import Sampled
from reconciler.enforcement_rules import parse_rules

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
TEXT = Path("control_plane/enforcement_rules.toml").read_text(encoding="utf-8")
RULES: EnforcementRules = parse_rules(TEXT)
EVERY = timedelta(seconds=15)


def a_lease(
    number: int = 1,
    *,
    tier: SlaTier = SlaTier.BRONZE,
    priority: int = 50,
    age: timedelta = timedelta(days=1),
    region: str = "us-east-1",
) -> WatchedLease:
    return WatchedLease(
        lease_id=LeaseId(UUID(int=number)),
        claim_id=ClaimId(UUID(int=1_000 + number)),
        machine_id=MachineId(UUID(int=2_000 + number)),
        organization_id=OrganizationId(UUID(int=7)),
        project_id=ProjectId(UUID(int=8)),
        account="fake",
        region=region,
        tier=tier,
        priority=priority,
        created_at=AT - age,
    )


def serves(
    kv_bp: int = 1_000, *, running: int = 10, tokens: int = 1_000, preemptions: int = 0, gpu_bp: int = 9_000
) -> Reading:
    """A machine with one GPU and one inference server."""
    server = ServerReading(
        8000,
        "vllm",
        kv_cache_bp=kv_bp,
        running=running,
        waiting=0,
        preemptions=preemptions,
        generation_tokens_per_second=tokens,
    )
    gpu = GpuReading(0, memory_total_mib=80_000, memory_used_mib=8 * gpu_bp, utilisation_percent=90)
    return Reading(source="nvml", gpus=(gpu,), servers=(server,))


def idles(percent: int = 0) -> Reading:
    return Reading(source="nvml", gpus=(GpuReading(0, utilisation_percent=percent),))


def sampled(readings: Sequence[Reading], *, until: datetime = AT) -> list[Sampled]:
    """One every 15 s, the last one at `until`."""
    first = until - EVERY * (len(readings) - 1)
    return [Sampled(first + EVERY * number, reading) for number, reading in enumerate(readings)]
