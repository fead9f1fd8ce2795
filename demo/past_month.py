"""Last month, played in the same database: leases that were used then are billed, closed, invoiced and matched.

The running month cannot be closed. So leases of a second customer are written into the database as the loops would have
left them at their end: lease, machine, claim, hold, and the lines of the journal. From there on nothing is played: the
reconciler meters and prices them, and finance closes the month with the commands of every day. What the supplier
invoices is computed here, from when its machines ran and by the rule of its price list, and not by our records.
"""

import asyncio
import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import TextClause, text

from control_plane.db.engine import Database
from control_plane.domain.ids import OrganizationId
from control_plane.domain.period import month_of, month_text
from control_plane.world import uuid7
from demo.prices import SKU

CUSTOMER = "heliotrope"
SUPPLIER = "lambda_cloud"
USD_PER_HOUR = Decimal("1.99")
"""What the supplier bills for a machine."""
BOOTED_BEFORE = timedelta(seconds=95)
"""How long the machine ran before its lease was ready."""
ENDED_AFTER = timedelta(seconds=42)
"""How long it took to end after its lease was released."""


@dataclass(frozen=True, slots=True)
class PastLease:
    name: str
    ready_at: datetime
    released_at: datetime
    supplier_ref: str

    @property
    def running_at(self) -> datetime:
        return self.ready_at - BOOTED_BEFORE

    @property
    def gone_at(self) -> datetime:
        return self.released_at + ENDED_AFTER


def leases_before(now: datetime) -> tuple[PastLease, ...]:
    """What was used in the month before this one."""
    month = month_of(month_of(now) - timedelta(days=1))
    hours = ((30, 17, 31), (211, 22, 7), (500, 9, 55))
    return tuple(
        PastLease(
            name,
            month + timedelta(hours=begun),
            month + timedelta(hours=begun + used, minutes=minutes),
            f"{number:032x}",
        )
        for number, (name, (begun, used, minutes)) in enumerate(
            zip(("train-1", "train-2", "eval"), hours, strict=True), start=1
        )
    )


_OF_CUSTOMER = text("""
SELECT p.organization_id FROM projects p JOIN organizations o ON o.id = p.organization_id
WHERE o.name = :name AND p.name = 'default'
""")
_LEASE = text("""
INSERT INTO leases (id, organization_id, project_id, environment_id, name, sku, gpu_model, gpu_count, purchase,
  on_eviction, sla, nano_per_unit_hour, stopped_nano_per_unit_hour, list_nano_per_unit_hour, price_book, proof, regions,
  providers, priority, ssh_keys, wait_timeout_seconds, state, due_at, created_at, ready_at, attempts, network_id,
  end_reason, billed_until, ended_at)
SELECT :id, p.organization_id, p.id, e.id, :name, s.name, s.gpu_model, s.gpu_count, 'on_demand', 'end', 'bronze',
  price.nano_per_unit_hour, price.nano_per_unit_hour, price.nano_per_unit_hour, price.price_book, 'listed', '{}', '{}',
  50, '[]', 1800, 'ended', :gone_at, :running_at, :ready_at, 1,
  (SELECT id FROM networks WHERE project_id = p.id AND name = 'default'), 'released', :released_at, :gone_at
FROM projects p JOIN environments e ON e.project_id = p.id AND e.name = 'default' JOIN skus s ON s.name = :sku
JOIN prices price ON price.sku = s.name AND price.region = 'anywhere'
WHERE p.organization_id = :organization_id AND p.name = 'default'
""")
_WITH_IT = (
    text("""
INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at)
SELECT id, organization_id, 0, created_at FROM leases WHERE id = :id
"""),
    text("""
INSERT INTO machines (id, purpose, account, provider, region, native_region, native_type, offer_key,
  cost_nano_per_hour, spot, increment_seconds, minimum_seconds, billed_while_booting, power, gpu_model, gpu_count,
  vcpus, memory_gib, proof, launch_key, state, due_at, created_at, asked_at, running_at, verified_at,
  terminate_asked_at,
  gone_at, gone_evidence, host_key, provider_ref, address, sighted_at, step)
SELECT id, 'lease', :supplier, :supplier, 'us-east-1', 'us-east-1', 'gpu_1x_h100_sxm5', 'past',
  CAST(:cost_nano AS bigint), false, 60, 0, false, '[]', gpu_model, gpu_count, 26, 225, 'listed',
  'sp-' || (SELECT code FROM installation) || '-' || replace(CAST(id AS text), '-', ''), 'gone', :gone_at, created_at,
  created_at, :running_at, ready_at, :released_at, :gone_at, 'not listed any more', 'past', :supplier_ref,
  '192.0.2.1', :released_at, 'gpus_verified'
FROM leases WHERE id = :id
"""),
    text("""
INSERT INTO attempts (lease_id, number, organization_id, project_id, machine_id, offer_key, started_at, ended_at,
  outcome)
SELECT id, 1, organization_id, project_id, id, 'past', created_at, ready_at, 'admitted' FROM leases WHERE id = :id
"""),
    text("""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, attempt, due_at, step, claimed_at,
  admitted_at, ended_at, released_at)
SELECT gen_random_uuid(), organization_id, project_id, id, id, 1, ready_at, 'certificates_accepted', created_at,
  ready_at, billed_until, billed_until
FROM leases WHERE id = :id
"""),
    text("""
INSERT INTO journal (organization_id, project_id, lease_id, at, actor_kind, actor, event, state_before, state_after)
SELECT organization_id, project_id, id, line.at, 'loop', 'past_month', line.event, line.before, line.after
FROM leases CROSS JOIN LATERAL (VALUES
  (1, ready_at, 'admitted', 'preparing', 'ready'), (2, billed_until, 'released', 'ready', 'ending'),
  (3, ended_at, 'closed', 'ending', 'ended')
) AS line (number, at, event, before, after)
WHERE id = :id ORDER BY line.number
"""),
)


