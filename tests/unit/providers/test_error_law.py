"""The error law as a table: every combination has one error, and no doubt about a launch invites a second one."""

from itertools import product

import pytest

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
from providers.error_law import (
    ERRORS,
    ERRORS_OF,
    WRITES,
    ErrorDetail,
    Failure,
    Meaning,
    Rule,
    error_for,
    error_of,
    meaning_of,
    redacted,
    rules_by_code,
)

LEAVES = {
    NoCapacity,
    QuotaReached,
    OrderRefused,
    Unauthorized,
    Throttled,
    Unavailable,
    OutcomeUnknown,
    NotYet,
    MachineNotFound,
}
ALLOWED: dict[Verb, set[type[ProviderError]]] = {
    Verb.OFFERS: {Unauthorized, Throttled, Unavailable},
    Verb.INVENTORY: {Unauthorized, Throttled, Unavailable},
    Verb.PREPARE: {NoCapacity, QuotaReached, OrderRefused, Unauthorized, Throttled, Unavailable},
    Verb.CHILDREN: {NoCapacity, QuotaReached, OrderRefused, Unauthorized, Throttled, Unavailable},
    Verb.LAUNCH: {
        *(NoCapacity, QuotaReached, OrderRefused, Unauthorized),
        *(Throttled, Unavailable, OutcomeUnknown),
    },
    Verb.TERMINATE: {Unauthorized, Throttled, Unavailable, OutcomeUnknown, NotYet, MachineNotFound},
    Verb.POWER: {
        *(NoCapacity, QuotaReached, OrderRefused, Unauthorized, NotYet, MachineNotFound),
        *(Throttled, Unavailable, OutcomeUnknown),
    },
    Verb.FIREWALL: {
        *(NoCapacity, QuotaReached, OrderRefused, Unauthorized, NotYet, MachineNotFound),
        *(Throttled, Unavailable),
    },
    Verb.CONSOLE: {OrderRefused, Unauthorized, NotYet, MachineNotFound, Throttled, Unavailable},
}
"""What the docstrings of the port promise for each verb."""
RETRYABLE = (Throttled, Unavailable)
STATUSES = (None, *range(100, 600))
DETAILS = (None, ErrorDetail(), ErrorDetail("a-code", "a message"))


def failures() -> list[Failure]:
    return [Failure(status, detail) for status, detail in product(STATUSES, DETAILS)]


def test_every_verb_and_meaning_has_one_error_of_those_that_the_port_promises() -> None:
    assert set(ERRORS) == set(product(Verb, Meaning))
    assert set(ERRORS.values()) == LEAVES
    for verb in Verb:
        assert set(ERRORS_OF[verb]) == ALLOWED[verb], verb


def test_writes_are_launch_terminate_and_power() -> None:
    assert {Verb.LAUNCH, Verb.TERMINATE, Verb.POWER} == WRITES


def test_a_write_is_retryable_only_if_nothing_can_have_been_bought() -> None:
    retryable = {(verb, meaning) for (verb, meaning), kind in ERRORS.items() if issubclass(kind, RETRYABLE)}
    harmless = {Meaning.NOT_SENT, Meaning.THROTTLED}
    assert {(verb, meaning) for verb, meaning in retryable if verb in WRITES} == set(
        product(WRITES, harmless)
    )


def test_only_a_clear_answer_is_a_definite_no() -> None:
    for verb in Verb:
        assert not issubclass(ERRORS[verb, Meaning.UNCLEAR], (Rejected, NotYet, MachineNotFound)), verb
        assert not issubclass(ERRORS[verb, Meaning.NOT_SENT], (Rejected, NotYet, MachineNotFound)), verb
    assert {verb for verb, meaning in ERRORS if ERRORS[verb, meaning] is MachineNotFound} == {
        Verb.TERMINATE,
        Verb.POWER,
        Verb.FIREWALL,
        Verb.CONSOLE,
    }


def test_every_status_with_and_without_a_detail_is_exactly_one_lawful_error_for_every_verb() -> None:
    for verb, failure in product(Verb, failures()):
        error = error_of(verb, failure, ())
        assert type(error) in ALLOWED[verb], (verb, failure)
        assert str(error).startswith(f"{verb}: "), (verb, failure)


