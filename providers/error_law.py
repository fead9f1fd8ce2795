"""The error law: which error of the port follows from what a provider answered.

It exists once, is pure, and serves every adapter whatever its transport: HTTP goes through `rest.py`,
and an adapter over another client (boto3, gRPC) calls `error_of` and `error_for` itself. Two steps:

    meaning_of(verb, failure, rules)   what the provider said, in our terms
    error_for(verb, meaning, text)     the one error of the port that this is, for this verb

An adapter brings its `rules`: the provider's own error codes and phrases, each with its meaning. What
no rule names follows from the status, and only ever errs towards caution:

    401                              UNAUTHORIZED
    429                              THROTTLED
    an answer that is not in the provider's error format (a proxy's page, nothing), whatever its status
                                     UNCLEAR
    402                              QUOTA_REACHED, for the whole account: it has to pay first
    403                              UNAUTHORIZED
    403 to a launch                  REFUSED: it is about this order. What the key may not do at all, lists say as well
    409 to a launch                  UNCLEAR: a machine may exist under this name
    408, 499                         UNCLEAR: somebody gave up waiting
    any other 4xx                    REFUSED
    5xx and everything else          UNCLEAR

No meaning becomes an error that invites a second launch unless nothing can have been bought.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

from control_plane.domain.block import BlockScope
from providers.base import (
    MachineNotFound,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    RateLimit,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Verb,
)

RETRY_AFTER_SECONDS = 5.0
"""How long to wait after a throttle, where neither the answer nor a published limit says."""
RETRY_AFTER_SECONDS_MAX = 3_600.0
CODE_CHARACTERS_MAX = 60
MESSAGE_CHARACTERS_MAX = 200
PAYMENT_REQUIRED = 402
SECRET_CHARACTERS_MIN = 8
SECRET_PIECE_CHARACTERS = 12


class Meaning(StrEnum):
    """What a provider's failure means for us, however the provider expresses it."""

    NO_CAPACITY = "no_capacity"
    """Sold out."""
    QUOTA_REACHED = "quota_reached"
    """The account may not hold more: a quota, a balance, a spending limit."""
    REFUSED = "refused"
    """The request is wrong, or something that it names does not exist."""
    UNAUTHORIZED = "unauthorized"
    """The key is not valid, or the account is blocked."""
    NOT_FOUND = "not_found"
    """The machine that the request names does not exist."""
    BUSY = "busy"
    """Not now: the machine is still being created or changed."""
    THROTTLED = "throttled"
    """Too many requests."""
    UNCLEAR = "unclear"
    """No readable answer: the request may or may not have had its effect."""
    NOT_SENT = "not_sent"
    """The request never reached the provider."""


# fmt: off
_LAW: Mapping[Meaning, tuple[type[ProviderError], ...]] = {
    #                       offers, inventory, prepare,      launch          terminate        power,
    #                       console            children                                      firewall
    Meaning.NO_CAPACITY:   (Unavailable,       NoCapacity,   NoCapacity,     NotYet,          NoCapacity),
    Meaning.QUOTA_REACHED: (Unavailable,       QuotaReached, QuotaReached,   NotYet,          QuotaReached),
    Meaning.REFUSED:       (Unavailable,       OrderRefused, OrderRefused,   NotYet,          OrderRefused),
    Meaning.UNAUTHORIZED:  (Unauthorized,      Unauthorized, Unauthorized,   Unauthorized,    Unauthorized),
    Meaning.NOT_FOUND:     (Unavailable,       OrderRefused, OrderRefused,   MachineNotFound, MachineNotFound),
    Meaning.BUSY:          (Unavailable,       Unavailable,  OrderRefused,   NotYet,          NotYet),
    Meaning.THROTTLED:     (Throttled,         Throttled,    Throttled,      Throttled,       Throttled),
    Meaning.UNCLEAR:       (Unavailable,       Unavailable,  OutcomeUnknown, OutcomeUnknown,  OutcomeUnknown),
    Meaning.NOT_SENT:      (Unavailable,       Unavailable,  Unavailable,    Unavailable,     Unavailable),
}
# fmt: on
_COLUMN = {
    Verb.OFFERS: 0,
    Verb.INVENTORY: 0,
    Verb.PREPARE: 1,
    Verb.CHILDREN: 1,
    Verb.LAUNCH: 2,
    Verb.TERMINATE: 3,
    Verb.POWER: 4,
    Verb.FIREWALL: 4,
    Verb.CONSOLE: 0,
}
_OF_ONE_MACHINE = {
    Meaning.REFUSED: OrderRefused,
    Meaning.NOT_FOUND: MachineNotFound,
    Meaning.BUSY: NotYet,
}
"""What differs from the first column where a read is about one machine: its console."""

