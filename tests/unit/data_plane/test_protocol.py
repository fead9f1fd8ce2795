import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.protocol import (
    DOCUMENT_BYTES_MAX,
    GPUS_MAX,
    VERSION,
    Failure,
    Gpu,
    Inventory,
    decode,
    encode,
)
from data_plane.strict import Malformed, printable


def a_gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    gpu: dict[str, Any] = {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
        "memory_total_mib": 81559,
        "sharing": "none",
        "pci_device_id": "10de:2330",
        "compute_capability": "9.0",
    }
    return {**gpu, **changes}


def a_document(**changes: Any) -> dict[str, Any]:
    document = {
        "protocol": VERSION,
        "kind": "inventory",
        "source": "nvml",
        "driver_version": "570.124.06",
        "gpus": [a_gpu(0), a_gpu(1)],
    }
    return {**document, **changes}


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_what_the_agent_writes_is_what_we_read() -> None:
    gpu = Gpu(0, "NVIDIA L4", "GPU-1", 23034, "none", None, None)
    for message in (
        Inventory("nvml", "570.1", (gpu,)),
        Inventory("emulated", "1", ()),
        Failure("nvml_error", "x"),
    ):
        assert decode(encode(message).encode()) == message


def test_a_whole_answer_that_is_padded_past_the_bound_is_refused() -> None:
    whole = raw(a_document())
    assert decode(whole.ljust(DOCUMENT_BYTES_MAX))
    with pytest.raises(Malformed, match="longer than"):
        decode(whole.ljust(DOCUMENT_BYTES_MAX + 1))


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "not text": b"\xff\xfe\x00",
    "document is not an object": b"[]",
    "a bare number": b"1",
    "cut short": raw(a_document())[:-1],
    "two documents": raw(a_document()) * 2,
    "too large": raw(a_document(driver_version="1" * DOCUMENT_BYTES_MAX)),
    "deep": b"[" * (DOCUMENT_BYTES_MAX - 1),
    "unknown kind": raw(a_document(kind="shell")),
    "kind is a list": raw(a_document(kind=["inventory"])),
    "another version": raw(a_document(protocol=VERSION + 1)),
    "version is true": raw(a_document(protocol=True)),
    "an extra key": raw(a_document(price=0)),
    "a missing key": raw({key: value for key, value in a_document().items() if key != "source"}),
    "a key twice": raw(a_document())[:-1] + b', "source": "emulated"}',
    "a made-up source": raw(a_document(source="trust me")),
    "source is null": raw(a_document(source=None)),
    "driver with a line break": raw(a_document(driver_version="570\n")),
    "driver is a number": raw(a_document(driver_version=570)),
    "gpus is an object": raw(a_document(gpus={})),
    "a gpu is a string": raw(a_document(gpus=["H100"])),
    "10,000 GPUs": raw(a_document(gpus=[0] * 10_000)),
    "more GPUs than fit": raw(a_document(gpus=[a_gpu(i) for i in range(GPUS_MAX + 1)])),
    "index twice": raw(a_document(gpus=[a_gpu(0), a_gpu(0, uuid="GPU-2")])),
    "index left out": raw(a_document(gpus=[a_gpu(0), a_gpu(2)])),
    "index negative": raw(a_document(gpus=[a_gpu(-1)])),
    "uuid twice": raw(a_document(gpus=[a_gpu(0, uuid="GPU-1"), a_gpu(1, uuid="GPU-1")])),
    "uuid of a MIG slice": raw(a_document(gpus=[a_gpu(0, uuid="MIG-1")])),
    "memory NaN": raw(a_document(gpus=[a_gpu(0, memory_total_mib=float("nan"))])),
    "memory infinite": raw(a_document(gpus=[a_gpu(0, memory_total_mib=float("inf"))])),
    "memory a float": raw(a_document(gpus=[a_gpu(0, memory_total_mib=81559.0)])),
    "memory an exponent": raw(a_document()).replace(b"81559", b"8e4"),
    "memory negative": raw(a_document(gpus=[a_gpu(0, memory_total_mib=-1)])),
    "memory zero": raw(a_document(gpus=[a_gpu(0, memory_total_mib=0)])),
    "memory huge": raw(a_document(gpus=[a_gpu(0, memory_total_mib=10**18)])),
    "memory of 5,000 digits": raw(a_document()).replace(b"81559", b"9" * 5_000),
    "memory true": raw(a_document(gpus=[a_gpu(0, memory_total_mib=True)])),
    "memory text": raw(a_document(gpus=[a_gpu(0, memory_total_mib="81559")])),
    "name empty": raw(a_document(gpus=[a_gpu(0, name="")])),
    "name long": raw(a_document(gpus=[a_gpu(0, name="H" * 97)])),
    "name with an escape": raw(a_document(gpus=[a_gpu(0, name="\x1b[2J")])),
    "name not ASCII": raw(a_document(gpus=[a_gpu(0, name="NVIDIA H100\u202e")])),
    "pci id in words": raw(a_document(gpus=[a_gpu(0, pci_device_id="nvidia")])),
    "capability a number": raw(a_document(gpus=[a_gpu(0, compute_capability=9.0)])),
    "a gpu with extras": raw(a_document(gpus=[a_gpu(0, healthy=True)])),
    "failure with a novel": raw({"protocol": 1, "kind": "failure", "code": "x", "detail": "y" * 301}),
    "failure code with blanks": raw({"protocol": 1, "kind": "failure", "code": "x y", "detail": ""}),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_answer_is_malformed_and_not_quoted(content: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode(content)
    assert len(str(caught.value)) < 120
    assert str(caught.value).isprintable()


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    with pytest.raises(Malformed):
        decode(content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(a_document())), st.sampled_from([None, *sorted(a_gpu())]), json_values)
def test_any_field_may_hold_anything_and_the_answer_is_malformed_or_whole(
    field: str, gpu_field: str | None, value: object
) -> None:
    document = a_document()
    if gpu_field is None:
        document[field] = value
    else:
        document["gpus"][0][gpu_field] = value
    try:
        message = decode(json.dumps(document).encode())
    except Malformed:
        return
    assert decode(encode(message).encode()) == message


@given(st.text())
def test_printable_text_fits_a_failure(text: str) -> None:
    message = Failure("nvml_error", printable(text))
    assert decode(encode(message).encode()) == message
