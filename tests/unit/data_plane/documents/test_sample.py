"""Samples between agents and the ingest process: which are read, which are refused, and which are notable."""

import gzip
import json
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.documents import strict
from data_plane.documents.health import (
    Ecc,
    Fabric,
    GpuHealth,
    Health,
    NvLinkHealth,
    PcieHealth,
    Power,
    Profile,
    Recovery,
    Throttle,
    Usage,
)
from data_plane.documents.sample import (
    DISKS_MAX,
    FILESYSTEMS_MAX,
    NICS_MAX,
    SAMPLE_BYTES_MAX,
    SERVERS_MAX,
    SIGNS,
    Disk,
    Filesystem,
    Gpu,
    Host,
    Nic,
    Sample,
    encode_sample,
    notable,
    read_sample,
    sample_gpus,
    signs,
)
from data_plane.documents.sample_delivery import (
    BODY_BYTES_MAX,
    DOCUMENT_BYTES_MAX,
    SAMPLES_MAX,
    STATUSES,
    Answer,
    TooLarge,
    Verdict,
    VersionNotKnown,
    encode_answer,
    encode_delivery,
    read_answer,
    read_delivery,
)
from tests.support.samples import XID_79, busy_delivery, busy_sample

FIXTURES = Path(__file__).parents[3] / "fixtures" / "samples"
RIGHT: "dict[str, Any]" = json.loads((FIXTURES / "version-1-samples.json").read_bytes())


def body(document: object) -> bytes:
    return gzip.compress(json.dumps(document).encode())


def accepted(content: bytes) -> bool:
    try:
        read_delivery(content)
    except strict.Malformed:
        return False
    return True


def test_what_agents_of_version_1_send_is_understood_for_as_long_as_they_may_run() -> None:
    delivery = read_delivery(gzip.compress((FIXTURES / "version-1-samples.json").read_bytes()))
    assert delivery.sent_at_ms == 1_795_800_030_040
    busy, failed = delivery.samples
    assert busy == replace(busy_sample(1, gpus=2), xids=(XID_79,), xids_more=3, spooled=4, dropped=5)
    assert failed == Sample(
        sequence=9,
        at_ms=1_795_800_030_000,
        boot="",
        uptime_seconds=3630,
        spooled=0,
        dropped=0,
        source=None,
        failure="nvml_hangs",
        gpus=(),
        xids=(),
        xids_more=0,
        events=False,
        kernel_log=None,
        host=Host(),
        servers=(),
    )
    assert read_answer((FIXTURES / "version-1-answer.json").read_bytes()) == Answer("accepted", 9)


def test_what_one_side_writes_the_other_side_reads() -> None:
    delivery = busy_delivery(3)
    assert read_delivery(encode_delivery(delivery)) == delivery
    assert read_sample(encode_sample(delivery.samples[0])) == delivery.samples[0]
    for verdict in get_args(Verdict):
        assert read_answer(encode_answer(Answer(verdict, 3))) == Answer(verdict, 3)
    assert set(STATUSES) == set(get_args(Verdict))


def test_a_sample_of_8_busy_gpus_takes_about_2_kb_and_a_full_delivery_fits() -> None:
    assert len(encode_delivery(busy_delivery())) < 2_400
    assert len(encode_delivery(busy_delivery(SAMPLES_MAX))) < BODY_BYTES_MAX
    full = json.dumps(busy_delivery(SAMPLES_MAX, gpus=16), default=vars).encode()
    assert len(full) < DOCUMENT_BYTES_MAX


def test_a_sample_with_every_list_full_of_the_largest_values_fits_into_the_spool() -> None:
    most = (1 << 64) - 1
    busy = busy_sample(gpus=16)
    counters: dict[str, Any] = {
        key: most for key, value in vars(Gpu(0)).items() if value is None and key.startswith(("ecc", "nv"))
    }
    disk = Disk("d" * 32, most, most, (1 << 53) - 1, (1 << 53) - 1, (1 << 53) - 1)
    nic = Nic("n" * 15, False, most, most, most, most, most, most)
    fullest = replace(
        busy,
        gpus=tuple(replace(gpu, **counters) for gpu in busy.gpus),
        xids=(replace(XID_79, number=999_999),) * 32,
        host=replace(
            busy.host,
            disks=(disk,) * DISKS_MAX,
            nics=(nic,) * NICS_MAX,
            filesystems=(Filesystem("/" + "m" * 63, 1 << 44, 1 << 44, 10_000),) * FILESYSTEMS_MAX,
        ),
        servers=tuple(replace(busy.servers[0], port=65_535 - n) for n in range(SERVERS_MAX)),
    )
    assert len(encode_sample(fullest)) < SAMPLE_BYTES_MAX


