"""All faults of a body are found, each by its path, and are said in words."""

import inspect as python
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.api.errors import ApiError
from control_plane.api.faults import FAULTS_MAX, faults, must
from control_plane.api.requests import decode
from control_plane.wire.common import Request
from control_plane.wire.finance import LedgerTransactionRequest
from control_plane.wire.leases import LeaseRequest
from tests.support.cases import case

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FIELDS = [field.name for field in msgspec.structs.fields(LeaseRequest)]


def _requests() -> list[type[Request]]:
    """Every body of a request of the wire."""
    modules = [
        import_module(f"control_plane.wire.{path.stem}") for path in Path("control_plane/wire").glob("*.py")
    ]
    found = {kind for module in modules for _, kind in python.getmembers(module, python.isclass)}
    return [kind for kind in found if issubclass(kind, Request) and kind is not Request]


def test_a_good_body_has_no_fault() -> None:
    assert faults(LeaseRequest, {"sku": "a", "labels": {"team": "vision"}, "regions": ["eu"]}) == []


def test_a_check_of_our_own_is_said_in_its_words() -> None:
    refund = {"organization_id": f"org_{'0' * 32}", "kind": "refund", "amount_usd": "0.0", "reason": "ticket"}
    assert faults(LedgerTransactionRequest, refund) == [
        ("body", "must have an `amount_usd` of more than zero")
    ]
    assert faults(LeaseRequest, {"sku": "a", "auto_release": {"spend_usd": "0"}}) == [
        ("auto_release", "must have a `spend_usd` of more than zero")
    ]


def test_an_unknown_field_and_a_missing_one_are_named_with_the_nearest() -> None:
    found = dict(faults(LeaseRequest, {"skuu": "a", "zzz": 1}))
    assert set(found) == {"sku", "skuu", "zzz"}
    assert found["skuu"] == "is not a field here; did you mean `sku`?"
    assert found["zzz"].startswith("is not a field here; the fields are `sku`, ")
    assert found["sku"].startswith("is missing; it must be the name of a SKU")


def test_null_is_told_from_the_end_of_a_list_of_what_is_allowed() -> None:
    ((field, must_be),) = faults(LeaseRequest, {"sku": "a", "name": "a,b"})
    assert field == "name"
    assert must_be.endswith("starting with a letter or digit, or null")


def test_a_body_of_a_thousand_faults_names_some() -> None:
    found = faults(LeaseRequest, {"sku": "a", "ssh_key_ids": [7] * 5_000})
    assert len(found) == FAULTS_MAX
    assert found[-1][0] == f"ssh_key_ids[{FAULTS_MAX - 1}]"


def test_a_key_that_the_client_chose_is_shown_without_control_characters() -> None:
    for path, what in faults(
        LeaseRequest, {"sku": "a", "\x1b[2J": 1, "labels": {"\u202e": "a"}, "x" * 999: 1}
    ):
        assert path.isprintable(), what
        assert len(path) <= 200, path


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON, max_size=6))
def test_a_body_has_faults_exactly_when_it_is_refused(body: dict[str, Any]) -> None:
    text = msgspec.json.encode(body)
    refused = _refused(text)
    if refused is None:
        assert faults(LeaseRequest, msgspec.json.decode(text)) == []
    elif refused.code == "invalid_request":
        assert refused.errors, refused.detail
        for each in refused.errors:
            assert "regex" not in each.detail
            assert "`str`" not in each.detail


def _refused(body: bytes) -> ApiError | None:
    try:
        decode(body, LeaseRequest)
    except ApiError as error:
        return error
    return None


def test_every_field_of_every_request_has_words_for_what_it_must_be() -> None:
    kinds = _requests()
    assert len(kinds) >= 8
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            words = must(msgspec.inspect.type_info(field.type))
            assert "another kind" not in words, (kind, field.name)
        _patterns_have_words(msgspec.inspect.type_info(kind), {})


def _patterns_have_words(kind: Any, extra: dict[str, Any]) -> None:
    """A text with a pattern has words for it beside the pattern."""
    if isinstance(kind, msgspec.inspect.Metadata):
        _patterns_have_words(kind.type, kind.extra or {})
    elif isinstance(kind, msgspec.inspect.StrType):
        assert kind.pattern is None or extra.get("must"), kind
    for name in ("types", "fields"):
        for part in getattr(kind, name, ()):
            _patterns_have_words(getattr(part, "type", part) if name == "fields" else part, {})
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            _patterns_have_words(getattr(kind, name), {})


def test_a_body_that_is_nested_however_deeply_is_refused() -> None:
    for depth in (10, 300, 450, 480, 500, 700, 900, 990, 1_100, 30_000):
        for opening, middle, closing in ((b"[", b"", b"]"), (b'{"a":', b"1", b"}")):
            body = b'{"sku":"a","labels":' + opening * depth + middle + closing * depth + b"}"
            with case(depth), pytest.raises(ApiError) as raised:
                decode(body, LeaseRequest)
            assert raised.value.code in {"invalid_request", "malformed_json"}
