"""The rules: which findings and hints follow from claims and measurements, and which outcome. Pure.

Every finding has a stable code with one sentence in FAILURES, SILENCES or HINTS. A failure means that an answer was
wrong, too late or too early, or that claims contradict each other. A silence means that nothing is known. A hint fails
no machine, but brings its next challenge forward.

The time rule, where t is the time on our clock from before the first byte of the question to the last byte of the
commitment:

    max(0.7 T_ref, work / (peak with margin))  <=  t  <=  (1 + tolerance) T_ref + NETWORK_SECONDS

If T_ref is only estimated, the lower bound is physics alone and the tolerance is 1: this only tells a card from one
that has less than half of its rate. If T_ref is guessed, a tenth of the guessed rate is enough.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_plane.proof.challenger.port import Expected, Finding, Occasion, Outcome
from data_plane.proof.challenger.reference import OTHER_PCI_DEVICES, Basis, Pace, Reference
from data_plane.proof.protocol.messages import Committed, GapsAnswer, GpuIdentity, Identity
from data_plane.proof.verifier.jobs import Fault

NETWORK_SECONDS = 0.1
"""The allowance for the network in every timed answer. It is fixed, because a machine could fake a measured one."""
TOLERANCE = {Basis.MEASURED: 0.2, Basis.LEARNT: 0.2, Basis.ESTIMATED: 1.0, Basis.GUESSED: 9.0}
"""How much longer than T_ref an answer may take, as a share of T_ref."""
TOO_FAST = 0.7
"""An answer in less than this share of a measured or learnt T_ref comes from another model or from a shortcut."""
PEAK_MARGIN = {"walk": 1.10, "int8": 1.25, "bf16": 1.25}
"""The factor by which a card may exceed its data sheet, with overclocked memory or clocks above the nominal boost."""
FREE_MIN = 0.95
"""The share of the sold memory that must be free for the phases, after the agent has made its context. A driver and a
context use 3.5 % of the smallest cards in our list, and 1 % of the largest (both estimated)."""
HELD_FREE_MIN = 0.90
"""The same share if a customer holds the machine and runs no visible process. `plan.Sizes.held` fills 0.60 of the sold
memory; with less free memory than this, the customer would have too little left to start working."""
SPREAD_MAX = 0.05
"""The largest difference between repeats of a phase on one GPU. A larger one suggests that somebody else uses it."""
GAP_US = 1000
"""A gap of this length on most multiprocessors at the same time suggests a time slice."""
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's bits for hardware slowdown, software and hardware thermal slowdown, and power brake. A software power cap
(0x4) is normal under load."""

MIB = 1 << 20

