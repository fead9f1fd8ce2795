"""Queries on the fleet: every machine that may exist, of all customers, as operators read it.

The function `fleet_machines` of the database answers across tenants, and only while the API acts for the platform's
organization.
"""

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.health import Verdict
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId, ProjectId, ProviderRef
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano, accrued
from control_plane.domain.provider_cost import BillingTerms, MachineLife, Tenure, cost_until, stops


@dataclass(frozen=True, slots=True)
class FleetFilter:
    """Which machines are wanted; None is every one."""

    provider: str | None = None
    account: AccountName | None = None
    region: str | None = None
    gpu_model: str | None = None
    verdict: Verdict | None = None
    silent: bool = False
    """Only those that are."""
    state: MachineState | None = None
    organization_id: OrganizationId | None = None
    project_id: ProjectId | None = None


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine that may exist, with the lease that holds it."""

    id: MachineId
    account: AccountName
    provider: str
    region: str
    gpu_model: str | None
    gpu_count: int
    state: MachineState
    verdict: Verdict | None
    """None before it is verified, and while it has to be terminated."""
    silent: bool
    """Its agent reported before, and not lately, though its customer did not stop it."""
    stopped: bool
    """Its customer stopped it, or it is stopping or starting, so nobody reports from it."""
    provider_ref: ProviderRef | None
    provider_state: str | None
    cost_nano_per_hour: Nano
    created_at: datetime
    organization_id: OrganizationId | None
    """Whose lease holds it; None when no lease does."""
    organization: str | None
    project_id: ProjectId | None
    project: str | None
    lease_id: LeaseId | None
    lease: str | None
    unused_since: datetime | None
    """Since when it costs money and serves nobody; None while it serves somebody, or is kept on purpose."""
    terminate_asked_at: datetime | None
    due_at: datetime
    tries: int
    asked_at: datetime | None
    """When its provider was asked for it; None before."""
    stopped_cost_nano_per_hour: Nano | None
    switched_at: tuple[datetime, ...]
    """When its last lease had it stopped, and started again, in turn."""
    claimed_at: datetime | None
    """When that lease claimed it; None when none ever did."""
    increment_seconds: int
    minimum_seconds: int
    billed_while_booting: bool
    running_at: datetime | None

    def cost(self, now: datetime) -> Nano:
        """What it has cost since it serves nobody."""
        since = self.unused_since or now
        return accrued(self.cost_nano_per_hour, max(0, int((now - since).total_seconds())))

    def cost_so_far(self, now: datetime) -> Nano:
        """What its provider has charged for it since the order, by its own rules."""
        terms = BillingTerms(
            nano_per_hour=self.cost_nano_per_hour,
            stopped_nano_per_hour=self.stopped_cost_nano_per_hour,
            increment_seconds=self.increment_seconds,
            minimum_seconds=self.minimum_seconds,
            billed_while_booting=self.billed_while_booting,
        )
        tenures = () if self.claimed_at is None else (Tenure(self.claimed_at, None, self.switched_at),)
        life = MachineLife(
            ordered_at=self.asked_at,
            running_at=self.running_at,
            ending_at=self.terminate_asked_at,
            ended_at=None,
            stops=stops(tenures),
        )
        return cost_until(terms, life, now)


@dataclass(frozen=True, slots=True)
class FleetCount:
    """Machines of one provider and GPU model, counted. docs/operating.md defines the words."""

    provider: str
    gpu_model: str | None
    machines: int
    gpus: int
    delivered_machines: int
    delivered_gpus: int
    healthy_machines: int
    healthy_gpus: int
    reserved_machines: int
    reserved_gpus: int
    active_machines: int
    active_gpus: int
    nano_per_hour: Nano


_COLUMNS = ", ".join(field.name for field in fields(FleetMachine))
_FROM = """
FROM fleet_machines(
  CAST(:silent_before AS timestamptz), CAST(:provider AS text), CAST(:account AS text), CAST(:region AS text),
  CAST(:gpu_model AS text), CAST(:verdict AS text), CAST(:silent AS boolean), CAST(:state AS text),
  CAST(:organization_id AS uuid),
  CAST(:project_id AS uuid), CAST(:unused AS boolean), CAST(:after AS uuid), CAST(:limit AS integer))
"""
_PAGE = text(f"SELECT {_COLUMNS} {_FROM}")
_WORDS = {
    "delivered": among("state", (MachineState.BOOTSTRAPPING, MachineState.VERIFIED)),
    "healthy": f"verdict = '{Verdict.HEALTHY}' AND NOT silent",
    "reserved": "lease_id IS NOT NULL",
    "active": f"lease_state = '{LeaseState.READY}'",
}
_COUNTS = ", ".join(
    f"count(*) FILTER (WHERE {rule}) AS {word}_machines,"
    f" CAST(coalesce(sum(gpu_count) FILTER (WHERE {rule}), 0) AS bigint) AS {word}_gpus"
    for word, rule in _WORDS.items()
)
_TOTALS = text(f"""
SELECT provider, gpu_model, count(*) AS machines, CAST(sum(gpu_count) AS bigint) AS gpus, {_COUNTS},
       CAST(sum(cost_nano_per_hour) AS bigint) AS nano_per_hour
{_FROM} GROUP BY provider, gpu_model ORDER BY provider, gpu_model NULLS LAST
""")


async def page(
    connection: Connection,
    only: FleetFilter,
    *,
    after: MachineId | None,
    limit: int,
    now: datetime,
    unused: bool = False,
) -> list[FleetMachine]:
    """Machines after one, newest first; with `unused`, only those that cost money and serve nobody."""
    return await read(
        connection, _PAGE, FleetMachine, **_values(only, now), unused=unused, after=after, limit=limit
    )


async def totals(connection: Connection, only: FleetFilter, *, now: datetime) -> list[FleetCount]:
    """Machines counted by provider and GPU model."""
    values = _values(only, now)
    return await read(connection, _TOTALS, FleetCount, **values, unused=False, after=None, limit=None)


def _values(only: FleetFilter, now: datetime) -> dict[str, object]:
    return {"silent_before": now - SILENT_AFTER} | {
        field.name: getattr(only, field.name) for field in fields(only)
    }
