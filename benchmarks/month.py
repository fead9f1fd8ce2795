"""Thirty simulated days of a whole cloud: promises kept, credits, wrong actions, and three policies of warm pools.

The scenario of tests/scenario/test_month.py with more of everything: four times the leases, and more than twice the
failures. It takes minutes of real time.
"""

import os
from collections import Counter

import asyncpg

from benchmarks import ground
from benchmarks.results import Figure, percentile
from control_plane.db.engine import Database, Role
from control_plane.domain.money import NANO_PER_USD
from tests.support import month_evidence
from tests.support.month import Arm, Size, begin, finish
from tests.support.month_evidence import Evidence
from tests.support.wrong_actions import expected, wrong_actions

SIZE = Size(
    per_busy_hour=float(os.environ.get("BENCH_MONTH_ARRIVALS", "0.5")),
    per_quiet_hour=0.04,
    injuries=40,
    troubles=16,
)
PROMISES = ("availability", "replacement", "ready", "notice")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_month")
    await _commit_without_the_disk(url)
    db = Database(ground.login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=4, readers=2)
    api_db = Database(ground.login_url(url, Role.API), role=Role.API, pool_size=2, readers=1)
    try:
        month = await begin(db, SIZE, api_db=api_db)
        await finish(month)
        evidence = await month_evidence.read(month)
    finally:
        await api_db.close()
        await db.close()
    wrong = wrong_actions(evidence)
    for name, found in wrong.items():
        for sentence in found:
            print(f"{name}: {sentence}")
    happened = Counter(str(injury.kind) for injury in month.injuries)
    return [
        Figure("month: leases", len(evidence.leases), ""),
        Figure("month: machines that providers made", len(evidence.machines), ""),
        Figure(
            "month: machines of customers to which something happened",
            len(month.injuries),
            "",
            note=", ".join(f"{kind} {times}" for kind, times in sorted(happened.items())),
        ),
        *_promises(evidence),
        *_credits(evidence),
        *(
            Figure(f"month: {name.replace('_', ' ')}", len(found), "", "<= 0")
            for name, found in wrong.items()
        ),
        *_policies(evidence),
    ]


async def _commit_without_the_disk(url: str) -> None:
    """Nothing that is measured depends on it: the month has a clock of its own, and is not played on after a crash."""
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER DATABASE bench_month SET synchronous_commit TO off")
    await connection.close()


def _promises(evidence: Evidence) -> list[Figure]:
    tiers = {lease.id: lease.tier for lease in evidence.leases}
    leases = Counter(tiers.values())
    broken = Counter((tiers[lease], promise) for lease, _, promise in evidence.breaches)
    return [
        Figure(
            f"month: {tier}, leases with a broken promise",
            len({lease for lease, _, _ in evidence.breaches if tiers[lease] == tier}),
            "",
            note=f"of {leases[tier]}; "
            + ", ".join(
                f"{promise} {broken[tier, promise]}" for promise in PROMISES if broken[tier, promise]
            ),
        )
        for tier in ("bronze", "silver", "gold")
    ]


def _credits(evidence: Evidence) -> list[Figure]:
    recounted = {
        (lease, month): due.nano
        for lease, months in expected(evidence).items()
        for month, due in months.items()
    }
    differing = sum(
        abs(evidence.credits.get(key, 0) - recounted.get(key, 0))
        for key in evidence.credits.keys() | recounted
    )
    return [
        Figure("month: credited", sum(evidence.credits.values()) / NANO_PER_USD, "USD"),
        Figure(
            "month: too much or too little, by the second computation",
            differing / NANO_PER_USD,
            "USD",
            "<= 0",
        ),
    ]


def _policies(evidence: Evidence) -> list[Figure]:
    found = []
    for arm in Arm:
        waits = [each for each in evidence.waits if each.arm is arm and each.seconds is not None]
        seconds = [each.seconds for each in waits if each.seconds is not None]
        hits = sum(each.pooled for each in waits)
        name = f"month: policy {arm}"
        note = f"{hits} of {len(waits)} leases came from the pool"
        found += [
            Figure(f"{name}, mean wait", sum(seconds) / len(seconds), "s", note=note),
            Figure(f"{name}, wait p95", percentile(seconds, 0.95), "s"),
            Figure(f"{name}, idle cost", evidence.idle_nano[arm] / NANO_PER_USD, "USD"),
        ]
    return found
