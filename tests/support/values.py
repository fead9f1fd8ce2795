"""Values of the domain for tests: each as plain as possible, and different in what a test names."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from control_plane.domain.claim import Claim
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import (
    AccountName,
    ClaimId,
    EnvironmentId,
    LaunchKey,
    LeaseId,
    MachineId,
    NetworkId,
    OrganizationId,
    ProjectId,
    ProviderRef,
    launch_key,
)
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.ledger import Approval
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import Machine, MachineState, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer
from control_plane.domain.progress import Step
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.sighting import Sighting
from control_plane.domain.sku import Shape
from control_plane.domain.sla import SlaTier
from tests.support.clock import START

OURS, THEIRS = "0a1b2c3d", "ffffffff"
"""Two installations that share a provider account."""
PAID = Approval("administrator", "SEPA 2026-11-20 000815")
AN_HOUR_BEFORE = START - timedelta(hours=1)


def a_key(number: int, installation: str = OURS) -> LaunchKey:
    return launch_key(installation, UUID(int=number))


def a_ref(number: int) -> ProviderRef:
    return ProviderRef(f"ref-{number}")


def a_machine(number: int = 1, **other: Any) -> Machine:
    """A verified machine that was ordered and sighted an hour before START, and proved nothing."""
    values: dict[str, Any] = {
        "id": MachineId(UUID(int=number)),
        "purpose": Purpose.LEASE,
        "account": AccountName("fake"),
        "provider": "fake",
        "region": "us-east-1",
        "native_region": "us-east-1",
        "native_type": "h100-sxm-80gb.1",
        "offer_key": "fake:us-east-1:h100-sxm-80gb.1",
        "gpu_model": GpuModel.H100_SXM_80GB,
        "gpu_count": 1,
        "proof": Tier.LISTED,
        "spot": False,
        "cost_nano_per_hour_max": None,
        "launch_key": a_key(number),
        "state": MachineState.VERIFIED,
        "generation": 5,
        "tries": 0,
        "host_key": f"ssh-ed25519 {number}",
        "provider_ref": a_ref(number),
        "address": f"10.0.0.{number}",
        "ssh_port": 22,
        "asked_at": AN_HOUR_BEFORE,
        "deadline_at": None,
        "sighted_at": AN_HOUR_BEFORE,
        "missed_since": None,
        "missed_lists": 0,
        "step": Step.GPUS_VERIFIED,
        "fail_reason": None,
        "fail_why": None,
        "provider_state": "running",
        "down_since": None,
        "down_cause": None,
        "back_since": None,
        "back_at": None,
        "suspect_since": None,
        "erasing_until": None,
        "passes": 0,
        "first_passed_at": None,
        "last_passed_at": None,
        "attested": False,
        "failed": 0,
        "unanswered": 0,
        "last_challenged_at": None,
        "eviction_announced_at": None,
        "eviction_withdrawn_at": None,
        "pool_id": None,
        "reserved_for": None,
        "verified_at": AN_HOUR_BEFORE,
    }
    return Machine(**(values | other))


def a_claim(number: int = 1, **other: Any) -> Claim:
    """An open claim on the whole machine of the same number, whose customer waits to be admitted."""
    values: dict[str, Any] = {
        "id": ClaimId(UUID(int=number)),
        "organization_id": OrganizationId(UUID(int=0xA)),
        "project_id": ProjectId(UUID(int=0xA)),
        "lease_id": LeaseId(UUID(int=number)),
        "machine_id": MachineId(UUID(int=number)),
        "slot": None,
        "attempt": 1,
        "tries": 0,
        "step": None,
        "claimed_at": AN_HOUR_BEFORE,
        "admitted_at": None,
        "ended_at": None,
    }
    return Claim(**(values | other))


def a_lease(**other: Any) -> Lease:
    """A lease of one H100 that waits for a machine, created at START, without limits and without SSH keys."""
    values: dict[str, Any] = {
        "id": LeaseId(UUID(int=1)),
        "organization_id": OrganizationId(UUID(int=0xA)),
        "project_id": ProjectId(UUID(int=0xA)),
        "project": "default",
        "environment_id": EnvironmentId(UUID(int=0xE)),
        "environment": "default",
        "network_id": NetworkId(UUID(int=0xF)),
        "network": "default",
        "name": "training",
        "sku": "h100x1",
        "node_pool_id": None,
        "node_pool": None,
        "cluster": None,
        "gpu_model": GpuModel.H100_SXM_80GB,
        "gpu_count": 1,
        "purchase": PurchaseKind.ON_DEMAND,
        "committed_days": None,
        "on_eviction": OnEviction.END,
        "sla": SlaTier.BRONZE,
        "sla_version": None,
        "nano_per_unit_hour": Nano(1),
        "stopped_nano_per_unit_hour": Nano(1),
        "list_nano_per_unit_hour": Nano(1),
        "price_book": 1,
        "price_agreement_id": None,
        "quote_id": None,
        "proof": Tier.LISTED,
        "regions": (),
        "providers": (),
        "price_nano_per_hour_max": None,
        "network_gbps_min": None,
        "priority": 50,
        "ssh_keys": (),
        "labels": {},
        "wait_timeout_seconds": 1_800,
        "auto_release_after_seconds": None,
        "auto_release_spend_nano": None,
        "state": LeaseState.PLACING,
        "generation": 1,
        "attempts": 0,
        "end_reason": None,
        "end_why": None,
        "waiting_since": None,
        "waiting_why": None,
        "created_at": START,
        "ready_at": None,
        "release_at": None,
        "switched_at": (),
        "paused_at": (),
        "billed_until": None,
        "unused_unit_seconds": 0,
        "ended_at": None,
    }
    return Lease(**(values | other))


def an_offer(**other: Any) -> Offer:
    """One H100 of the provider `fake`, in stock, seen at START."""
    values: dict[str, Any] = {
        "key": "fake:us-east-1:h100-sxm-80gb.1",
        "account": "fake",
        "provider": "fake",
        "region": "us-east-1",
        "native_region": "us-east-1",
        "native_type": "h100-sxm-80gb.1",
        "shape": Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100),
        "capacity": "vm",
        "cost_nano_per_hour": Nano(2_000_000_000),
        "available": True,
        "confidence": "live",
        "observed_at": START,
    }
    return Offer(**(values | other))


def a_sighting(number: int = 1, **other: Any) -> Sighting:
    """The machine of this number, listed as running."""
    values: dict[str, Any] = {
        "provider_ref": a_ref(number),
        "launch_key": a_key(number),
        "state": ListedState.RUNNING,
        "native_status": "running",
        "address": f"10.0.0.{number}",
    }
    return Sighting(**(values | other))
