"""The queries for the business metrics of machines that are not healthy: how many there are, and their repairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.health import PLANNED_WORK, Verdict
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import MachineState
from control_plane.domain.repair import RepairStep


@dataclass(frozen=True, slots=True)
class UnhealthyCount:
    """Verified machines of an account with a verdict that is not healthy."""

    account: AccountName
    verdict: Verdict
    planned: bool
    """Whether nothing is worse than work that is planned on them."""
    machines: int


@dataclass(frozen=True, slots=True)
class RepairCount:
    """Open repairs at a step."""

    step: RepairStep
    repairs: int
    oldest_at: datetime
    """When the first of them came to it."""


@dataclass(frozen=True, slots=True)
class RepairFigures:
    unhealthy: Sequence[UnhealthyCount]
    repairs: Sequence[RepairCount]


_UNHEALTHY = text(f"""
SELECT m.account, h.verdict, coalesce({among("h.fault", PLANNED_WORK)}, false) AS planned, count(*) AS machines
FROM machine_health h JOIN machines m ON m.id = h.machine_id
WHERE m.state = '{MachineState.VERIFIED}' AND h.verdict <> '{Verdict.HEALTHY}'
GROUP BY m.account, h.verdict, planned
""")
_REPAIRS = text("""
SELECT step, count(*) AS repairs, min(step_at) AS oldest_at FROM repairs WHERE closed_at IS NULL GROUP BY step
""")


async def repairs(connection: Connection) -> RepairFigures:
    return RepairFigures(
        unhealthy=await read(connection, _UNHEALTHY, UnhealthyCount),
        repairs=await read(connection, _REPAIRS, RepairCount),
    )
