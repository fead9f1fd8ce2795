"""A proof's conversation with a real machine: the agent in a booted container, over the SSH that production uses.

The machine's GPUs are emulated and marked so. Everything else is as on a rented machine: its own Python and
numpy, sshd, a login that is not root.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import pytest
import pytest_asyncio

from data_plane.access.authority import new_authority
from data_plane.access.line import Line, LineBroken, LineSilent
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.access.step import Step
from data_plane.inspection.bundle import build_agent
from data_plane.proof.challenger import prover_line as prover_lines
from data_plane.proof.challenger.prover_line import prover_line
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.commitments import group_hashes, root
from data_plane.proof.protocol.messages import (
    ANSWER_BYTES_MAX,
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
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Opened,
    OpenOrder,
    Order,
    Phase,
    Refused,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from providers.emulators.host import EmulatedGpu, MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import NspawnHost, missing_requirements
from tests.support.certificates import our_access
from tests.support.machines import IMAGES, Machine, boot_order, ready

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

ANSWERS = (Identity, LatencyAnswer, Filled, Committed, Groups, Opened, GapsAnswer, Evidence, Refused)
SEED, NONCE = bytes(range(32)), bytes(range(16))
GPUS = 2
SECONDS = 60.0
"""For anything at all, on a computer that does other things besides."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rented() -> AsyncIterator[tuple[SshAccess, Machine]]:
    host = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print))
    try:
        authority, key = new_authority(), new_host_key()
        access = our_access(authority)
        gpus = (EmulatedGpu("NVIDIA H100 80GB HBM3", 81559),) * GPUS
        await host.boot(MachineSpec("prover", boot_order(key, [authority], "prover"), gpus))
        target = await ready(host, access, "prover", key)
        yield access, Machine(target, authority)
    finally:
        await host.close()


async def hear(line: Line, count: int = GPUS) -> list[tuple[Any, bytes, float]]:
    """Answers with their blobs and when they began, by GPU."""
    heard: list[tuple[Any, bytes, float]] = []
    for _ in range(count):
        frame = await line.receive(ANSWER_BYTES_MAX, SECONDS)
        message, blob = decode(frame.body, ANSWERS)
        assert not isinstance(message, Refused), message
        heard.append((cast("Answer", message), blob, frame.began))
    return sorted(heard, key=lambda one: (type(one[0]).__name__, getattr(one[0], "gpu", 0)))


async def ask(line: Line, order: Order, count: int = GPUS) -> list[tuple[Any, bytes, float]]:
    await line.send(encode(order))
    return await hear(line, count)


async def greeted(line: Line) -> Identity:
    ((identity, _, _),) = await ask(line, Hello(), 1)
    assert isinstance(identity, Identity)
    return identity


async def test_a_whole_conversation_is_right_to_the_last_bit(rented: tuple[SshAccess, Machine]) -> None:
    access, machine = rented
    async with access.connect(machine.target) as session, prover_line(session, build_agent()) as line:
        identity = await greeted(line)
        assert identity.source == "emulated"
        assert [gpu.cuda_name for gpu in identity.gpus] == ["NVIDIA H100 80GB HBM3"] * GPUS
        finals = await ask(line, LatencyOrder(20, (NONCE, SEED[:16])))
        assert [one.final for one, _, _ in finals] == [
            launches.chain(start, 20) for start in (NONCE, SEED[:16])
        ]
        blocks = (500, 700)
        await ask(line, FillOrder(tuple(Fill(SEED, 3, count) for count in blocks)))

        sent = await line.send(encode(WalkOrder(16, 64, (Walk(NONCE, 1500),) * GPUS)))
        answers = await hear(line, 2 * GPUS)
        numbers = np.arange(1500, dtype=np.uint32)
        digests = []
        for count in blocks:
            memory = fill.blocks(SEED, 3, np.arange(count, dtype=np.uint64))
            digests.append(walk.digests(NONCE, numbers, 16, count, memory.__getitem__))
        committed(answers, digests, "walk", 64)
        assert all(began > sent for _, _, began in answers)
        opened = await ask(line, OpenOrder("walk", ((0, 23), (5,))))
        assert [blob for _, blob, _ in opened] == [
            digests[0][:512] + digests[0][23 * 512 :],
            digests[1][5 * 512 : 6 * 512],
        ]

        for kind in ("int8", "bf16"):
            answers = await ask(line, TilesOrder(kind, 64, 4, 8, (Tiles(NONCE, 70),) * GPUS), 2 * GPUS)
            tile = tiles.digests(kind, NONCE, 64, 4, np.arange(70, dtype=np.uint32))
            committed(answers, [tile] * GPUS, kind, 8)
            assert [blob for _, blob, _ in await ask(line, OpenOrder(kind, ((8,), ())))] == [tile[512:], b""]

        assert all(one.sms for one, _, _ in await ask(line, GapsOrder(1, 200)))
        attested = await ask(line, AttestOrder((bytes(32),) * GPUS))
        assert [one.missing for one, _, _ in attested] == ["emulated"] * GPUS
        await line.send(encode(Goodbye()))
        with pytest.raises(LineBroken, match="status 0"):
            await line.receive(100, SECONDS)
    await gone(machine)


