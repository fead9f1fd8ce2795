"""The conversation on the machine, with GPUs that are scripts."""

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.proof.protocol.arithmetic.launches import chain, launch
from data_plane.proof.protocol.commitments import group_hashes, root
from data_plane.proof.protocol.messages import (
    GROUPS_MAX,
    ORDER_BYTES_MAX,
    Answer,
    AttestOrder,
    Committed,
    Evidence,
    Fill,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
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
    Refused,
    SmGaps,
    Source,
    TileKind,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover.device import Device, DeviceError
from data_plane.proof.prover.emulation.cards import CARDS, identity
from data_plane.proof.prover.prover import Prover, one_after_another, serve, side_by_side

ANSWERS = (
    Identity,
    LatencyAnswer,
    Filled,
    Committed,
    Groups,
    Opened,
    GapsAnswer,
    Evidence,
    Refused,
)
SEED, NONCE = bytes(range(32)), bytes(range(16))
Reply = tuple[Answer, bytes]


def digest(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "big")).digest()[:8]


@dataclass
class Scripted:
    """A GPU that answers at once. `breaks` maps a method to what it raises."""

    index: int
    slices: int = 3
    breaks: dict[str, Exception] = field(default_factory=dict[str, Exception])
    done: list[str] = field(default_factory=list[str])
    throttles: Iterator[int | None] = field(default_factory=lambda: iter(()))
    at: Callable[[str], None] = lambda what: None

    def _do(self, what: str) -> None:
        self.done.append(what)
        self.at(what)
        if what in self.breaks:
            raise self.breaks[what]

    def identity(self) -> GpuIdentity:
        self._do("identity")
        return identity(CARDS["l4-24gb"], self.index, f"GPU-{self.index}")

    def launch(self, message: bytes) -> bytes:
        self._do("launch")
        return launch(message)

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        self._do("fill")
        return 1000 + self.index

    def walk(self, nonce: bytes, chains: int, steps: int) -> Iterator[bytes]:
        return self._digests("walk", chains)

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> Iterator[bytes]:
        return self._digests(kind, tiles)

    def _digests(self, what: str, count: int) -> Iterator[bytes]:
        step = -(-count // self.slices)
        for first in range(0, count, step):
            self._do(what)
            yield b"".join(digest(number) for number in range(first, min(first + step, count)))

    def busy_us(self) -> int:
        return 77

    def gaps(self, milliseconds: int, threshold_us: int) -> tuple[SmGaps, ...]:
        self._do("gaps")
        return (SmGaps(0, 1000, 0, 3),)

    def throttle(self) -> int | None:
        return next(self.throttles, None)

    def memory_free(self) -> int:
        return 5

    def release(self) -> None:
        raise AssertionError

    def close(self) -> None:
        self.done.append("close")


@dataclass
class Rack:
    scripts: tuple[Scripted, ...]
    devices: tuple[Device, ...]
    source: Source = "emulated"
    driver: str = "570.1"
    cuda: str = "12.8"
    kernels_sha256: bytes = bytes(32)
    libraries: tuple[Library, ...] = ()


def a_rack(count: int = 2) -> Rack:
    scripts = tuple(Scripted(index) for index in range(count))
    return Rack(scripts, scripts)


def read(frame: bytes) -> Reply:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    message, blob = decode(frame[4:], ANSWERS)
    return cast("Answer", message), blob


class Talk:
    def __init__(self, rack: Rack | None = None) -> None:
        self.rack = rack or a_rack()
        self.prover = Prover(self.rack)
        self.goes_on = True

    def say(self, order: Order) -> list[Reply]:
        replies: list[Reply] = []

        def emit(gpu: int | None, frame: bytes) -> None:
            answer, blob = read(frame)
            assert getattr(answer, "gpu", None) == gpu
            replies.append((answer, blob))

        self.goes_on = self.prover.handle(order, emit)
        return replies

    def refusal(self, order: Order) -> str:
        ((refused, _),) = self.say(order)
        assert isinstance(refused, Refused)
        assert refused.code == "bad_order"
        assert not self.goes_on
        return refused.detail


def greeted(rack: Rack | None = None) -> Talk:
    talk = Talk(rack)
    ((answer, _),) = talk.say(Hello())
    assert isinstance(answer, Identity)
    return talk


def fills(count: int = 2) -> FillOrder:
    return FillOrder((Fill(SEED, 4, 100),) * count)


def walks(chains: int = 10, group: int = 4, count: int = 2) -> WalkOrder:
    return WalkOrder(16, group, (Walk(NONCE, chains),) * count)


def tiles(kind: TileKind = "int8", number: int = 10, group: int = 4) -> TilesOrder:
    return TilesOrder(kind, 64, 3, group, (Tiles(NONCE, number),) * 2)


def test_a_whole_conversation_answers_every_order_for_every_gpu() -> None:
    talk = Talk()
    assert [type(answer) for answer, _ in talk.say(Hello())] == [Identity]
    starts = (NONCE, bytes(16))
    assert [answer for answer, _ in talk.say(LatencyOrder(5, starts))] == [
        LatencyAnswer(gpu, chain(start, 5)) for gpu, start in enumerate(starts)
    ]
    assert [answer for answer, _ in talk.say(fills())] == [Filled(0, 5, 1000), Filled(1, 5, 1001)]
    digests = b"".join(digest(number) for number in range(10))
    for phase, order in (("walk", walks()), ("int8", tiles()), ("bf16", tiles("bf16"))):
        hashes = group_hashes(digests, 4, NONCE, cast("Any", phase))
        top = root(hashes, NONCE, cast("Any", phase))
        assert talk.say(order) == [
            *((Committed(gpu, cast("Any", phase), top, 77, throttle=None), b"") for gpu in range(2)),
            *((Groups(gpu, cast("Any", phase)), hashes) for gpu in range(2)),
        ]
        assert talk.say(OpenOrder(cast("Any", phase), ((0, 2), (1,)))) == [
            (Opened(0, cast("Any", phase)), digests[:32] + digests[64:]),
            (Opened(1, cast("Any", phase)), digests[32:64]),
        ]
    assert [answer for answer, _ in talk.say(GapsOrder(10, 200))] == [
        GapsAnswer(gpu, (SmGaps(0, 1000, 0, 3),)) for gpu in range(2)
    ]
    assert talk.say(AttestOrder((bytes(32),) * 2)) == [
        (Evidence(gpu, 0, 0, "emulated"), b"") for gpu in range(2)
    ]
    assert talk.goes_on
    assert talk.say(Goodbye()) == []
    assert not talk.goes_on


@pytest.mark.parametrize(
    "order",
    [LatencyOrder(1, (NONCE,) * 2), fills(), walks(), tiles(), OpenOrder("walk", ((), ())), GapsOrder(1, 1)],
)
def test_nothing_is_done_before_a_hello(order: Order) -> None:
    talk = Talk()
    assert "Hello" in talk.refusal(order)
    assert all(not device.done for device in talk.rack.scripts)


def test_a_hello_of_another_version_and_a_second_one_are_refused() -> None:
    assert "version 7" in Talk().refusal(Hello(7))
    assert "second" in greeted().refusal(Hello())


@pytest.mark.parametrize(
    "order",
    [
        LatencyOrder(1, (NONCE,)),
        fills(1),
        fills(3),
        replace(tiles(), gpus=()),
        AttestOrder((bytes(32),) * 3),
    ],
)
def test_an_order_for_another_number_of_gpus_is_refused(order: Order) -> None:
    assert "for 2 GPUs" in greeted().refusal(order)


def test_a_walk_needs_a_fill_and_an_opening_its_own_commitment() -> None:
    assert "before the fill" in greeted().refusal(walks())
    talk = greeted()
    talk.say(fills())
    assert "not the last" in talk.refusal(OpenOrder("walk", ((), ())))
    talk = greeted()
    talk.say(tiles("int8"))
    talk.say(tiles("bf16"))
    assert "int8 is not the last" in talk.refusal(OpenOrder("int8", ((), ())))
    talk = greeted()
    talk.say(tiles("int8"))
    talk.say(fills())  # What was walked over is gone, and so is every commitment.
    assert "not the last" in talk.refusal(OpenOrder("int8", ((), ())))


def test_a_group_that_is_not_there_is_refused() -> None:
    talk = greeted()
    talk.say(tiles(number=10, group=4))
    assert "among the 3" in talk.refusal(OpenOrder("int8", ((0,), (3,))))


def test_more_groups_than_fit_an_answer_are_refused_before_work() -> None:
    talk = greeted()
    talk.say(fills())
    assert "groups" in talk.refusal(walks(chains=GROUPS_MAX + 1, group=1))
    assert "walk" not in talk.rack.scripts[0].done


@pytest.mark.parametrize(
    ("method", "order"),
    [
        ("identity", Hello()),
        ("launch", LatencyOrder(2, (NONCE,) * 2)),
        ("fill", fills()),
        ("walk", walks()),
        ("bf16", tiles("bf16")),
        ("gaps", GapsOrder(1, 1)),
    ],
)
def test_what_a_device_cannot_do_is_a_refusal_with_its_words(method: str, order: Order) -> None:
    rack = a_rack()
    talk = Talk(rack)
    for earlier in (Hello(), fills()):
        if not isinstance(order, Hello) and type(order) is not type(earlier):
            talk.say(earlier)
    rack.scripts[1].breaks[method] = DeviceError("out_of_memory", "3 bytes free\x1b[2J\nè")
    answers = [answer for answer, _ in talk.say(order)]
    refused = answers[-1]
    assert refused == Refused(None if method == "identity" else 1, "out_of_memory", "3 bytes free [2J  ")
    assert not talk.goes_on
    if method in ("launch", "fill", "gaps"):
        assert len(answers) == 2, "the other GPU's answer is lost"


@pytest.mark.parametrize(
    ("error", "code"), [(MemoryError(), "out_of_memory"), (ZeroDivisionError("oh"), "internal")]
)
@pytest.mark.parametrize("run", [one_after_another, side_by_side])
def test_a_bug_on_one_gpu_is_reported_and_not_swallowed(error: Exception, code: str, run: Any) -> None:
    rack = a_rack()
    rack.scripts[0].breaks["gaps"] = error
    prover, frames = Prover(rack, run), list[bytes]()
    assert prover.handle(Hello(), lambda gpu, frame: None)
    assert not prover.handle(GapsOrder(1, 1), lambda gpu, frame: frames.append(frame))
    refusals = [answer for answer, _ in map(read, frames) if isinstance(answer, Refused)]
    assert [(one.gpu, one.code) for one in refusals] == [(0, code)]


def test_throttle_reasons_of_all_slices_are_gathered() -> None:
    rack = a_rack(1)
    rack.scripts[0].throttles = iter([None, 4, None, 64, 1])
    rack.scripts[0].slices = 5
    talk = greeted(rack)
    talk.say(fills(1))
    committed = talk.say(walks(count=1))[0][0]
    assert isinstance(committed, Committed)
    assert committed.throttle == 4 | 64 | 1


def _meet(together: threading.Barrier, what: str) -> None:
    if what == "fill":
        together.wait()


@pytest.mark.parametrize("order", [walks(count=3), replace(tiles(), gpus=tiles().gpus[:1] * 3)])
def test_no_group_hashes_hold_up_the_root_of_another_gpu(order: Order) -> None:
    """Of an H100 they are 335 kB: at 100 ms of round trip the eighth root came 1.7 s late behind them."""
    rack, frames = a_rack(3), list[bytes]()
    prover = Prover(rack, side_by_side)
    prover.handle(Hello(), lambda gpu, frame: None)
    prover.handle(fills(3), lambda gpu, frame: None)
    assert prover.handle(order, lambda gpu, frame: frames.append(frame))
    assert [type(read(frame)[0]) for frame in frames] == [Committed] * 3 + [Groups] * 3


def test_side_by_side_all_gpus_work_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=10)
    rack = a_rack(3)
    for device in rack.scripts:
        device.at = lambda what: _meet(together, what)
    prover = Prover(rack, side_by_side)
    prover.handle(Hello(), lambda gpu, frame: None)
    assert prover.handle(fills(3), lambda gpu, frame: None)
    assert not together.broken


