"""What a GPU attests of itself, as NVML hands it out: a signed report and the certificates behind it.

The GPU answers only where confidential computing is on (Hopper, Blackwell) and the driver knows how to ask.
Everywhere else there is nothing to collect, which is no fault. Judged on our side
(`data_plane/proof/attestation/`): here nothing is looked at.

The kernel driver talks to the GPU for this, which takes seconds. Nothing is changed.
"""

from typing import Any

import pynvml

from data_plane.proof.protocol.messages import Evidence, Source
from data_plane.proof.protocol.wire import encode

_UNKNOWN = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
"""The card cannot, or the driver has never heard of it."""


def answer(gpu: int, source: Source, pci_bus: str, nonce: bytes) -> bytes:
    """One encoded Evidence for the GPU at `pci_bus`, with or without a report."""
    found = "emulated" if source == "emulated" else collect(pci_bus, nonce)
    if isinstance(found, str):
        return encode(Evidence(gpu, 0, 0, found))
    report, chain = found
    return encode(Evidence(gpu, len(report), len(chain), None), report + chain)


def collect(pci_bus: str, nonce: bytes) -> "tuple[bytes, bytes] | str":
    """Report and certificate chain (PEM), or the word of messages.Evidence for why there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "nvml_error"
    try:
        return _ask(pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus), nonce)
    except _UNKNOWN:
        return "cc_off" if _off() else "not_supported"
    except pynvml.NVMLError:
        return "nvml_error"
    finally:
        pynvml.nvmlShutdown()


def _ask(handle: Any, nonce: bytes) -> "tuple[bytes, bytes] | str":
    # The chain is the cheap question: a card that has none is not asked to sign.
    certificates = pynvml.nvmlDeviceGetConfComputeGpuCertificate(handle)
    answered = pynvml.nvmlDeviceGetConfComputeGpuAttestationReport(handle, nonce)
    chain = bytes(certificates.attestationCertChain)[: certificates.attestationCertChainSize]
    report = bytes(answered.attestationReport)[: answered.attestationReportSize]
    return (report, chain) if report and chain else "not_supported"


def _off() -> bool:
    """Whether the driver says that confidential computing is off, and so would be the thing to turn on."""
    try:
        return bool(
            pynvml.nvmlSystemGetConfComputeState().ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_DISABLED
        )
    except pynvml.NVMLError:
        return False