FAILURES = {
    "malformed": "The prover sent bytes that are not a message of the protocol.",
    "protocol": "The prover sent a message out of turn, twice, or before it was asked for.",
    "gpu_count": "The machine has another number of GPUs than was sold.",
    "gpu_duplicate": "One GPU is listed more than once.",
    "gpu_model": "A GPU has another name than what was sold.",
    "gpu_memory": "A GPU has another amount of memory than what was sold.",
    "gpu_shared": "A GPU says that it is only a part of a card, but a whole card was sold.",
    "uuid_differs": "NVML and CUDA report different UUIDs for the same GPU.",
    "bus_differs": "NVML and CUDA report different PCI addresses for the same GPU.",
    "pci_differs": "NVML and the PCI bus report different device ids for the same GPU.",
    "pci_other": "A GPU has the PCI device id of another model.",
    "capability": "A GPU has another compute capability than its model.",
    "memory_short": "A GPU has less free memory than must be filled to prove what was sold.",
    "too_slow": "An answer came later than the time rule allows, or never, although the machine could be reached.",
    "too_fast": "An answer came earlier than this model can compute it.",
    "unopened": "The prover committed to an answer and then did not open the sample.",
    "wrong_sizes": "The sizes of an answer do not fit the order.",
    "wrong_root": "The group hashes do not hash to the root that stopped the clock.",
    "wrong_group": "The opened digests are not those that the prover committed to.",
    "wrong_digest": "The prover committed to a digest that is not the result of the computation.",
}
SILENCES = {
    "memory_in_use": "A customer holds the machine, and a GPU has too little free memory for a meaningful walk.",
    "line_broken": "The line to the prover broke.",
    "silent": "The prover did not answer a question that is not timed.",
    "refused": "The prover says that it cannot go on.",
    "too_long": "The conversation took longer than its time limit.",
    "version": "The prover speaks another version of the protocol.",
}
BY_LOAD = frozenset({"too_slow", *SILENCES})
"""The codes that a customer's work on the GPUs can cause. No other finding may be excused by such work."""
HINTS = {
    "nvml_silent": "NVML says nothing about a GPU.",
    "sharing_unknown": "The machine does not say whether a GPU is a part of a card.",
    "pci_doubtful": "A GPU has a PCI device id that we do not know for certain.",
    "proc_differs": "The kernel driver reports another name for a GPU than NVML.",
    "sms_differ": "A GPU has another number of multiprocessors than the data sheet.",
    "bus_width_differs": "A GPU has another memory bus width than its model.",
    "bandwidth_differs": "Memory clock and bus width of a GPU do not result in the bandwidth of its model.",
    "cuda_memory_differs": "CUDA and NVML differ in a GPU's memory by more than a driver uses itself.",
    "ecc_differs": "NVML, CUDA and the amount of memory do not agree on whether ECC is on.",
    "mps": "A GPU is used through the multi-process service, which shares it.",
    "processes": "Other processes use a GPU.",
    "throttled": "A GPU is slowed down by heat or by its power supply.",
    "uneven": "Repeats of one phase differ by more than 5 %.",
    "retried": "A timed phase was in time only after it was repeated.",
    "time_sliced": "The clock of a GPU jumps on most of its multiprocessors.",
    "sms_unseen": "The gap kernel ran on fewer multiprocessors than the GPU claims.",
    "attestation_rejected": "A GPU's attestation was not accepted.",
    "attestation_unanswered": "The prover did not answer when its GPUs' attestation was asked for.",
    "gaps_unanswered": "The prover did not answer how often its GPUs' clocks jump.",
}
CODES: dict[str, str] = FAILURES | SILENCES | HINTS
"""Every code of a finding or a hint, and what it means."""

FAULTS = {fault: f"wrong_{fault.value}" for fault in Fault}


def outcome(findings: Iterable[Finding], source: str) -> Outcome:
    """The outcome. A failure outweighs a silence: a wrong answer stays wrong if the line breaks later."""
    codes = {finding.code for finding in findings}
    if codes - SILENCES.keys():
        return Outcome.FAILED
    if codes:
        return Outcome.UNANSWERED
    return Outcome.EMULATED if source == "emulated" else Outcome.PASSED


# ---- time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Band:
    """The range of seconds on our clock within which an answer is accepted."""

    least: float
    most: float
    reference: float
    """T_ref, for the report."""

    def code(self, seconds: float) -> str | None:
        if seconds < self.least:
            return "too_fast"
        return "too_slow" if seconds > self.most else None


UNTIMED = Band(0.0, float("inf"), 0.0)
"""For emulations, which are judged by their answers only."""


def band(work: float, pace: Pace, peak: float | None, margin: float) -> Band:
    """The time rule for `work`, which is in the units of `pace.rate` and `peak`."""
    reference = work / pace.rate
    physics = work / (peak * margin) if peak else 0.0
    known = pace.basis in (Basis.MEASURED, Basis.LEARNT)
    return Band(
        least=max(physics, TOO_FAST * reference if known else 0.0),
        most=(1 + TOLERANCE[pace.basis]) * reference + NETWORK_SECONDS,
        reference=reference,
    )


def launch_band(seconds: float, gpus: int) -> Band:
    """The time rule for the launch chain.

    A local driver needs 20 to 40 ms for 2,000 rounds (estimated); a network in between adds its round trip to each
    round. The chains of all GPUs run in one Python process, which does one thing at a time between its calls into the
    driver, so each further GPU is allowed a quarter more.
    """
    return Band(0.0, seconds * (1 + (gpus - 1) / 4) + NETWORK_SECONDS, 0.0)


def in_time(took: Sequence[float], bands: Sequence[Band]) -> bool:
    """Whether one try counts, which it does if every GPU was within its band.

    Otherwise one card could pose as several, by doing the work of another GPU first in every try.
    """
    return all(band.code(seconds) is None for seconds, band in zip(took, bands, strict=True))


