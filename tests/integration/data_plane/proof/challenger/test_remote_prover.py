"""`Session.prover` with the real agent in a real process, reached over SSH on loopback."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import asyncssh
import pytest

from data_plane.access.line import Line, LineBroken, LineSilent
from data_plane.access.port import Session, StepFailed
from data_plane.inspection.agent import FIND_AGENT, MISSING, PUSH_AGENT
from data_plane.inspection.bundle import Bundle, build_agent
from data_plane.proof.challenger.prover_line import PROVE, prover_line
from data_plane.proof.protocol.messages import ANSWER_BYTES_MAX, Hello, Identity, Refused
from data_plane.proof.protocol.wire import decode, encode
from tests.support.ssh_server import Process, a_machine, ours

SECONDS = 20.0
"""For Python to start, on a busy computer."""


class House:
    """A machine that runs, in a folder, all that needs no root, and passes on what its SSH clients send."""

    def __init__(self, path: Path, prove: str = "") -> None:
        self.path = path
        self.prove = prove
        """Runs instead of the agent, if it says anything."""
        self.steps: list[str] = []
        self.children: list[asyncio.subprocess.Process] = []

    async def __call__(self, process: "Process[bytes]") -> None:
        command = str(process.command)
        scripts = {step.script: step.name for step in (FIND_AGENT, PUSH_AGENT, PROVE)}
        name = scripts[next(word for word in shlex.split(command) if word in scripts)]
        self.steps.append(name)
        if name == PROVE.name and self.prove:
            command = self.prove
        python = self.path / "bin"
        python.mkdir(exist_ok=True)
        if not (python / "python3").exists():
            (python / "python3").symlink_to(sys.executable)
        child = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            env={"HOME": str(self.path), "PATH": f"{python}:{os.environ['PATH']}", "TMPDIR": str(self.path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.children.append(child)
        orders = asyncio.create_task(_pass_on(process, child))
        try:
            for pipe, to in ((child.stdout, process.stdout), (child.stderr, process.stderr)):
                while chunk := await cast("asyncio.StreamReader", pipe).read(65_536):
                    to.write(chunk)
            process.exit(await child.wait())
        finally:
            orders.cancel()


async def _pass_on(process: "Process[bytes]", child: asyncio.subprocess.Process) -> None:
    """Pass orders to the child until there are no more. When it is asked to end, it ends the child, as sshd does."""
    pipe = cast("asyncio.StreamWriter", child.stdin)
    try:
        while chunk := await process.stdin.read(65_536):
            pipe.write(chunk)
            await pipe.drain()
        pipe.close()
    except (asyncssh.SignalReceived, asyncssh.Error, OSError):
        child.terminate()


@asynccontextmanager
async def a_session(house: House) -> AsyncIterator[Session]:
    async with a_machine(house) as target, ours().connect(target) as session:
        yield session


async def answer_of(line: Line) -> Identity | Refused:
    await line.send(encode(Hello()))
    frame = await line.receive(ANSWER_BYTES_MAX, SECONDS)
    message, _ = decode(frame.body, (Identity, Refused))
    assert isinstance(message, Identity | Refused)
    return message


async def test_the_agent_is_pushed_once_and_proves_every_time(tmp_path: Path) -> None:
    house, agent = House(tmp_path), build_agent()
    async with a_session(house) as session:
        for _ in range(2):
            async with prover_line(session, agent) as line:
                # No driver and no emulation file: that it speaks, and says so, is the point.
                refused = await answer_of(line)
                assert isinstance(refused, Refused)
                assert refused.code == "no_driver"
                with pytest.raises(LineBroken):
                    await line.receive(10, SECONDS)
    assert house.steps == [
        *("find agent", "push agent", "find agent", "prove"),
        *("find agent", "prove"),
    ]


async def test_an_agent_that_cannot_be_pushed_fails_the_step(tmp_path: Path) -> None:
    async with a_session(House(tmp_path)) as session:
        with pytest.raises(StepFailed, match="another digest"):
            async with prover_line(session, Bundle(b"print('hello')", "0" * 64)):
                pytest.fail("it began")


async def test_a_machine_that_says_for_ever_that_it_has_no_agent_fails_the_step() -> None:
    async def forgetful(process: "Process[bytes]") -> None:
        await process.stdin.read()
        process.exit(0 if PUSH_AGENT.script in shlex.split(str(process.command)) else MISSING)

    async with a_machine(forgetful) as target, ours().connect(target) as session:
        with pytest.raises(StepFailed, match="find agent"):
            async with prover_line(session, Bundle(b"agent", "0" * 64)):
                pytest.fail("it began")


async def test_a_machine_without_python_breaks_the_line_and_says_so(tmp_path: Path) -> None:
    house = House(tmp_path, prove="exec no-such-python prove")
    async with a_session(house) as session, prover_line(session, build_agent()) as line:
        with pytest.raises(LineBroken, match=r"127.*no-such-python"):
            await line.receive(10, SECONDS)


async def test_leaving_ends_a_prover_that_says_nothing(tmp_path: Path) -> None:
    house = House(tmp_path, prove="exec sleep 1000")
    async with a_session(house) as session:
        async with prover_line(session, build_agent()) as line:
            with pytest.raises(LineSilent):
                await line.receive(10, 0.05)
        await asyncio.wait_for(house.children[-1].wait(), SECONDS)
