"""What must never be done to a customer, to a provider or to the books: each is counted by a check of its own.

The checks know what really happened (`month.Injury`, the providers' own machines) and read what the product did from
raw rows. Each returns a sentence for every wrong action, so an empty list is the proof of a month.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from tests.support.month import HARMLESS, Injury, Kind
from tests.support.month_evidence import HURT, Evidence
from tests.support.sla_recount import Owed, owed, shipped_terms

TERMS = Path("control_plane/sla_terms.toml")
UNOWNED_MAX = timedelta(hours=1)
"""How long a machine may live that nobody has a use for: until its end is asked for, taken and done."""
SEEN_WITHIN = timedelta(minutes=10)
"""How long after a machine works again what was seen of it before may still be acted upon."""
_PEOPLE = frozenset({"released", "auto_released"})


def expected(evidence: Evidence) -> dict[str, dict[tuple[int, int], Owed]]:
    """What is owed for each lease, as the second computation has it."""
    terms = shipped_terms(TERMS)
    return {lease.id: owed(lease, terms) for lease in evidence.leases}


def _harm(evidence: Evidence) -> dict[str, list[Injury]]:
    """What really happened to machines that may cost them their lease, by launch key."""
    found: dict[str, list[Injury]] = defaultdict(list)
    for injury in evidence.injuries:
        if injury.kind not in HARMLESS:
            found[injury.launch_key].append(injury)
    return found


def healthy_machines_taken_away(evidence: Evidence) -> Iterator[str]:
    """A customer lost a machine, while nobody had asked for its end and nothing had happened to it."""
    harm = _harm(evidence)
    ends = {end.lease: end.at for end in evidence.ends if end.event in _PEOPLE}
    interrupted = {
        (each.lease, each.at) for each in evidence.interruptions
    }  # They have a check of their own.
    for claim in evidence.claims:
        if (claim.lease, claim.ended_at) in interrupted:
            continue
        if claim.admitted_at is None or claim.ended_at is None or claim.ended_at == ends.get(claim.lease):
            continue
        if not any(injury.since <= claim.ended_at for injury in harm[claim.launch_key]):
            yield f"{claim.launch_key} was taken from {claim.lease} at {claim.ended_at}: {claim.fail_reason}"


def leases_ended_without_a_cause(evidence: Evidence) -> Iterator[str]:
    """A lease ended that its customer did not end, and whose last machine was well."""
    harm = _harm(evidence)
    last = {claim.lease: claim for claim in evidence.claims}
    interrupted = {each.lease for each in evidence.interruptions}
    for end in evidence.ends:
        if end.event == "preempted" and end.lease in interrupted:
            continue
        if end.event in _PEOPLE and end.released_by_customer_at is not None:
            continue
        claim = last.get(end.lease)
        if claim is None or not any(injury.since <= end.at for injury in harm[claim.launch_key]):
            yield f"{end.lease} ended at {end.at}: {end.event}"


def machines_given_up_that_boot(evidence: Evidence) -> Iterator[str]:
    """A machine was given up before a customer had it, although it boots in time and nothing happened to it.

    One whose launch its provider answered wrongly is none: nobody told us of it.
    """
    harm = _harm(evidence)
    boots = {
        machine.launch_key: not machine.never_ran and not machine.lied_about for machine in evidence.machines
    }
    ends = {end.lease: end.at for end in evidence.ends}
    for claim in evidence.claims:
        if claim.admitted_at is not None or claim.ended_at is None or claim.ended_at == ends.get(claim.lease):
            continue
        if boots.get(claim.launch_key) and not harm[claim.launch_key]:
            yield f"{claim.launch_key} of {claim.lease} was given up at {claim.ended_at}: {claim.fail_reason}"


def credits_without_a_breach(evidence: Evidence) -> Iterator[str]:
    """The ledger gave back more than is owed, or anything where nothing is."""
    wanted = expected(evidence)
    for (lease, month), nano in evidence.credits.items():
        due = wanted.get(lease, {}).get(month)
        if nano > (0 if due is None else due.nano):
            yield f"{lease} got {nano} for {month}, and {0 if due is None else due.nano} is owed"
    if sum(evidence.credits.values()) != evidence.wallet_credits:
        yield f"wallets got {evidence.wallet_credits} in credits, and breaches {sum(evidence.credits.values())}"


def breaches_without_a_credit(evidence: Evidence) -> Iterator[str]:
    """Something is owed, and the ledger gave back less."""
    for lease, months in expected(evidence).items():
        for month, due in months.items():
            nano = evidence.credits.get((lease, month), 0)
            if nano < due.nano:
                yield f"{lease} got {nano} for {month}, and {due.nano} is owed for {sorted(due.broken)}"


def breaches_told_wrongly(evidence: Evidence) -> Iterator[str]:
    """A breach was stored that there is not, or the other way round. An amount of nothing shows in no credit."""
    wanted = {
        (lease, month, promise)
        for lease, months in expected(evidence).items()
        for month, due in months.items()
        for promise in due.broken
    }
    for lease, month, promise in sorted(evidence.breaches ^ wanted):
        stored = (lease, month, promise) in evidence.breaches
        yield f"{promise} of {lease} in {month} is {'stored, and was kept' if stored else 'broken, and not stored'}"


def machines_without_an_owner(evidence: Evidence) -> Iterator[str]:
    """A machine lived for too long while no lease, no pool and no order had a use for it, or lives still."""
    for machine in evidence.machines:
        if machine.ended_at is None:
            yield f"{machine.launch_key} at {machine.account} lives"
            continue
        free_since = machine.launched_at
        for begin, end in sorted(machine.owned, key=lambda span: span[0]):
            if begin - free_since > UNOWNED_MAX:
                break
            free_since = max(free_since, min(machine.ended_at, end or machine.ended_at))
        if machine.ended_at - free_since > UNOWNED_MAX:
            yield f"{machine.launch_key} at {machine.account} lived without an owner from {free_since}"


def time_down_that_was_billed(evidence: Evidence) -> Iterator[str]:
    """A customer paid for seconds in which the machine was down at its provider, or gone."""
    ended = {machine.launch_key: machine.ended_at for machine in evidence.machines}
    down: dict[str, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for injury in evidence.injuries:
        if injury.kind in HURT:
            down[injury.launch_key].append((injury.since, injury.until))
    for key, charges in evidence.charges_of_machines.items():
        spans = list(down[key])
        if (at := ended.get(key)) is not None:
            spans.append((at, None))
        for charge in charges:
            for begin, end in spans:
                seconds = _common(charge.since, charge.until, begin, end or evidence.until)
                if seconds >= 1:
                    yield f"{key} was charged for {seconds:.0f} s from {charge.since} on while it was down"


def _common(since: datetime, until: datetime, begin: datetime, end: datetime) -> float:
    return max(0.0, (min(until, end) - max(since, begin)).total_seconds())


def machines_with_two_tenants(evidence: Evidence) -> Iterator[str]:
    """A machine had more than one lease in its life."""
    for key, tenants in Counter(claim.launch_key for claim in evidence.claims).items():
        if tenants > 1:
            yield f"{key} had {tenants} leases"


def launches_that_bought_twice(evidence: Evidence) -> Iterator[str]:
    """One order made more than one machine."""
    for key, times in Counter(machine.launch_key for machine in evidence.machines).items():
        if times > 1:
            yield f"{key} made {times} machines"


def replacements_of_machines_that_work(evidence: Evidence) -> Iterator[str]:
    """A lease got another machine, while the one that it had worked."""
    harm = _harm(evidence)
    for replacing in evidence.replacings:
        had = [
            claim
            for claim in evidence.claims
            if claim.lease == replacing.lease and claim.ended_at == replacing.at
        ]
        for claim in had:
            broken = any(
                injury.since <= replacing.at
                and (injury.until is None or replacing.at <= injury.until + SEEN_WITHIN)
                for injury in harm[claim.launch_key]
            )
            if not broken:
                yield f"{claim.launch_key} of {claim.lease} was replaced at {replacing.at}, and worked"
        if len(had) != 1:
            yield f"{replacing.lease} was replaced at {replacing.at}, and {len(had)} claims ended then"


def leases_interrupted_without_a_need(evidence: Evidence) -> Iterator[str]:
    """An interruptible lease lost its machine for none that was promised one and waited, or another kind of lease did."""
    short, interruptions = evidence.short, evidence.interruptions
    for each in interruptions:
        wanted = short is not None and each.lease in short.interruptible and each.for_lease in short.promised
        if not wanted or short is None or each.at < short.since:
            yield f"{each.lease} was interrupted at {each.at} for {each.for_lease}"
    needs = Counter(each.for_lease for each in interruptions)
    for lease, times in needs.items():
        if times > 1:
            yield f"{times} leases were interrupted for {lease}"


def machines_switched_without_a_cause(evidence: Evidence) -> Iterator[str]:
    """A machine was rebooted that needed no reset, or more than once; or stopped or started by nobody's wish."""
    wanted = {"reboot": Kind.NEEDS_RESET, "stop": Kind.STOPPED, "start": Kind.STOPPED}
    done: Counter[tuple[str, str]] = Counter()
    for switched in evidence.switched:
        done[switched.launch_key, switched.verb] += 1
        right = any(
            injury.launch_key == switched.launch_key
            and injury.kind is wanted[switched.verb]
            and injury.since <= switched.at
            for injury in evidence.injuries
        )
        if not right or done[switched.launch_key, switched.verb] > 1:
            yield f"{switched.launch_key}: {switched.verb} at {switched.at}"


def actions_without_a_condition(evidence: Evidence) -> Iterator[str]:
    """Enforcement did something about a lease of which no promise was broken: nothing else is wrong with any lease."""
    broken = {lease for lease, _, _ in evidence.breaches}
    for action in evidence.actions:
        told = action.detector == "sla_violation" and action.action in ("notify", "credit")
        if not told or action.lease not in broken:
            yield f"{action.lease}: {action.action} at {action.at}, because of {action.detector}"


WRONG: Mapping[str, Callable[[Evidence], Iterator[str]]] = {
    check.__name__: check
    for check in (
        healthy_machines_taken_away,
        leases_ended_without_a_cause,
        machines_given_up_that_boot,
        credits_without_a_breach,
        breaches_without_a_credit,
        breaches_told_wrongly,
        machines_without_an_owner,
        time_down_that_was_billed,
        machines_with_two_tenants,
        launches_that_bought_twice,
        replacements_of_machines_that_work,
        leases_interrupted_without_a_need,
        machines_switched_without_a_cause,
        actions_without_a_condition,
    )
}


def wrong_actions(evidence: Evidence) -> dict[str, list[str]]:
    """Every wrong action of a month, by its kind."""
    return {name: list(check(evidence)) for name, check in WRONG.items()}