def time_findings(phase: str, tries: Sequence[Sequence[float]], bands: Sequence[Band]) -> list[Finding]:
    """No finding if one of the tries counts; otherwise the findings of the best try. A try has each GPU's seconds."""
    if any(in_time(took, bands) for took in tries):
        return []

    def late(took: Sequence[float]) -> list[Finding]:
        return [
            Finding(
                code,
                gpu,
                f"{phase} took {seconds:.3f} s at best; {band.least:.3f} to {band.most:.3f} s are accepted"
                f"{', of all GPUs at once' if len(bands) > 1 else ''}.",
            )
            for gpu, (seconds, band) in enumerate(zip(took, bands, strict=True))
            if (code := band.code(seconds)) is not None
        ]

    return min((late(took) for took in sorted(tries, key=max)), key=len)


# ---- identity -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]


def judge_identity(
    identity: Identity, expected: Expected, reference: Reference, occasion: Occasion
) -> Judged:
    """Compares the claims with each other, with what was sold, and with the reference table.

    Of an emulation only the number of GPUs is checked, and that they are distinct.

    Memory in use is a finding only if there is no other one, because a challenge whose first finding it is counts
    neither for the machine nor against it.
    """
    findings, hints = list(_of_machine(identity, expected)), list[Finding]()
    in_use = list[Finding]()
    if identity.source == "cuda":
        for gpu in identity.gpus:
            findings += _contradictions(gpu)
            findings += _not_as_sold(gpu, expected, reference)
            if occasion.held:
                in_use += _memory_in_use(gpu, expected)
            else:
                findings += _memory_short(gpu, expected)
            hints += _doubts(gpu, reference)
            hints += _in_use(gpu)
    return Judged(tuple(findings or in_use), tuple(hints))


def _of_machine(identity: Identity, expected: Expected) -> Iterable[Finding]:
    if len(identity.gpus) != expected.count:
        yield Finding("gpu_count", None, f"{len(identity.gpus)} GPUs found, {expected.count} sold.")
    claimed = {
        "CUDA UUID": [gpu.cuda_uuid for gpu in identity.gpus],
        "NVML UUID": [gpu.nvml_uuid for gpu in identity.gpus if gpu.nvml_uuid],
        "PCI address": [_bus(gpu.cuda_pci_bus) for gpu in identity.gpus],
    }
    for name, values in claimed.items():
        for value, times in Counter(values).items():
            if times > 1:
                yield Finding("gpu_duplicate", None, f"{name} {value} is listed {times} times.")


def _bus(address: str) -> str:
    """The PCI address without the leading zeros of its domain: NVML writes eight digits, and CUDA writes four."""
    domain, rest = address.split(":", 1)
    return f"{int(domain, 16):x}:{rest}"


def _contradictions(gpu: GpuIdentity) -> Iterable[Finding]:
    if gpu.nvml_uuid is not None and gpu.nvml_uuid.lower() != gpu.cuda_uuid.lower():
        yield Finding("uuid_differs", gpu.index, f"NVML says {gpu.nvml_uuid}, CUDA {gpu.cuda_uuid}.")
    if gpu.nvml_pci_bus is not None and _bus(gpu.nvml_pci_bus) != _bus(gpu.cuda_pci_bus):
        yield Finding("bus_differs", gpu.index, f"NVML says {gpu.nvml_pci_bus}, CUDA {gpu.cuda_pci_bus}.")
    ids = (gpu.nvml_pci_device, gpu.sysfs_pci_device)
    if None not in ids and ids[0] != ids[1]:
        yield Finding("pci_differs", gpu.index, f"NVML says {ids[0]}, the PCI bus {ids[1]}.")


