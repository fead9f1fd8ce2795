"""What follows from what was claimed and measured: findings, hints, an outcome. Pure.

Every reason has a stable code with one sentence in FAILURES, SILENCES or HINTS. A failure says that an answer
was wrong, too late or too early, or that claims contradict each other; a silence that nothing is known; a hint
fails nobody and brings the next challenge forward.

The time rule, on our clock, t being from before the first byte of the question to the last of the commitment:

    max(0.7 T_ref, work / (peak with margin))  <=  t  <=  (1 + tolerance) T_ref + NETWORK_SECONDS

Where T_ref is only estimated, the lower bound is physics alone and the tolerance is 1: that tells a card from
one of less than half its rate, and nothing finer. Where it is guessed, a tenth of the guess will do.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from data_plane.proof.challenger.port import Expected, Finding, Occasion, Outcome
from data_plane.proof.challenger.reference import OTHER_PCI_DEVICES, Basis, Pace, Reference
from data_plane.proof.protocol.messages import Committed, GapsAnswer, GpuIdentity, Identity
from data_plane.proof.verifier.jobs import Fault

NETWORK_SECONDS = 0.1
"""Allowed for the network in every timed answer. Fixed: a round trip that we measured could be made to order."""
TOLERANCE = {Basis.MEASURED: 0.2, Basis.LEARNT: 0.2, Basis.ESTIMATED: 1.0, Basis.GUESSED: 9.0}
"""How much longer than T_ref an answer may take, as a share of it."""
TOO_FAST = 0.7
"""Share of a measured or learnt T_ref below which an answer comes from another model or a short cut."""
PEAK_MARGIN = {"walk": 1.10, "int8": 1.25, "bf16": 1.25}
"""By how much a card may exceed its data sheet: memory that is overclocked, clocks above the nominal boost."""
FREE_MIN = 0.95
"""Share of the memory that was sold which must be free, after the agent's own context, for all phases. A driver
and a context keep 3.5 % of the smallest cards we list for themselves, and 1 % of the largest (estimates)."""
HELD_FREE_MIN = 0.90
"""The same where somebody holds the machine and no process of theirs is seen. `plan.Sizes.held` fills 0.60 of what
was sold, and of less free memory that would leave them too little to begin to work."""
SPREAD_MAX = 0.05
"""Between repeats of a phase on one GPU: more looks like somebody else's work on it."""
GAP_US = 1000
"""A gap of this length on most multiprocessors at once looks like a time slice."""
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's bits for hardware slowdown, software and hardware thermal slowdown, power brake. A software power cap
(0x4) is normal under load."""

MIB = 1 << 20

FAILURES = {
    "malformed": "The prover sent bytes that are no message of the protocol.",
    "protocol": "The prover sent a message that was not its turn, twice, or before it was asked.",
    "gpu_count": "The machine has another number of GPUs than was sold.",
    "gpu_duplicate": "One GPU is listed more than once.",
    "gpu_model": "A GPU has another name than what was sold.",
    "gpu_memory": "A GPU has another amount of memory than what was sold.",
    "gpu_shared": "A GPU says that it is a part of a card; whole cards are sold.",
    "uuid_differs": "NVML and CUDA give one GPU different UUIDs.",
    "bus_differs": "NVML and CUDA place one GPU at different PCI addresses.",
    "pci_differs": "NVML and the PCI bus give one GPU different device ids.",
    "pci_other": "A GPU has the PCI device id of another model.",
    "capability": "A GPU has another compute capability than its model.",
    "memory_short": "Less memory is free than has to be filled to prove what was sold.",
    "too_slow": "An answer came later than the time rule allows, or not at all while the line was up.",
    "too_fast": "An answer came earlier than this model can compute it.",
    "unopened": "The prover committed to an answer and then did not show what was asked of it.",
    "wrong_sizes": "What was shown does not fit what was ordered.",
    "wrong_root": "The group hashes do not hash to the root that stopped the clock.",
    "wrong_group": "The digests shown are not those that were committed to.",
    "wrong_digest": "What was committed to is not what the honest computation gives.",
}
SILENCES = {
    "memory_in_use": "On a machine that somebody holds, too little memory is free for a walk that would show anything.",
    "line_broken": "The line to the prover broke.",
    "silent": "The prover did not answer a question that is not timed.",
    "refused": "The prover says that it cannot go on.",
    "too_long": "The conversation took longer than any may.",
    "version": "The prover speaks another version of the protocol.",
}
BY_LOAD = frozenset({"too_slow", *SILENCES})
"""What somebody else's work on the GPUs may cause. Nothing else that is found may be excused by it."""
HINTS = {
    "nvml_silent": "NVML says nothing about a GPU.",
    "sharing_unknown": "The machine does not say whether a GPU is a part of a card.",
    "pci_doubtful": "A GPU has a PCI device id that we cannot tell for certain.",
    "proc_differs": "The kernel driver gives a GPU another name than NVML.",
    "sms_differ": "A GPU has another number of multiprocessors than the data sheet.",
    "bus_width_differs": "A GPU has another memory bus width than its model.",
    "bandwidth_differs": "Memory clock and bus width of a GPU do not make the bandwidth of its model.",
    "cuda_memory_differs": "CUDA and NVML differ in a GPU's memory by more than a driver keeps for itself.",
    "ecc_differs": "NVML, CUDA and the amount of memory do not agree on whether ECC is on.",
    "mps": "A GPU is run through the multi-process service, which shares it.",
    "processes": "Other processes use a GPU.",
    "throttled": "A GPU is slowed down by heat or by its power supply.",
    "uneven": "Repeats of one phase differ by more than 5 %.",
    "retried": "A timed phase was in time only when it was repeated.",
    "time_sliced": "The clock of a GPU jumps on most of its multiprocessors.",
    "sms_unseen": "The gap kernel ran on fewer multiprocessors than the GPU claims.",
    "attestation_rejected": "A GPU's attestation was not accepted.",
    "attestation_unanswered": "The prover did not say what its GPUs attest.",
    "gaps_unanswered": "The prover did not say how often its clocks jump.",
}
CODES: dict[str, str] = FAILURES | SILENCES | HINTS
"""Every code of a finding or a hint, and what it means."""

