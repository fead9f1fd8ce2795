"""What a GPU model is and how fast it honestly is: the table that claims and times are held against.

    reference = TABLE["h100-sxm-80gb"]
    times = References(measurements.load()).times("h100-sxm-80gb", driver="570.124.06")

Where each column comes from decides what may follow from it:

- `pci_devices`, `OTHER_PCI_DEVICES`, `memory_by_ecc`: NVIDIA's open kernel module README (driver 595.45.04) and
  public nvidia-smi dumps. A card may be refused by them, except by the ids in `pci_devices_doubtful`.
- `capability`: vendor's list of compute capabilities; a card may be refused by it.
- `sms`, `bandwidth`, `int8_peak`, `bf16_peak`: data-sheet figures, not read again for this table. A claim that
  differs is a hint and never a refusal. As an upper bound of what physics allows they carry a margin
  (`judgement.PEAK_MARGIN`).
- `bus_bits`: worked out from data-sheet bandwidth and memory clock. Hints only.
- `host_link`: an estimate by PCIe generation: 22 GB/s for 4x16, 45 for 5x16, 380 for NVLink-C2C.
- `iterations`: chosen so that regenerating a unit costs about RHO times reading it. An A100-PCIE-40GB has the memory
  and the multiprocessors of the SXM card, and so its figure.

No GPU has been measured yet: `estimated` is the only basis until a report of a device is in
`data_plane/proof/challenger/measured` (`measurements`) or two providers have shown the same rates (`learning`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

RHO = 40
"""Time to compute a unit of the fill over the time to read one, at the honest rates, that `iterations` aims at."""

TimedPhase = Literal["fill", "walk", "int8", "bf16"]
TIMED_PHASES: tuple[TimedPhase, ...] = ("fill", "walk", "int8", "bf16")


class Basis(StrEnum):
    """How a pace is known, from the best to the worst."""

    MEASURED = "measured"
    """On hardware of our own, by a report of the device."""
    LEARNT = "learnt"
    """Shown alike by at least two unrelated providers."""
    ESTIMATED = "estimated"
    """A data-sheet peak times a factor from the literature."""
    GUESSED = "guessed"
    """Nothing is published: good for choosing the size of a phase, and for a bound ten times as wide."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a phase honestly runs, per second, and how we know."""

    rate: float
    basis: Basis
    note: str
    """Of when and of what: `2026-12-03, driver 570.124.06`, or the factor of an estimate."""


@dataclass(frozen=True, slots=True)
class Times:
    """Reference times of one model, kept as rates because the sizes of a challenge vary."""

    fill: Pace
    """Units times iterations."""
    walk: Pace
    """Bytes read."""
    int8: Pace
    """Multiply-adds."""
    bf16: Pace
    """Multiply-adds."""

    def of(self, phase: TimedPhase) -> Pace:
        paces: dict[TimedPhase, Pace] = {
            "fill": self.fill,
            "walk": self.walk,
            "int8": self.int8,
            "bf16": self.bf16,
        }
        return paces[phase]

    def describe(self) -> str:
        """Which bases were used and of when, such as `measured (2026-12-03, driver 570.124.06)`."""
        said = dict.fromkeys(f"{pace.basis} ({pace.note})" for pace in (self.walk, self.int8, self.bf16))
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Reference:
    """One model. Rates per second, bandwidth and link in bytes, peaks in multiply-adds (half of dense FLOPS)."""

    model: str
    pci_devices: frozenset[str]
    """`vendor:device`, as sysfs writes them."""
    capability: str
    sms: int
    bandwidth: float
    int8_peak: float
    bf16_peak: float
    bus_bits: int
    host_link: float
    iterations: int
    walk_factor: float
    """Random reads of 512 bytes, as a share of `bandwidth`."""
    tile_factor: float | None
    """What `mma.sync` reaches, as a share of either peak; None where nothing is published."""
    pci_devices_doubtful: frozenset[str] = frozenset()
    memory_by_ecc: Mapping[bool, int] = field(default_factory=lambda: MappingProxyType({}))
    """NVML total in MiB by whether ECC is on, for cards that pay for ECC with memory."""

    def peak(self, phase: TimedPhase) -> float | None:
        """What no card of this model can exceed, in the units of `Times`; None where no figure is known."""
        peaks: dict[TimedPhase, float | None] = {
            "fill": None,
            "walk": self.bandwidth,
            "int8": self.int8_peak,
            "bf16": self.bf16_peak,
        }
        return peaks[phase]

    def estimate(self) -> Times:
        walk = Pace(
            self.walk_factor * self.bandwidth,
            Basis.ESTIMATED,
            f"{self.walk_factor:.0%} of data-sheet bandwidth",
        )
        if self.tile_factor is None:
            basis, share, note = Basis.GUESSED, 0.25, "a quarter of data-sheet peak, to choose sizes"
        else:
            basis, share = Basis.ESTIMATED, self.tile_factor
            note = f"{share:.0%} of data-sheet peak"
        return Times(
            # What `iterations` was worked out from, solved for the rate of the fill.
            fill=Pace(
                self.iterations * walk.rate / (64 * RHO), Basis.ESTIMATED, "68 instructions a double round"
            ),
            walk=walk,
            int8=Pace(share * self.int8_peak, basis, note),
            bf16=Pace(share * self.bf16_peak, basis, note),
        )