# Frames.


def stream(*orders: Order) -> bytes:
    return b"".join(encode(order) for order in orders)


def conversation(rack: Rack, sent: bytes) -> list[Reply]:
    written: list[bytes] = []
    serve(lambda: rack, io.BytesIO(sent).read, written.append)
    replies, content = list[Reply](), b"".join(written)
    while content:
        length = 4 + int.from_bytes(content[:4], "big")
        replies.append(read(content[:length]))
        content = content[length:]
    return replies


def test_frames_in_frames_out_and_the_gpus_are_given_back() -> None:
    rack = a_rack()
    orders = (Hello(), fills(), walks(), OpenOrder("walk", ((0,), (0,))), Goodbye())
    kinds = [type(answer).__name__ for answer, _ in conversation(rack, stream(*orders))]
    assert kinds[0] == "Identity"
    assert sorted(kinds[1:3]) == ["Filled"] * 2
    assert kinds[3:7] == ["Committed"] * 2 + ["Groups"] * 2
    assert kinds[7:] == ["Opened"] * 2
    assert [device.done[-1] for device in rack.scripts] == ["close"] * 2


@pytest.mark.parametrize("cut", [0, 3, 4, 20])
def test_a_line_that_ends_ends_the_prover_without_a_word(cut: int) -> None:
    rack = a_rack()
    frame = encode(Hello())
    assert [type(answer) for answer, _ in conversation(rack, frame + frame[:cut])] == [Identity]
    assert rack.scripts[0].done[-1] == "close"
    untouched = a_rack()
    assert conversation(untouched, frame[:cut]) == []
    assert untouched.scripts[0].done == []