def committed(
    answers: list[tuple[Any, bytes, float]], digests: list[bytes], phase: Phase, group: int
) -> None:
    hashes = [group_hashes(one, group, NONCE, phase) for one in digests]
    assert [one.root for one, _, _ in answers[:GPUS]] == [root(one, NONCE, phase) for one in hashes]
    assert [blob for _, blob, _ in answers[GPUS:]] == hashes


async def gone(machine: Machine) -> None:
    """Nothing of the prover is left on the machine: no process, no folder."""
    end = time.monotonic() + SECONDS
    while left := await machine.sh(
        "pgrep -fx 'python3 -I .* prove' || true; ls -d /tmp/splitplane-* || true"
    ):
        assert time.monotonic() < end, left


async def test_a_prover_that_is_killed_in_a_phase_breaks_the_line(rented: tuple[SshAccess, Machine]) -> None:
    access, machine = rented
    async with access.connect(machine.target) as session, prover_line(session, build_agent()) as line:
        await greeted(line)
        await ask(line, FillOrder((Fill(SEED, 1, 64),) * GPUS))
        await line.send(encode(WalkOrder(8192, 4096, (Walk(NONCE, 1 << 24),) * GPUS)))  # Hours of it.
        await machine.sh("pkill -KILL -fx 'python3 -I .* prove'")
        with pytest.raises(LineBroken):
            await line.receive(ANSWER_BYTES_MAX, SECONDS)
    await machine.sh("rm -rf /tmp/splitplane-*")
    await gone(machine)


async def test_a_prover_that_is_stopped_is_silent_for_so_long_and_ended_after(
    rented: tuple[SshAccess, Machine],
) -> None:
    access, machine = rented
    async with access.connect(machine.target) as session:
        async with prover_line(session, build_agent()) as line:
            await greeted(line)
            await machine.sh("pkill -STOP -fx 'python3 -I .* prove'")
            await line.send(encode(GapsOrder(1, 200)))
            began = time.monotonic()
            with pytest.raises(LineSilent):
                await line.receive(ANSWER_BYTES_MAX, 0.5)
            assert time.monotonic() - began < SECONDS
        assert time.monotonic() - began < SECONDS, "a stopped prover held us"
    await machine.sh("pkill -CONT -fx 'python3 -I .* prove' || true")
    await gone(machine)


async def test_leaving_in_the_middle_of_a_phase_ends_the_prover(rented: tuple[SshAccess, Machine]) -> None:
    access, machine = rented
    async with access.connect(machine.target) as session, prover_line(session, build_agent()) as line:
        await greeted(line)
        await ask(line, FillOrder((Fill(SEED, 1, 64),) * GPUS))
        await line.send(encode(WalkOrder(8192, 4096, (Walk(NONCE, 1 << 24),) * GPUS)))
    await gone(machine)


async def test_a_machine_ends_a_prover_by_itself(
    rented: tuple[SshAccess, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In case we vanish without notice. Here the step's time limit is short instead."""
    access, machine = rented
    short = Step("prove", prover_lines.PROVE.script, seconds=3, user="login")
    monkeypatch.setattr(prover_lines, "PROVE", short)
    async with access.connect(machine.target) as session, prover_line(session, build_agent()) as line:
        await greeted(line)
        with pytest.raises(LineBroken, match="status"):
            await line.receive(100, SECONDS)
        await gone(machine)
