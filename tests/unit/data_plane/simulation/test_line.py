"""A line in virtual time."""

from dataclasses import replace

import pytest

from data_plane.access.line import LineBroken, LineSilent
from data_plane.documents.strict import Malformed
from data_plane.proof.protocol.messages import (
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
)
from data_plane.proof.protocol.wire import encode
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.prover.emulation.machine import Claim
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.prover import simulated_prover
from data_plane.simulation.timing import Network
from tests.support.cheats.attackers import Altered, breaking, delayed, mute, oversized
from tests.support.cheats.line import FAITHFUL, AttackedLine, Attacker

SEED, NONCE = bytes(range(32)), bytes(range(100, 116))
H100 = CARDS["h100-sxm-80gb"]
CLAIM = Claim(H100.name, "GPU-1", H100.memory_mib)


def line(attacker: Attacker = FAITHFUL, *, network: Network | None = None, now: float = 0.0) -> VirtualLine:
    honest = simulated_prover([CLAIM, replace(CLAIM, uuid="GPU-2")], network=network or Network(0.01))
    return AttackedLine(honest.machine, honest.timers, honest.network, now, attacker=attacker)


async def test_an_answer_has_been_under_way_both_ways() -> None:
    one = line(now=100.0)
    left = await one.send(encode(Hello()))
    frame = await one.receive(1 << 20, 1.0)
    assert left == 100.0
    assert frame.began == pytest.approx(100.02)
    assert one.now == frame.began


async def test_a_frame_may_begin_before_it_ends_and_never_before_its_forerunner_did() -> None:
    one = line(Altered((LatencyAnswer,), lambda answer: [replace(answer.sent, began=100.1)]))
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    one.now = 100.0
    await one.send(encode(LatencyOrder(10_000, (NONCE, SEED[:16]))))
    first, second = [await one.receive(1 << 20, 5.0) for _ in range(2)]
    assert first.began == pytest.approx(100.11)
    assert first.ended == pytest.approx(100.17, abs=0.01)
    assert first.ended <= second.began <= second.ended == one.now


async def test_launches_are_charged_to_each_gpu_at_the_same_time() -> None:
    one = line()
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    left = await one.send(encode(LatencyOrder(1000, (NONCE, SEED[:16]))))
    took = [(await one.receive(1 << 20, 1.0)).began - left for _ in range(2)]
    assert took == pytest.approx([0.02 + 1000 * 15e-6] * 2, rel=0.05)


async def test_nothing_overtakes_what_left_before_it() -> None:
    class Jumpy(Network):
        """Every frame is faster than the last."""

        def one_way(self) -> float:
            self.delay *= 0.5
            return self.delay

    one = line(network=Jumpy(8.0))
    await one.send(encode(Hello()))
    began = (await one.receive(1 << 20, 20.0)).began
    await one.send(encode(LatencyOrder(1, (NONCE, NONCE))))
    later = [(await one.receive(1 << 20, 20.0)).began for _ in range(2)]
    assert began < later[0] <= later[1]


async def test_silence_lasts_as_long_as_one_listens() -> None:
    one = line(Altered((Identity,), mute))
    left = await one.send(encode(Hello()))
    with pytest.raises(LineSilent):
        await one.receive(1 << 20, 3.0)
    assert one.now == left + 3.0


async def test_a_late_answer_still_comes_afterwards() -> None:
    one = line(Altered((Identity,), delayed(5.0)))
    await one.send(encode(Hello()))
    with pytest.raises(LineSilent):
        await one.receive(1 << 20, 3.0)
    assert (await one.receive(1 << 20, 3.0)).began > 5.0


async def test_a_broken_line_takes_nothing_any_more() -> None:
    one = line(Altered((LatencyAnswer,), breaking))
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    await one.send(encode(LatencyOrder(1, (NONCE, NONCE))))
    with pytest.raises(LineBroken):
        await one.receive(1 << 20, 1.0)
    with pytest.raises(LineBroken):
        await one.send(encode(Hello()))


async def test_a_frame_that_is_too_long_is_refused() -> None:
    one = line(Altered((Identity,), oversized))
    await one.send(encode(Hello()))
    with pytest.raises(Malformed):
        await one.receive(1 << 20, 1.0)