_AMPERE_ADA = 0.85
"""Of the tensor cores' peak: estimated for kernels of `mma.sync` that are bound by nothing else."""
_HOPPER = 0.50
"""`mma.sync` does not reach what `wgmma` does: 45 to 60 % is expected."""

_PCIE4, _PCIE5, _C2C = 22e9, 45e9, 380e9


def _card(
    model: str,
    device: str,
    capability: str,
    *,
    sms: int,
    gb_s: float,
    bf16: float,
    int8: float,
    bus: int,
    link: float,
    iterations: int,
    factor: float | None,
    doubtful: tuple[str, ...] = (),
    memory_by_ecc: Mapping[bool, int] | None = None,
) -> Reference:
    """One row: bandwidth in GB/s, bf16 in dense TFLOPS and int8 in dense TOPS, as data sheets write them."""
    return Reference(
        model=model,
        pci_devices=frozenset({f"10de:{device}"}),
        capability=capability,
        sms=sms,
        bandwidth=gb_s * 1e9,
        int8_peak=int8 * 1e12 / 2,
        bf16_peak=bf16 * 1e12 / 2,
        bus_bits=bus,
        host_link=link,
        iterations=iterations,
        walk_factor=0.70,
        tile_factor=factor,
        pci_devices_doubtful=frozenset(f"10de:{one}" for one in doubtful),
        memory_by_ecc=MappingProxyType(dict(memory_by_ecc or {})),
    )


# fmt: off
_CARDS = (
    _card("a100-pcie-40gb", "20f1", "8.0", sms=108, gb_s=1555, bf16=312, int8=624, bus=5120, link=_PCIE4,
          iterations=31, factor=_AMPERE_ADA, doubtful=("20b1",)),
    _card("a100-sxm-40gb", "20b0", "8.0", sms=108, gb_s=1555, bf16=312, int8=624, bus=5120, link=_PCIE4,
          iterations=31, factor=_AMPERE_ADA),
    _card("a100-pcie-80gb", "20b5", "8.0", sms=108, gb_s=1935, bf16=312, int8=624, bus=5120, link=_PCIE4,
          iterations=24, factor=_AMPERE_ADA),
    _card("a100-sxm-80gb", "20b2", "8.0", sms=108, gb_s=2039, bf16=312, int8=624, bus=5120, link=_PCIE4,
          iterations=24, factor=_AMPERE_ADA),
    _card("h100-pcie-80gb", "2331", "9.0", sms=114, gb_s=2000, bf16=756, int8=1513, bus=5120, link=_PCIE5,
          iterations=28, factor=_HOPPER),
    _card("h100-sxm-80gb", "2330", "9.0", sms=132, gb_s=3350, bf16=989, int8=1979, bus=5120, link=_PCIE5,
          iterations=22, factor=_HOPPER),
    _card("h100-nvl-94gb", "2321", "9.0", sms=132, gb_s=3900, bf16=835, int8=1671, bus=6144, link=_PCIE5,
          iterations=17, factor=_HOPPER),
    _card("h200-sxm-141gb", "2335", "9.0", sms=132, gb_s=4800, bf16=989, int8=1979, bus=6144, link=_PCIE5,
          iterations=15, factor=_HOPPER),
    _card("b200-sxm-180gb", "2901", "10.0", sms=148, gb_s=8000, bf16=2250, int8=4500, bus=8192, link=_PCIE5,
          iterations=11, factor=None),
    _card("gh200-96gb", "2342", "9.0", sms=132, gb_s=4000, bf16=989, int8=1979, bus=6144, link=_C2C,
          iterations=19, factor=_HOPPER),
    _card("l4-24gb", "27b8", "8.9", sms=58, gb_s=300, bf16=121, int8=242, bus=192, link=_PCIE4,
          iterations=83, factor=_AMPERE_ADA),
    _card("l40s-48gb", "26b9", "8.9", sms=142, gb_s=864, bf16=362, int8=733, bus=384, link=_PCIE4,
          iterations=114, factor=_AMPERE_ADA, memory_by_ecc={True: 46068}),
    _card("a10-24gb", "2236", "8.6", sms=72, gb_s=600, bf16=125, int8=250, bus=384, link=_PCIE4,
          iterations=54, factor=_AMPERE_ADA, memory_by_ecc={True: 23028}),
    _card("a6000-48gb", "2230", "8.6", sms=84, gb_s=768, bf16=155, int8=310, bus=384, link=_PCIE4,
          iterations=58, factor=_AMPERE_ADA, memory_by_ecc={False: 49140, True: 46068}),
    _card("rtx-4090-24gb", "2684", "8.9", sms=128, gb_s=1008, bf16=165, int8=661, bus=384, link=_PCIE4,
          iterations=105, factor=_AMPERE_ADA, memory_by_ecc={False: 24564, True: 23028}),
    _card("rtx-5090-32gb", "2b85", "12.0", sms=170, gb_s=1792, bf16=210, int8=838, bus=512, link=_PCIE5,
          iterations=75, factor=None),
)
# fmt: on