FAULTS = {fault: f"wrong_{fault.value}" for fault in Fault}


def outcome(findings: Iterable[Finding], source: str) -> Outcome:
    """A failure outweighs a silence: what was seen to be wrong stays wrong when the line breaks afterwards."""
    codes = {finding.code for finding in findings}
    if codes - SILENCES.keys():
        return Outcome.FAILED
    if codes:
        return Outcome.UNANSWERED
    return Outcome.EMULATED if source == "emulated" else Outcome.PASSED


# ---- time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Band:
    """Seconds on our clock within which an answer is accepted."""

    least: float
    most: float
    reference: float
    """T_ref, for the record."""

    def code(self, seconds: float) -> str | None:
        if seconds < self.least:
            return "too_fast"
        return "too_slow" if seconds > self.most else None


UNTIMED = Band(0.0, float("inf"), 0.0)
"""An emulation is judged by its answers alone."""


def band(work: float, pace: Pace, peak: float | None, margin: float) -> Band:
    """The time rule for `work`, in the units of `pace.rate` and `peak`."""
    reference = work / pace.rate
    physics = work / (peak * margin) if peak else 0.0
    known = pace.basis in (Basis.MEASURED, Basis.LEARNT)
    return Band(
        least=max(physics, TOO_FAST * reference if known else 0.0),
        most=(1 + TOLERANCE[pace.basis]) * reference + NETWORK_SECONDS,
        reference=reference,
    )


def launch_band(seconds: float, gpus: int) -> Band:
    """A local driver needs 20 to 40 ms for 2,000 rounds (estimated); a network adds its round trip to each.

    The chains of all GPUs run in one Python process, which does one thing at a time between the calls to the
    driver: each further GPU is allowed a quarter more.
    """
    return Band(0.0, seconds * (1 + (gpus - 1) / 4) + NETWORK_SECONDS, 0.0)


def in_time(took: Sequence[float], bands: Sequence[Band]) -> bool:
    """Whether one try counts: every GPU was within its band in it.

    Else one card could be several: the work of each in turn, another one first in every try.
    """
    return all(band.code(seconds) is None for seconds, band in zip(took, bands, strict=True))


