"""What may befall a call of the fake provider, scripted."""

from collections import deque
from enum import StrEnum


class Event(StrEnum):
    """What may befall one call, and where: the verbs that an event has a meaning for are in brackets."""

    CALM = "calm"
    """Nothing; a place holder to let a call pass before the next event. [all]"""
    THROTTLED = "throttled"
    """Asked too often; `seconds` is when to come back. [all]"""
    UNAVAILABLE = "unavailable"
    """The request never left, or the read got no answer. [all]"""
    UNAUTHORIZED = "unauthorized"
    """The key was revoked. [all]"""
    SLOW = "slow"
    """The effect happens, the answer waits for the injected `slow` hook. [all]"""
    BUG = "bug"
    """An adapter's bug: the effect happens and something that is no ProviderError leaves. [all]"""
    NO_CAPACITY = "no_capacity"
    """[launch]"""
    QUOTA = "quota"
    """[launch]"""
    REFUSED = "refused"
    """[launch]"""
    LOST_AFTER_EFFECT = "lost_after_effect"
    """The answer is lost, and it happened. [launch, terminate]"""
    LOST_WITHOUT_EFFECT = "lost_without_effect"
    """The answer is lost, and it did not happen. [launch, terminate]"""
    LIE = "lie"
    """The provider says "no capacity" and launches anyway: it breaks law 2, as some do. [launch]"""
    NEVER_BOOTS = "never_boots"
    """Accepted, then PROVISIONING for ever. [launch]"""
    LAGGING = "lagging"
    """Accepted, missing from the inventory for `seconds`. [launch]"""
    HIDDEN = "hidden"
    """Accepted and billed, never in any inventory. [launch]"""
    CUT_LIST = "cut_list"
    """The listing fails half way. [inventory]"""
    EMPTY_LIST = "empty_list"
    """A complete answer that shows nothing. [inventory]"""
    SHRUNKEN_LIST = "shrunken_list"
    """A complete answer that shows half of the machines. [inventory]"""
    ODD_WORDS = "odd_words"
    """Every status word is one nobody knows. [inventory]"""
    NOT_YET = "not_yet"
    """The provider refuses to end this machine now. [terminate]"""


VERBS = ("offers", "launch", "inventory", "terminate")


class Weather:
    """A queue of events for each verb; each call takes the next one, and a calm sky follows the last."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[Event, float]]] = {verb: deque() for verb in VERBS}
        self._climate: dict[str, tuple[Event, float]] = {}

    def script(self, verb: str, *events: Event, seconds: float = 1.0) -> None:
        """The next calls of `verb` meet these events, in order. `seconds` is for events that have a length."""
        self._queues[verb].extend((event, seconds) for event in events)

    def always(self, verb: str, event: Event, *, seconds: float = 1.0) -> None:
        """Every call of `verb` that has nothing scripted meets this event, until CALM is set."""
        self._climate[verb] = (event, seconds)

    def clear(self) -> None:
        self._climate.clear()
        for queue in self._queues.values():
            queue.clear()

    def next(self, verb: str) -> tuple[Event, float]:
        queue = self._queues[verb]
        return queue.popleft() if queue else self._climate.get(verb, (Event.CALM, 0.0))
