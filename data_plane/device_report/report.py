"""Makes the report of one machine: measurements of every device, one whole challenge, and our aims.

The document can be put into `data_plane/proof/challenger/measured/` as it is: `measurements` reads `model`, `date`,
`driver` and `rates` from it. A report of an emulation or of a failed run says so, and must not be put there.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from data_plane.device_report import measure
from data_plane.device_report.line import prover
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.plan import EMULATED, KINDS, Sizes
from data_plane.proof.challenger.port import Expected, Occasion, ProofReport
from data_plane.proof.challenger.reference import TABLE, Reference, References
from data_plane.proof.protocol.arithmetic.constants import SIDE
from data_plane.proof.protocol.messages import BLOCK_BYTES, GpuIdentity
from data_plane.proof.prover.device import Device, Machine
from data_plane.proof.verifier.jobs import Checked, Job
from data_plane.proof.verifier.recompute import LocalVerifier

FORMAT = "splitplane.device-report/1"
RESIDENT_SHARE = 0.93
CHALLENGE_SECONDS = 15.0
WALK_SHARE = 0.65
VERIFIER_SECONDS = 5.0
MIB = 1 << 20
REPEATS = 3


class NotOneModel(Exception):  # noqa: N818 - reads as a sentence
    """The GPUs are of several models, or of a model that is not in the reference table."""


def model_of(gpu: GpuIdentity) -> str | None:
    """Our name for the model with this PCI device id; None if it is not in the table."""
    ids = {gpu.sysfs_pci_device, gpu.nvml_pci_device}
    return next((one.model for one in TABLE.values() if ids & one.pci_devices), None)


def device_figures(
    device: Device, identity: GpuIdentity, reference: Reference, sizes: Sizes
) -> Iterator[tuple[str, Any]]:
    """Measure one GPU, its correctness first, and yield each figure as soon as it is known.

    `sizes` is EMULATED for an emulated card. Raises DeviceError.
    """
    times = reference.estimate()
    repeats = 1 if sizes is EMULATED else REPEATS

    def chains(steps: int) -> int:
        return min(sizes.chains_max, round(sizes.walk_seconds * times.walk.rate / (steps * BLOCK_BYTES)))

    yield "index", identity.index
    yield "name", identity.cuda_name
    yield "uuid", identity.cuda_uuid
    yield "exactness", measure.exactness(device)
    largest = measure.largest_fill(device, sizes.blocks_max)
    yield "largest_allocation", {**largest, "share_of_total": largest["bytes"] / _total(identity)}
    blocks = largest["bytes"] // BLOCK_BYTES
    yield "fill", measure.fill_rate(device, min(reference.iterations, sizes.iterations_max), blocks)
    yield (
        "walk_by_steps",
        {
            str(steps): measure.walk_rate(device, reference, chains(steps), steps)
            for steps in ((sizes.steps,) if sizes is EMULATED else (128, 256, sizes.steps, 1024))
        },
    )
    by_share = {}
    for share in (0.05, 0.25, 1.0):
        walked = partial(
            measure.walk_over,
            device,
            reference,
            max(1, int(share * blocks)),
            chains(sizes.steps),
            sizes.steps,
        )
        by_share[f"{share:.0%}"] = measure.repeated(walked, repeats, "rate")
    yield "walk_by_share_of_memory", by_share
    device.release()
    tiles = {}
    for kind in KINDS:
        work = SIDE * SIDE * sizes.inner
        count = min(sizes.tiles_max, round(sizes.tile_seconds * times.of(kind).rate / work))
        computed = partial(measure.tile_rate, device, kind, reference, count, sizes.inner)
        tiles[kind] = measure.repeated(computed, repeats, "rate")
    yield "tiles", tiles
    yield "launch", measure.launch_round(device, sizes.rounds)
    yield "gaps", measure.gap_histogram(device, sizes.gap_milliseconds, sizes.gap_threshold_us)


def _total(identity: GpuIdentity) -> int:
    return identity.cuda_memory if identity.nvml_memory is None else identity.nvml_memory


class CountingVerifier:
    """A verifier that counts the CPU time of its work."""

    def __init__(self) -> None:
        self._inner = LocalVerifier()
        self.cpu_seconds = 0.0

    async def check(self, jobs: Sequence[Job]) -> list[Checked]:
        checked = await self._inner.check(jobs)
        self.cpu_seconds += sum(one.cpu_seconds for one in checked)
        return checked


async def challenge(
    model: str, gpus: Sequence[GpuIdentity], command: Sequence[str]
) -> tuple[ProofReport, float]:
    """A whole challenge as on a customer's machine. Returns its report and the verifier's CPU seconds.

    `command` starts a prover in a process of its own. The machine is trusted, so the challenger expects the names and
    memory that the machine itself reports.
    """
    verifier = CountingVerifier()
    expected = Expected(
        model=model,
        count=len(gpus),
        names=frozenset(name for gpu in gpus for name in (gpu.cuda_name, gpu.nvml_name) if name),
        memory_mib=tuple({_total(gpu) // MIB for gpu in gpus}),
        memory_tolerance_percent=2,
    )
    async with prover(command) as line:
        report = await ProofChallenger(verifier, References()).challenge(line, expected, Occasion.START)
    return report, verifier.cpu_seconds


@dataclass(frozen=True, slots=True)
class Aim:
    what: str
    unit: str
    value: float
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def aims(figures: Sequence[dict[str, Any]], proof: ProofReport, cpu_seconds: float) -> list[Aim]:
    """The aims, with this machine's figures. They are set for an H200; for another model a person has to judge them."""
    resident = (
        min(
            proven / one["largest_allocation"]["total_bytes"]
            for proven, one in zip(proof.proven_bytes, figures, strict=True)
        )
        if len(proof.proven_bytes) == len(figures)
        else 0.0
    )
    walk = min(one["walk_by_share_of_memory"]["100%"]["share_of_peak"] for one in figures)
    return [
        Aim("memory shown to be resident, of NVML's total", "", resident, RESIDENT_SHARE, at_least=True),
        Aim("a whole challenge", "s", proof.seconds, CHALLENGE_SECONDS, at_least=False),
        Aim("walk, of peak bandwidth", "", walk, WALK_SHARE, at_least=True),
        Aim("verifier, CPU per GPU", "s", cpu_seconds / len(figures), VERIFIER_SECONDS, at_least=False),
    ]


