"""Thirty simulated days with seasons, failures and a bad provider: promises, credits, pools, and no wrong action.

The month is played once for all tests here. What it is judged by is independent of the product: a second computation of
credits (`sla_recount.py`) and checks of wrong actions (`wrong_actions.py`), of which each can fail.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from control_plane.db.engine import Database, Role
from control_plane.domain.ids import LaunchKey
from tests.support import laws, month_evidence
from tests.support.database import fresh_database, login_url
from tests.support.month import Arm, Injury, Kind, Month, Size, begin, finish
from tests.support.month_evidence import Action, Evidence, Replacing, Switched
from tests.support.sla_recount import Charge
from tests.support.wrong_actions import WRONG, expected, healthy_machines_taken_away, wrong_actions

pytestmark = [pytest.mark.database, pytest.mark.xdist_group("month"), pytest.mark.timeout(900)]
SIZE = Size()
DAYS = 30


@dataclass(frozen=True)
class Played:
    month: Month
    evidence: Evidence


@pytest.fixture(scope="module")
async def played(server_url: str, template: str) -> AsyncIterator[Played]:
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=4, readers=2)
        api_db = Database(login_url(url, Role.API), role=Role.API, pool_size=2, readers=1)
        month = await begin(db, SIZE, api_db=api_db)
        await finish(month)
        yield Played(month, await month_evidence.read(month))
        await asyncio.gather(api_db.close(), db.close())


async def test_thirty_days_pass_and_nothing_wrong_is_done(played: Played) -> None:
    month, evidence = played.month, played.evidence
    assert evidence.until - month.ends_at >= timedelta(0)
    assert month.ends_at - min(lease.created_at for lease in evidence.leases) > timedelta(days=DAYS - 3)
    assert wrong_actions(evidence) == {name: [] for name in WRONG}
    await laws.check_finished(month.stage.db, *month.stage.clouds.values())
    kinds = Counter(injury.kind for injury in month.injuries)
    assert set(kinds) == set(Kind), f"everything happens: {kinds}, {month.skipped}"


async def test_what_is_armed_acts_where_it_has_to(played: Played) -> None:
    """Otherwise no wrong action of these kinds would say nothing."""
    evidence = played.evidence
    reset = {injury.launch_key for injury in evidence.injuries if injury.kind is Kind.NEEDS_RESET}
    assert {each.launch_key for each in evidence.switched if each.verb == "reboot"} == reset
    (interruption,) = evidence.interruptions
    assert evidence.short is not None
    assert interruption.for_lease in evidence.short.promised
    assert {action.action for action in evidence.actions} >= {"notify"}
    assert evidence.replacings


async def test_credits_are_those_of_a_second_computation_from_raw_evidence(played: Played) -> None:
    wanted = {
        (lease, month): due.nano
        for lease, months in expected(played.evidence).items()
        for month, due in months.items()
        if due.nano
    }
    assert wanted == {key: nano for key, nano in played.evidence.credits.items() if nano}
    assert len(wanted) >= 5, "promises were broken"
    assert len({month for _, month in wanted}) == 2, "the month ended meanwhile"
    broken = {promise for _, _, promise in played.evidence.breaches}
    assert broken >= {"availability", "ready", "notice"}


async def test_a_pool_shortens_the_wait_and_costs_what_idles(played: Played) -> None:
    waits: dict[Arm, list[float]] = {arm: [] for arm in Arm}
    for waited in played.evidence.waits:
        if waited.seconds is not None:
            waits[waited.arm].append(waited.seconds)
    mean = {arm: sum(found) / len(found) for arm, found in waits.items()}
    idle = played.evidence.idle_nano
    assert idle[Arm.NONE] == 0 < idle[Arm.NEWSVENDOR] < idle[Arm.FIXED]
    assert mean[Arm.FIXED] < mean[Arm.NONE]
    assert mean[Arm.NEWSVENDOR] < mean[Arm.NONE]


# Each check can fail


def _first_admitted(evidence: Evidence) -> month_evidence.Claim:
    """A claim of a machine to which nothing happened, which its customer ended."""
    hurt = {injury.launch_key for injury in evidence.injuries}
    return next(
        claim
        for claim in evidence.claims
        if claim.admitted_at is not None and claim.launch_key not in hurt and claim.ended_at is not None
    )


def _taken(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    assert claim.ended_at is not None
    early = replace(claim, ended_at=claim.ended_at - timedelta(minutes=1))
    return replace(evidence, claims=[early if each is claim else each for each in evidence.claims])


def _ended(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    ends = [
        replace(end, event="machine_lost", released_by_customer_at=None) if end.lease == claim.lease else end
        for end in evidence.ends
    ]
    return replace(evidence, ends=ends)


def _given_up(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    early = replace(claim, admitted_at=None, ended_at=claim.claimed_at + timedelta(minutes=1))
    return replace(evidence, claims=[early if each is claim else each for each in evidence.claims])


def _credited(evidence: Evidence) -> Evidence:
    key = next(iter(evidence.credits))
    return replace(evidence, credits=dict(evidence.credits) | {key: evidence.credits[key] + 1})


def _uncredited(evidence: Evidence) -> Evidence:
    key = next(key for key, nano in evidence.credits.items() if nano)
    return replace(evidence, credits={each: nano for each, nano in evidence.credits.items() if each != key})


def _untold(evidence: Evidence) -> Evidence:
    return replace(evidence, breaches=frozenset(sorted(evidence.breaches)[1:]))


def _forgotten(evidence: Evidence) -> Evidence:
    machines = [replace(each, ended_at=None) if n == 0 else each for n, each in enumerate(evidence.machines)]
    return replace(evidence, machines=machines)


def _billed(evidence: Evidence) -> Evidence:
    injury = next(each for each in evidence.injuries if each.kind is Kind.DOWN)
    charge = Charge(injury.since, injury.since + timedelta(seconds=30), stopped=False, nano=1)
    charged = dict(evidence.charges_of_machines)
    charged[injury.launch_key] = [*charged.get(injury.launch_key, ()), charge]
    return replace(evidence, charges_of_machines=charged)


def _shared(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    return replace(evidence, claims=[*evidence.claims, replace(claim, lease="another")])


def _doubled(evidence: Evidence) -> Evidence:
    return replace(evidence, machines=[*evidence.machines, evidence.machines[0]])


def _replaced(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    assert claim.ended_at is not None
    return replace(evidence, replacings=[*evidence.replacings, Replacing(claim.lease, claim.ended_at)])


def _interrupted(evidence: Evidence) -> Evidence:
    (needed,) = evidence.interruptions
    return replace(evidence, interruptions=[needed, replace(needed, lease=_first_admitted(evidence).lease)])


def _rebooted(evidence: Evidence) -> Evidence:
    claim = _first_admitted(evidence)
    return replace(
        evidence, switched=[*evidence.switched, Switched(claim.launch_key, "reboot", claim.claimed_at)]
    )


def _acted(evidence: Evidence) -> Evidence:
    well = next(
        lease.id for lease in evidence.leases if lease.id not in {key[0] for key in evidence.breaches}
    )
    return replace(
        evidence, actions=[*evidence.actions, Action(well, "sla_violation", "notify", evidence.until)]
    )


MUTATIONS: dict[str, Callable[[Evidence], Evidence]] = {
    "healthy_machines_taken_away": _taken,
    "leases_ended_without_a_cause": _ended,
    "machines_given_up_that_boot": _given_up,
    "credits_without_a_breach": _credited,
    "breaches_without_a_credit": _uncredited,
    "breaches_told_wrongly": _untold,
    "machines_without_an_owner": _forgotten,
    "time_down_that_was_billed": _billed,
    "machines_with_two_tenants": _shared,
    "launches_that_bought_twice": _doubled,
    "replacements_of_machines_that_work": _replaced,
    "leases_interrupted_without_a_need": _interrupted,
    "machines_switched_without_a_cause": _rebooted,
    "actions_without_a_condition": _acted,
}


def test_every_check_has_a_mutation() -> None:
    assert set(MUTATIONS) == set(WRONG)


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_month_with_one_wrong_action_is_found_out(played: Played, name: str) -> None:
    assert list(WRONG[name](MUTATIONS[name](played.evidence))), f"{name} does not notice its mutation"


async def test_a_machine_that_is_taken_because_of_a_rumour_is_a_wrong_action(played: Played) -> None:
    """What only a machine says is no cause: a claim that ends after it is counted."""
    evidence = _taken(played.evidence)
    claim = _first_admitted(played.evidence)
    rumour = Injury(LaunchKey(claim.launch_key), Kind.RUMOUR, claim.claimed_at, None)
    assert list(healthy_machines_taken_away(replace(evidence, injuries=[*evidence.injuries, rumour])))
    assert claim.admitted_at is not None
    dead = replace(rumour, kind=Kind.DEAD, since=claim.admitted_at)
    found = list(healthy_machines_taken_away(replace(evidence, injuries=[*evidence.injuries, dead])))
    assert not found, "a failure is one"
