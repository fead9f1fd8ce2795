"""SSH access against an SSH server in this process that can misbehave in every way."""

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from control_plane.world import utc_now
from data_plane.access import ssh
from data_plane.access.authority import new_authority
from data_plane.access.port import (
    AccessError,
    HostKeyChanged,
    LoginRefused,
    NotCertified,
    StepFailed,
    Target,
    Unreachable,
)
from data_plane.access.ssh import SshAccess, SshSession, new_host_key
from data_plane.access.step import OUTPUT_BYTES_MAX, Step
from data_plane.documents.inventory import Inventory
from data_plane.documents.protocol import encode
from data_plane.inspection.agent import PUSH_AGENT
from data_plane.inspection.bundle import Bundle, build_agent
from data_plane.inspection.gpus import RUN_AGENT, read_gpus
from data_plane.mesh import hub
from data_plane.mesh.machine import mesh_public_key
from reconciler.ssh_authorities import FixedAuthority, certifier
from tests.support.certificates import our_access
from tests.support.networks import a_network
from tests.support.ssh_server import AUTHORITY, MACHINE, PRINCIPAL, Handler, Process, a_machine, ours

STEP = Step("try", "true", seconds=5, user="login")


def answering(output: bytes, status: int = 0, errors: bytes = b"") -> Handler:
    async def handler(process: "Process[bytes]") -> None:
        process.stdout.write(output)
        process.stderr.write(errors)
        process.exit(status)

    return handler


@asynccontextmanager
async def a_shell(handler: Handler) -> AsyncIterator[SshSession]:
    async with a_machine(handler) as target, ours().connect(target) as shell:
        yield shell


async def test_a_step_answers_with_status_output_and_a_printable_end_of_its_errors() -> None:
    async with a_shell(
        answering(b"\x00\xff out", 7, b"x" * 5_000 + b"\x1b[2J\nthe end \xe2\x80\xae")
    ) as shell:
        answer = await shell.run(STEP)
    assert (answer.exit_status, answer.output) == (7, b"\x00\xff out")
    assert answer.detail.isascii()
    assert answer.detail.isprintable()
    assert len(answer.detail) <= 400
    assert "the end" in answer.detail


async def test_input_arrives_whole_and_steps_run_side_by_side() -> None:
    async def digest(process: "Process[bytes]") -> None:
        process.stdout.write(hashlib.sha256(await process.stdin.read()).hexdigest().encode())
        process.exit(0)

    contents = [bytes([number]) * 400_000 for number in range(3)]
    async with a_shell(digest) as shell:
        answers = await asyncio.gather(*(shell.run(STEP, stdin=content) for content in contents))
    assert [answer.output.decode() for answer in answers] == [hashlib.sha256(c).hexdigest() for c in contents]


async def test_a_step_may_end_without_reading_its_input() -> None:
    async with a_shell(answering(b"", 3)) as shell:
        assert (await shell.run(STEP, stdin=b"x" * 5_000_000)).exit_status == 3


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"])
async def test_a_machine_with_another_host_key_is_refused_before_anything_is_sent_to_it(kind: str) -> None:
    heard: list[str] = []

    async def handler(process: "Process[bytes]") -> None:
        heard.append(str(process.command))
        process.exit(0)

    other = asyncssh.generate_private_key(kind).export_private_key().decode()
    async with a_machine(handler, private_key=other) as target:
        with pytest.raises(HostKeyChanged):
            async with ours().connect(target):
                pytest.fail("logged in to another machine")
    assert heard == []


async def test_an_invalid_host_key_on_record_reaches_no_machine() -> None:
    async with a_machine(answering(b""), pinned="trust me") as target:
        with pytest.raises(HostKeyChanged):
            async with ours().connect(target):
                pytest.fail("logged in without a pin")