@pytest.mark.parametrize(
    "sent",
    [
        (ORDER_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        bytes(4),
        b"\0\0\0\2\0\0",
        encode(LatencyAnswer(0, NONCE)),
        encode(Hello())[:-1] + b"]",
    ],
)
@pytest.mark.parametrize("before", [b"", encode(Hello())])
def test_what_is_no_order_is_refused_once_and_ends(before: bytes, sent: bytes) -> None:
    rack = a_rack()
    replies = conversation(rack, before + sent + encode(GapsOrder(1, 1)))
    assert isinstance(replies[-1][0], Refused)
    assert replies[-1][0].code == "bad_order"
    assert len(replies) == (2 if before else 1)
    assert rack.scripts[0].done == (["identity", "close"] if before else [])


@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_refusal(sent: bytes) -> None:
    replies = conversation(a_rack(), sent)
    assert [type(answer) for answer, _ in replies] in ([], [Refused])


def test_a_machine_that_cannot_be_opened_is_a_refusal() -> None:
    def nothing() -> Rack:
        raise DeviceError("no_driver", "libcuda.so.1 cannot be loaded")

    written: list[bytes] = []
    serve(nothing, io.BytesIO(encode(Hello())).read, written.append)
    (frame,) = written
    assert read(frame)[0] == Refused(None, "no_driver", "libcuda.so.1 cannot be loaded")


def test_nobody_reading_ends_the_prover_after_the_order_under_way() -> None:
    rack = a_rack()
    tried: list[bytes] = []

    def gone(frame: bytes) -> None:
        tried.append(frame)
        if len(tried) > 1:
            raise BrokenPipeError

    sent = stream(Hello(), fills(), walks())
    serve(lambda: rack, io.BytesIO(sent).read, gone)
    assert [device.done for device in rack.scripts] == [["identity", "fill", "close"]] * 2
    assert len(tried) == 2, "half a frame may be out: whatever follows it is misread"


def test_answers_of_many_gpus_never_mix() -> None:
    rack = a_rack(8)
    written = bytearray()

    def byte_by_byte(frame: bytes) -> None:
        for byte in frame:
            written.append(byte)
            os.sched_yield()  # Whoever else may write does so now.

    walk = walks(chains=40, group=1, count=8)
    sent = stream(Hello(), fills(8), walk, walk, walk, Goodbye())
    serve(lambda: rack, io.BytesIO(sent).read, byte_by_byte)
    content, count = bytes(written), 0
    while content:
        length = 4 + int.from_bytes(content[:4], "big")
        read(content[:length])
        content, count = content[length:], count + 1
    assert count == 1 + 8 + 3 * 16
