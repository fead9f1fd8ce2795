"""Which machines of an account count as failing, so that many of them stop all terminations there (law 5)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import accounts, proof_records
from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.proof import Occasion, OwnCode, ProofOutcome
from tests.integration.db.sample import OURS, A, a_row, fill, insert
from tests.support.clock import START

pytestmark = pytest.mark.database
MINUTE = timedelta(minutes=1)
MACHINE, NOBODY = MachineId(UUID(int=1)), MachineId(UUID(int=2))
FAILED: dict[str, Any] = {
    "machine_id": MACHINE,
    "outcome": ProofOutcome.FAILED,
    "occasion": Occasion.IDLE,
    "ended": False,
    "code": "wrong",
    "at": START,
}
SUSPECT = text("UPDATE machines SET state = :state, suspect_since = :since, asked_at = created_at")


async def _count(database: Database, account: AccountName, *, but: MachineId = NOBODY) -> int:
    async with database.transaction() as connection:
        return await proof_records.failing_machines(connection, account, since=START - MINUTE, but=but)


async def test_a_machine_whose_failure_is_on_record_counts_though_it_is_gone_or_cleared(
    own: Database,
) -> None:
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({}, 1),
        ({"outcome": ProofOutcome.EMULATED}, 1),
        ({"outcome": ProofOutcome.UNANSWERED, "ended": True}, 1),
        ({"outcome": ProofOutcome.UNANSWERED}, 0),
        ({"outcome": ProofOutcome.PASSED}, 0),
        ({"occasion": Occasion.END}, 0),
        ({"code": OwnCode.SHOWN_ELSEWHERE}, 0),
        ({"at": START - MINUTE}, 0),
    )
    for number, (changed, counted) in enumerate(cases):
        account = AccountName(f"account_{number}")
        row = a_row("proof_records", OURS, number, **FAILED | {"account": account} | changed)
        async with own.transaction() as connection:
            await accounts.register(connection, account, "a", now=START)
            await insert(connection, "proof_records", row)
        assert await _count(own, account) == counted, changed
        assert await _count(own, account, but=MACHINE) == 0, changed


async def test_a_suspect_machine_counts_while_it_runs(own: Database) -> None:
    account = AccountName(a_row("provider_accounts", OURS)["name"])
    async with own.transaction() as connection:
        await fill(connection, A)
    before = await _count(own, account)
    for state, since, counted in (("verified", START, 2), ("verified", None, 0), ("terminating", START, 0)):
        async with own.transaction() as connection:
            await connection.execute(SUSPECT, {"state": state, "since": since})
        assert await _count(own, account) == before + counted, (state, since)