async def test_a_machine_that_does_not_trust_our_authority_or_know_our_user_refuses_the_login() -> None:
    async with a_machine(answering(b"")) as target:
        for access in (
            our_access(new_authority()),
            ours(login_user="root"),
        ):
            with pytest.raises(LoginRefused):
                async with access.connect(target):
                    pytest.fail("logged in")


@asynccontextmanager
async def a_speaker(first: bytes, *, then_close: bool) -> AsyncIterator[Target]:
    writers: list[asyncio.StreamWriter] = []

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(first)
        if then_close:
            writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        yield Target("127.0.0.1", server.sockets[0].getsockname()[1], MACHINE.public, PRINCIPAL)
    for writer in writers:
        writer.close()


@pytest.mark.parametrize(
    ("first", "then_close"),
    [
        (b"", True),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
        (b"SSH-2.0-x\r\n" + b"\xff" * 5_000, True),
        (b"SSH-2.0-x\r\n" + b"\x00\x00\x00\x0c\x0a\x14" + b"\x00" * 100, True),
        (b"", False),  # Accepts and says nothing: our own clock ends it.
    ],
)
async def test_whatever_answers_on_the_port_is_unreachable(
    monkeypatch: pytest.MonkeyPatch, first: bytes, then_close: bool
) -> None:
    monkeypatch.setattr(ssh, "CONNECT_SECONDS", 0.3)
    async with a_speaker(first, then_close=then_close) as target:
        with pytest.raises(Unreachable) as caught:
            async with ours().connect(target):
                pytest.fail("connected to nothing")
        assert str(caught.value).isprintable()


async def test_a_host_where_nobody_listens_is_unreachable() -> None:
    async with a_speaker(b"", then_close=True) as target:
        pass
    for port in (target.port, 0):
        with pytest.raises(Unreachable):
            async with ours().connect(Target("127.0.0.1", port, MACHINE.public, PRINCIPAL)):
                pytest.fail("connected to nobody")


async def test_a_connection_cut_in_a_step_is_unreachable() -> None:
    async def cut(process: "Process[bytes]") -> None:
        process.stdout.write(b"half an ans")
        process.channel.get_connection().abort()

    with pytest.raises(Unreachable):
        async with a_shell(cut) as shell:
            await shell.run(STEP, stdin=b"x" * 1_000_000)


async def test_a_channel_that_closes_without_a_status_is_unreachable() -> None:
    async def close(process: "Process[bytes]") -> None:
        process.close()

    async with a_shell(close) as shell:
        with pytest.raises(Unreachable, match="try"):
            await shell.run(STEP)


async def test_a_signal_is_a_failed_step() -> None:
    async def killed(process: "Process[bytes]") -> None:
        process.exit_with_signal("KILL")

    async with a_shell(killed) as shell:
        with pytest.raises(StepFailed, match="signal") as caught:
            await shell.run(STEP)
    assert caught.value.exit_status is None


async def test_a_flood_is_cut_off() -> None:
    for stream, named in (("stdout", "standard output"), ("stderr", "standard error")):
        sent = 0

        async def flood(process: "Process[bytes]", stream: str = stream) -> None:
            nonlocal sent
            writer = getattr(process, stream)
            while not process.is_closing():
                writer.write(b"x" * 65_536)
                sent += 65_536
                await writer.drain()

        async with a_shell(flood) as shell:
            with pytest.raises(StepFailed, match=f"more than {OUTPUT_BYTES_MAX} bytes to {named}"):
                await shell.run(STEP)
            assert sent < 200 * OUTPUT_BYTES_MAX, stream


async def test_a_step_that_hangs_fails_and_the_connection_still_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(process: "Process[bytes]") -> None:
        await process.stdin.read()
        await process.wait_closed()

    monkeypatch.setattr(ssh, "GRACE_SECONDS", 0.2)
    async with a_shell(hang) as shell:
        with pytest.raises(StepFailed, match="did not end within") as caught:
            await shell.run(Step("try", "true", seconds=0, user="login"))
    assert caught.value.exit_status is None