TABLE: Mapping[str, Reference] = MappingProxyType({one.model: one for one in _CARDS})
"""By our word for the model (the control plane's `GpuModel`)."""

OTHER_PCI_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "10de:20b7": "A30",
        "10de:2235": "A40",
        "10de:2237": "A10G",
        "10de:2322": "H800 PCIe",
        "10de:2324": "H800",
        "10de:2329": "H20",
        "10de:232c": "H20-3e",
        "10de:2339": "H100 with HBM2e",
        "10de:233a": "H800 NVL",
        "10de:233b": "H200 NVL",
        "10de:2348": "GH200 144G",
        "10de:2685": "RTX 4090 D",
        "10de:26b1": "RTX 6000 Ada",
        "10de:26b5": "L40",
        "10de:26ba": "L20",
        "10de:2941": "GB200",
        "10de:2b87": "RTX 5090 D",
        "10de:2bb1": "RTX PRO 6000 Blackwell Workstation",
        "10de:2bb4": "RTX PRO 6000 Blackwell Max-Q",
        "10de:2bb5": "RTX PRO 6000 Blackwell Server",
        "10de:3182": "B300",
        "10de:31c2": "GB300",
    }
    | {device: one.model for one in _CARDS for device in one.pci_devices}
)
"""Ids that are known to be some card: a claim of another model with one of them contradicts itself."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Paces of a model, better than an estimate. Phases may be missing."""

    model: str
    driver_major: int
    """The branch that it was measured under, or learnt of; EVERY_DRIVER where it was learnt of all."""
    paces: Mapping[TimedPhase, Pace]


EVERY_DRIVER = 0


def driver_major(driver: str) -> int:
    """570 of `570.124.06`; EVERY_DRIVER where there is no such number."""
    found = re.match(r"[0-9]{1,6}(?=\.|$)", driver)
    return int(found[0]) if found else EVERY_DRIVER


@dataclass(frozen=True, slots=True)
class References:
    """All we know of honest times: the table, and what replaces its estimates."""

    observed: Sequence[Observed] = ()
    """Measured and learnt."""
    table: Mapping[str, Reference] = field(default_factory=lambda: TABLE)

    def times(self, model: str, driver: str) -> Times:
        """Reference times, phase by phase the best basis there is. Raises KeyError.

        The driver is the machine's own word: a lie about it must not buy time. It chooses among our own measurements,
        the nearest one, which is as much as two of them differ by; of what was learnt it chooses its own branch, which
        is never slower than all together, and no other.
        """
        major = driver_major(driver)
        times = self.table[model].estimate()
        for phase in TIMED_PHASES:
            known = [one for one in self.observed if one.model == model and _speaks_of(one, phase, major)]
            if known:
                best = min(known, key=lambda one: _preference(one, phase, major))
                times = replace(times, **{phase: best.paces[phase]})
        return times


def _speaks_of(one: Observed, phase: TimedPhase, major: int) -> bool:
    pace = one.paces.get(phase)
    return pace is not None and (pace.basis is Basis.MEASURED or one.driver_major in (major, EVERY_DRIVER))


def _preference(one: Observed, phase: TimedPhase, major: int) -> tuple[int, int, float]:
    """What was measured before what was learnt; the nearest driver; among equals the faster."""
    pace = one.paces[phase]
    return list(Basis).index(pace.basis), abs(one.driver_major - major), -pace.rate
