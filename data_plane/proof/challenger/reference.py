"""The reference table: the properties and honest speeds of each GPU model, to which claims and times are compared.

    reference = TABLE["h100-sxm-80gb"]
    times = References(measurements.load()).times("h100-sxm-80gb", driver="570.124.06")

What may follow from a column depends on where its values come from:

- `pci_devices`, `OTHER_PCI_DEVICES`, `memory_by_ecc`: from the README of NVIDIA's open kernel modules (driver
  595.45.04) and public outputs of nvidia-smi. A card can be refused because of them, except because of the ids in
  `pci_devices_doubtful`.
- `capability`: from NVIDIA's list of compute capabilities. A card can be refused because of it.
- `sms`, `bandwidth`, `int8_peak`, `bf16_peak`: figures of data sheets, which were not checked again for this table. A
  claim that differs is a hint and never a refusal. As physical limits they have a margin (`judgement.PEAK_MARGIN`).
- `bus_bits`: computed from the data sheet's bandwidth and memory clock. It only gives hints.
- `host_link`: an estimate by PCIe generation: 22 GB/s for 4x16, 45 for 5x16, 380 for NVLink-C2C.
- `iterations`: chosen so that computing a unit takes about RHO times as long as reading it. An A100-PCIE-40GB has the
  same memory and multiprocessors as the SXM card, and therefore the same value.

No GPU has been measured yet. All times are estimates until the report of a device is in
`data_plane/proof/challenger/measured` (`measurements`) or two providers have shown the same rates (`learning`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

RHO = 40
"""The aim of `iterations`: computing a unit of the fill takes about this many times as long as reading one."""

TimedPhase = Literal["fill", "walk", "int8", "bf16"]
TIMED_PHASES: tuple[TimedPhase, ...] = ("fill", "walk", "int8", "bf16")


class Basis(StrEnum):
    """How a pace is known, from the best basis to the worst."""

    MEASURED = "measured"
    """Measured by us on a device (`measurements`)."""
    LEARNT = "learnt"
    """Learnt from at least two independent providers that agree (`learning`)."""
    ESTIMATED = "estimated"
    """A data-sheet peak times a factor from the literature."""
    GUESSED = "guessed"
    """Guessed, because nothing is published. It is used to choose the size of a phase, and for a very wide limit."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The honest speed of a phase, per second, and how we know it."""

    rate: float
    basis: Basis
    note: str
    """Date and driver, such as `2026-12-03, driver 570.124.06`, or the factor of an estimate."""


@dataclass(frozen=True, slots=True)
class Times:
    """The reference times of one model, as rates, because the sizes of challenges differ."""

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
        """Which bases were used, with their notes, such as `measured (2026-12-03, driver 570.124.06)`."""
        bases = dict.fromkeys(f"{pace.basis} ({pace.note})" for pace in (self.walk, self.int8, self.bf16))
        return "; ".join(bases)


@dataclass(frozen=True, slots=True)
class Reference:
    """One model. Rates are per second: bandwidth and link in bytes, peaks in multiply-adds (half of dense FLOPS)."""

    model: str
    pci_devices: frozenset[str]
    """`vendor:device`, as in sysfs."""
    capability: str
    sms: int
    bandwidth: float
    int8_peak: float
    bf16_peak: float
    bus_bits: int
    host_link: float
    iterations: int
    walk_factor: float
    """The share of `bandwidth` that random reads of 512 bytes achieve."""
    tile_factor: float | None
    """The share of either peak that `mma.sync` achieves; None if nothing is published."""
    pci_devices_doubtful: frozenset[str] = frozenset()
    memory_by_ecc: Mapping[bool, int] = field(default_factory=lambda: MappingProxyType({}))
    """NVML's total in MiB by whether ECC is on, for cards whose ECC takes memory."""

    def peak(self, phase: TimedPhase) -> float | None:
        """The rate that no card of this model can exceed, in the units of `Times`; None if it is not known."""
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
            # The equation from which `iterations` was computed, solved for the rate of the fill.
            fill=Pace(
                self.iterations * walk.rate / (64 * RHO), Basis.ESTIMATED, "68 instructions a double round"
            ),
            walk=walk,
            int8=Pace(share * self.int8_peak, basis, note),
            bf16=Pace(share * self.bf16_peak, basis, note),
        )


_AMPERE_ADA = 0.85
"""The share of the tensor cores' peak that `mma.sync` achieves: an estimate for kernels without other limits."""
_HOPPER = 0.50
"""The same share for Hopper, where only `wgmma` can reach the peak: 45 to 60 % are expected."""

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
    """One row, in the units of data sheets: bandwidth in GB/s, bf16 in dense TFLOPS, int8 in dense TOPS."""
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
"""The table, by our name for the model (the control plane's `GpuModel`)."""

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
"""Ids of cards that we do not list. A card that claims to be another model with such an id contradicts itself."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Measured or learnt paces of a model. Phases may be missing."""

    model: str
    driver_major: int
    """The branch of the driver that it was measured with or learnt for; EVERY_DRIVER if it was learnt for all."""
    paces: Mapping[TimedPhase, Pace]


EVERY_DRIVER = 0


def driver_major(driver: str) -> int:
    """The driver's branch: 570 for `570.124.06`; EVERY_DRIVER if there is no such number."""
    found = re.match(r"[0-9]{1,6}(?=\.|$)", driver)
    return int(found[0]) if found else EVERY_DRIVER


@dataclass(frozen=True, slots=True)
class References:
    """All known honest times: the table, and the observations that replace its estimates."""

    observed: Sequence[Observed] = ()
    """Measured and learnt."""
    table: Mapping[str, Reference] = field(default_factory=lambda: TABLE)

    def times(self, model: str, driver: str) -> Times:
        """The reference times of a model, with the best basis for each phase. Raises KeyError for an unknown model.

        The driver is only claimed, and a false claim must not gain time. Among our own measurements the one with the
        nearest driver is used; among learnt references only the one of its own branch, which is never slower than the
        one of all drivers.
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
    """Sorts observations: measured before learnt, then the nearest driver, then the fastest."""
    pace = one.paces[phase]
    return list(Basis).index(pace.basis), abs(one.driver_major - major), -pace.rate
