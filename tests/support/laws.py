"""The laws of machines and money as one check, run after every step of a scenario."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from sqlalchemy import text

from control_plane.db import ledger
from control_plane.db.engine import Database
from control_plane.db.tables.leases import leases
from control_plane.domain.ledger import AccountKind
from control_plane.domain.tariff import billing_start, unit_seconds_total
from providers.fake import FakeProvider
from tests.support import proof_laws
from tests.support.rows import rows

_KEYS = text("SELECT launch_key, provider_ref, state, asked_at, gone_evidence FROM machines")
_TAKEN_TWICE = text("""
SELECT count(*) AS n FROM claims a JOIN claims b ON a.machine_id = b.machine_id AND a.id < b.id
WHERE (a.slot IS NULL OR b.slot IS NULL OR a.slot = b.slot)
  AND tstzrange(a.claimed_at, a.ended_at) && tstzrange(b.claimed_at, b.ended_at)
""")
_UNCLAIMED = text("""
SELECT count(*) AS n FROM machines m
WHERE m.purpose = 'lease' AND m.state IN ('intended', 'launching', 'booting', 'bootstrapping', 'verified')
  AND NOT EXISTS (SELECT FROM claims c WHERE c.machine_id = m.id AND c.released_at IS NULL)
""")
_LEASES = text(f"""
SELECT {", ".join(f"l.{column.name}" for column in leases.columns)},
       (SELECT coalesce(sum(unit_seconds), 0) FROM intervals i WHERE i.lease_id = l.id AND NOT i.unused) AS metered,
       (SELECT coalesce(sum(amount_nano), 0) FROM charges c WHERE c.lease_id = l.id) AS charged,
       (SELECT coalesce(sum(unit_seconds), 0) FROM charges c WHERE c.lease_id = l.id AND NOT c.unused) AS rated,
       (SELECT coalesce(sum(unit_seconds), 0) FROM charges c WHERE c.lease_id = l.id AND c.unused) AS rated_unused,
       (SELECT coalesce(sum(unit_seconds), 0) FROM charges c WHERE c.lease_id = l.id AND c.stopped) AS rated_stopped,
       (SELECT count(*) FROM claims c JOIN machines m ON m.id = c.machine_id
        WHERE c.lease_id = l.id AND c.slot IS NULL AND m.state <> 'gone') AS open,
       (SELECT count(*) FROM claims c WHERE c.lease_id = l.id AND c.ended_at IS NULL) AS claims,
       EXISTS (SELECT FROM powers w JOIN claims c ON c.id = w.claim_id
               WHERE w.lease_id = l.id AND w.stopped AND c.ended_at IS NULL) AS stopped,
       (SELECT count(*) FROM attempts a WHERE a.lease_id = l.id) AS tries,
       (SELECT count(*) FROM attempts a WHERE a.lease_id = l.id AND a.outcome IS NULL) AS trying,
       (SELECT posted_nano FROM holds h WHERE h.lease_id = l.id) AS posted,
       (SELECT amount_nano FROM holds h WHERE h.lease_id = l.id) AS held
FROM leases l
""")
_STANDINGS = text("""
SELECT s.organization_id, s.gpus_held, s.transaction_count, s.posted_nano, s.receivable_nano, s.held_nano,
  (SELECT coalesce(sum(gpu_count), 0) FROM leases l
   WHERE l.organization_id = s.organization_id AND l.state IN ('placing', 'starting', 'ready')) AS gpus,
  (SELECT coalesce(sum(amount_nano), 0) FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
   WHERE a.organization_id = s.organization_id AND a.kind = 'wallet') AS wallet,
  (SELECT coalesce(sum(amount_nano), 0) FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
   WHERE a.organization_id = s.organization_id AND a.kind = 'receivable') AS owed,
  (SELECT coalesce(sum(amount_nano), 0) FROM holds h WHERE h.organization_id = s.organization_id) AS held,
  (SELECT coalesce(max(limit_nano), 0) FROM credit_terms t WHERE t.organization_id = s.organization_id) AS credit_limit,
  (SELECT coalesce(-sum(amount_nano), 0) FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
   JOIN transactions t ON t.id = p.transaction_id AND t.kind = 'charge_back'
   WHERE a.organization_id = s.organization_id AND a.kind = 'wallet') AS charged_back
FROM standings s
""")
# Each transaction follows the one before it: the next number, and the balances after it.
_CHAIN = text("""
SELECT organization_id, number, wallet_after_nano, receivable_after_nano,
       row_number() OVER so_far AS place, sum(wallet_nano) OVER so_far AS wallet,
       sum(receivable_nano) OVER so_far AS receivable
FROM transactions t CROSS JOIN LATERAL (
  SELECT coalesce(sum(p.amount_nano) FILTER (WHERE a.kind = 'wallet'), 0) AS wallet_nano,
         coalesce(sum(p.amount_nano) FILTER (WHERE a.kind = 'receivable'), 0) AS receivable_nano
  FROM postings p JOIN ledger_accounts a ON a.id = p.account_id WHERE p.transaction_id = t.id
) moved
WINDOW so_far AS (PARTITION BY organization_id ORDER BY number)
""")
_CAPACITY = text("""
SELECT coalesce(h.gpus, 0) AS gpus, coalesce(h.nano_per_hour, 0) AS nano_per_hour, coalesce(l.gpus, 0) AS held,
       coalesce(l.nano_per_hour, 0) AS costs