def _not_as_sold(gpu: GpuIdentity, expected: Expected, reference: Reference) -> Iterable[Finding]:
    for name in dict.fromkeys((gpu.nvml_name, gpu.cuda_name)):
        if name is not None and name not in expected.names:
            yield Finding("gpu_model", gpu.index, f"{name!r} found, {expected.model} sold.")
    if gpu.nvml_sharing in ("mig", "vgpu"):
        yield Finding("gpu_shared", gpu.index, f"{gpu.cuda_name} is a part of a card ({gpu.nvml_sharing}).")
    if gpu.nvml_memory is not None and not _in_band(gpu.nvml_memory / MIB, expected):
        yield Finding(
            "gpu_memory", gpu.index, f"{gpu.nvml_memory // MIB} MiB found, {_centres(expected)} MiB expected."
        )
    for device in dict.fromkeys((gpu.nvml_pci_device, gpu.sysfs_pci_device)):
        accepted = reference.pci_devices | reference.pci_devices_doubtful
        if device is not None and device in OTHER_PCI_DEVICES and device not in accepted:
            yield Finding("pci_other", gpu.index, f"{device} is {OTHER_PCI_DEVICES[device]}.")
    if gpu.cuda_capability != reference.capability:
        why = f"{gpu.cuda_capability} found, {expected.model} has {reference.capability}."
        yield Finding("capability", gpu.index, why)


def _in_band(mib: float, expected: Expected) -> bool:
    return any(
        abs(mib - centre) * 100 <= centre * expected.memory_tolerance_percent
        for centre in expected.memory_mib
    )


def _centres(expected: Expected) -> str:
    return " or ".join(str(mib) for mib in expected.memory_mib)


def memory_sold(gpu: GpuIdentity, expected: Expected) -> int:
    """The bytes of a whole card as it was sold: of the model's possible totals, the one that is nearest to NVML's.

    The claim only chooses among these totals; without a claim, the smallest one is not chosen.
    """
    totals = [mib * MIB for mib in expected.memory_mib]
    if gpu.nvml_memory is None:
        return max(totals)
    claimed = gpu.nvml_memory
    return min(totals, key=lambda total: (abs(total - claimed), -total))


def _memory_short(gpu: GpuIdentity, expected: Expected) -> Iterable[Finding]:
    """Too little free memory is a failure, since otherwise a cheat could claim little and would have to fill only
    that.
    """
    sold = memory_sold(gpu, expected)
    if gpu.cuda_free < FREE_MIN * sold:
        why = f"{gpu.cuda_free // MIB} MiB of {sold // MIB} are free, {FREE_MIN:.0%} are needed."
        yield Finding("memory_short", gpu.index, why)


def _memory_in_use(gpu: GpuIdentity, expected: Expected) -> Iterable[Finding]:
    """Memory in use prevents a pass: the free memory is only claimed, and a pass must show that there is memory."""
    sold = memory_sold(gpu, expected)
    if gpu.cuda_free < HELD_FREE_MIN * sold:
        why = f"{gpu.cuda_free // MIB} MiB of {sold // MIB} are free, {HELD_FREE_MIN:.0%} are needed."
        yield Finding("memory_in_use", gpu.index, why)


def _doubts(gpu: GpuIdentity, reference: Reference) -> Iterable[Finding]:
    """Reasons for doubt, for which no card is refused: our own figures are uncertain, or a source may be missing."""
    if gpu.nvml_name is None:
        yield Finding("nvml_silent", gpu.index, "NVML gives no name.")
    if gpu.nvml_sharing == "unknown":
        yield Finding("sharing_unknown", gpu.index, "Neither MIG nor vGPU could be ruled out.")
    for device in dict.fromkeys((gpu.nvml_pci_device, gpu.sysfs_pci_device)):
        if device is not None and device not in reference.pci_devices and device not in OTHER_PCI_DEVICES:
            yield Finding("pci_doubtful", gpu.index, f"{device} for {reference.model}.")
    if gpu.proc_model is not None and gpu.nvml_name is not None and gpu.proc_model != gpu.nvml_name:
        yield Finding("proc_differs", gpu.index, f"{gpu.proc_model!r} and {gpu.nvml_name!r}.")
    if gpu.cuda_sms != reference.sms:
        yield Finding("sms_differ", gpu.index, f"{gpu.cuda_sms} found, {reference.sms} on the data sheet.")
    if gpu.cuda_bus_bits != reference.bus_bits:
        yield Finding("bus_width_differs", gpu.index, f"{gpu.cuda_bus_bits} bits, not {reference.bus_bits}.")
    claimed = gpu.cuda_memory_khz * 1000 * 2 * gpu.cuda_bus_bits / 8
    if abs(claimed - reference.bandwidth) > 0.15 * reference.bandwidth:
        why = f"{claimed / 1e9:.0f} GB/s by its clock, {reference.bandwidth / 1e9:.0f} on the data sheet."
        yield Finding("bandwidth_differs", gpu.index, why)
    if (
        gpu.nvml_memory is not None
        and not 0.92 * gpu.nvml_memory <= gpu.cuda_memory <= 1.01 * gpu.nvml_memory
    ):
        why = f"CUDA says {gpu.cuda_memory // MIB} MiB, NVML {gpu.nvml_memory // MIB}."
        yield Finding("cuda_memory_differs", gpu.index, why)
    yield from _ecc(gpu, reference)


