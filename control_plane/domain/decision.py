"""A decision about a product action, with every rule that spoke, as it is stored and explained.

The rules speak in five stages. The first refusal decides on the code that a program sees; all refusals are reported,
so that a customer can correct everything at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.envelope import Level
from control_plane.domain.refusal import RefusalCode, Refused


class Action(StrEnum):
    """What somebody wants to do with the product: a closed list."""

    LEASE_CREATE = "lease_create"
    LEASE_PLACE = "lease_place"
    """A lease that waited is to get its machine: its limits may have been narrowed meanwhile."""
    LEASE_RUN = "lease_run"
    """A live lease is held against an envelope: it may have been narrowed, or too much is used by now."""
    LEASE_EXTEND = "lease_extend"
    """A lease is to be released later than it was to be."""
    LEASE_RESIZE = "lease_resize"
    """A lease is to have another SKU: other GPUs, more of them, or GPUs that prove more."""
    LEASE_MOVE = "lease_move"
    """A lease is to be placed elsewhere: other regions, other providers or another ceiling of its price."""
    LEASE_PRIORITY = "lease_priority"
    """A lease that waits is to be placed before others of its organization."""
    LEASE_BATCH = "lease_batch"
    """Several equal leases are to be created by one request, all or none."""
    NODE_POOL_CREATE = "node_pool_create"
    """The leases of all nodes of a new pool are to be created, all or none."""
    NODE_POOL_SCALE = "node_pool_scale"
    """The leases of more nodes of a pool are to be created, all or none."""
    NODE_REPLACE = "node_replace"
    """The lease of one node is to be created, in place of one that ended."""
    QUOTA_INCREASE = "quota_increase"


class Stage(StrEnum):
    """The stages of admission, in order."""

    IDENTITY = "identity"
    ENVELOPE = "envelope"
    POLICY = "policy"
    MONEY = "money"
    CAPACITY = "capacity"


class Rule(StrEnum):
    ORGANIZATION = "organization"
    """The organization is active."""
    APPROVER = "approver"
    """Nobody approves what they asked for themselves."""
    SKU = "sku"
    TIER = "tier"
    PURCHASE = "purchase"
    REGIONS = "regions"
    PROVIDERS = "providers"
    GPUS = "gpus"
    GPUS_OF_MODEL = "gpus_of_model"
    PRIORITY = "priority"
    BATCH_SIZE = "batch_size"
    SPEND_PER_HOUR = "spend_per_hour"
    SPEND_PER_MONTH = "spend_per_month"
    PARENT = "parent"
    """A wider level allows what is asked for."""
    SOLD = "sold"
    """The SKU is sold."""
    PRICE = "price"
    """The price is within the request's ceiling."""
    BALANCE = "balance"
    OFFERED = "offered"
    """A provider has what is asked for, now or when its stock returns."""


STAGES: dict[Rule, Stage] = {
    Rule.ORGANIZATION: Stage.IDENTITY,
    Rule.APPROVER: Stage.IDENTITY,
    Rule.SKU: Stage.ENVELOPE,
    Rule.TIER: Stage.ENVELOPE,
    Rule.PURCHASE: Stage.ENVELOPE,
    Rule.REGIONS: Stage.ENVELOPE,
    Rule.PROVIDERS: Stage.ENVELOPE,
    Rule.GPUS: Stage.ENVELOPE,
    Rule.GPUS_OF_MODEL: Stage.ENVELOPE,
    Rule.PRIORITY: Stage.ENVELOPE,
    Rule.BATCH_SIZE: Stage.ENVELOPE,
    Rule.SPEND_PER_HOUR: Stage.ENVELOPE,
    Rule.SPEND_PER_MONTH: Stage.ENVELOPE,
    Rule.PARENT: Stage.ENVELOPE,
    Rule.SOLD: Stage.POLICY,
    Rule.PRICE: Stage.POLICY,
    Rule.BALANCE: Stage.MONEY,
    Rule.OFFERED: Stage.CAPACITY,
}


class Verdict(StrEnum):
    ALLOWED = "allowed"
    BURST = "burst"
    """Allowed for a while, over the limit."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What one rule said, with the figures that it spoke on. Amounts of money are exact decimal dollars."""

    rule: Rule
    verdict: Verdict
    level: Level | None = None
    """The level of the envelope that the rule is from; None for a rule of the product."""
    subject: str | None = None
    """What the limit is for where there are several, such as a GPU model."""
    limit: str | None = None
    used: str | None = None
    wanted: str | None = None
    code: RefusalCode | None = None
    why: str | None = None

    @property
    def stage(self) -> Stage:
        return STAGES[self.rule]

    @property
    def refused(self) -> bool:
        return self.verdict is Verdict.REFUSED


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    rules: tuple[Spoken, ...]
    """In the order of their stages."""

    @property
    def refusals(self) -> tuple[Spoken, ...]:
        return tuple(spoken for spoken in self.rules if spoken.refused)

    @property
    def admitted(self) -> bool:
        return not self.refusals

    @property
    def outcome(self) -> Verdict:
        if not self.admitted:
            return Verdict.REFUSED
        bursts = any(spoken.verdict is Verdict.BURST for spoken in self.rules)
        return Verdict.BURST if bursts else Verdict.ALLOWED


@dataclass(frozen=True, slots=True)
class NotAdmitted(Refused):
    """A refusal with the decision that it comes from. Its code is the first refusal's."""

    decision: Decision


def decided(action: Action, rules: Iterable[Spoken]) -> Decision:
    """A decision, with its rules in the order of their stages, whatever order they spoke in."""
    return Decision(action, tuple(sorted(rules, key=_order)))


def refusal(decision: Decision) -> NotAdmitted | None:
    """The first refusal of a decision; None when it admits."""
    for spoken in decision.refusals:
        if spoken.code is not None and spoken.why is not None:
            return NotAdmitted(spoken.code, spoken.why, decision)
    return None


_STAGES, _RULES, _LEVELS = tuple(Stage), tuple(Rule), tuple(Level)


def _order(spoken: Spoken) -> tuple[int, int, int, str]:
    level = -1 if spoken.level is None else _LEVELS.index(spoken.level)
    return (_STAGES.index(spoken.stage), _RULES.index(spoken.rule), level, spoken.subject or "")
