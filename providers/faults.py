"""Fault injection for the fake provider: what each of its calls is made to suffer."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from providers.base import (
    NoCapacity,
    OrderRefused,
    QuotaReached,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)


class Fault(StrEnum):
    """What goes wrong in one call. In brackets: the verbs that a fault applies to."""

    NONE = "none"
    """Nothing goes wrong; put before another fault, it lets one call pass. [all]"""
    THROTTLED = "throttled"
    """The provider is asked too often; `seconds` is when to come back. [all]"""
    UNAVAILABLE = "unavailable"
    """The request never leaves us, or a read gets no answer. [all]"""
    UNAUTHORIZED = "unauthorized"
    """The key was revoked. [all]"""
    SLOW = "slow"
    """The effect happens; the answer waits for the injected `slow` hook. [all]"""
    ADAPTER_BUG = "adapter_bug"
    """The effect happens, and the adapter raises something other than ProviderError. [all]"""
    NO_CAPACITY = "no_capacity"
    """[launch, power]"""
    QUOTA_REACHED = "quota_reached"
    """[launch, power, firewall]"""
    ORDER_REFUSED = "order_refused"
    """[launch, power, firewall; children: a deletion]"""
    LOST_AFTER_EFFECT = "lost_after_effect"
    """The effect happens and the answer is lost. [launch, terminate, power, firewall; children: a deletion]"""
    LOST_WITHOUT_EFFECT = "lost_without_effect"
    """The answer is lost and nothing happened. [launch, terminate, power; children: a deletion]"""
    FALSE_NO_CAPACITY = "false_no_capacity"
    """The provider says "no capacity" and launches anyway: it breaks law 2, as some do. [launch]"""
    REFUSED_LATER = "refused_later"
    """The launch is accepted and sold out afterwards. No inventory shows a machine, and there is none. [launch]"""
    NEVER_BOOTS = "never_boots"
    """The machine is accepted and stays PROVISIONING for ever. [launch]"""
    LISTED_LATE = "listed_late"
    """The machine is accepted and missing from the inventory for `seconds`. [launch]"""
    NEVER_LISTED = "never_listed"
    """The machine is accepted and billed, and no inventory ever shows it. [launch]"""
    LISTING_FAILS = "listing_fails"
    """The listing fails half-way. [inventory, children]"""
    EMPTY_LISTING = "empty_listing"
    """The answer claims to be complete and shows no machine. [inventory]"""
    SHRUNKEN_LISTING = "shrunken_listing"
    """The answer claims to be complete and shows half of the machines. [inventory]"""
    UNKNOWN_STATUSES = "unknown_statuses"
    """Every machine has a status word that nobody knows. [inventory]"""
    NOT_YET = "not_yet"
    """The provider refuses to end or switch this machine now. [terminate, power]"""


VERBS = (
    "offers",
    "launch",
    "inventory",
    "planned_work",
    "terminate",
    "children",
    "power",
    "firewall",
    "console",
)


class FaultScript:
    """Which fault each call meets: the next one queued for its verb, else the verb's lasting fault, else none."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[Fault, float]]] = {verb: deque() for verb in VERBS}
        self._lasting: dict[str, tuple[Fault, float]] = {}

    def script(self, verb: str, *faults: Fault, seconds: float = 1.0) -> None:
        """Queue these faults for the next calls of `verb`, in order. `seconds` is for faults that have a duration."""
        self._queues[verb].extend((fault, seconds) for fault in faults)

    def always(self, verb: str, fault: Fault, *, seconds: float = 1.0) -> None:
        """Let every call of `verb` for which nothing is queued meet this fault, until NONE is set."""
        self._lasting[verb] = (fault, seconds)

    def clear(self) -> None:
        """Forget every queued and every lasting fault."""
        self._lasting.clear()
        for queue in self._queues.values():
            queue.clear()

    def next(self, verb: str) -> tuple[Fault, float]:
        """The fault of the call that is being made, and its duration in seconds; takes it from the queue."""
        queue = self._queues[verb]
        return queue.popleft() if queue else self._lasting.get(verb, (Fault.NONE, 0.0))


@dataclass(frozen=True, slots=True)
class Call:
    """A call that reached the provider."""

    verb: str
    at: datetime
    subject: str = ""
    """The launch key or the provider's reference."""


REFUSALS: dict[Fault, type[Rejected]] = {
    Fault.NO_CAPACITY: NoCapacity,
    Fault.QUOTA_REACHED: QuotaReached,
    Fault.ORDER_REFUSED: OrderRefused,
}


"""What a refusal is to who asked."""


def raise_before_effect(fault: Fault, seconds: float) -> None:
    """Raise the faults that any call can meet before it has an effect."""
    if fault is Fault.THROTTLED:
        raise Throttled("too many requests", retry_after_seconds=seconds)
    if fault is Fault.UNAVAILABLE:
        raise Unavailable("no connection")
    if fault is Fault.UNAUTHORIZED:
        raise Unauthorized("the key is not valid")
