"""Leases on the wire: a lease with its status, and the explanation of how it came to be where it is."""

from collections.abc import Sequence
from typing import Any

from control_plane.api.views.admissions import decision_view
from control_plane.api.views.agents import lease_agent_view
from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.journal import journal_line
from control_plane.api.views.money import money, money_or_none
from control_plane.api.views.placements import placement_view
from control_plane.api.views.proofs import proof_view
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.lease import LIVE, AdmittedKey
from control_plane.domain.money import Nano, usd
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.rendering import CUSTOMER_USER
from control_plane.domain.request import CapacityRequest
from control_plane.domain.status import Unconfirmed, Waiting
from control_plane.services.lease_overviews import (
    AttemptOverview,
    Explanation,
    Overview,
    Shown,
    VerificationReport,
)
from control_plane.wire.common import Money
from control_plane.wire.explanations import AttemptView, ExplanationView, GpuReading, ReportView
from control_plane.wire.leases import (
    AdmittedKeyView,
    AutoReleaseView,
    LeaseProofView,
    LeaseRequestView,
    LeaseView,
    MachineView,
    StatusView,
    UnconfirmedView,
    WaitingView,
)
from control_plane.wire.power import PowerView

_READING_TEXT_MAX = 200


def lease_view(shown: Shown) -> LeaseView:
    lease = shown.overview.lease
    return LeaseView(
        id=on_wire(Prefix.LEASE, lease.id),
        name=lease.name,
        project=lease.project,
        project_id=on_wire(Prefix.PROJECT, lease.project_id),
        environment=lease.environment,
        environment_id=on_wire(Prefix.ENVIRONMENT, lease.environment_id),
        network=lease.network,
        network_id=None if lease.network_id is None else on_wire(Prefix.NETWORK, lease.network_id),
        kind=lease.kind.value,
        node_pool=lease.node_pool,
        node_pool_id=None if lease.node_pool_id is None else on_wire(Prefix.NODE_POOL, lease.node_pool_id),
        cluster=lease.cluster,
        request=request_view(lease.request),
        quote_id=None if lease.quote_id is None else on_wire(Prefix.QUOTE, lease.quote_id),
        sla_version=lease.sla_version,
        gpu_model=lease.gpu_model,
        gpu_count=lease.gpu_count,
        price_per_gpu_hour=money(lease.nano_per_unit_hour) if lease.gpu_count else None,
        price_per_hour=money(lease.nano_per_hour),
        state=lease.state.value,
        status=status_view(shown),
        machine=_machine(shown),
        power=_power(shown),
        proof=_proof(shown),
        agent=lease_agent_view(shown.overview.agent, shown.at),
        ssh_keys=_ssh_keys(lease.ssh_keys),
        labels=dict(lease.labels),
        wait_timeout_seconds=lease.wait_timeout_seconds,
        on_eviction=lease.on_eviction.value,
        auto_release=_auto_release(lease.auto_release),
        attempts=lease.attempts,
        end_reason=lease.end_reason,
        end_why=lease.end_why,
        created_at=lease.created_at,
        ready_at=lease.ready_at,
        paused_since=lease.replaced_since if lease.state in LIVE else None,
        release_at=lease.release_at,
        committed_until=lease.committed_until,
        release_fee=None if lease.committed_days is None else money(lease.release_fee(shown.at)),
        unused=None if lease.committed_days is None else money(lease.unused_cost),
        taken_back_at=shown.overview.taken_back_at,
        billed_until=lease.billed_until,
        ended_at=lease.ended_at,
    )


def _ssh_keys(keys: Sequence[AdmittedKey] | None) -> tuple[AdmittedKeyView, ...] | None:
    if keys is None:
        return None
    return tuple(AdmittedKeyView(on_wire(Prefix.SSH_KEY, key.id), key.name, key.fingerprint) for key in keys)


def status_view(shown: Shown) -> StatusView:
    status = shown.status
    return StatusView(
        state=status.state.value,
        step=status.step,
        steps_done=status.steps_done,
        steps_total=status.steps_total,
        message=status.message,
        waiting=_waiting(status.waiting),
        unconfirmed=_unconfirmed(status.unconfirmed),
    )


def _waiting(waiting: Waiting | None) -> WaitingView | None:
    return None if waiting is None else WaitingView(waiting.since, waiting.gives_up_at, waiting.why)


def _unconfirmed(doubt: Unconfirmed | None) -> UnconfirmedView | None:
    return None if doubt is None else UnconfirmedView(doubt.since, doubt.why)


def _auto_release(limits: AutoRelease) -> AutoReleaseView | None:
    if limits == AutoRelease():
        return None
    return AutoReleaseView(limits.after_seconds, money_or_none(limits.spend_nano))


