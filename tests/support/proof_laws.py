"""Laws of GPU proofs, as scenarios check them after every step."""

from collections import defaultdict
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import machines
from control_plane.db.engine import Database
from control_plane.db.rows import read
from control_plane.domain.machine import Machine
from control_plane.domain.proof import VOID, Occasion, OwnCode, ProofOutcome, Record, Result
from tests.support.rows import rows

_MACHINES = text(machines.SELECT)
_PROOFS = text("SELECT * FROM proofs ORDER BY at, id")
_ADMITTED = text("""
SELECT c.machine_id, c.admitted_at FROM claims c JOIN machines m ON m.id = c.machine_id
WHERE c.admitted_at IS NOT NULL AND m.proof <> 'listed'
""")


async def check_records(db: Database) -> None:
    """The record on a machine's row is what its proofs add up to, folded one after the other.

    Void proofs and those at the end of a claim are left out. Nobody is admitted to a machine before it passed.
    """
    async with db.transaction() as connection:
        await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        known = await read(connection, _MACHINES, Machine)
        proofs = await rows(connection, _PROOFS)
        admitted = await rows(connection, _ADMITTED)
    results: dict[UUID, list[Result]] = defaultdict(list)
    for row in proofs:
        occasion, outcome = Occasion(row.occasion), ProofOutcome(row.outcome)
        result = Result(occasion, outcome, row.at, row.code, row.why, bool(row.hints), row.attested)
        results[row.machine_id].append(result)
    for machine in known:
        folded = _folded(results[machine.id])
        assert machine.record == folded, (
            f"{machine.launch_key} is recorded as {machine.record}; its proofs make {folded}"
        )
    for row in admitted:
        _admitted_after_a_pass(results[row.machine_id], row.admitted_at)


def _folded(results: list[Result]) -> Record:
    record = Record()
    for result in results:
        void = result.outcome is ProofOutcome.UNANSWERED and result.code in VOID
        if result.occasion is not Occasion.END and not void:
            record = record.after(result)
    return record


def _admitted_after_a_pass(results: list[Result], admitted_at: datetime) -> None:
    before = [result for result in results if result.at <= admitted_at]
    at_start = [result for result in before if result.occasion is Occasion.START]
    assert at_start, "a customer is on a machine that was never challenged"
    assert at_start[-1].outcome is ProofOutcome.PASSED, "a customer is on a machine that did not pass"
    counted = [result for result in before if not result.void]
    assert counted[-1].code != OwnCode.SOLD_TWICE, "a customer was let in on a GPU that is sold twice"