def test_a_delivery_of_a_newer_version_is_refused_with_an_answer_that_every_agent_reads() -> None:
    with pytest.raises(VersionNotKnown):
        read_delivery(body(RIGHT | {"protocol": 2, "something": "new"}))
    assert json.loads(encode_answer(Answer("version_not_known"))) == {
        "protocol": 1,
        "kind": "answer",
        "verdict": "version_not_known",
        "accepted_through": 0,
    }


def test_hostile_documents_are_malformed() -> None:
    good: dict[str, Any] = RIGHT["samples"][0]
    gpu: dict[str, Any] = good["gpus"][0]
    host: dict[str, Any] = good["host"]
    server: dict[str, Any] = good["servers"][0]

    def one(**changes: object) -> dict[str, Any]:
        return RIGHT | {"samples": [good | changes]}

    cases: dict[str, Any] = {
        "no object": [],
        "a version that is true": RIGHT | {"protocol": True},
        "a version that is a list": RIGHT | {"protocol": []},
        "no version": {key: value for key, value in RIGHT.items() if key != "protocol"},
        "an answer": RIGHT | {"kind": "answer"},
        "the id of a lease": RIGHT | {"lease": "le_" + "0" * 32},
        "no samples": RIGHT | {"samples": []},
        "too many samples": RIGHT | {"samples": [good | {"sequence": n + 1} for n in range(SAMPLES_MAX + 1)]},
        "the same one twice": RIGHT | {"samples": [good, good]},
        "a wrong order": RIGHT | {"samples": [good | {"sequence": 2}, good | {"sequence": 1}]},
        "a sequence of zero": one(sequence=0),
        "a huge sequence": one(sequence=1 << 53),
        "a fraction": one(at_ms=1.5),
        "a number as text": one(at_ms="1"),
        "an unknown source": one(source="trust me"),
        "GPUs without a source": one(source=None),
        "a failure with spaces": one(failure="no such thing"),
        "an index that is missing": one(gpus=[gpu | {"index": 1}]),
        "the same card twice": one(gpus=[gpu, gpu | {"index": 1}]),
        "too many cards": one(gpus=[gpu | {"index": n, "uuid": f"GPU-{n}"} for n in range(17)]),
        "a field more": one(gpus=[gpu | {"more": 1}]),
        "a field less": one(gpus=[{key: value for key, value in gpu.items() if key != "lost"}]),
        "a card that is half lost": one(gpus=[gpu | {"lost": 1}]),
        "a utilisation of 101 percent": one(gpus=[gpu | {"utilisation_percent": 101}]),
        "a counter beyond 64 bits": one(gpus=[gpu | {"energy_j": 1 << 64}]),
        "too many errors": one(xids=[good["xids"][0]] * 33),
        "a line break in a mount": one(
            host=host | {"filesystems": [host["filesystems"][0] | {"mount": "/\n"}]}
        ),
        "a quote of a database in a name": one(host=host | {"nics": [host["nics"][0] | {"name": "a" * 16}]}),
        "a null character": one(host=host | {"disks": [host["disks"][0] | {"name": "sda\0"}]}),
        "an unknown engine": one(servers=[server | {"engine": "other"}]),
        "two servers at one port": one(servers=[server, server]),
        "two servers at one port of a pod": one(servers=[server | {"pod_ip": "10.42.3.7"}] * 2),
        "a pod without an address": one(servers=[server | {"pod_ip": "elsewhere"}]),
        "more than all of a cache": one(servers=[server | {"kv_cache_bp": 10_001}]),
    }
    assert [name for name, case in cases.items() if accepted(body(case))] == []


def test_hostile_bytes_are_malformed() -> None:
    right = body(RIGHT)
    for content in (
        b"",
        b"\x1f\x8b",
        json.dumps(RIGHT).encode(),
        zlib.compress(json.dumps(RIGHT).encode()),
        right[:-1],
        right + b"\0",
        right + right,
        gzip.compress(b"\xff"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"protocol":1,"protocol":1}'),
        gzip.compress(b'{"protocol":' + b"9" * 10_000 + b"}"),
    ):
        with pytest.raises(strict.Malformed):
            read_delivery(content)