def _ecc(gpu: GpuIdentity, reference: Reference) -> Iterable[Finding]:
    if gpu.nvml_ecc is not None and gpu.nvml_ecc != gpu.cuda_ecc:
        yield Finding("ecc_differs", gpu.index, f"NVML says {gpu.nvml_ecc}, CUDA {gpu.cuda_ecc}.")
    mib = reference.memory_by_ecc.get(gpu.cuda_ecc)
    if mib and gpu.nvml_memory is not None and abs(gpu.nvml_memory / MIB - mib) > 0.02 * mib:
        why = f"{gpu.nvml_memory // MIB} MiB with ECC {'on' if gpu.cuda_ecc else 'off'}, {mib} expected."
        yield Finding("ecc_differs", gpu.index, why)


def _in_use(gpu: GpuIdentity) -> Iterable[Finding]:
    if gpu.cuda_mps:
        yield Finding("mps", gpu.index, "The multi-process service is enabled.")
    if gpu.nvml_processes:
        yield Finding("processes", gpu.index, f"{gpu.nvml_processes} processes before the proof.")
    if gpu.nvml_throttle is not None and gpu.nvml_throttle & THROTTLED:
        yield Finding("throttled", gpu.index, f"Reasons {gpu.nvml_throttle:#x} before the proof.")


# ---- hints of the phases ------------------------------------------------------------------------------------


def throttle_hint(committed: Committed) -> Finding | None:
    if committed.throttle is None or not committed.throttle & THROTTLED:
        return None
    return Finding("throttled", committed.gpu, f"Reasons {committed.throttle:#x} during {committed.phase}.")


def spread_hint(gpu: int, phase: str, seconds: Sequence[float]) -> Finding | None:
    """Compares the times of repeats of the same work, on our clock."""
    spread = max(seconds) / min(seconds) - 1 if len(seconds) > 1 and min(seconds) > 0 else 0.0
    if spread <= SPREAD_MAX:
        return None
    return Finding("uneven", gpu, f"{phase} took {min(seconds):.3f} to {max(seconds):.3f} s.")


def retry_hints(
    phase: str, tries: Sequence[Sequence[float]], planned: int, bands: Sequence[Band]
) -> Iterable[Finding]:
    """Hints about the GPUs that were not in time, if none of the planned tries counts."""
    if any(in_time(took, bands) for took in tries[:planned]):
        return
    for gpu, band in enumerate(bands):
        late = sum(band.code(took[gpu]) is not None for took in tries)
        if late:
            yield Finding(
                "retried", gpu, f"{phase} was out of time {late} times before all GPUs were in time."
            )


def gap_hints(answer: GapsAnswer, identity: GpuIdentity) -> Iterable[Finding]:
    """Time slices cause gaps of milliseconds on all multiprocessors at the same time. An idle GPU has no gaps."""
    seen = {one.sm for one in answer.sms}
    if len(seen) < identity.cuda_sms:
        yield Finding("sms_unseen", answer.gpu, f"{len(seen)} of {identity.cuda_sms} multiprocessors.")
    sliced = [one for one in answer.sms if one.gaps and one.longest_us >= GAP_US]
    if len(sliced) * 2 > len(answer.sms):
        longest = max(one.longest_us for one in sliced)
        why = f"{len(sliced)} of {len(answer.sms)} multiprocessors stood still, for {longest} us at most."
        yield Finding("time_sliced", answer.gpu, why)
