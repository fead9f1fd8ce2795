"""Queries on what became of the machines of offers, by which offers are ranked."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.block import REFUSED
from control_plane.domain.effective_price import History
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import MachineState
from control_plane.domain.offer_key import record_key

_NOT_THE_OFFERS = OURS | {FailReason.LEASE_ENDED, FailReason.NOT_RUNNING}
# A machine counts once it is usable, or a customer was on it, or it failed; a refused order and one that its lease gave
# up before say nothing.
_OF_ACCOUNT = text(f"""
SELECT offer_key, count(*) AS tried, count(*) FILTER (WHERE fail_reason IS NOT NULL) AS failed FROM machines
WHERE account = :account AND asked_at > :since
  AND (state = '{MachineState.VERIFIED}' OR fail_reason IS NOT NULL OR EXISTS (
    SELECT FROM claims c WHERE c.machine_id = machines.id AND c.admitted_at IS NOT NULL))
  AND (fail_reason IS NULL OR NOT {among("fail_reason", _NOT_THE_OFFERS | REFUSED)})
GROUP BY offer_key
""")


@dataclass(frozen=True, slots=True)
class _OfferHistory:
    offer_key: str
    tried: int
    failed: int


async def of_account(connection: Connection, account: AccountName, *, since: datetime) -> dict[str, History]:
    """By record key, what became of the machines that were ordered since then."""
    histories: dict[str, History] = {}
    for each in await read(connection, _OF_ACCOUNT, _OfferHistory, account=account, since=since):
        key = record_key(each.offer_key)
        before = histories.get(key, History())
        histories[key] = History(before.tried + each.tried, before.failed + each.failed)
    return histories
