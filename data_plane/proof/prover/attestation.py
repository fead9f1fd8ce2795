"""Collects what a GPU attests about itself through NVML: a signed report and its certificate chain.

A GPU attests only if confidential computing is on (Hopper, Blackwell) and the driver supports it. Otherwise there is
nothing to collect, which is no fault. The evidence is judged on our side (`data_plane/proof/attestation/`) and not
examined here.

The kernel driver talks to the GPU for this, which takes seconds. It changes nothing.
"""

from typing import Any

import pynvml

from data_plane.proof.protocol.messages import Evidence, Source
from data_plane.proof.protocol.wire import encode

_UNKNOWN = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
"""The card cannot attest, or the driver does not know how."""


def answer(gpu: int, source: Source, pci_bus: str, nonce: bytes) -> bytes:
    """One encoded Evidence for the GPU at `pci_bus`, with or without a report."""
    found = "emulated" if source == "emulated" else collect(pci_bus, nonce)
    if isinstance(found, str):
        return encode(Evidence(gpu, 0, 0, found))
    report, chain = found
    return encode(Evidence(gpu, len(report), len(chain), None), report + chain)


def collect(pci_bus: str, nonce: bytes) -> "tuple[bytes, bytes] | str":
    """The report and the certificate chain (PEM), or the reason in messages.Evidence why there are none."""
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
    # The chain comes first, because it is cheap: a card without one need not be asked to sign.
    certificates = pynvml.nvmlDeviceGetConfComputeGpuCertificate(handle)
    answered = pynvml.nvmlDeviceGetConfComputeGpuAttestationReport(handle, nonce)
    chain = bytes(certificates.attestationCertChain)[: certificates.attestationCertChainSize]
    report = bytes(answered.attestationReport)[: answered.attestationReportSize]
    return (report, chain) if report and chain else "not_supported"


def _off() -> bool:
    """Whether the driver says that confidential computing is off."""
    try:
        return bool(
            pynvml.nvmlSystemGetConfComputeState().ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_DISABLED
        )
    except pynvml.NVMLError:
        return False