def request_view(requested: CapacityRequest) -> LeaseRequestView:
    ceiling = requested.price_nano_per_hour_max
    return LeaseRequestView(
        sku=requested.sku,
        regions=requested.regions,
        providers=requested.providers,
        price_usd_per_hour_max=None if ceiling is None else usd(ceiling),
        priority=requested.priority,
        purchase=requested.purchase.value,
        sla=requested.sla.value,
        network_gbps_min=requested.network_gbps_min,
        committed_days=requested.committed_days,
    )


def _machine(shown: Shown) -> MachineView | None:
    evidence = shown.overview.evidence
    if evidence is None:
        return None
    return MachineView(
        machine_id=on_wire(Prefix.MACHINE, evidence.machine_id),
        provider=evidence.provider,
        region=evidence.region,
        state=evidence.state.value,
        address=evidence.address,
        ssh_port=evidence.ssh_port,
        ssh_user=CUSTOMER_USER,
        host_key=evidence.host_key,
        mesh_address=evidence.mesh_address,
        sighted_at=evidence.sighted_at,
    )


def _power(shown: Shown) -> PowerView | None:
    """None without a machine, and once the lease has let go of it: what its customer had asked for is over then."""
    overview = shown.overview
    if overview.evidence is None or overview.lease.state not in LIVE:
        return None
    actions = tuple(sorted(action.value for action in overview.power_offered))
    power = overview.power
    stopped = _price_stopped(overview)
    if power is None:
        return PowerView(PowerState.ON.value, None, None, actions, stopped)
    return PowerView(power.state.value, power.settled_at or power.wanted_at, power.why, actions, stopped)


def _price_stopped(overview: Overview) -> Money | None:
    lease = overview.lease
    if lease.ready_at is None or PowerAction.STOP not in overview.power_offered:
        return None
    return money(Nano(lease.stopped_nano_per_unit_hour * lease.units))


def _proof(shown: Shown) -> LeaseProofView:
    latest = shown.overview.proof
    return LeaseProofView(
        demanded=shown.overview.lease.proof.value,
        tier=shown.tier.value,
        id=None if latest is None else on_wire(Prefix.PROOF, latest.id),
        outcome=None if latest is None else latest.outcome.value,
        at=None if latest is None else latest.at,
    )


def explanation_view(explanation: Explanation, disclosure: Disclosure) -> ExplanationView:
    lines = tuple(journal_line(row) for row in explanation.journal)
    return ExplanationView(
        lease=lease_view(explanation.shown),
        admission=next((line for line in lines if line.event == "admitted"), None),
        placements=tuple(placement_view(row, disclosure) for row in explanation.placements),
        attempts=tuple(_attempt(attempt, disclosure) for attempt in explanation.attempts),
        journal=lines,
        reports=tuple(_report(row) for row in explanation.reports),
        proofs=tuple(proof_view(row) for row in explanation.proofs) if disclosure.proofs else (),
        decisions=tuple(decision_view(row) for row in explanation.decisions),
    )


def _attempt(attempt: AttemptOverview, disclosure: Disclosure) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        machine_id=on_wire(Prefix.MACHINE, attempt.machine_id),
        provider=attempt.provider,
        region=attempt.region,
        native_type=attempt.native_type,
        state=attempt.state.value,
        step=attempt.step,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        asked_at=attempt.asked_at,
        sighted_at=attempt.sighted_at,
        fail_reason=attempt.fail_reason,
        fail_why=attempt.fail_why,
        provider_words=attempt.provider_words if disclosure.provider_words else None,
    )


def _report(row: VerificationReport) -> ReportView:
    return ReportView(
        id=row.id.hex,
        machine_id=on_wire(Prefix.MACHINE, row.machine_id),
        at=row.at,
        verdict=row.verdict,
        why=row.why,
        source=row.source,
        gpus=tuple(_gpu(gpu) for gpu in _gpus(row.reading)),
    )


def _gpus(reading: Any) -> list[dict[str, Any]]:
    """The GPUs of a stored reading. A machine wrote it, so anything in it may be missing or wrong (law 11)."""
    listed = reading.get("gpus") if isinstance(reading, dict) else reading
    return [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []


def _gpu(gpu: dict[str, Any]) -> GpuReading:
    memory = gpu.get("memory_mib")
    return GpuReading(
        name=str(gpu.get("name", ""))[:_READING_TEXT_MAX],
        uuid=str(gpu.get("uuid", ""))[:_READING_TEXT_MAX],
        memory_mib=memory if isinstance(memory, int) else 0,
    )
