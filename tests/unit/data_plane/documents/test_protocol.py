import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.documents.health import Ecc, GpuHealth, Health, Reading, Usage, Xid
from data_plane.documents.inventory import (
    GPUS_MAX,
    Gpu,
    Inventory,
    Level,
    Mig,
    MigInstance,
    MigPlacement,
    Nic,
    NumaNode,
    NvLink,
    Nvme,
    PcieLink,
)
from data_plane.documents.protocol import DOCUMENT_BYTES_MAX, VERSION, Failure, Message, decode, encode
from data_plane.documents.records import fitting
from data_plane.documents.strict import Malformed, printable

INSTANCE = MigInstance("MIG-1", "3g.40gb", 1, 0, 9, MigPlacement(4, 4), 60, 40192)
CARD = Gpu(
    0,
    "NVIDIA H100 80GB HBM3",
    "GPU-0",
    81559,
    "none",
    "10de:2330",
    "9.0",
    serial="1650123456789",
    bus_id="0000:3b:00.0",
    local_cpus="0-31,64-95",
    pcie=PcieLink(5, 16, 5, 16),
    nvlinks=(NvLink(0, active=True, remote="switch", remote_bus_id="0000:c1:00.0"),),
    mig=Mig(enabled=False, pending=True, instances_max=7, instances=(INSTANCE,)),
)
INVENTORY = Inventory(
    "nvml",
    "570.124.06",
    (CARD, replace(CARD, index=1, uuid="GPU-1", mig=None)),
    ancestors=(("self", "node"), ("node", None)),
    numa_nodes=(NumaNode(0, "0-31", 1031000),),
    nvmes=(Nvme("nvme0", "SAMSUNG MZQL23T8", 3840755982336, "0000:01:00.0", 0),),
    nics=(Nic("ens1f0np0", "mlx5_core", 400000, "0000:05:00.0", 0, ("mlx5_0",)),),
)
HEALTH = Health(
    "nvml",
    1_760_000_000,
    (
        GpuHealth(
            0, "GPU-0", "0000:3b:00.0", lost=False, usage=Usage(0, 80994, 0, 0, 0, 0), ecc=Ecc(enabled=True)
        ),
    ),
    (Xid("xid", 79, "0000:3b:00.0", 1_759_999_999, "both"),),
    0,
    events=True,
    kernel_log="kmsg",
    readings=(Reading("usage", 1_760_000_000, 812, 6, 0),),
)


def a_document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(encode(INVENTORY)), **changes}


def a_gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    return {**json.loads(encode(INVENTORY))["gpus"][0], "index": index, "uuid": f"GPU-{index}", **changes}


def alone(**changes: Any) -> bytes:
    """The document of a machine with one card."""
    return raw(a_document(gpus=[a_gpu(**changes)], ancestors=[["self"]]))


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_what_the_agent_writes_is_what_we_read() -> None:
    for message in (INVENTORY, HEALTH, Inventory("emulated", "1", ()), Failure("nvml_error", "x")):
        assert decode(encode(message).encode()) == message


