"""The fast reader of deliveries reads and refuses what the reader of the documents does."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.ingest.reading import open_delivery
from data_plane.documents import strict
from data_plane.documents.sample import read_sample
from data_plane.documents.sample_delivery import (
    DOCUMENT_BYTES_MAX,
    TooLarge,
    VersionNotKnown,
    encode_delivery,
    read_delivery,
)
from tests.support.cases import case
from tests.support.samples import busy_delivery


def _document() -> dict[str, Any]:
    found = json.loads(gzip.decompress(encode_delivery(busy_delivery(2))))
    assert isinstance(found, dict)
    return found


def _packed(document: object) -> bytes:
    return gzip.compress(json.dumps(document).encode())


def _outcome(read: Callable[[bytes], object], body: bytes) -> type[Exception] | None:
    try:
        read(body)
    except strict.Malformed as error:
        return type(error)
    return None


def test_what_is_read_is_what_was_sent() -> None:
    delivery = busy_delivery(3)
    opened = open_delivery(encode_delivery(delivery))
    assert opened.sent_at_ms == delivery.sent_at_ms
    assert [read_sample(sample.document.encode()) for sample in opened.samples] == list(delivery.samples)
    assert [(sample.sequence, sample.at_ms) for sample in opened.samples] == [
        (sample.sequence, sample.at_ms) for sample in delivery.samples
    ]


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, part in value.items():
            found += _places(part, (*path, key))
    if isinstance(value, list):
        for index, part in enumerate(value):
            found += _places(part, (*path, index))
    return found


_PLACES = [place for place in _places(_document()) if place]
_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 255, 256, 10_000, 10_001, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**40]),
    st.sampled_from([0.5, 1.0, "", "x", "é", "\u0000", "GPU-", "mlx5_0", [], {}, [1], {"a": 1}]),
    st.just("delete"),
    st.just("add"),
)


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from(_PLACES), odd=_ODD)
def test_both_readers_agree_on_every_field_and_every_odd_value(place: tuple[Any, ...], odd: object) -> None:
    document = _document()
    *way, last = place
    inner: Any = document
    for step in way:
        inner = inner[step]
    if odd == "delete":
        del inner[last]
    elif odd == "add" and isinstance(inner, dict):
        inner["added"] = 1
    else:
        inner[last] = odd
    body = _packed(document)
    assert _outcome(open_delivery, body) == _outcome(read_delivery, body), (place, odd)


@pytest.mark.parametrize("read", [open_delivery, read_delivery])
def test_bytes_that_are_no_delivery_are_refused(read: Callable[[bytes], object]) -> None:
    good = encode_delivery(busy_delivery())
    for name, body, refusal in (
        ("nothing", b"", strict.Malformed),
        ("no gzip", b"{}", strict.Malformed),
        ("zlib without gzip", zlib.compress(b"{}"), strict.Malformed),
        ("cut off", good[:-9], strict.Malformed),
        ("more behind it", good + b"x", strict.Malformed),
        ("no JSON", gzip.compress(b"{"), strict.Malformed),
        ("no UTF-8", gzip.compress(b'{"kind":"\xff"}'), strict.Malformed),
        ("nothing but brackets", gzip.compress(b"[" * 100_000), strict.Malformed),
        (
            "NaN",
            gzip.compress(b'{"protocol":1,"kind":"samples","sent_at_ms":NaN,"samples":[]}'),
            strict.Malformed,
        ),
        ("no samples", _packed(_document() | {"samples": []}), strict.Malformed),
        ("another version", _packed(_document() | {"protocol": 2}), VersionNotKnown),
        ("another kind", _packed(_document() | {"kind": "heartbeat"}), strict.Malformed),
        (
            "samples in another order",
            _packed(_document() | {"samples": _document()["samples"][::-1]}),
            strict.Malformed,
        ),
        (
            "a sample twice",
            _packed(_document() | {"samples": _document()["samples"][:1] * 2}),
            strict.Malformed,
        ),
        ("a bomb", gzip.compress(b" " * (DOCUMENT_BYTES_MAX + 1)), TooLarge),
    ):
        with case(name), pytest.raises(refusal):
            read(body)


def test_a_bomb_is_not_unpacked_beyond_the_bound() -> None:
    bomb = gzip.compress(bytes(100 * DOCUMENT_BYTES_MAX))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            open_delivery(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * DOCUMENT_BYTES_MAX
    finally:
        tracemalloc.stop()