async def report(
    found: dict[str, Any],
    machine: Machine,
    prepared_seconds: float,
    nvml_costs: dict[str, Any],
    command: Sequence[str],
) -> None:
    """Measure every GPU of `machine`, one after the other, and then all of them in one challenge. Closes the machine.

    Fills `found` step by step, so that it keeps all measurements up to a failure. Raises DeviceError and NotOneModel.
    """
    gpus: list[dict[str, Any]] = []
    found |= {
        "format": FORMAT,
        "source": machine.source,
        "date": datetime.fromtimestamp(time.time(), UTC).date().isoformat(),
        "driver": machine.driver,
        "cuda": machine.cuda,
        "kernels_sha256": machine.kernels_sha256.hex(),
        "cpus": os.cpu_count(),
        "prepared_seconds": prepared_seconds,
        "nvml": nvml_costs,
        "gpus": gpus,
    }
    try:
        identities = [device.identity() for device in machine.devices]
        model = found["model"] = _model(identities)
        sizes = EMULATED if machine.source == "emulated" else Sizes()
        for device, identity in zip(machine.devices, identities, strict=True):
            gpus.append({})
            for question, answer in device_figures(device, identity, TABLE[model], sizes):
                gpus[-1][question] = answer
    finally:
        for device in machine.devices:
            device.close()  # The challenge uses a prover of its own, which needs the memory.

    best = gpus[0]
    found["rates"] = {
        "fill": best["fill"]["rate"],
        "walk": best["walk_by_share_of_memory"]["100%"]["rate"],
        **{kind: best["tiles"][kind]["rate"] for kind in KINDS},
    }
    proof, cpu_seconds = await challenge(model, identities, command)
    found["challenge"] = {
        "outcome": proof.outcome,
        "seconds": proof.seconds,
        "verifier_cpu_seconds": cpu_seconds,
        "findings": [asdict(one) for one in proof.findings],
        "hints": [asdict(one) for one in proof.hints],
        "proven_bytes": list(proof.proven_bytes),
        "rates": [asdict(one) for one in proof.rates],
    }
    found["aims"] = [{**asdict(one), "is_met": one.is_met} for one in aims(gpus, proof, cpu_seconds)]


def _model(identities: Sequence[GpuIdentity]) -> str:
    models = {model_of(one) for one in identities}
    model = models.pop() if len(models) == 1 else None
    if model is None:
        raise NotOneModel(
            "these GPUs are not of one model of the reference table (data_plane/proof/challenger/reference.py)"
        )
    return model