async def test_leaving_early_does_not_wait_for_the_machine() -> None:
    entered = asyncio.Event()

    async def hang(process: "Process[bytes]") -> None:
        entered.set()
        await process.wait_closed()

    async with a_shell(hang) as shell:
        step = asyncio.create_task(shell.run(STEP))
        await entered.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step


async def test_a_hub_that_hangs_does_not_gather_callers_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(process: "Process[bytes]") -> None:
        await process.wait_closed()

    monkeypatch.setattr(hub, "BUSY_SECONDS_MAX", 0.3)
    async with a_machine(hang) as target:
        one = hub.SshHub(ours(), target)
        stuck = [asyncio.create_task(one.sync(a_network(n), [])) for n in range(hub.CONNECTIONS_MAX)]
        await asyncio.sleep(0)  # They hold all places now.
        with pytest.raises(Unreachable, match="busy"):
            await one.sync(a_network(99), [])
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)


async def test_a_hub_that_answers_nonsense_fails_the_step() -> None:
    async with a_machine(answering(b"ok\n")) as target:
        with pytest.raises(StepFailed, match="public key"):
            await hub.SshHub(ours(), target).sync(a_network(1), [])


# What a machine says as its mesh key, and what its agent prints.


@pytest.mark.parametrize(
    "answer", [b"", b"key\n", b"x" * 44 + b"\n", b"\xff" * 44, b"A" * 43 + b"=\n" + b"A" * 43 + b"=\n"]
)
async def test_an_invalid_mesh_key_fails_the_step(answer: bytes) -> None:
    async with (
        a_machine(answering(answer)) as target,
        ours().connect(target) as session,
    ):
        with pytest.raises(StepFailed, match="make mesh key"):
            await mesh_public_key(session)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", 0),
        (b"{}", 0),
        (b'{"protocol": 2, "kind": "inventory", "source": "nvml", "driver_version": "1", "gpus": [NaN]}', 0),
        (b"[" * 60_000, 0),
        (b"x" * 100_000, 0),
        (b"", 127),
        (b"", 75),  # Says for ever that it has no agent.
        (b'{"protocol": 2, "kind": "failure", "code": "nvml_error", "detail": "GPU is lost"}', 3),
        (encode(Inventory("nvml", "1", ())).encode(), 1),
    ],
)
async def test_an_answer_that_the_agent_cannot_have_given_is_not_believed(answer: bytes, status: int) -> None:
    async def handler(process: "Process[bytes]") -> None:
        pushing = PUSH_AGENT.script.splitlines()[1] in str(process.command) and "cat >" in str(
            process.command
        )
        if pushing:
            await process.stdin.read()
            process.exit(0)
        else:
            await answering(answer, status)(process)

    async with a_machine(handler) as target, ours().connect(target) as session:
        with pytest.raises(StepFailed) as caught:
            await read_gpus(session, Bundle(b"agent", "0" * 64))
    assert caught.value.step == RUN_AGENT.name
    assert "lost" in caught.value.detail or b"lost" not in answer


