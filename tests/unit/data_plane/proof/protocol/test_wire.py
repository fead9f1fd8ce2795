"""Every message there and back, and nothing else: whatever the bytes are, only Malformed leaves."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.documents.strict import Malformed
from data_plane.proof.protocol import messages
from data_plane.proof.protocol.messages import (
    BLOCKS_MAX,
    CHAINS_MAX,
    GPUS_MAX,
    GROUP_MAX,
    GROUPS_MAX,
    HEADER_BYTES_MAX,
    INNER_MAX,
    ITERATIONS_MAX,
    OPENED_MAX,
    ORDER_BYTES_MAX,
    REPORT_BYTES_MAX,
    ROUNDS_MAX,
    SMS_MAX,
    STEPS_MAX,
    TILES_MAX,
    AttestOrder,
    Committed,
    Evidence,
    Fill,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Library,
    Message,
    Opened,
    OpenOrder,
    Refused,
    SmGaps,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover.emulation.cards import CARDS, identity

ALL: tuple[type[Any], ...] = get_args(Message)


def some(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most) | st.sampled_from([least, most])


def each(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=GPUS_MAX).map(tuple)


def letters(pattern: str) -> st.SearchStrategy[str]:
    return st.from_regex(pattern, fullmatch=True)


def octets(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


GPU = some(0, GPUS_MAX - 1)
PHASE = st.sampled_from(["walk", "int8", "bf16"])
MICROSECONDS = some(0, 1 << 40)
MEMORY = some(0, 1 << 44)
WORD = some(0, (1 << 32) - 1)
REASONS = st.none() | some(0, 1 << 62)
CODE = letters(r"[a-z0-9_]{1,40}")
NAME = letters(r"[\x20-\x7e]{1,96}")
UUID = letters(r"GPU-[0-9A-Za-z-]{1,76}")
PCI = letters(r"[0-9a-f]{4}:[0-9a-f]{4}")
BUS = letters(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
VERSION = letters(r"[0-9A-Za-z._+-]{1,80}")
SM_GAPS = st.builds(SmGaps, some(0, SMS_MAX - 1), WORD, WORD, WORD)
GPU_IDENTITY = st.builds(
    messages.GpuIdentity,
    index=st.just(0),
    nvml_name=st.none() | NAME,
    nvml_uuid=st.none() | UUID,
    nvml_memory=st.none() | MEMORY,
    nvml_pci_device=st.none() | PCI,
    nvml_pci_bus=st.none() | BUS,
    nvml_sharing=st.sampled_from(["none", "mig", "vgpu", "unknown"]),
    nvml_ecc=st.none() | st.booleans(),
    nvml_throttle=REASONS,
    nvml_processes=st.none() | some(0, 1 << 20),
    cuda_name=NAME,
    cuda_uuid=UUID,
    cuda_memory=some(1, 1 << 44),
    cuda_free=MEMORY,
    cuda_pci_bus=BUS,
    cuda_capability=VERSION,
    cuda_sms=some(1, SMS_MAX),
    cuda_sm_khz=WORD,
    cuda_memory_khz=WORD,
    cuda_bus_bits=some(0, 1 << 20),
    cuda_l2=MEMORY,
    cuda_ecc=st.booleans(),
    cuda_mps=st.booleans(),
    sysfs_pci_device=st.none() | PCI,
    sysfs_pci_subsystem=st.none() | PCI,
    proc_model=st.none() | NAME,
)

EVERY: dict[type[Any], st.SearchStrategy[Any]] = {
    Hello: st.builds(Hello, some(0, 1_000_000)),
    LatencyOrder: st.builds(LatencyOrder, some(1, ROUNDS_MAX), each(octets(16))),
    FillOrder: st.builds(
        FillOrder, each(st.builds(Fill, octets(32), some(1, ITERATIONS_MAX), some(1, BLOCKS_MAX)))
    ),
    WalkOrder: st.builds(
        WalkOrder,
        some(1, STEPS_MAX),
        some(1, GROUP_MAX),
        each(st.builds(Walk, octets(16), some(1, CHAINS_MAX))),
    ),
    TilesOrder: st.builds(
        TilesOrder,
        st.sampled_from(["int8", "bf16"]),
        some(1, INNER_MAX // 32).map(lambda units: 32 * units),
        some(1, TILES_MAX),
        some(1, GROUP_MAX),
        each(st.builds(Tiles, octets(16), some(1, TILES_MAX))),
    ),
    OpenOrder: st.builds(
        OpenOrder,
        PHASE,
        each(st.sets(some(0, GROUPS_MAX - 1), max_size=20).map(lambda groups: tuple(sorted(groups)))),
    ),
    GapsOrder: st.builds(GapsOrder, some(1, 2000), some(1, 1_000_000)),
    AttestOrder: st.builds(AttestOrder, each(octets(32))),
    Goodbye: st.just(Goodbye()),
    Identity: st.builds(
        Identity,
        some(0, 1_000_000),
        st.sampled_from(["cuda", "emulated"]),
        VERSION,
        VERSION,
        octets(32),
        st.lists(st.builds(Library, NAME, letters(r"/[\x21-\x7e]{1,200}"), octets(32)), max_size=3).map(
            tuple
        ),
        st.lists(GPU_IDENTITY, max_size=3).map(
            lambda gpus: tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))
        ),
    ),
    LatencyAnswer: st.builds(LatencyAnswer, GPU, octets(16)),
    Filled: st.builds(Filled, GPU, MEMORY, MICROSECONDS),
    Committed: st.builds(Committed, GPU, PHASE, octets(32), MICROSECONDS, REASONS),
    Groups: st.builds(Groups, GPU, PHASE),
    Opened: st.builds(Opened, GPU, PHASE),
    GapsAnswer: st.builds(GapsAnswer, GPU, st.lists(SM_GAPS, max_size=8).map(tuple)),
    Evidence: st.builds(
        Evidence, GPU, some(1, REPORT_BYTES_MAX), some(1, messages.CHAIN_BYTES_MAX), st.none()
    )
    | st.builds(Evidence, GPU, st.just(0), st.just(0), CODE),
    Refused: st.builds(Refused, st.none() | GPU, CODE, letters(r"[\x20-\x7e]{0,300}")),
}
MESSAGE = st.one_of(list(EVERY.values()))


def blob_of(message: Any) -> bytes:
    """A blob that may stand behind it."""
    if isinstance(message, Evidence):
        return b"e" * (message.report + message.chain)
    return b"blob" if isinstance(message, Groups | Opened) else b""


def _document(message: Message) -> dict[str, Any]:
    body = encode(message)[4:]
    return dict(json.loads(body[2:]))


def _body(document: dict[str, Any]) -> bytes:
    header = json.dumps(document).encode()
    return min(len(header), 0xFFFF).to_bytes(2, "big") + header


def _message_or_malformed(body: bytes) -> None:
    """Whatever is read can be written again, and is the same: nothing is lost in between."""
    try:
        message, blob = decode(body, ALL)
    except Malformed:
        return
    assert decode(encode(message, blob)[4:], (type(message),)) == (message, blob)


def test_every_message_is_tried_here() -> None:
    assert set(EVERY) == set(ALL)


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=40)  # Of each of 18 kinds.
@given(st.data())
def test_every_message_comes_back_as_it_went(kind: type[Any], data: Any) -> None:
    message = data.draw(EVERY[kind])
    frame = encode(message, blob_of(message))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode(frame[4:], (kind,)) == (message, blob_of(message))
    with pytest.raises(Malformed):
        decode(frame[4:], tuple(other for other in ALL if other is not kind))


@given(MESSAGE)
def test_a_blob_is_carried_by_those_that_have_one(message: Message) -> None:
    for blob in (b"", b"x", b"\0" * 5000):
        if isinstance(message, Groups | Opened):
            assert decode(encode(message, blob)[4:], ALL) == (message, blob)
        elif blob != blob_of(message):
            with pytest.raises(Malformed):
                decode(encode(message, blob)[4:], ALL)


# Bytes that nobody honest sends.


@given(st.binary(max_size=300))
def test_random_bytes_are_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(body, ALL)


@given(MESSAGE, st.data())
def test_a_changed_byte_gives_another_message_or_none(message: Message, data: Any) -> None:
    body = bytearray(encode(message, blob_of(message))[4:])
    body[data.draw(st.integers(0, min(len(body), 400) - 1))] ^= data.draw(st.integers(1, 255))
    _message_or_malformed(bytes(body))


@given(MESSAGE, st.data())
def test_a_frame_cut_short_is_malformed(message: Message, data: Any) -> None:
    body = encode(message)[4:]
    with pytest.raises(Malformed):
        decode(body[: data.draw(st.integers(0, len(body) - 1))], ALL)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(MESSAGE, JSON, st.data())
def test_any_value_in_any_field_is_read_whole_or_refused(message: Message, value: Any, data: Any) -> None:
    document = _document(message)
    document[data.draw(st.sampled_from(sorted(document)))] = value
    _message_or_malformed(_body(document))


@given(st.sampled_from(ALL), st.data())
def test_a_field_too_many_or_too_few_is_refused(kind: type[Any], data: Any) -> None:
    document = _document(data.draw(EVERY[kind]))
    with pytest.raises(Malformed):
        decode(_body({**document, "extra": 1}), ALL)
    for key in document:
        with pytest.raises(Malformed):
            decode(_body({one: document[one] for one in document if one != key}), ALL)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'"goodbye"',
        b"{}",
        b'{"message": "goodbye", "message": "goodbye"}',
        b'{"message": ["goodbye"]}',
        b'{"message": "Goodbye"}',
        b'{"message": null}',
        b'{"message": "hello", "version": 1.0}',
        b'{"message": "hello", "version": true}',
        b'{"message": "hello", "version": NaN}',
        b'{"message": "hello", "version": 1e400}',
        b'{"message": "hello", "version": -1}',
        b'{"message": "hello", "version": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[" * 60_000,
        b'{"message":' * 5_000,
    ],
)
def test_invalid_headers_are_refused(header: bytes) -> None:
    with pytest.raises(Malformed):
        decode(len(header).to_bytes(2, "big") + header, ALL)


def _with(message: Message, **values: Any) -> bytes:
    return _body({**_document(message), **values})


FILL = FillOrder((Fill(bytes(32), 1, 1),))
TILES = TilesOrder("int8", 32, 1, 1, (Tiles(bytes(16), 1),))
OPEN = OpenOrder("walk", ((1, 2),))
IDENTITY = Identity(1, "cuda", "570", "12.8", bytes(32), (), (identity(CARDS["l4-24gb"], 0, "GPU-0"),))


@pytest.mark.parametrize(
    "body",
    [
        _with(LatencyOrder(1, ()), rounds=0),
        _with(LatencyOrder(1, ()), rounds=ROUNDS_MAX + 1),
        _with(LatencyOrder(1, ()), starts=["00" * 15]),
        _with(LatencyOrder(1, ()), starts=["00" * 17]),
        _with(LatencyOrder(1, ()), starts=["0G" * 16]),
        _with(LatencyOrder(1, ()), starts=["AA" * 16]),
        _with(LatencyOrder(1, ()), starts=["00" * 16] * (GPUS_MAX + 1)),
        _with(LatencyOrder(1, ()), starts={}),
        _with(FILL, gpus=[{"seed": "00" * 32, "iterations": 0, "blocks": 1}]),
        _with(FILL, gpus=[{"seed": "00" * 32, "iterations": ITERATIONS_MAX + 1, "blocks": 1}]),
        _with(FILL, gpus=[{"seed": "00" * 32, "iterations": 1, "blocks": BLOCKS_MAX + 1}]),
        _with(FILL, gpus=[{"seed": "00" * 32, "iterations": 1, "blocks": 1, "more": 1}]),
        _with(FILL, gpus=[{"seed": "00" * 32, "iterations": 1}]),
        _with(FILL, gpus=[[]]),
        _with(WalkOrder(1, 1, ()), steps=STEPS_MAX + 1),
        _with(WalkOrder(1, 1, ()), group=GROUP_MAX + 1),
        _with(WalkOrder(1, 1, ()), gpus=[{"nonce": "00" * 16, "chains": CHAINS_MAX + 1}]),
        _with(TILES, kind="fp8"),
        _with(TILES, inner=33),
        _with(TILES, inner=0),
        _with(TILES, inner=INNER_MAX + 32),
        _with(TILES, columns=0),
        _with(TILES, gpus=[{"seed": "00" * 32, "tiles": 1}]),
        _with(TILES, gpus=[{"seed": "00" * 16, "tiles": TILES_MAX + 1}]),
        _with(OPEN, phase="fill"),
        _with(OPEN, gpus=[[2, 1]]),
        _with(OPEN, gpus=[[1, 1]]),
        _with(OPEN, gpus=[[-1]]),
        _with(OPEN, gpus=[[GROUPS_MAX]]),
        _with(OPEN, gpus=[["1"]]),
        _with(OPEN, gpus=[list(range(OPENED_MAX + 1))]),
        _with(GapsOrder(1, 1), milliseconds=2001),
        _with(AttestOrder(()), nonces=["00" * 16]),
        _with(IDENTITY, source="nvml"),
        _with(IDENTITY, gpus=[]) [:-1],
        _with(replace(IDENTITY, gpus=(replace(IDENTITY.gpus[0], index=1),))),
        _with(replace(IDENTITY, gpus=IDENTITY.gpus * 2)),
        _with(replace(IDENTITY, driver="570\n")),
        _with(replace(IDENTITY, gpus=(replace(IDENTITY.gpus[0], cuda_name="\u202e"),))),
        _with(replace(IDENTITY, gpus=(replace(IDENTITY.gpus[0], cuda_sms=0),))),
        _with(replace(IDENTITY, gpus=(replace(IDENTITY.gpus[0], cuda_uuid="MIG-1"),))),
        _with(Filled(0, 1, 1), gpu=GPUS_MAX),
        _with(Filled(0, 1, 1), free=(1 << 44) + 1),
        _with(Committed(0, "walk", bytes(32), 1, None), root="00" * 31),
        _with(Committed(0, "walk", bytes(32), 1, None), throttle=-1),
        _with(GapsAnswer(0, ()), sms=[{"sm": SMS_MAX, "samples": 0, "gaps": 0, "longest_us": 0}]),
        _with(Evidence(0, 0, 0, None)),
        _with(Evidence(0, 1, 0, None)) + b"x",
        _with(Evidence(0, 1, 1, "not_supported")) + b"xy",
        _with(Evidence(0, REPORT_BYTES_MAX + 1, 1, None)) + bytes(REPORT_BYTES_MAX + 2),
        _with(Evidence(0, 2, 2, None)) + b"xyz",
        _with(Refused(None, "no_driver", ""), code="No"),
        _with(Refused(None, "no_driver", ""), detail="\x1b[2J"),
        _with(Refused(None, "no_driver", ""), detail="x" * 301),
    ],
)  # fmt: skip
def test_a_value_beyond_its_bounds_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode(body, ALL)
    assert str(caught.value).isprintable()


def test_the_largest_orders_of_the_largest_machine_fit_their_frame() -> None:
    largest = (
        FillOrder((Fill(b"\xff" * 32, ITERATIONS_MAX, BLOCKS_MAX),) * GPUS_MAX),
        WalkOrder(STEPS_MAX, GROUP_MAX, (Walk(b"\xff" * 16, CHAINS_MAX),) * GPUS_MAX),
        TilesOrder("int8", INNER_MAX, TILES_MAX, GROUP_MAX, (Tiles(b"\xff" * 16, TILES_MAX),) * GPUS_MAX),
        OpenOrder("walk", (tuple(range(GROUPS_MAX - OPENED_MAX, GROUPS_MAX)),) * GPUS_MAX),
        LatencyOrder(ROUNDS_MAX, (b"\xff" * 16,) * GPUS_MAX),
    )
    for order in largest:
        assert len(encode(order)) - 4 <= ORDER_BYTES_MAX


def test_the_largest_answers_fit_their_header() -> None:
    gpu = identity(CARDS["l4-24gb"], 0, "GPU-" + "x" * 76)
    wide = replace(gpu, nvml_name="x" * 96, cuda_name="x" * 96, proc_model="x" * 96, nvml_uuid=gpu.cuda_uuid)
    libraries = (Library("x" * 96, "/" + "x" * 200, bytes(32)),) * 16
    gpus = tuple(replace(wide, index=index) for index in range(GPUS_MAX))
    encode(Identity(1, "cuda", "x" * 80, "x" * 80, bytes(32), libraries, gpus))
    word = (1 << 32) - 1
    # 188 multiprocessors are the most that any card has; the bound of SMS_MAX is on numbers, not on how many.
    encode(GapsAnswer(0, tuple(SmGaps(sm, word, word, word) for sm in range(512))))
    with pytest.raises(ValueError, match="header"):
        encode(Refused(None, "internal", "x" * HEADER_BYTES_MAX))


def test_messages_are_plain_values_that_python_3_10_knows() -> None:
    for kind in ALL:
        assert is_dataclass(kind)
        assert "__slots__" not in vars(kind)
        assert {one.name for one in fields(kind)} == set(kind.__annotations__)
