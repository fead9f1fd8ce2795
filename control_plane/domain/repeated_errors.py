"""Counts errors of the driver that mean more when they come again on the same GPU (`xid.REPEATS`).

What is counted is stored with the machine, because an agent reports each error once, and samples are kept for hours.
As everywhere, what the machine reported is its claim. What we saw ourselves, in the driver's log over SSH, is counted
apart, and only that confirms a fault.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.gpu_faults import OF_XIDS, Reading
from control_plane.domain.health import Seen, Source
from control_plane.domain.xid import APART, REPEATS, Repeat


@dataclass(frozen=True, slots=True)
class Counted:
    """An error that one of the rules counts."""

    number: int
    gpu: int
    at: datetime
    """By our clock."""
    looked: bool
    """Whether we saw it ourselves."""


_RULES = {number: rule for rule in REPEATS for number in rule.numbers}


def with_errors(
    known: Sequence[Counted], reading: Reading, good_since: datetime | None
) -> tuple[Counted, ...]:
    """What is counted once a reading is, too: of each rule and GPU the last errors, as many as the rule counts.

    The GPUs are known to be good since `good_since`: errors before and after it are never one. An error is not counted
    if its GPU is not known.
    """
    found = list(known)
    for xid in sorted(reading.xids, key=lambda each: each.at):
        rule = None if xid.of_switch else _RULES.get(xid.number)
        if rule is None or xid.gpu is None:
            continue
        new = Counted(xid.number, xid.gpu, xid.at, looked=reading.source is Source.LOOK)
        place = next(
            (place for place, each in enumerate(found) if _are_one(each, new, rule, good_since)), None
        )
        if place is None:
            found.append(new)
        elif new.looked:
            found[place] = replace(found[place], looked=True)
    return tuple(
        sorted(_kept(found, reading.at), key=lambda counted: (counted.at, counted.gpu, counted.number))
    )


def _are_one(one: Counted, other: Counted, rule: Repeat, good_since: datetime | None) -> bool:
    return (
        one.gpu == other.gpu
        and one.number in rule.numbers
        and abs(one.at - other.at) < APART
        and (good_since is None or (one.at > good_since) == (other.at > good_since))
    )


def _kept(counted: Iterable[Counted], at: datetime) -> Iterator[Counted]:
    groups: dict[tuple[Repeat, int], list[Counted]] = {}
    for each in sorted(counted, key=lambda each: each.at):
        rule = _RULES.get(each.number)
        if rule is not None and each.at > at - rule.within:
            groups.setdefault((rule, each.gpu), []).append(each)
    for (rule, _), group in groups.items():
        yield from group[-rule.times :]


def repeats_seen(
    counted: Sequence[Counted], source: Source, good_since: datetime | None, at: datetime
) -> Iterator[Seen]:
    """The faults that repeated errors are at `at`, as `source` can tell: in a look, what we saw ourselves counts."""
    for rule in REPEATS:
        relevant = [
            each
            for each in counted
            if each.number in rule.numbers
            and each.at > at - rule.within
            and (each.looked or source is not Source.LOOK)
        ]
        for gpu in sorted({each.gpu for each in relevant}):
            errors = [each for each in relevant if each.gpu == gpu]
            if _is_enough(rule, errors, good_since):
                often = f"{rule.times} times within {_span(rule.within)}"
                yield Seen(OF_XIDS[rule.of], gpu, errors[-1].at, f"GPU {gpu} had {rule.words} {often}")


def _is_enough(rule: Repeat, errors: Sequence[Counted], good_since: datetime | None) -> bool:
    since = [each for each in errors if good_since is None or each.at > good_since]
    if rule.after_recovery:
        return 0 < len(since) < len(errors) and len(errors) >= rule.times
    return len(since) >= rule.times


def _span(span: timedelta) -> str:
    return "24 hours" if span == timedelta(days=1) else f"{span.days} days"