def test_without_a_rule_a_write_that_was_sent_is_retryable_only_after_a_429() -> None:
    for verb, failure in product(WRITES, failures()):
        error = error_of(verb, failure, ())
        assert not isinstance(error, RETRYABLE) or failure.status == 429, (verb, failure)


def test_an_answer_in_another_format_is_a_definite_no_only_for_a_401() -> None:
    for verb, status in product(Verb, STATUSES):
        meaning = meaning_of(verb, Failure(status, None), ())
        expected = {401: Meaning.UNAUTHORIZED, 429: Meaning.THROTTLED}.get(status or 0, Meaning.UNCLEAR)
        assert meaning is expected, (verb, status)


def test_a_server_error_or_an_unlisted_success_is_unclear_whatever_its_detail() -> None:
    for verb, status in product(Verb, (None, 200, 204, 302, 500, 502, 503, 504)):
        assert meaning_of(verb, Failure(status, ErrorDetail("x", "y")), ()) is Meaning.UNCLEAR, (verb, status)


@pytest.mark.parametrize(
    ("verb", "status", "meaning"),
    [
        (Verb.LAUNCH, 400, Meaning.REFUSED),
        (Verb.LAUNCH, 402, Meaning.QUOTA_REACHED),
        (Verb.LAUNCH, 403, Meaning.REFUSED),
        (Verb.INVENTORY, 403, Meaning.UNAUTHORIZED),
        (Verb.PREPARE, 403, Meaning.UNAUTHORIZED),
        (Verb.LAUNCH, 404, Meaning.REFUSED),
        (Verb.LAUNCH, 408, Meaning.UNCLEAR),
        (Verb.LAUNCH, 409, Meaning.UNCLEAR),
        (Verb.TERMINATE, 404, Meaning.REFUSED),
        (Verb.TERMINATE, 409, Meaning.REFUSED),
        (Verb.TERMINATE, 499, Meaning.UNCLEAR),
    ],
)
def test_what_a_client_error_in_the_providers_format_means_without_a_rule(
    verb: Verb, status: int, meaning: Meaning
) -> None:
    assert meaning_of(verb, Failure(status, ErrorDetail("unlisted")), ()) is meaning


def test_the_first_rule_that_applies_decides_also_over_the_status() -> None:
    rules = (
        Rule(Meaning.NO_CAPACITY, code="service_unavailable", text="no capacity", verb=Verb.LAUNCH),
        Rule(Meaning.THROTTLED, code="RequestLimitExceeded"),
        Rule(Meaning.NOT_FOUND, status=404, verb=Verb.TERMINATE),
        *rules_by_code({"quota": Meaning.QUOTA_REACHED, "provider/*": Meaning.UNCLEAR}),
        Rule(Meaning.REFUSED, code="quota"),
    )

    def meaning(verb: Verb, status: int, code: str, message: str = "") -> Meaning:
        return meaning_of(verb, Failure(status, ErrorDetail(code, message)), rules)

    assert meaning(Verb.LAUNCH, 503, "service_unavailable", "No capacity available") is Meaning.NO_CAPACITY
    assert meaning(Verb.LAUNCH, 503, "service_unavailable", "Try later") is Meaning.UNCLEAR
    assert meaning(Verb.OFFERS, 503, "service_unavailable", "No capacity available") is Meaning.UNCLEAR
    assert meaning(Verb.LAUNCH, 503, "RequestLimitExceeded") is Meaning.THROTTLED
    assert meaning(Verb.TERMINATE, 404, "anything") is Meaning.NOT_FOUND
    assert meaning(Verb.LAUNCH, 404, "anything") is Meaning.REFUSED
    assert meaning(Verb.LAUNCH, 400, "quota") is Meaning.QUOTA_REACHED
    assert meaning(Verb.LAUNCH, 400, "provider/exhausted") is Meaning.UNCLEAR
    assert meaning(Verb.LAUNCH, 400, "providers") is Meaning.REFUSED


