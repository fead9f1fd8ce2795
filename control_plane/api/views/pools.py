"""Warm pools on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.pool_figures import PoolHour
from control_plane.domain.pool_idle import IdleCosts
from control_plane.domain.pool_simulation import Comparison, Outcome
from control_plane.services.pools import Detail, PoolDecision, Shown
from control_plane.wire.pools import (
    IdleCostsView,
    PoolDecisionView,
    PoolDetailView,
    PoolFiguresView,
    PoolSimulationView,
    PoolView,
    SimulatedPolicyView,
)

_HOUR_SECONDS = 3_600


def pool_view(shown: Shown) -> PoolView:
    pool = shown.pool
    return PoolView(
        id=on_wire(Prefix.POOL, pool.id),
        name=pool.name,
        sku=pool.sku,
        region=pool.region,
        sla=None if pool.sla is None else pool.sla.value,
        state=pool.state.value,
        policy=pool.policy.value,
        machines_min=pool.machines_min,
        machines_max=pool.machines_max,
        step_max=pool.step_max,
        idle_per_day=money(pool.idle_nano_per_day),
        waiting_per_hour=money(pool.waiting_nano_per_hour),
        wanted=pool.wanted,
        target=pool.target,
        verified=pool.verified,
        starting=pool.starting,
        why=pool.why,
        created_at=pool.created_at,
        decided_at=pool.decided_at,
        last_day=_figures(shown.last_day),
    )


def pool_detail_view(detail: Detail) -> PoolDetailView:
    shown = pool_view(detail)
    return PoolDetailView(
        **{name: getattr(shown, name) for name in shown.__struct_fields__},
        idle_costs=_idle_costs(detail.pool.idle_costs),
        last_week=_figures(detail.last_week),
        decisions=tuple(map(_decision, detail.decisions)),
    )


def _idle_costs(costs: IdleCosts | None) -> IdleCostsView | None:
    if costs is None:
        return None
    return IdleCostsView(
        machines=costs.machines,
        mean=money(costs.mean_nano),
        median=money(costs.median_nano),
        p90=money(costs.p90_nano),
        mean_per_hour=money(costs.mean_nano_per_hour),
        p90_per_hour=money(costs.p90_nano_per_hour),
    )


def _decision(decision: PoolDecision) -> PoolDecisionView:
    return PoolDecisionView(
        at=decision.at,
        wanted=decision.wanted,
        target=decision.target,
        verified=decision.verified,
        starting=decision.starting,
        ordered=decision.ordered,
        ended=decision.ended,
        dry_run=decision.dry_run,
        why=decision.why,
    )


def _figures(hours: PoolHour | None) -> PoolFiguresView | None:
    if hours is None:
        return None
    return PoolFiguresView(
        since=hours.hour,
        requests=hours.requests,
        hits=hours.hits,
        hit_rate=hours.hits / hours.requests if hours.requests else None,
        idle_cost=money(hours.idle_nano),
        waited_seconds_hit=hours.waited_hits_ms / hours.hits / 1_000 if hours.hits else None,
        waited_seconds_miss=hours.waited_misses_ms / hours.ready_misses / 1_000
        if hours.ready_misses
        else None,
        avoided_wait_seconds=hours.avoided_ms / 1_000,
    )


def simulation_view(compared: Comparison, series: list[list[int]]) -> PoolSimulationView:
    moments = [at for each in series for at in each]
    return PoolSimulationView(
        requests=len(moments),
        pools=len(series),
        hours=(max(moments) - min(moments)) / _HOUR_SECONDS,
        policies=tuple(map(_outcome, compared.policies)),
        curve=tuple(map(_outcome, compared.curve)),
    )


def _outcome(outcome: Outcome) -> SimulatedPolicyView:
    return SimulatedPolicyView(
        policy=outcome.policy.value,
        parameter=outcome.parameter,
        requests=len(outcome.waits_seconds),
        hits=outcome.hits,
        idle_cost=money(outcome.idle_nano),
        idle_machine_hours=outcome.idle_seconds / _HOUR_SECONDS,
        idle_cost_median=money(outcome.idle_median_nano),
        idle_cost_p90=money(outcome.idle_p90_nano),
        waited_seconds_mean=outcome.mean_seconds,
        waited_seconds_p95=float(outcome.p95_seconds),
        waiting_cost=money(outcome.waiting_nano),
        total_cost=money(outcome.total_nano),
    )
