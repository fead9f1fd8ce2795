"""What is known when a month is over: rows as they lie in the database, and what the providers know.

Everything is read with SQL of its own. Nothing of it passes through the product's readers or rules.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from control_plane.domain.ids import ProviderRef
from tests.support.month import SHADY, Arm, Injury, Kind, Month
from tests.support.rows import rows
from tests.support.sla_recount import Charge, Line, PromisedLease, Use, Verdict, Work

_LEASES = text("SELECT id, sla, sla_version, created_at, ready_at, end_reason, state FROM leases")
# Notes have the state that a lease is in besides, and are left out but for one.
_JOURNAL = text("""
SELECT lease_id, at, event, CASE WHEN state_after IS DISTINCT FROM state_before THEN state_after END AS state_after
FROM journal WHERE lease_id IS NOT NULL
  AND (state_after IS DISTINCT FROM state_before OR event = 'use_not_billed') ORDER BY number
""")
_CHARGES = text("""
SELECT lease_id, machine_id, started_at, ended_at, stopped, amount_nano FROM charges ORDER BY started_at
""")
_CLAIMS = text("""
SELECT c.lease_id, c.machine_id, m.launch_key, c.claimed_at, c.admitted_at, c.ended_at, m.fail_reason, m.purpose,
       EXISTS (SELECT FROM hand_backs b WHERE b.claim_id = c.id) AS handed_back
FROM claims c JOIN machines m ON m.id = c.machine_id ORDER BY c.claimed_at
""")
_MACHINES = text("""
SELECT id, launch_key, account, region, purpose, pool_id, cost_nano_per_hour, created_at, asked_at, verified_at,
       terminate_asked_at, gone_at, fail_reason
FROM machines
""")
_VERDICTS = text("SELECT machine_id, number, at, verdict, fault FROM health_changes")
_WORKS = text("SELECT machine_id, since, planned_at, ended_at FROM maintenances")
_BREACHES = text("SELECT id, lease_id, promise, month FROM sla_breaches")
_CREDITS = text("""
SELECT b.lease_id, b.month, -sum(p.amount_nano)::bigint AS nano FROM sla_credits c
JOIN sla_breaches b ON b.id = c.breach_id JOIN postings p ON p.transaction_id = c.transaction_id
JOIN ledger_accounts a ON a.id = p.account_id WHERE a.kind = 'credits' GROUP BY 1, 2
""")
_INTERRUPTED = text("""
SELECT lease_id, for_lease_id, interrupted_at FROM preemptions WHERE interrupted_at IS NOT NULL ORDER BY interrupted_at
""")
_ACTIONS = text("SELECT lease_id, detector, action, at FROM enforcement_actions WHERE armed ORDER BY at, id")
_SWITCHES = frozenset({"reboot", "stop", "start"})
"""What a provider is asked to do with the power of a machine."""
_WALLETS = text("""
SELECT count(*) AS n, coalesce(sum(p.amount_nano), 0)::bigint AS nano FROM transactions t
JOIN postings p ON p.transaction_id = t.id JOIN ledger_accounts a ON a.id = p.account_id
WHERE t.kind = 'credit' AND a.kind = 'wallet'
""")


@dataclass(frozen=True)
class Claim:
    lease: str
    machine: str
    launch_key: str
    claimed_at: datetime
    admitted_at: datetime | None
    ended_at: datetime | None
    fail_reason: str | None
    pooled: bool


@dataclass(frozen=True)
class LeaseEnd:
    lease: str
    at: datetime
    event: str
    released_by_customer_at: datetime | None


@dataclass(frozen=True)
class Replacing:
    """A lease that lost its machine and waits for another one."""

    lease: str
    at: datetime


@dataclass(frozen=True)
class Interruption:
    """An interruptible lease whose machine was taken back."""

    lease: str
    for_lease: str
    at: datetime


@dataclass(frozen=True)
class Short:
    """A time without capacity in a region, by leases that ran or waited there."""

    since: datetime
    interruptible: frozenset[str]
    promised: frozenset[str]


@dataclass(frozen=True)
class Switched:
    """What a provider was asked to do with the power of a machine."""

    launch_key: str
    verb: str
    at: datetime


@dataclass(frozen=True)
class Action:
    """What enforcement did about a lease."""

    lease: str
    detector: str
    action: str
    at: datetime


@dataclass(frozen=True)
class AtProvider:
    """A machine as its provider knows it, with the time in which somebody of ours had a use for it."""

    launch_key: str
    account: str
    launched_at: datetime
    ended_at: datetime | None
    never_ran: bool
    """It never booted, or not within the time in which machines have to."""
    lied_about: bool
    """Its launch was answered wrongly, or not at all."""
    owned: tuple[tuple[datetime, datetime | None], ...]
    """Claims, and the time in which it waited in a pool."""


@dataclass(frozen=True)
class Waited:
    """A request in one region, and how long it waited until its lease was ready."""

    arm: Arm
    arrival: int
    tier: str
    seconds: float | None
    """None when it was never ready."""
    pooled: bool


@dataclass(frozen=True)
class Evidence:
    until: datetime
    leases: Sequence[PromisedLease]
    ends: Sequence[LeaseEnd]
    claims: Sequence[Claim]
    machines: Sequence[AtProvider]
    injuries: Sequence[Injury]
    replacings: Sequence[Replacing]
    interruptions: Sequence[Interruption]
    short: Short | None
    switched: Sequence[Switched]
    actions: Sequence[Action]
    """Of detectors that were armed."""
    breaches: frozenset[tuple[str, tuple[int, int], str]]
    """Lease, month and promise, as the product stored them."""
    credits: Mapping[tuple[str, tuple[int, int]], int]
    """What the ledger has, in nano-USD, by lease and month."""
    wallet_credits: int
    """All credits that wallets got, whatever they are for."""
    charges_of_machines: Mapping[str, Sequence[Charge]]
    """By launch key."""
    waits: Sequence[Waited]
    idle_nano: Mapping[Arm, int]
    """What machines cost that waited in the pool of each region, by provider's price and seconds."""