def test_a_delivery_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLarge):
        read_delivery(b"\0" * (BODY_BYTES_MAX + 1))
    bomb = gzip.compress(b" " * (100 * DOCUMENT_BYTES_MAX))
    assert len(bomb) < BODY_BYTES_MAX
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            read_delivery(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * DOCUMENT_BYTES_MAX, "no more is kept than may be read"
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=2_000))
def test_whatever_the_bytes_are_only_malformed_is_raised(content: bytes) -> None:
    for read in (read_delivery, read_answer, read_sample):
        with pytest.raises(strict.Malformed):
            read(content)
    with pytest.raises(strict.Malformed):
        read_delivery(gzip.compress(content))


_LEAVES: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just([]) | st.just({})
)


@given(st.data())
def test_a_document_with_any_one_value_replaced_is_malformed_or_within_its_bounds(
    data: st.DataObject,
) -> None:
    document = json.loads(json.dumps(RIGHT))
    at: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    at[key] = data.draw(_LEAVES)
    try:
        delivery = read_delivery(body(document))
    except strict.Malformed:
        return
    assert json.loads(json.dumps(delivery, default=vars)) | {"protocol": 1, "kind": "samples"} == document


def test_a_fault_is_notable_and_work_is_not() -> None:
    busy = busy_sample()
    assert not notable(busy)

    def gpu(**changes: Any) -> Sample:
        return replace(busy, gpus=(*busy.gpus[:3], replace(busy.gpus[3], **changes), *busy.gpus[4:]))

    cases: dict[str, Sample] = {
        "gpus_unreadable": replace(busy, failure="nvml_hangs", gpus=()),
        "gpu_lost": gpu(lost=True),
        "xid": replace(busy, xids=(XID_79,)),
        "recovery_action": gpu(recovery_action=1),
        "row_remap_failed": gpu(rows_failed=True),
        "row_remap_pending": gpu(rows_pending=True),
        "uncorrected_ecc": gpu(ecc_uncorrected_volatile=1),
        "hardware_throttle": gpu(throttle_reasons=64 | 4),
        "fabric_unhealthy": gpu(fabric_health="unhealthy"),
        "nvlink_down": gpu(nvlinks_active=17),
        "pcie_reduced": gpu(utilisation_percent=20, pcie_width=8),
    }
    assert tuple(cases) == SIGNS
    for sign, sample in cases.items():
        assert signs(sample) == (sign,)
    assert signs(gpu(utilisation_percent=20, pcie_generation=4)) == ("pcie_reduced",)
    assert not notable(gpu(utilisation_percent=19, pcie_generation=1, pcie_width=8)), "idle cards save power"
    assert not notable(gpu(nvlinks_active=0)), "a card without bridges"
    for reasons in (1, 2, 4, 16, 32, 256, None):
        assert not notable(gpu(throttle_reasons=reasons)), reasons


def test_a_sample_that_knows_nothing_is_read() -> None:
    nothing = Sample(1, 0, "", 0, 0, 0, None, None, (), (), 0, False, None, Host(), ())
    assert read_sample(encode_sample(nothing)) == nothing


def test_every_value_of_a_card_that_a_sample_has_comes_from_the_health_document() -> None:
    card = GpuHealth(
        index=0,
        uuid="GPU-0",
        bus_id="0000:01:00.0",
        lost=True,
        usage=Usage(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        power=Power(8, 9, 10, 11, 12, 13_000, 14, 15),
        throttle=Throttle(*(n * 1_000_000 for n in range(16, 25))),
        recovery=Recovery(25),
        ecc=Ecc(True, 26, 27, 28, 29, 30, 31, True, True, 32, 33, True),
        pcie=PcieHealth(6, 7, 16, 34, 35, 36, 37, 8, 44, 45),
        nvlink=NvLinkHealth(18, 17, 38, 39, 40, 41, 42, 43, 46, 47),
        fabric=Fabric("completed", 0, 0, "limited"),
        profile=Profile(48, 49, 50),
    )
    health = Health("nvml", 0, (card,), (), 0, False, "kmsg", ())
    rates = {
        "nvlink_kib_per_second": 1,
        "pcie_sent_bytes_per_second": 2,
        "pcie_received_bytes_per_second": 3,
    }
    (gpu,) = sample_gpus(health, {"GPU-0": rates})
    assert None not in vars(gpu).values()
    assert (gpu.processes, gpu.energy_j, gpu.throttled_power_ms, gpu.throttled_power_brake_ms) == (
        13,
        13,
        17,
        24,
    )
    assert sample_gpus(replace(health, gpus=(GpuHealth(0, None, None, lost=False),))) == (Gpu(0),)