def test_the_fullest_machine_on_sale_fits_the_bound() -> None:
    links = tuple(NvLink(n, active=True, version=7, speed_mbps=26562, remote="switch") for n in range(18))
    mig = Mig(enabled=True, pending=True, instances_max=7, instances=(INSTANCE,) * 7)
    cards = tuple(replace(CARD, index=n, uuid=f"GPU-{n}", nvlinks=links, mig=mig) for n in range(GPUS_MAX))
    full = replace(
        INVENTORY,
        gpus=cards,
        ancestors=cast("tuple[tuple[Level, ...], ...]", (("system",) * GPUS_MAX,) * GPUS_MAX),
        nvmes=INVENTORY.nvmes * 32,
        nics=INVENTORY.nics * 32,
    )
    assert len(encode(full)) < DOCUMENT_BYTES_MAX
    assert decode(encode(full).encode()) == full


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
    "kind of another document": raw(a_document(kind="health")),
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
    "index negative": alone(index=-1),
    "uuid twice": raw(a_document(gpus=[a_gpu(0, uuid="GPU-1"), a_gpu(1, uuid="GPU-1")])),
    "uuid of a MIG slice": alone(uuid="MIG-1"),
    "memory NaN": alone(memory_total_mib=float("nan")),
    "memory infinite": alone(memory_total_mib=float("inf")),
    "memory a float": alone(memory_total_mib=81559.0),
    "memory an exponent": raw(a_document()).replace(b"81559", b"8e4"),
    "memory negative": alone(memory_total_mib=-1),
    "memory zero": alone(memory_total_mib=0),
    "memory huge": alone(memory_total_mib=10**18),
    "memory of 5,000 digits": raw(a_document()).replace(b"81559", b"9" * 5_000),
    "memory true": alone(memory_total_mib=True),
    "memory text": alone(memory_total_mib="81559"),
    "memory null": alone(memory_total_mib=None),
    "name empty": alone(name=""),
    "name long": alone(name="H" * 97),
    "name with an escape": alone(name="\x1b[2J"),
    "name not ASCII": alone(name="NVIDIA H100\u202e"),
    "pci id in words": alone(pci_device_id="nvidia"),
    "capability a number": alone(compute_capability=9.0),
    "bus id of the driver's own writing": alone(bus_id="00000000:3B:00.0"),
    "a gpu with extras": alone(healthy=True),
    "mig a number": alone(mig=1),
    "mig mode a number": alone(mig={"enabled": 1, "pending": 0, "instances_max": 7, "instances": []}),
    "a hundred MIG instances": alone(
        mig={"enabled": True, "pending": True, "instances_max": 7, "instances": [{}] * 100}
    ),
    "a thousand links": alone(nvlinks=[{}] * 1000),
    "a link that is none": alone(nvlinks=[None]),
    "a matrix with a row too few": raw(a_document(ancestors=[["self", "node"]])),
    "a matrix with a column too few": raw(a_document(ancestors=[["self"], ["node", "self"]])),
    "a matrix of numbers": raw(a_document(ancestors=[[0, 1], [1, 0]])),
    "a network device's path": raw(a_document(nics=[{"name": "../../etc/passwd"}])),
    "health without GPUs but with a fraction": raw({**json.loads(encode(HEALTH)), "at": 0.5}),
    "health of another GPU first": raw(
        {**json.loads(encode(HEALTH)), "gpus": [{**json.loads(encode(HEALTH))["gpus"][0], "index": 1}]}
    ),
    "failure with a novel": raw({"protocol": VERSION, "kind": "failure", "code": "x", "detail": "y" * 301}),
    "failure code with blanks": raw({"protocol": VERSION, "kind": "failure", "code": "x y", "detail": ""}),
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


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inside:
        yield (*path, key)
        yield from _places(below, (*path, key))


PLACES = [(message, path) for message in (INVENTORY, HEALTH) for path in _places(json.loads(encode(message)))]


@given(st.sampled_from(PLACES), json_values)
def test_any_place_may_hold_anything_and_the_answer_is_malformed_or_whole(
    place: tuple[Message, tuple[Any, ...]], value: object
) -> None:
    message, (*above, last) = place
    document = inside = json.loads(encode(message))
    for key in above:
        inside = inside[key]
    inside[last] = value
    try:
        read = decode(json.dumps(document).encode())
    except Malformed:
        return
    assert decode(encode(read).encode()) == read


@given(st.text())
def test_printable_text_fits_a_failure(text: str) -> None:
    message = Failure("nvml_error", printable(text))
    assert decode(encode(message).encode()) == message


def test_a_value_that_a_driver_makes_up_becomes_null_and_not_a_document_that_nobody_accepts() -> None:
    card = fitting(
        Gpu,
        index=0,
        name="X",
        uuid="GPU-0",
        memory_total_mib=1,
        sharing="none",
        pci_device_id="bad",
        compute_capability=None,
        brand=2**32 - 1,
        serial="\x00",
        bus_id="0000:3b:00.0",
    )
    assert (card.pci_device_id, card.brand, card.serial, card.bus_id) == (None, None, None, "0000:3b:00.0")


def test_a_value_that_must_be_there_is_not_made_up() -> None:
    with pytest.raises(Malformed):
        fitting(NumaNode, node=-1, cpus=None, memory_mib=None)
