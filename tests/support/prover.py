"""A prover built from the arithmetic alone, and a line to it on a clock that only answers move.

It knows nothing of the product's own prover and emulations, so the challenger meets a second reading of the
protocol. Tests bend it: `took` says how long each answer takes, `bend` what becomes of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from data_plane.access.line import Frame, LineBroken, LineSilent
from data_plane.documents.strict import Malformed
from data_plane.proof.challenger.plan import Sizes
from data_plane.proof.challenger.port import Expected
from data_plane.proof.challenger.reference import (
    TABLE,
    Basis,
    Observed,
    Pace,
    Reference,
    References,
)
from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import (
    VERSION,
    AttestOrder,
    Committed,
    Evidence,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    GpuIdentity,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Library,
    Opened,
    OpenOrder,
    Order,
    SmGaps,
    TilesOrder,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode

MIB = 1 << 20
MODEL = "h100-sxm-80gb"
NAME = "NVIDIA H100 80GB HBM3"
CHAINS, TILES = 40, 12

SIZES = Sizes(
    rounds=5,
    steps=8,
    chains_opened=6,
    inner=64,
    columns=4,
    tiles_opened=4,
    group=8,
    blocks_max=64,
    iterations_max=1,
    gap_milliseconds=10,
)


def references(basis: Basis = Basis.MEASURED) -> References:
    """References under which a walk of SIZES takes 1.2 s and tiles take 0.5 s."""
    walked = CHAINS * SIZES.steps * 512 / SIZES.walk_seconds
    multiplied = TILES * 4096 * SIZES.inner / SIZES.tile_seconds
    reference: Reference = replace(TABLE[MODEL], int8_peak=2 * multiplied, bf16_peak=2 * multiplied)
    rates = {"fill": 512.0, "walk": walked, "int8": multiplied, "bf16": multiplied}
    paces = {phase: Pace(rate, basis, "test") for phase, rate in rates.items()}
    return References((Observed(MODEL, 570, paces),), {MODEL: reference})  # type: ignore[arg-type]


def expected(count: int = 1) -> Expected:
    return Expected(MODEL, count, frozenset({NAME}), (81559,), 2)


def gpu(index: int = 0, **changes: Any) -> GpuIdentity:
    one = GpuIdentity(
        index=index,
        nvml_name=NAME,
        nvml_uuid=f"GPU-{index}",
        nvml_memory=81559 * MIB,
        nvml_pci_device="10de:2330",
        nvml_pci_bus=f"00000000:{index:02x}:00.0",
        nvml_sharing="none",
        nvml_ecc=True,
        nvml_throttle=0,
        nvml_processes=0,
        cuda_name=NAME,
        cuda_uuid=f"GPU-{index}",
        cuda_memory=81090 * MIB,
        cuda_free=80400 * MIB,
        cuda_pci_bus=f"0000:{index:02x}:00.0",
        cuda_capability="9.0",
        cuda_sms=132,
        cuda_sm_khz=1_980_000,
        cuda_memory_khz=2_619_000,
        cuda_bus_bits=5120,
        cuda_l2=50 * MIB,
        cuda_ecc=True,
        cuda_mps=False,
        sysfs_pci_device="10de:2330",
        sysfs_pci_subsystem="10de:16c1",
        proc_model=NAME,
    )
    return replace(one, **changes)


def identity(*gpus: GpuIdentity, **changes: Any) -> Identity:
    library = Library("libcuda.so.1", "/usr/lib/libcuda.so.570.124.06", bytes(32))
    one = Identity(VERSION, "cuda", "570.124.06", "12.8", bytes(32), (library,), gpus or (gpu(),))
    return replace(one, **changes)


@dataclass(frozen=True)
class Answered:
    """One answer on its way."""

    message: Any
    blob: bytes = b""
    raw: bytes | None = None
    """What arrives in place of it."""
    breaks: bool = False
    """The line breaks in place of it."""
    later: float = 0.0
    """Seconds after the others of its order."""


Bend = Callable[[Answered], Iterable[Answered]]


def faithful(answer: Answered) -> Iterable[Answered]:
    return [answer]


@dataclass
class HonestProver:
    """Answers by the arithmetic of docs/gpu-proof.md, phase after phase."""

    identity: Identity
    attests: Callable[[int, bytes], tuple[bytes, bytes]] = lambda _gpu, _nonce: (b"", b"")
    """Report and certificate chain of a GPU for a nonce; empty where it cannot."""
    _memory: list[Any] = field(default_factory=list[Any])
    _digests: list[bytes] = field(default_factory=list[bytes])
    _group: int = 1

    def answers(self, order: Order) -> list[Answered]:
        count = range(len(self.identity.gpus))
        match order:
            case Hello():
                return [Answered(self.identity)]
            case LatencyOrder():
                finals = [launches.chain(start, order.rounds) for start in order.starts]
                return [Answered(LatencyAnswer(at, final)) for at, final in enumerate(finals)]
            case FillOrder():
                self._memory = [
                    fill.blocks(one.seed, one.iterations, np.arange(one.blocks, dtype=np.uint64))
                    for one in order.gpus
                ]
                return [Answered(Filled(at, 0, 1)) for at in count]
            case WalkOrder():
                keys = [one.nonce for one in order.gpus]
                self._digests = [
                    walk.digests(
                        one.nonce,
                        np.arange(one.chains, dtype=np.uint32),
                        order.steps,
                        len(memory),
                        memory.__getitem__,
                    )
                    for one, memory in zip(order.gpus, self._memory, strict=True)
                ]
                return self._committed("walk", keys, order.group)
            case TilesOrder():
                self._digests = [
                    tiles.digests(
                        order.kind,
                        one.seed,
                        order.inner,
                        order.columns,
                        np.arange(one.tiles, dtype=np.uint32),
                    )
                    for one in order.gpus
                ]
                return self._committed(order.kind, [one.seed for one in order.gpus], order.group)
            case OpenOrder():
                return [
                    Answered(Opened(at, order.phase), self._shown(at, groups))
                    for at, groups in enumerate(order.gpus)
                ]
            case GapsOrder():
                sms = tuple(SmGaps(sm, 1000, 0, 0) for sm in range(132))
                return [Answered(GapsAnswer(at, sms)) for at in count]
            case AttestOrder():
                return [self._attested(at, order.nonces[at]) for at in count]
            case _:
                return []

    def _attested(self, at: int, nonce: bytes) -> Answered:
        report, chain = self.attests(at, nonce)
        if not report:
            return Answered(Evidence(at, 0, 0, "not_supported"))
        return Answered(Evidence(at, len(report), len(chain), None), report + chain)

    def _committed(self, phase: Any, keys: list[bytes], group: int) -> list[Answered]:
        self._group = group
        hashes = [
            commitments.group_hashes(digests, group, key, phase)
            for digests, key in zip(self._digests, keys, strict=True)
        ]
        roots = [commitments.root(one, key, phase) for one, key in zip(hashes, keys, strict=True)]
        return [
            *(Answered(Committed(at, phase, root, 1, 0)) for at, root in enumerate(roots)),
            *(Answered(Groups(at, phase), one) for at, one in enumerate(hashes)),
        ]

    def _shown(self, at: int, groups: tuple[int, ...]) -> bytes:
        size = 8 * self._group
        return b"".join(self._digests[at][number * size : (number + 1) * size] for number in groups)


TOOK = {
    Identity: 3.0,
    LatencyAnswer: 0.03,
    Filled: 1.5,
    "walk": 1.2,
    "int8": 0.5,
    "bf16": 0.5,
    Opened: 0.02,
    GapsAnswer: 0.02,
    Evidence: 0.02,
}


@dataclass
class ScriptedLine:
    """`access.line.Line`. Each order's answers arrive `took` seconds after it, by their type or their phase.

    A list is used up, one figure for each time that it is asked for; its last figure stays.
    """

    prover: HonestProver = field(default_factory=lambda: HonestProver(identity()))
    bend: Bend = faithful
    took: dict[Any, Any] = field(default_factory=lambda: dict[Any, Any](TOOK))
    now: float = 100.0
    orders: list[Order] = field(default_factory=list[Order])
    heard: list[Any] = field(default_factory=list[Any])
    allowed: list[int] = field(default_factory=list[int])
    """`bytes_max` of each receive."""
    _inbox: list[tuple[float, Answered]] = field(default_factory=list[tuple[float, Answered]])
    _broken: bool = False

    async def send(self, frame: bytes) -> float:
        if self._broken:
            raise LineBroken("the line is broken")
        order, _ = decode(frame[4:], get_args(Order))
        self.orders.append(order)  # type: ignore[arg-type]
        answers = self.prover.answers(order)  # type: ignore[arg-type]
        if answers:
            at = self.now + self._seconds(answers[0].message)
            self._inbox += [(at + bent.later, bent) for answer in answers for bent in self.bend(answer)]
        return self.now

    def _seconds(self, first: Any) -> float:
        key = first.phase if isinstance(first, Committed) else type(first)
        seconds = self.took[key]
        if not isinstance(seconds, list):
            return float(seconds)
        return float(seconds.pop(0) if len(seconds) > 1 else seconds[0])

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        self.allowed.append(bytes_max)
        if self._broken:
            raise LineBroken("the line is broken")
        if not self._inbox or self._inbox[0][0] > self.now + seconds:
            self.now += seconds
            raise LineSilent(f"nothing in {seconds:g} s")
        at, answer = self._inbox.pop(0)
        self.now = max(self.now, at)
        if answer.breaks:
            self._broken = True
            raise LineBroken("the line is broken")
        self.heard.append(answer.message)
        body = encode(answer.message, answer.blob)[4:] if answer.raw is None else answer.raw
        if len(body) > bytes_max:
            raise Malformed(f"a frame of {len(body)} bytes")
        return Frame(body, at, at)


def dropping(kind: type[Any], phase: str | None = None) -> Bend:
    """Sends no answer of this `kind` (and phase)."""
    return lambda answer: [] if _is(answer, kind, phase) else [answer]


def breaking(kind: type[Any], phase: str | None = None) -> Bend:
    """Breaks the line instead of sending an answer of this `kind` (and phase)."""
    return lambda answer: [replace(answer, breaks=True)] if _is(answer, kind, phase) else [answer]


def changing(kind: type[Any], change: Callable[[Answered], Answered], phase: str | None = None) -> Bend:
    return lambda answer: [change(answer)] if _is(answer, kind, phase) else [answer]


def _is(answer: Answered, kind: type[Any], phase: str | None) -> bool:
    return isinstance(answer.message, kind) and phase in (None, getattr(answer.message, "phase", None))