async def read(month: Month) -> Evidence:
    async with month.stage.db.reading() as connection:
        leases = await rows(connection, _LEASES)
        journal = await rows(connection, _JOURNAL)
        charges = await rows(connection, _CHARGES)
        claims = await rows(connection, _CLAIMS)
        machines = await rows(connection, _MACHINES)
        verdicts = await rows(connection, _VERDICTS)
        works = await rows(connection, _WORKS)
        breaches = await rows(connection, _BREACHES)
        credited = await rows(connection, _CREDITS)
        (wallets,) = await rows(connection, _WALLETS)
        interrupted = await rows(connection, _INTERRUPTED)
        actions = await rows(connection, _ACTIONS)
    keys = {machine.id: str(machine.launch_key) for machine in machines}
    lines = _grouped(journal, "lease_id")
    of_lease = _grouped(charges, "lease_id")
    of_machine = _grouped(charges, "machine_id")
    claimed = _grouped(claims, "lease_id")
    promised = [
        _promised(row, lines[row.id], of_lease[row.id], claimed[row.id], verdicts, works)
        for row in leases
        if row.sla_version is not None
    ]
    released = {str(request.lease.id): request.released_at for request in month.requests} | month.released
    return Evidence(
        until=month.now,
        leases=promised,
        ends=[
            LeaseEnd(str(row.id), line.at, line.event, released.get(str(row.id)))
            for row in leases
            for line in lines[row.id]
            if line.state_after == "ending"
        ],
        claims=[
            Claim(
                str(row.lease_id),
                str(row.machine_id),
                row.launch_key,
                row.claimed_at,
                row.admitted_at,
                row.ended_at,
                row.fail_reason,
                row.purpose == "pool",
            )
            for row in claims
        ],
        machines=_at_providers(month, machines, claims),
        injuries=tuple(month.injuries),
        replacings=[Replacing(str(line.lease_id), line.at) for line in journal if line.event == "replacing"],
        interruptions=[
            Interruption(str(row.lease_id), str(row.for_lease_id), row.interrupted_at) for row in interrupted
        ],
        short=_short(month),
        switched=_switched(month),
        actions=[Action(str(row.lease_id), row.detector, row.action, row.at) for row in actions],
        breaches=frozenset((str(row.lease_id), _month(row.month), row.promise) for row in breaches),
        credits={(str(row.lease_id), _month(row.month)): row.nano for row in credited},
        wallet_credits=wallets.nano,
        charges_of_machines={
            keys[machine_id]: [_charge(row) for row in found] for machine_id, found in of_machine.items()
        },
        waits=_waits(month, leases, claimed),
        idle_nano=_idle(month, machines, claims),
    )


def _short(month: Month) -> Short | None:
    if month.shortage is None:
        return None
    interruptible, promised = (
        frozenset(str(lease.id) for lease in leases)
        for leases in (month.shortage.interruptible, month.shortage.promised)
    )
    return Short(month.shortage.since, interruptible, promised)


def _switched(month: Month) -> list[Switched]:
    return [
        Switched(cloud.machines[ProviderRef(call.subject)].launch_key, call.verb, call.at)
        for cloud in month.stage.clouds.values()
        for call in cloud.calls
        if call.verb in _SWITCHES
    ]