def plant(owner_url: str, leases: tuple[PastLease, ...]) -> None:
    """Write the leases into the database, as its owner."""
    asyncio.run(write(owner_url, leases))


async def write(owner_url: str, leases: tuple[PastLease, ...]) -> None:
    database = Database(owner_url, role=None)
    async with database.transaction() as connection:
        found = (await connection.execute(_OF_CUSTOMER, {"name": CUSTOMER})).all()
        organization_id = OrganizationId(found[0].organization_id)
        for lease in leases:
            values = {
                "id": uuid7(),
                "organization_id": organization_id,
                "name": lease.name,
                "sku": SKU,
                "supplier": SUPPLIER,
                "supplier_ref": lease.supplier_ref,
                "cost_nano": int(USD_PER_HOUR * 10**9),
                "running_at": lease.running_at,
                "ready_at": lease.ready_at,
                "released_at": lease.released_at,
                "gone_at": lease.gone_at,
            }
            for statement in (_LEASE, *_WITH_IT):
                await connection.execute(statement, _named_in(statement, values))
    await database.close()


def _named_in(statement: TextClause, values: dict[str, object]) -> dict[str, object]:
    """The values that a statement names."""
    return {name: values[name] for name in statement.compile().params}


def supplier_invoice(leases: tuple[PastLease, ...], tell: Callable[[str], None] | None = None) -> str:
    """The supplier's invoice of these machines, by its price list: from when a machine runs, by the minute begun."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("machine", "from", "to", "quantity", "unit", "amount", "currency"))
    for lease in leases:
        minutes = math.ceil((lease.gone_at - lease.running_at) / timedelta(minutes=1))
        amount = (minutes * USD_PER_HOUR / 60).quantize(Decimal("0.01"))
        times = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (lease.running_at, lease.gone_at))
        writer.writerow((lease.supplier_ref, *times, minutes, "minute", amount, "USD"))
        if tell is not None:
            tell(f"  {lease.name}: {minutes} minutes at {USD_PER_HOUR} USD an hour are {amount} USD")
    return out.getvalue()


def month_name(leases: tuple[PastLease, ...]) -> str:
    """Such as `2026-10`."""
    return month_text(month_of(leases[0].ready_at))