ERRORS: Mapping[tuple[Verb, Meaning], type[ProviderError]] = {
    (verb, meaning): _LAW[meaning][_COLUMN[verb]] for verb in Verb for meaning in Meaning
} | {
    (Verb.FIREWALL, Meaning.UNCLEAR): Unavailable,  # It may be repeated, unlike a change of power.
    **{(Verb.CONSOLE, meaning): kind for meaning, kind in _OF_ONE_MACHINE.items()},
}
"""The whole law: one error for every verb and meaning."""

ERRORS_OF: Mapping[Verb, tuple[type[ProviderError], ...]] = {
    verb: tuple({ERRORS[verb, meaning]: None for meaning in Meaning}) for verb in Verb
}
"""Every error that a verb may raise."""

WRITES = frozenset(verb for verb in Verb if ERRORS[verb, Meaning.UNCLEAR] is OutcomeUnknown)
"""The verbs that must not be sent again when their answer is lost."""


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """The code and the message of a failure, read from the provider's error format. Empty where there is none."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is not a success."""

    status: int | None
    """The HTTP status; None where the transport has none."""
    detail: ErrorDetail | None
    """None when the answer is not in the provider's error format: then somebody else may have sent it."""
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an adapter's table of errors: a failure for which all given conditions hold has this meaning.

    A rule that names nothing but a status must name a 4xx. Any other status counts only together with a
    code or a phrase, since a proxy between us and the provider may send it too.
    """

    meaning: Meaning
    code: str | None = None
    """The provider's code; `prefix/*` stands for every code that begins with `prefix/`."""
    text: str | None = None
    """A phrase of the message; upper and lower case are the same."""
    status: int | None = None
    verb: Verb | None = None
    scope: BlockScope | None = None
    """What a refusal covers, where this provider's differs from `control_plane/domain/block.py`."""

    def __post_init__(self) -> None:
        client_error = self.status is not None and self.status // 100 == 4
        if self.code in (None, "", "*") and not self.text and not client_error:
            raise ValueError("a rule needs a code, a phrase of the message, or a 4xx status")
        if self.meaning is Meaning.NOT_SENT:
            raise ValueError("an answer cannot show that the request was not sent")

    def applies(self, verb: Verb, failure: Failure) -> bool:
        detail = failure.detail
        return (
            detail is not None
            and self.verb in (None, verb)
            and self.status in (None, failure.status)
            and (self.code is None or _code_matches(self.code, detail.code))
            and (self.text is None or self.text.lower() in detail.message.lower())
        )


def rules_by_code(meanings: Mapping[str, Meaning]) -> tuple[Rule, ...]:
    """The rules of a table from the provider's codes to meanings, in its order."""
    return tuple(Rule(meaning, code=code) for code, meaning in meanings.items())


def meaning_of(verb: Verb, failure: Failure, rules: Iterable[Rule]) -> Meaning:
    """What a failure says: by the first rule that applies, otherwise by its status as the module says."""
    rule = _rule_for(verb, failure, rules)
    return _meaning_by_status(verb, failure) if rule is None else rule.meaning


def _rule_for(verb: Verb, failure: Failure, rules: Iterable[Rule]) -> Rule | None:
    return next((rule for rule in rules if rule.applies(verb, failure)), None)


def error_of(
    verb: Verb,
    failure: Failure,
    rules: Iterable[Rule],
    *,
    private: Iterable[str] = (),
    rate_limits: Iterable[RateLimit] = (),
) -> ProviderError:
    """The error of the port that a failure is.

    Its text holds the provider's code and message, shortened and without anything from `private`. A throttle that
    does not say when to come back waits as long as the slowest of `rate_limits` that covers the verb.
    """
    detail = _redacted_detail(failure, tuple(private))
    wait = failure.retry_after_seconds
    rule = _rule_for(verb, failure, rules)
    return error_for(
        verb,
        _meaning_by_status(verb, failure) if rule is None else rule.meaning,
        _text(failure.status, detail),
        code=detail.code if detail else "",
        retry_after_seconds=_usual_wait(verb, rate_limits) if wait is None else wait,
        scope=_scope_of(failure) if rule is None or rule.scope is None else rule.scope,
    )