def _grouped(found: Sequence[Any], column: str) -> dict[Any, list[Any]]:
    made: dict[Any, list[Any]] = defaultdict(list)
    for row in found:
        made[getattr(row, column)].append(row)
    return made


def _month(moment: datetime) -> tuple[int, int]:
    return moment.year, moment.month


def _charge(row: Any) -> Charge:
    return Charge(row.started_at, row.ended_at, row.stopped, row.amount_nano)


def _promised(
    row: Any,
    lines: Sequence[Any],
    charges: Sequence[Any],
    claims: Sequence[Any],
    verdicts: Sequence[Any],
    works: Sequence[Any],
) -> PromisedLease:
    used = {claim.machine_id for claim in claims if claim.admitted_at is not None}
    return PromisedLease(
        id=str(row.id),
        tier=row.sla,
        created_at=row.created_at,
        journal=[Line(line.at, line.event, line.state_after) for line in lines],
        charges=[_charge(charge) for charge in charges],
        uses=[
            Use(str(claim.machine_id), claim.admitted_at, claim.ended_at, claim.handed_back)
            for claim in claims
            if claim.admitted_at is not None
        ],
        verdicts=[
            Verdict(str(each.machine_id), each.number, each.at, each.verdict, each.fault)
            for each in verdicts
            if each.machine_id in used
        ],
        works=[
            Work(str(each.machine_id), each.since, each.planned_at or each.since, each.ended_at)
            for each in works
            if each.machine_id in used
        ],
    )


def _at_providers(month: Month, machines: Sequence[Any], claims: Sequence[Any]) -> list[AtProvider]:
    records = {row.launch_key: row for row in machines}
    claimed = _grouped(claims, "launch_key")
    launches = [call for call in month.shady.calls if call.verb == "launch"]
    lied = {
        call.subject
        for since, number in month.lies
        for call in [call for call in launches if call.at >= since][:number]
    }
    found = []
    for account, cloud in month.stage.clouds.items():
        boot_max = cloud.capabilities.boot_seconds_max
        for machine in cloud.machines.values():
            record = records.get(machine.launch_key)
            owned = [(claim.claimed_at, claim.ended_at) for claim in claimed[machine.launch_key]]
            if record is not None and record.purpose == "pool":
                ends = [claim.claimed_at for claim in claimed[machine.launch_key]]
                ends += [at for at in (record.terminate_asked_at, record.gone_at) if at is not None]
                owned.append((record.created_at, min(ends, default=None)))
            ran_after = None if machine.runs_from is None else machine.runs_from - machine.launched_at
            found.append(
                AtProvider(
                    machine.launch_key,
                    account,
                    machine.launched_at,
                    machine.ended_at,
                    ran_after is None or ran_after.total_seconds() > boot_max,
                    account == SHADY and machine.launch_key in lied,
                    tuple(owned),
                )
            )
    return found


def _waits(month: Month, leases: Sequence[Any], claimed: Mapping[Any, Sequence[Any]]) -> list[Waited]:
    by_id = {row.id: row for row in leases}
    found = []
    for request in month.requests:
        row = by_id[request.lease.id]
        seconds = None if row.ready_at is None else (row.ready_at - row.created_at).total_seconds()
        first = claimed[row.id][0] if claimed[row.id] else None
        pooled = first is not None and first.purpose == "pool"
        found.append(Waited(request.arm, request.arrival.number, row.sla, seconds, pooled))
    return found


def _idle(month: Month, machines: Sequence[Any], claims: Sequence[Any]) -> dict[Arm, int]:
    """What each provider billed for machines of a pool from their launch to their claim or their end."""
    claimed = {claim.machine_id: claim.claimed_at for claim in claims}
    arms = {pool_id: arm for arm, pool_id in month.pools.items()}
    of_key = {
        machine.launch_key: machine
        for cloud in month.stage.clouds.values()
        for machine in cloud.machines.values()
    }
    idle = dict.fromkeys(Arm, 0)
    for row in machines:
        machine = of_key.get(row.launch_key)
        if row.pool_id is None or machine is None:
            continue
        end = min(at for at in (claimed.get(row.id), machine.ended_at, month.now) if at is not None)
        seconds = max(0, int((end - machine.launched_at).total_seconds()))
        idle[arms[row.pool_id]] += round(row.cost_nano_per_hour * seconds / 3_600)
    return idle


HURT = frozenset({Kind.DOWN, Kind.DEAD, Kind.VANISHED})
"""Nobody could use a machine to which one of these happened."""