def time_findings(phase: str, tries: Sequence[Sequence[float]], bands: Sequence[Band]) -> list[Finding]:
    """None if any of the tries counts, each with the seconds of every GPU; else those of the try that came closest."""
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
    """Claims against each other, against what was sold, and against the reference table.

    Of an emulation only the number of GPUs and that they are distinct: it claims nothing that counts.

    Memory in use is told only where nothing contradicts: it has to be the first finding, since such a challenge counts
    neither for a machine nor against it.
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
    said = {
        "CUDA UUID": [gpu.cuda_uuid for gpu in identity.gpus],
        "NVML UUID": [gpu.nvml_uuid for gpu in identity.gpus if gpu.nvml_uuid],
        "PCI address": [_bus(gpu.cuda_pci_bus) for gpu in identity.gpus],
    }
    for name, values in said.items():
        for value, times in Counter(values).items():
            if times > 1:
                yield Finding("gpu_duplicate", None, f"{name} {value} is listed {times} times.")


def _bus(address: str) -> str:
    """Without the leading zeros of the domain, which NVML writes with eight digits and CUDA with four."""
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
    """Bytes of a whole card as it was sold: of its model's totals the one nearest to NVML's.

    A claim only chooses among them, and silence does not choose the smallest.
    """
    totals = [mib * MIB for mib in expected.memory_mib]
    if gpu.nvml_memory is None:
        return max(totals)
    claimed = gpu.nvml_memory
    return min(totals, key=lambda total: (abs(total - claimed), -total))


def _memory_short(gpu: GpuIdentity, expected: Expected) -> Iterable[Finding]:
    """Who could name a small free memory would be asked to fill only that."""
    sold = memory_sold(gpu, expected)
    if gpu.cuda_free < FREE_MIN * sold:
        why = f"{gpu.cuda_free // MIB} MiB of {sold // MIB} are free, {FREE_MIN:.0%} are needed."
        yield Finding("memory_short", gpu.index, why)


def _memory_in_use(gpu: GpuIdentity, expected: Expected) -> Iterable[Finding]:
    """No pass: what is free is the machine's word, and a pass that shows no memory would make it proven for good."""
    sold = memory_sold(gpu, expected)
    if gpu.cuda_free < HELD_FREE_MIN * sold:
        why = f"{gpu.cuda_free // MIB} MiB of {sold // MIB} are free, {HELD_FREE_MIN:.0%} are needed."
        yield Finding("memory_in_use", gpu.index, why)


def _doubts(gpu: GpuIdentity, reference: Reference) -> Iterable[Finding]:
    """What no card is refused for: our own figures are not certain, or a source may rightly be missing."""
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
    """Repeats of the same work, on our clock."""
    spread = max(seconds) / min(seconds) - 1 if len(seconds) > 1 and min(seconds) > 0 else 0.0
    if spread <= SPREAD_MAX:
        return None
    return Finding("uneven", gpu, f"{phase} took {min(seconds):.3f} to {max(seconds):.3f} s.")


def retry_hints(
    phase: str, tries: Sequence[Sequence[float]], planned: int, bands: Sequence[Band]
) -> Iterable[Finding]:
    """Of the GPUs that were out of time, when none of the tries that were planned counts."""
    if any(in_time(took, bands) for took in tries[:planned]):
        return
    for gpu, band in enumerate(bands):
        late = sum(band.code(took[gpu]) is not None for took in tries)
        if late:
            yield Finding(
                "retried", gpu, f"{phase} was out of time {late} times before all GPUs were in time."
            )


def gap_hints(answer: GapsAnswer, identity: GpuIdentity) -> Iterable[Finding]:
    """Time slices show as gaps of milliseconds on all multiprocessors at once; an idle GPU shows none."""
    seen = {one.sm for one in answer.sms}
    if len(seen) < identity.cuda_sms:
        yield Finding("sms_unseen", answer.gpu, f"{len(seen)} of {identity.cuda_sms} multiprocessors.")
    sliced = [one for one in answer.sms if one.gaps and one.longest_us >= GAP_US]
    if len(sliced) * 2 > len(answer.sms):
        longest = max(one.longest_us for one in sliced)
        why = f"{len(sliced)} of {len(answer.sms)} multiprocessors stood still, for {longest} us at most."
        yield Finding("time_sliced", answer.gpu, why)