FROM capacity_held h FULL JOIN (
  SELECT environment_id, gpu_model, sum(gpu_count) AS gpus, sum(units * nano_per_unit_hour) AS nano_per_hour
  FROM leases WHERE state IN ('placing', 'starting', 'ready') GROUP BY environment_id, gpu_model
) l ON l.environment_id = h.environment_id AND coalesce(l.gpu_model, '') = coalesce(h.gpu_model, '')
""")
_MONTHS = text("""
SELECT coalesce(m.charged_nano, 0) AS counted, coalesce(c.charged_nano, 0) AS charged
FROM month_spends m FULL JOIN (
  SELECT l.environment_id, date_trunc('month', c.started_at, 'UTC') AS month, sum(c.amount_nano) AS charged_nano
  FROM charges c JOIN leases l ON l.id = c.lease_id GROUP BY 1, 2
) c USING (environment_id, month)
""")
_OVERLAPS = text("""
SELECT count(*) AS n FROM intervals a JOIN intervals b
ON a.lease_id = b.lease_id AND a.number < b.number AND a.ended_at > b.started_at
""")


async def check(db: Database, *clouds: FakeProvider, planted: Collection[str] = ()) -> None:
    """Raise AssertionError when a law is broken at this moment, whatever the loops have yet to do.

    `planted` are launch keys of machines that a test put into a cloud by itself.
    """
    async with db.reading() as connection:
        machines = await rows(connection, _KEYS)
        leases = await rows(connection, _LEASES)
        standings = await rows(connection, _STANDINGS)
        chain = await rows(connection, _CHAIN)
        capacity = await rows(connection, _CAPACITY)
        months = await rows(connection, _MONTHS)
        overlaps = (await rows(connection, _OVERLAPS))[0].n
        taken_twice = (await rows(connection, _TAKEN_TWICE))[0].n
        unclaimed = (await rows(connection, _UNCLAIMED))[0].n
        totals = await ledger.totals(connection)
    _machines(machines, clouds, planted)
    for lease in leases:
        _lease(lease)
    assert overlaps == 0, "an hour is metered twice"
    assert taken_twice == 0, "two leases have the same machine at the same time (law 13)"
    assert unclaimed == 0, "a machine that was ordered for a lease is kept, and nobody claims it"
    await proof_laws.check_records(db)
    assert sum(totals.values()) == 0, f"the ledger is out of balance: {totals}"
    assert sum(lease.charged for lease in leases) == totals.get(AccountKind.REVENUE, 0), "rated is not posted"
    for row in capacity:
        assert (row.gpus, row.nano_per_hour) == (row.held, row.costs), (
            "what envelopes count is not the leases'"
        )
    for month in months:
        assert month.counted == month.charged, "the spend of a month is not its charges'"
    for transaction in chain:
        assert transaction.number == transaction.place, "a transaction of an organization is not counted"
        assert (transaction.wallet_after_nano, transaction.receivable_after_nano) == (
            transaction.wallet,
            transaction.receivable,
        ), f"the balances after transaction {transaction.number} are not the postings'"
    counts = Counter(transaction.organization_id for transaction in chain)
    for standing in standings:
        assert standing.transaction_count == counts[standing.organization_id], "a transaction is not counted"
        assert standing.gpus_held == standing.gpus, "the quota's count is not the leases'"
        assert standing.posted_nano == standing.wallet, "the cached balance is not the postings'"
        assert standing.receivable_nano == standing.owed, "the cached receivable is not the postings'"
        assert standing.held_nano == standing.held, "the cached holds are not the holds'"
        may_lack = standing.credit_limit + standing.charged_back
        assert standing.posted_nano + may_lack >= standing.held_nano >= 0, (
            f"{standing.organization_id} has {standing.posted_nano} and set {standing.held_nano} aside"
        )


def _machines(machines: Sequence[Any], clouds: Sequence[FakeProvider], planted: Collection[str]) -> None:
    known = {row.launch_key: row for row in machines}
    for cloud in clouds:
        for key, bought in cloud.ever_by_key().items():
            assert bought <= 1 + (key in planted), f"{key} bought {bought} machines (law 2)"
            assert key in known or key in planted, f"{key} has no record (law 1)"
        for machine in cloud.alive():
            row = known.get(machine.launch_key)
            assert row is None or row.asked_at is not None, (
                f"{machine.launch_key} lives and was never asked for"
            )
    launched = Counter(row.provider_ref for row in machines if row.provider_ref and row.state != "gone")
    assert all(times == 1 for times in launched.values()), f"a machine is claimed twice: {launched}"
    for row in machines:
        if row.state == "gone" and row.asked_at is not None:
            assert row.gone_evidence, f"{row.launch_key} is closed without evidence (law 3)"


def _lease(lease: Any) -> None:
    if lease.ready_at is None:
        assert lease.metered == 0, f"{lease.id} is billed before it was ready (law 6)"
    else:
        until = lease.billed_until or lease.metered_until or lease.ready_at
        if lease.release_at is not None:
            until = min(until, lease.release_at)
            assert lease.billed_until is None or lease.billed_until <= lease.release_at, (
                f"{lease.id} is billed after it was to be released"
            )
        limit = billable_unit_seconds(lease, until)
        assert lease.metered <= limit, f"{lease.id} is billed {lease.metered} of {limit} unit-seconds"
    on = lease.rated - lease.rated_stopped + lease.rated_unused
    assert lease.charged == _cost(lease, on, lease.rated_stopped), (
        f"{lease.id}: the parts do not add up (law 7)"
    )
    assert lease.tries == lease.attempts, f"{lease.id} counts {lease.attempts} of {lease.tries} attempts"
    assert lease.claims == lease.trying + (lease.state == "ready"), (
        f"{lease.id} is {lease.state} with {lease.claims} open claims and {lease.trying} attempts under way"
    )
    assert lease.claims == (lease.state in ("starting", "ready")), f"{lease.id} is {lease.state}"
    if lease.billed_until is not None:
        stopped = stopped_unit_seconds(lease, lease.billed_until)
        total = billable_unit_seconds(lease, lease.billed_until)
        owed = _cost(lease, total - stopped + lease.unused_unit_seconds, stopped)
        assert lease.posted + lease.held == owed, (
            f"{lease.id} has {lease.held} set aside for its last charges"
        )
    if lease.state in ("placing", "starting", "ready"):
        waits = lease.ready_at is not None and lease.state != "ready"
        assert len(lease.paused_at) % 2 == waits, f"{lease.id} is {lease.state}, with its bill paused or not"
    if lease.state == "ready":
        assert len(lease.switched_at) % 2 == lease.stopped, f"{lease.id} has another price than its machine"
    assert lease.posted == lease.charged, f"{lease.id}: the hold counts {lease.posted} of {lease.charged}"
    if lease.state == "ended":
        assert lease.open == 0, f"{lease.id} is closed while a machine may live (law 3)"


def _cost(lease: Any, on: int, stopped: int) -> int:
    """What unit-seconds of a lease cost, by fractions and not by the code of the product."""
    prices = ((on, lease.nano_per_unit_hour), (stopped, lease.stopped_nano_per_unit_hour))
    return sum(round(Fraction(int(seconds) * nano, 3_600)) for seconds, nano in prices)


def stopped_unit_seconds(lease: Any, until: datetime) -> int:
    """In how many billed unit-seconds before `until` the machine was stopped, counted second by second."""
    if not lease.switched_at or lease.committed_days is not None:
        return 0  # A term costs the same, and is one total.
    switched: list[datetime] = [at.replace(microsecond=0) for at in lease.switched_at]
    billed = _billed_seconds(lease, until)
    return sum(sum(at <= second for at in switched) % 2 for second in billed) * int(lease.units)


def billable_unit_seconds(lease: Any, until: datetime) -> int:
    """How many unit-seconds before `until` are billed: those in which the bill was not paused."""
    if not lease.paused_at:
        return unit_seconds_total(lease.ready_at, int(lease.units), until)
    return sum(1 for _ in _billed_seconds(lease, until)) * int(lease.units)


def _billed_seconds(lease: Any, until: datetime) -> Iterator[datetime]:
    """A bill is paused from the second on in which its pause lies, and resumed with the first full one after it."""
    second, paused, resumed = billing_start(lease.ready_at), lease.paused_at[::2], lease.paused_at[1::2]
    while second < until.replace(microsecond=0):
        begun = sum(at.replace(microsecond=0) <= second for at in paused)
        if begun == sum(at <= second for at in resumed):
            yield second
        second += timedelta(seconds=1)


async def check_finished(db: Database, *clouds: FakeProvider, planted: Collection[str] = ()) -> None:
    """The laws, and that nothing is left: no machine, no open record, every second billed, every hold returned."""
    await check(db, *clouds, planted=planted)
    for cloud in clouds:
        assert not cloud.alive(), f"machines are left: {[m.launch_key for m in cloud.alive()]}"
    async with db.reading() as connection:
        for lease in await rows(connection, _LEASES):
            assert lease.state == "ended", f"{lease.id} is {lease.state}"
            assert lease.held == 0, f"{lease.id} still holds {lease.held}"
            if lease.ready_at is not None:
                total = billable_unit_seconds(lease, lease.billed_until)
                assert lease.metered == lease.rated == total, (
                    f"{lease.id}: {lease.rated} of {total} unit-seconds billed"
                )
                assert lease.rated_unused == lease.unused_unit_seconds, (
                    f"{lease.id}: {lease.rated_unused} of {lease.unused_unit_seconds} unused unit-seconds billed"
                )
                stopped = stopped_unit_seconds(lease, lease.billed_until)
                assert lease.rated_stopped == stopped, (
                    f"{lease.id}: {lease.rated_stopped} of {stopped} unit-seconds billed as stopped"
                )
