"""Names that an object has twice are found wherever it is; everything else is left to the decoder."""

from types import SimpleNamespace

import pytest

from control_plane.api import duplicates
from control_plane.api.duplicates import duplicate, refuse_duplicates
from control_plane.api.errors import ApiError
from tests.support.cases import case


def test_a_name_that_is_given_twice_is_refused_by_name() -> None:
    for name, body in (
        ("sku", b'{"sku": "a", "sku": "b"}'),
        ("sku", b'{"sku": "a", "sku": "a"}'),
        ("sku", b'{"sku": "a", "s\\u006bu": "b"}'),
        ("x", b'[{"a": {"b": [{"x": 1, "y": 2, "x": 3}]}}]'),
        ("", b'{"": 1, "": 2}'),
        ("?", b'{"\\ud800": 1, "\\ud800": 2}'),
    ):
        with case(body), pytest.raises(ApiError) as raised:
            refuse_duplicates(body)
        assert raised.value.code == "malformed_json"
        assert [fault.field for fault in raised.value.errors] == [name]


def test_what_has_no_name_twice_in_one_object_passes() -> None:
    for body in (
        b"",
        b"{",
        b"\xff",
        b"[" * 60_000,
        b'{"a": {"a": [{"a": 1}, {"a": 2}]}, "A": 1}',
        b'{"a": 1' + b"".join(b', "a%d": 1' % number for number in range(5_000)) + b"}",
    ):
        with case(body[:40]):
            assert duplicate(body) is None


def test_a_body_with_thousands_of_names_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    pairs: list[tuple[str, object]] = [(Name(number), None) for number in [*range(2_000), 1_999]]
    monkeypatch.setattr(duplicates, "_DECODER", SimpleNamespace(decode=lambda _: duplicates._object(pairs)))
    assert duplicate(b"") == "1999"
    assert compared < len(pairs)