def test_no_rule_applies_to_an_answer_in_another_format() -> None:
    rules = (Rule(Meaning.NOT_FOUND, status=404), Rule(Meaning.NO_CAPACITY, code="not*"))
    assert meaning_of(Verb.TERMINATE, Failure(404, None), rules) is Meaning.UNCLEAR


@pytest.mark.parametrize("status", [None, 200, 302, 500, 503])
def test_a_rule_cannot_believe_a_status_alone_unless_it_is_a_client_error(status: int | None) -> None:
    for code, text in ((None, None), ("", None), ("*", None), (None, ""), ("", "")):
        with pytest.raises(ValueError, match="rule needs"):
            Rule(Meaning.NO_CAPACITY, status=status, code=code, text=text)
    with pytest.raises(ValueError, match="not sent"):
        Rule(Meaning.NOT_SENT, code="x")


def test_a_throttle_waits_as_the_provider_says_or_as_its_slowest_limit_and_never_for_ever() -> None:
    limits = (
        RateLimit("all", 1, 1.0, frozenset(Verb)),
        RateLimit("launch", 5, 60.0, frozenset({Verb.LAUNCH})),
    )

    def wait(verb: Verb, seconds: float | None, limits: tuple[RateLimit, ...] = limits) -> float:
        error = error_of(verb, Failure(429, None, seconds), (), rate_limits=limits)
        assert isinstance(error, Throttled)
        return error.retry_after_seconds

    assert (wait(Verb.LAUNCH, None), wait(Verb.OFFERS, None)) == (12.0, 1.0)
    assert (wait(Verb.LAUNCH, 7.0), wait(Verb.LAUNCH, None, ())) == (7.0, 5.0)
    assert (wait(Verb.LAUNCH, float("inf")), wait(Verb.LAUNCH, -1.0)) == (3_600.0, 0.0)


def test_an_error_carries_the_providers_code_and_message_on_one_short_line() -> None:
    failure = Failure(400, ErrorDetail("bad\nthing", "first line\n\x1b[31msecond" + "!" * 500))
    error = error_of(Verb.LAUNCH, failure, ())
    assert type(error) is OrderRefused
    assert error.code == "bad thing"
    assert str(error).startswith("launch: HTTP 400, bad thing (first line  [31msecond!!!")
    assert str(error).isprintable()
    assert len(str(error)) < 300
    assert str(error_of(Verb.OFFERS, Failure(None, None), ())) == "offers: no readable answer"
    assert str(error_of(Verb.OFFERS, Failure(None, ErrorDetail()), ())) == "offers: no readable answer"
    assert error_for(Verb.LAUNCH, Meaning.THROTTLED, "x", code="slow").code == "slow"


SECRET = "AAAAB3NzaC1-a-private-key-of-sixty-four-characters-0123456789abc"


@pytest.mark.parametrize(
    "quote",
    [
        SECRET,
        SECRET[:24],
        SECRET[20:60],
        SECRET[7:20],
        SECRET[9:31].upper(),
        "I2Nsb3VkLWNvbmZpZwojIEFBQUFCM056YUMxLWEtcHJpdmF0ZS1rZXktb2Ytc2l4dHktZm91ci1jaGFyYWN0ZXJzLTAxMjM0NTY3ODlhYmM=",
        "#cloud-config",
    ],
    ids=["whole", "beginning", "middle", "short", "capitals", "base64", "a word"],
)
def test_a_text_that_quotes_what_is_private_is_not_shown_at_all(quote: str) -> None:
    private = [f"#cloud-config\n# {SECRET}"]
    assert redacted(f"cannot read {quote!r} in your request", private) == ""
    assert redacted(f"{'x' * 195}{quote}", private) == ""
    assert redacted("cannot read your request", private) == "cannot read your request"


def test_a_code_that_quotes_what_is_private_is_not_shown_either() -> None:
    error = error_of(Verb.LAUNCH, Failure(400, ErrorDetail(SECRET, SECRET)), (), private=[SECRET])
    assert (str(error), error.code) == ("launch: HTTP 400", "")