def _scope_of(failure: Failure) -> BlockScope | None:
    """What a refusal covers by its status alone: a balance is that of the account, whatever it was asked for."""
    return BlockScope.ACCOUNT if failure.status == PAYMENT_REQUIRED else None


def error_for(
    verb: Verb,
    meaning: Meaning,
    text: str,
    *,
    code: str = "",
    retry_after_seconds: float = RETRY_AFTER_SECONDS,
    scope: BlockScope | None = None,
) -> ProviderError:
    """The error of the port for what was learnt. `text` must hold no secret; `scope` is what a refusal covers."""
    kind = ERRORS[verb, meaning]
    if issubclass(kind, Throttled):
        wait = min(max(0.0, retry_after_seconds), RETRY_AFTER_SECONDS_MAX)
        return kind(f"{verb}: {text}", retry_after_seconds=wait, code=code)
    if issubclass(kind, Rejected):
        return kind(f"{verb}: {text}", code=code, scope=scope)
    return kind(f"{verb}: {text}", code=code)


def redacted(text: str, private: Iterable[str], characters_max: int = MESSAGE_CHARACTERS_MAX) -> str:
    """A provider's text on one line and cut short, or nothing if it repeats a part of what is private.

    Providers quote the request that they refuse, and a launch request holds user data, plain or in
    base64. A word shorter than eight characters is not taken for a secret.
    """
    read = text[: characters_max + 2 * SECRET_PIECE_CHARACTERS].casefold()
    if any(piece in read for piece in _pieces(private)):
        return ""
    return "".join(each if each.isprintable() else " " for each in text[:characters_max]).strip()


def place_of(error: Exception) -> str:
    """The type of an error and where it was raised, never its text: a URL or a header in it may hold a secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace else None
    place = f"{PurePath(code.co_filename).name}:{trace.tb_lineno}" if trace and code else "unknown place"
    return f"{type(error).__name__} at {place}"


def _pieces(private: Iterable[str]) -> Iterator[str]:
    """The words of private texts, long ones in overlapping pieces: a quote may begin and end anywhere in one."""
    for text in private:
        for form in (text, base64.b64encode(text.encode()).decode()):
            for word in re.split(r"[\s\"'=:,]+", form.casefold()):
                if len(word) >= SECRET_CHARACTERS_MIN:
                    for start in range(max(1, len(word) - SECRET_PIECE_CHARACTERS + 1)):
                        yield word[start : start + SECRET_PIECE_CHARACTERS]


def _redacted_detail(failure: Failure, private: tuple[str, ...]) -> ErrorDetail | None:
    detail = failure.detail
    if detail is None:
        return None
    return ErrorDetail(redacted(detail.code, private, CODE_CHARACTERS_MAX), redacted(detail.message, private))


def _text(status: int | None, detail: ErrorDetail | None) -> str:
    """`HTTP 400, code (message)`, as far as there is any of it."""
    parts = [] if status is None else [f"HTTP {status}"]
    if detail is not None and (detail.code or detail.message):
        both = detail.code and detail.message
        parts.append(f"{detail.code} ({detail.message})" if both else detail.code or detail.message)
    return ", ".join(parts) or "no readable answer"


def _code_matches(pattern: str, code: str) -> bool:
    return code.startswith(pattern[:-1]) if pattern.endswith("*") else code == pattern


def _meaning_by_status(verb: Verb, failure: Failure) -> Meaning:
    status = failure.status
    if status == 401:
        return Meaning.UNAUTHORIZED
    if status == 429:
        return Meaning.THROTTLED
    if failure.detail is None or status is None or status // 100 != 4 or status in (408, 499):
        return Meaning.UNCLEAR
    if status == 409 and verb is Verb.LAUNCH:
        return Meaning.UNCLEAR
    if status == 403:
        return Meaning.REFUSED if verb is Verb.LAUNCH else Meaning.UNAUTHORIZED
    return Meaning.QUOTA_REACHED if status == PAYMENT_REQUIRED else Meaning.REFUSED


def _usual_wait(verb: Verb, rate_limits: Iterable[RateLimit]) -> float:
    waits = [limit.seconds / limit.calls for limit in rate_limits if verb in limit.verbs]
    return max(waits, default=RETRY_AFTER_SECONDS)
