"""How a GPU's attestation is collected on its machine and travels: NVML, the order, the evidence."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from data_plane.documents.strict import Malformed
from data_plane.proof.protocol.messages import (
    CHAIN_BYTES_MAX,
    GPUS_MAX,
    REPORT_BYTES_MAX,
    AttestOrder,
    Evidence,
    Message,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover.attestation import answer
from tests.support import attestation as made

BUS = "0000:1b:00.0"
REPORT, CHAIN, NONCE = made.real("hopper-580")


def across(frame: bytes, wanted: type[Any] = Evidence) -> tuple[Message, bytes]:
    return decode(frame[4:], (wanted,))


# ---- on the machine -----------------------------------------------------------------------------------------


class Nvml:
    """NVML of a machine with one GPU at BUS, which signs whatever it is asked to."""

    def __init__(self) -> None:
        self.open = 0
        self.asked: list[bytes] = []
        self.feature = pynvml.NVML_CC_SYSTEM_FEATURE_ENABLED
        self.fails: type[pynvml.NVMLError] | None = None
        self.report = REPORT

    def shut(self) -> None:
        self.open -= 1

    def start(self) -> None:
        self.open += 1

    def handle(self, bus: str) -> str:
        if bus != BUS:
            raise pynvml.NVMLError_NotFound
        return bus

    def certificates(self, _: str) -> Any:
        if self.fails:
            raise self.fails
        filled = pynvml.c_nvmlConfComputeGpuCertificate_t()
        filled.attestationCertChain[: len(CHAIN)] = list(CHAIN)
        filled.attestationCertChainSize = len(CHAIN)
        return filled

    def sign(self, _: str, nonce: bytes) -> Any:
        self.asked.append(nonce)
        filled = pynvml.c_nvmlConfComputeGpuAttestationReport_t()
        filled.attestationReport[: len(self.report)] = list(self.report)
        filled.attestationReportSize = len(self.report)
        return filled

    def state(self) -> SimpleNamespace:
        return SimpleNamespace(ccFeature=self.feature)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    one = Nvml()
    for name, call in {
        "nvmlInit": one.start,
        "nvmlShutdown": one.shut,
        "nvmlDeviceGetHandleByPciBusId": one.handle,
        "nvmlDeviceGetConfComputeGpuCertificate": one.certificates,
        "nvmlDeviceGetConfComputeGpuAttestationReport": one.sign,
        "nvmlSystemGetConfComputeState": one.state,
    }.items():
        monkeypatch.setattr(pynvml, name, call)
    yield one
    assert one.open == 0, "NVML was left open"


def test_a_gpu_that_can_sign_answers_with_report_and_chain(nvml: Nvml) -> None:
    frame = answer(3, "cuda", BUS, NONCE)
    assert across(frame) == (Evidence(3, len(REPORT), len(CHAIN), None), REPORT + CHAIN)
    assert nvml.asked == [NONCE]


@pytest.mark.parametrize("error", [pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound])
def test_a_card_that_cannot_sign_says_so_and_is_not_asked_to(nvml: Nvml, error: type[Exception]) -> None:
    nvml.fails = error
    assert across(answer(0, "cuda", BUS, NONCE)) == (Evidence(0, 0, 0, "not_supported"), b"")
    nvml.feature = pynvml.NVML_CC_SYSTEM_FEATURE_DISABLED
    assert across(answer(0, "cuda", BUS, NONCE)) == (Evidence(0, 0, 0, "cc_off"), b"")
    assert nvml.asked == []


def test_a_driver_too_old_to_tell_the_mode_is_no_error(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise pynvml.NVMLError_FunctionNotFound

    nvml.fails = pynvml.NVMLError_FunctionNotFound
    monkeypatch.setattr(pynvml, "nvmlSystemGetConfComputeState", unknown)
    assert across(answer(0, "cuda", BUS, NONCE))[0] == Evidence(0, 0, 0, "not_supported")


def test_an_empty_report_is_none(nvml: Nvml) -> None:
    nvml.report = b""
    assert across(answer(0, "cuda", BUS, NONCE))[0] == Evidence(0, 0, 0, "not_supported")


def test_what_nvml_cannot_do_now_is_its_error(nvml: Nvml) -> None:
    assert across(answer(0, "cuda", "0000:ff:00.0", NONCE))[0] == Evidence(0, 0, 0, "nvml_error")
    nvml.fails = pynvml.NVMLError_GpuIsLost
    assert across(answer(0, "cuda", BUS, NONCE))[0] == Evidence(0, 0, 0, "nvml_error")


def test_a_machine_without_nvml_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert across(answer(0, "cuda", BUS, NONCE))[0] == Evidence(0, 0, 0, "nvml_error")


def test_an_emulation_never_asks_a_real_card(nvml: Nvml) -> None:
    assert across(answer(0, "emulated", BUS, NONCE))[0] == Evidence(0, 0, 0, "emulated")
    assert nvml.asked == []


# ---- on the wire --------------------------------------------------------------------------------------------


def test_an_order_travels_whole() -> None:
    order = AttestOrder(tuple(bytes([gpu]) * 32 for gpu in range(GPUS_MAX)))
    assert across(encode(order), AttestOrder) == (order, b"")


@pytest.mark.parametrize("nonces", [(b"short",), (bytes(33),), tuple(bytes(32) for _ in range(GPUS_MAX + 1))])
def test_an_order_of_other_nonces_is_malformed(nonces: tuple[bytes, ...]) -> None:
    with pytest.raises(Malformed):
        across(encode(AttestOrder(nonces)), AttestOrder)


def test_the_largest_evidence_travels() -> None:
    evidence = Evidence(0, REPORT_BYTES_MAX, CHAIN_BYTES_MAX, None)
    blob = bytes(REPORT_BYTES_MAX + CHAIN_BYTES_MAX)
    assert across(encode(evidence, blob)) == (evidence, blob)


@pytest.mark.parametrize(
    ("evidence", "size"),
    [
        (Evidence(0, 10, 10, None), 19),
        (Evidence(0, 10, 10, None), 21),
        (Evidence(0, 10, 10, None), 0),
        (Evidence(0, 10, 0, None), 10),
        (Evidence(0, 0, 10, None), 10),
        (Evidence(0, 0, 0, None), 0),
        (Evidence(0, 10, 10, "not_supported"), 20),
        (Evidence(0, 0, 0, "not_supported"), 1),
        (Evidence(0, 0, 0, "Not a word"), 0),
        (Evidence(0, REPORT_BYTES_MAX + 1, 1, None), REPORT_BYTES_MAX + 2),
        (Evidence(0, 1, CHAIN_BYTES_MAX + 1, None), CHAIN_BYTES_MAX + 2),
        (Evidence(0, -1, 10, None), 9),
        (Evidence(GPUS_MAX, 1, 1, None), 2),
    ],
)
def test_evidence_whose_sizes_do_not_fit_its_blob_is_malformed(evidence: Evidence, size: int) -> None:
    with pytest.raises(Malformed):
        across(encode(evidence, bytes(size)))


def test_what_was_collected_is_what_is_verified(nvml: Nvml) -> None:
    """The whole way: order, NVML, evidence, frame, and the parts that the verdict is asked about."""
    order, _ = across(encode(AttestOrder((NONCE,))), AttestOrder)
    assert isinstance(order, AttestOrder)
    evidence, blob = across(answer(0, "cuda", BUS, order.nonces[0]))
    assert isinstance(evidence, Evidence)
    assert (blob[: evidence.report], blob[evidence.report :]) == (REPORT, CHAIN)
