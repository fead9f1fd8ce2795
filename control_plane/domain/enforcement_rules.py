"""The rules of enforcement as a file has them: `control_plane/enforcement_rules.toml` explains each field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from control_plane.domain.enforcement import (
    BASES,
    ORDER,
    Bounds,
    Detector,
    EnforcementAction,
    Ladders,
    TierRule,
    may,
)
from control_plane.domain.sla import SlaTier


class EnforcementRulesError(ValueError):
    """Rules are invalid. The message names the table, the field and its fault."""


@dataclass(frozen=True, slots=True)
class SampleRule:
    gap_seconds: int
    silent_seconds: int
    renew_seconds: int


@dataclass(frozen=True, slots=True)
class MemoryRule:
    enter_seconds: int
    leave_seconds: int
    gpu_enter_bp: int
    gpu_leave_bp: int
    kv_enter_bp: int
    kv_leave_bp: int
    stalled_enter_bp: int
    stalled_leave_bp: int


@dataclass(frozen=True, slots=True)
class KvRule:
    enter_seconds: int
    leave_seconds: int
    window_seconds: int
    watch_bp: int
    samples_min: int
    ahead_seconds: int
    enter_bp: int
    leave_bp: int


@dataclass(frozen=True, slots=True)
class ThroughputRule:
    enter_seconds: int
    leave_seconds: int
    enter_bp: int
    leave_bp: int
    usual_days: int
    usual_hours_min: int
    samples_per_hour_min: int
    cause_bp: int
    crowded_bp: int


@dataclass(frozen=True, slots=True)
class IdleRule:
    enter_seconds: int
    leave_seconds: int
    enter_percent: int
    leave_percent: int


@dataclass(frozen=True, slots=True)
class EnforcementRules:
    digest: str
    """Of the file: the first 16 hexadecimal digits of its SHA-256."""
    samples: SampleRule
    ladders: Ladders
    memory: MemoryRule
    kv: KvRule
    throughput: ThroughputRule
    idle: IdleRule


WINDOW_SECONDS_MAX = 2 * 3600 - 300
"""Of the samples that a detector reads: older ones are not kept."""


def rules_of(tables: Mapping[str, object], digest: str) -> EnforcementRules:
    """The rules in the tables of a file with this digest. Raises EnforcementRulesError."""
    known = {"bounds", "samples", "lasts", *SlaTier, *Detector}
    unknown, missing = sorted(tables.keys() - known), sorted(known - tables.keys())
    if unknown or missing:
        which = f"there is no table [{unknown[0]}]" if unknown else f"[{missing[0]}] is missing"
        raise EnforcementRulesError(f"{which}; the tables are {', '.join(sorted(known))}")
    ladders = {detector: _ladder(detector, tables[detector]) for detector in Detector}
    samples = _record(SampleRule, "samples", tables["samples"])
    rules = EnforcementRules(
        digest=digest,
        samples=samples,
        ladders=Ladders(
            of=ladders,
            lasts=_lasts(tables["lasts"]),
            tiers={tier: _record(TierRule, tier, tables[tier]) for tier in SlaTier},
            bounds=_record(Bounds, "bounds", tables["bounds"]),
            renew_seconds=samples.renew_seconds,
        ),
        memory=_record(MemoryRule, Detector.MEMORY_PRESSURE, tables[Detector.MEMORY_PRESSURE]),
        kv=_record(KvRule, Detector.KV_CACHE_GROWTH, tables[Detector.KV_CACHE_GROWTH]),
        throughput=_record(
            ThroughputRule, Detector.THROUGHPUT_DEGRADATION, tables[Detector.THROUGHPUT_DEGRADATION]
        ),
        idle=_record(IdleRule, Detector.IDLE, tables[Detector.IDLE]),
    )
    for detector in (Detector.SLA_VIOLATION, Detector.ENVELOPE_BREACH, Detector.UNFUNDED):
        _record(_LadderAlone, detector, tables[detector])
    for problem in _problems(rules):
        raise EnforcementRulesError(problem)
    return rules


@dataclass(frozen=True, slots=True)
class _LadderAlone:
    pass


Kind = TypeVar("Kind")


def _record(kind: type[Kind], name: str, table: object) -> Kind:
    """A table whose fields are whole numbers, besides `ladder`."""
    if not isinstance(table, dict):
        raise EnforcementRulesError(f"[{name}] must be a table")
    given: dict[str, Any] = {key: value for key, value in table.items() if key != "ladder"}
    names = list(get_type_hints(kind))
    unknown, missing = sorted(given.keys() - set(names)), [each for each in names if each not in given]
    if unknown or missing:
        which = f"there is no field {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
        raise EnforcementRulesError(f"[{name}]: {which}; the fields are {', '.join(names) or 'ladder alone'}")
    for field_name, value in given.items():
        if type(value) is not int or not 0 < value <= 31_536_000:
            raise EnforcementRulesError(f"[{name}]: {field_name!r} must be a whole number above zero")
    return kind(**given)


def _ladder(detector: Detector, table: object) -> tuple[EnforcementAction, ...]:
    words = table.get("ladder") if isinstance(table, dict) else None
    if not isinstance(words, list) or not words:
        raise EnforcementRulesError(f"[{detector}]: 'ladder' must be a list of actions")
    unknown = [word for word in words if word not in set(EnforcementAction)]
    if unknown:
        raise EnforcementRulesError(
            f"[{detector}]: there is no action {unknown[0]!r}; the actions are {', '.join(EnforcementAction)}"
        )
    actions = tuple(EnforcementAction(word) for word in words)
    if list(actions) != sorted(set(actions), key=ORDER.__getitem__):
        raise EnforcementRulesError(f"[{detector}]: the actions of 'ladder' must go from mild to severe")
    for action in actions:
        if not any(may(action, basis) for basis in BASES[detector]):
            raise EnforcementRulesError(
                f"[{detector}]: only the machine says so, and that alone never leads to {action!r}"
            )
        if action is EnforcementAction.CREDIT and detector is not Detector.SLA_VIOLATION:
            raise EnforcementRulesError(f"[{detector}]: only broken promises are credited")
        if action is EnforcementAction.CHECK_MACHINE and detector is not Detector.THROUGHPUT_DEGRADATION:
            raise EnforcementRulesError(
                f"[{detector}]: 'check_machine' is for machines that are slow themselves"
            )
        if action is EnforcementAction.SHUTDOWN and detector is not Detector.IDLE:
            raise EnforcementRulesError(f"[{detector}]: 'shutdown' needs a customer's wish, as 'idle' has it")
    return actions


def _lasts(table: object) -> Mapping[EnforcementAction, int]:
    if not isinstance(table, dict):
        raise EnforcementRulesError("[lasts] must be a table")
    if table.keys() != set(EnforcementAction):
        raise EnforcementRulesError(
            f"[lasts] must have each action and nothing else: {', '.join(EnforcementAction)}"
        )
    for action, seconds in table.items():
        if type(seconds) is not int or not 0 < seconds <= 31_536_000:
            raise EnforcementRulesError(f"[lasts]: {action!r} must be a whole number of seconds above zero")
    return {EnforcementAction(action): seconds for action, seconds in table.items()}


def _problems(rules: EnforcementRules) -> list[str]:
    pairs = (
        (Detector.MEMORY_PRESSURE, "gpu", rules.memory.gpu_enter_bp, rules.memory.gpu_leave_bp),
        (Detector.MEMORY_PRESSURE, "kv", rules.memory.kv_enter_bp, rules.memory.kv_leave_bp),
        (Detector.MEMORY_PRESSURE, "stalled", rules.memory.stalled_enter_bp, rules.memory.stalled_leave_bp),
        (Detector.KV_CACHE_GROWTH, "", rules.kv.enter_bp, rules.kv.leave_bp),
        # Where less is worse, it is over above the higher level.
        (Detector.THROUGHPUT_DEGRADATION, "", rules.throughput.leave_bp, rules.throughput.enter_bp),
        (Detector.IDLE, "", rules.idle.leave_percent, rules.idle.enter_percent),
    )
    windows = (
        (Detector.MEMORY_PRESSURE, rules.memory.enter_seconds, rules.memory.leave_seconds),
        (Detector.KV_CACHE_GROWTH, rules.kv.enter_seconds + rules.kv.window_seconds, rules.kv.leave_seconds),
        (
            Detector.THROUGHPUT_DEGRADATION,
            rules.throughput.enter_seconds,
            rules.throughput.leave_seconds,
        ),
        (Detector.IDLE, rules.idle.enter_seconds, rules.idle.leave_seconds),
    )
    return [
        *(
            f"[{detector}]: the levels {f'of {what!r} ' if what else ''}to enter and to leave must be apart"
            for detector, what, beyond, below in pairs
            if beyond <= below
        ),
        *(
            f"[{detector}]: samples are kept for two hours, so its times must be less together"
            for detector, *seconds in windows
            if max(seconds) > WINDOW_SECONDS_MAX
        ),
        *(
            f"[lasts]: {action!r} must last longer than [samples] renew_seconds"
            for action, seconds in rules.ladders.lasts.items()
            if seconds <= rules.samples.renew_seconds
        ),
    ]