class Home:
    """A machine that really runs, in a folder, all that needs no root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commands: list[str] = []

    async def __call__(self, process: "Process[bytes]") -> None:
        command = str(process.command)
        self.commands.append(command)
        child = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            env={"HOME": str(self.path), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await child.communicate(await process.stdin.read())
        process.stdout.write(output)
        process.stderr.write(errors)
        process.exit(child.returncode or 0)


async def test_the_agent_is_pushed_once_and_again_if_it_rots(tmp_path: Path) -> None:
    """The agent in the folder is real: it reports that library and file are missing, which shows that it ran."""
    home, agent = Home(tmp_path), build_agent()
    path = tmp_path / ".splitplane" / f"agent-{agent.sha256}.pyz"
    async with a_machine(home) as target, ours().connect(target) as session:
        with pytest.raises(StepFailed, match="run agent"):
            await read_gpus(session, agent)
        assert path.read_bytes() == agent.content
        assert len(home.commands) == 3
        with pytest.raises(StepFailed, match="run agent"):
            await read_gpus(session, agent)
        assert len(home.commands) == 4, "pushed although it is there"

        path.write_text("import pathlib; pathlib.Path('ran').touch()")
        with pytest.raises(StepFailed, match="run agent"):
            await read_gpus(session, agent)
        assert path.read_bytes() == agent.content
    assert [found.name for found in path.parent.iterdir()] == [path.name]


async def test_an_agent_that_arrives_with_another_digest_is_not_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    wrong = Bundle(b"print('hello')", "0" * 64)
    async with a_machine(home) as target, ours().connect(target) as session:
        with pytest.raises(StepFailed, match="another digest"):
            await read_gpus(session, wrong)
    assert list((tmp_path / ".splitplane").iterdir()) == []


def test_a_host_key_keeps_its_secret_out_of_sight() -> None:
    key = new_host_key()
    assert "PRIVATE" in key.private_openssh
    assert key.public.startswith("ssh-ed25519 ")
    assert "\n" not in key.public
    assert "PRIVATE" not in f"{key} {key!r}"
    assert new_host_key() != key


async def test_each_login_has_a_certificate_of_its_own_for_that_machine_alone() -> None:
    asked: list[tuple[str, str]] = []
    certify = certifier(FixedAuthority(AUTHORITY), utc_now, "tests")

    async def noted(public_key: str, principal: str) -> Sequence[str]:
        asked.append((public_key, principal))
        return await certify(public_key, principal)

    access = SshAccess(noted)
    async with a_machine(answering(b"")) as target:
        for _ in range(2):
            async with access.connect(target):
                pass
        with pytest.raises(LoginRefused):
            async with access.connect(dataclasses.replace(target, principal="sp-another-machine")):
                pytest.fail("logged in with the certificate of another machine")
    assert [principal for _, principal in asked] == [PRINCIPAL, PRINCIPAL, "sp-another-machine"]
    assert len({public_key for public_key, _ in asked}) == 1
    assert SshAccess(noted)._public_key != access._public_key, "a process has a key of its own"


async def test_while_authorities_are_rotated_the_machine_may_trust_any_of_them() -> None:
    others = [certifier(FixedAuthority(new_authority()), utc_now, "tests") for _ in range(3)]
    trusted = certifier(FixedAuthority(AUTHORITY), utc_now, "tests")

    async def every(public_key: str, principal: str) -> Sequence[str]:
        return [line for each in (*others, trusted) for line in await each(public_key, principal)]

    async with a_machine(answering(b"")) as target, SshAccess(every).connect(target):
        pass


async def test_without_a_certificate_nothing_is_sent_to_a_machine() -> None:
    async def refuse(_public_key: str, _principal: str) -> Sequence[str]:
        raise NotCertified("the key manager is away")

    connections = 0

    async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1], MACHINE.public, PRINCIPAL)
        with pytest.raises(NotCertified, match="key manager"):
            async with SshAccess(refuse).connect(target):
                pytest.fail("connected")
    assert connections == 0


async def test_a_session_of_ours_ends_although_sshd_looks_at_its_certificate_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(process: "Process[bytes]") -> None:
        await process.stdin.read()

    monkeypatch.setattr(ssh, "SESSION_SECONDS_MAX", 0.3)
    async with a_machine(hang) as target, ours().connect(target) as session:
        with pytest.raises(Unreachable):
            await session.run(STEP)


async def test_no_error_holds_our_key() -> None:
    async with a_machine(answering(b"")) as target:
        access = ours()
        secret = access._key.export_private_key("pkcs8-pem").decode().splitlines()[1]
        with pytest.raises(AccessError) as caught:
            async with access.connect(dataclasses.replace(target, host_key=new_host_key().public)):
                pytest.fail("logged in to another machine")
        assert secret not in f"{caught.value!r} {access!r} {vars(access)!r}"
