"""Queries on what machines cost: every machine of a month with its terms, its life, its holders and its charges.

The function `machine_costs` of the database answers across tenants, and only while the API acts for the platform's
organization.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.domain.cost_record import Charged, CostRecord, Holder
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.money import Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife, Tenure, stops
from control_plane.domain.sla import SlaTier

MACHINES_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class _Row:
    id: MachineId
    account: AccountName
    provider: str
    provider_ref: str | None
    gpu_count: int
    spot: bool
    nano_per_hour: Nano
    stopped_nano_per_hour: Nano | None
    increment_seconds: int
    minimum_seconds: int
    billed_while_booting: bool
    pooled: bool
    pool_sla: SlaTier | None
    ordered_at: datetime | None
    running_at: datetime | None
    ending_at: datetime | None
    ended_at: datetime | None
    holders: tuple[Holder, ...]
    charged: tuple[Charged, ...]

    @property
    def record(self) -> CostRecord:
        terms = BillingTerms(
            nano_per_hour=self.nano_per_hour,
            stopped_nano_per_hour=self.stopped_nano_per_hour,
            increment_seconds=self.increment_seconds,
            minimum_seconds=self.minimum_seconds,
            billed_while_booting=self.billed_while_booting,
        )
        # Only a lease that holds a whole machine can stop it.
        tenures = (
            Tenure(holder.claimed_at, holder.ended_at, holder.switched_at)
            for holder in self.holders
            if holder.slot is None
        )
        life = MachineLife(
            ordered_at=self.ordered_at,
            running_at=self.running_at,
            ending_at=self.ending_at,
            ended_at=self.ended_at,
            referenced=self.provider_ref is not None,
            stops=stops(tenures),
        )
        return CostRecord(
            id=self.id,
            account=self.account,
            provider=self.provider,
            provider_ref=self.provider_ref,
            gpu_count=self.gpu_count,
            spot=self.spot,
            pooled=self.pooled,
            pool_sla=self.pool_sla,
            terms=terms,
            life=life,
            holders=self.holders,
            charged=self.charged,
        )


_COLUMNS = ", ".join(field.name for field in fields(_Row))
_PAGE = text(f"""
SELECT {_COLUMNS} FROM machine_costs(CAST(:since AS timestamptz), CAST(:until AS timestamptz), CAST(:provider AS text),
  CAST(:after AS uuid), CAST(:limit AS integer))
""")


async def of_month(
    connection: Connection, *, since: datetime, until: datetime, provider: str | None = None
) -> AsyncIterator[list[CostRecord]]:
    """Every machine that existed from `since` to `until`, of a provider or of all, in the order of their ids.

    They are read some hundred at a time, so memory does not grow with the fleet.
    """
    after: MachineId | None = None
    while True:
        values = {"since": since, "until": until, "provider": provider, "after": after}
        rows = await read(connection, _PAGE, _Row, **values, limit=MACHINES_PER_QUERY)
        yield [row.record for row in rows]
        if len(rows) < MACHINES_PER_QUERY:
            return
        after = rows[-1].id
