"""What we send to a machine that becomes a node, and what we believe of its answers. The scripts themselves run in
tests/integration/kubernetes/test_agents.py."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from data_plane.access.port import StepFailed, Unreachable
from data_plane.cluster import agent_scripts, files
from data_plane.cluster.agents import AgentOrder, NodePasswordRejected
from data_plane.cluster.k3s_files import K3sFile, K3sFiles
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.ssh_agents import SshAgents
from data_plane.inspection.agent_service import REMOVE_AGENT
from data_plane.mesh.node_scripts import LEAVE_OVERLAY
from tests.support.answering_machine import TARGET, Machine

TOKEN = BootstrapToken("abcdef", "0123456789abcdef")
ORDER = AgentOrder(
    TARGET, "node-1", "10.64.16.3", "https://10.64.16.2:6443", TOKEN.text("an authority"), {"a.b/c": "d"}
)


def a_release(folder: Path) -> K3sFiles:
    def file(name: str) -> K3sFile:
        (folder / name).write_bytes(name.encode())
        return K3sFile(folder / name, hashlib.sha256(name.encode()).hexdigest(), len(name))

    return K3sFiles(file("k3s"), file("install.sh"), (file("k3s-airgap-images-amd64.tar"),))


def evidence(k3s: K3sFiles) -> str:
    held = "".join(f"file {file.sha256} {file.name}\n" for file in k3s.all())
    return (
        f"kernel 6.1.0-31-amd64\n{held}setting vm.overcommit_memory 1\nmodule overlay\nmodule br_netfilter\n"
    )


def test_preparing_sends_the_files_and_keeps_what_the_machine_says_it_holds(tmp_path: Path) -> None:
    k3s, machine = a_release(tmp_path), Machine()
    machine.tells(files.FIND, "0\n")
    machine.tells(agent_scripts.PREPARE, evidence(k3s))
    prepared = asyncio.run(SshAgents(machine, k3s).prepare(TARGET))
    assert prepared.files == {file.name: file.sha256 for file in k3s.all()}
    assert (prepared.kernel, prepared.settings) == ("6.1.0-31-amd64", {"vm.overcommit_memory": "1"})
    assert prepared.modules == ("br_netfilter", "overlay")
    sent = {arguments[0]: stdin for name, arguments, stdin in machine.ran if name == files.PUT.name}
    assert sent == {file.sha256: file.name.encode() for file in k3s.all()}
    assert machine.ran[-1][:2] == (agent_scripts.PREPARE.name, tuple(k3s.digests()))


def test_a_machine_that_holds_something_else_or_answers_something_else_is_not_prepared(
    tmp_path: Path,
) -> None:
    k3s, machine = a_release(tmp_path), Machine()
    machine.tells(files.FIND, "0\n")
    right = evidence(k3s)
    for what, answer, match in (
        ("another digest", right.replace(k3s.binary.sha256, "0" * 64), "other digests"),
        ("a file is missing", "".join(right.splitlines(keepends=True)[:2]), "other digests"),
        ("no evidence", "", "other digests"),
        ("a line of another form", f"{right}rm -rf\n", "did not answer"),
        ("not text", f"{right}\N{SNOWMAN}\n", "not text"),
    ):
        machine.tells(agent_scripts.PREPARE, answer)
        with pytest.raises(StepFailed, match=match):
            asyncio.run(SshAgents(machine, k3s).prepare(TARGET))
        assert what


def test_a_connection_that_breaks_while_files_are_sent_leaves_nothing_started(tmp_path: Path) -> None:
    k3s, machine = a_release(tmp_path), Machine(breaks_at=files.PUT.name)
    machine.tells(files.FIND, "0\n")
    with pytest.raises(Unreachable):
        asyncio.run(SshAgents(machine, k3s).prepare(TARGET))
    assert {name for name, _, _ in machine.ran} == {files.FIND.name, files.PUT.name}


def test_without_files_nothing_is_prepared_and_the_operator_is_told_what_to_set() -> None:
    with pytest.raises(StepFailed, match="SPLITPLANE_K3S_FILES"):
        asyncio.run(SshAgents(Machine(), None).prepare(TARGET))


def test_the_token_goes_by_standard_input_alone_and_no_error_repeats_it() -> None:
    machine = Machine()
    machine.tells(agent_scripts.START, "v1.36.3+k3s1\n")
    assert asyncio.run(SshAgents(machine, None).start(ORDER)).version == "v1.36.3+k3s1"
    ((_, arguments, stdin),) = machine.ran
    assert arguments == ("node-1", "10.64.16.3", "https://10.64.16.2:6443", "a.b/c=d")
    assert stdin.decode().strip() == ORDER.token
    for detail in (f"bad token {ORDER.token}", f"bad token {TOKEN.id}.{TOKEN.secret}"):
        machine.fails(agent_scripts.START, 70, detail)
        with pytest.raises(StepFailed) as failed:
            asyncio.run(SshAgents(machine, None).start(ORDER))
        assert str(failed.value).endswith("bad token ...")
        assert not isinstance(failed.value, NodePasswordRejected)


def test_a_rejected_password_is_an_error_of_its_own() -> None:
    machine = Machine()
    machine.fails(agent_scripts.START, agent_scripts.PASSWORD_REJECTED, "the cluster knows another password")
    with pytest.raises(NodePasswordRejected, match="another password"):
        asyncio.run(SshAgents(machine, None).start(ORDER))


def test_values_that_could_add_a_setting_to_the_agents_are_refused_before_anything_is_sent() -> None:
    nasty = 'x"\nserver: "https://192.0.2.9:6443'
    for order in (
        replace(ORDER, node=nasty),
        replace(ORDER, address=nasty),
        replace(ORDER, address="spoverlay"),
        replace(ORDER, server=nasty),
        replace(ORDER, server="http://10.64.16.2:6443"),
        replace(ORDER, token="abcdef.0123456789abcdef"),
        replace(ORDER, labels={nasty: "d"}),
        replace(ORDER, labels={"a": nasty}),
    ):
        machine = Machine()
        with pytest.raises(StepFailed, match="malformed"):
            asyncio.run(SshAgents(machine, None).start(order))
        assert machine.ran == []


def test_cleaning_leaves_the_overlay_before_it_looks_and_names_what_is_left() -> None:
    machine = Machine()
    machine.tells(agent_scripts.LOOK, "looked process\nleft process 7 /usr/bin/x\x1b[2J\nlooked file\n")
    cleaned = asyncio.run(SshAgents(machine, None).clean(TARGET))
    assert cleaned.left == ("process 7 /usr/bin/x\N{REPLACEMENT CHARACTER}[2J",)
    assert cleaned.looked_for == ("process", "file")
    assert not cleaned.nothing_left
    names = [name for name, _, _ in machine.ran]
    assert names == [
        agent_scripts.CLEAN.name,
        REMOVE_AGENT.name,
        LEAVE_OVERLAY.name,
        agent_scripts.LOOK.name,
    ]
    machine.tells(agent_scripts.LOOK, "looked process\nlooked file\n")
    assert asyncio.run(SshAgents(machine, None).clean(TARGET)).nothing_left


def test_an_answer_that_does_not_say_that_it_looked_is_no_proof() -> None:
    machine = Machine()
    for answer in ("", "looked process\n", "nothing left\n", "left\n"):
        machine.tells(agent_scripts.LOOK, answer)
        with pytest.raises(StepFailed, match=r"did not (look|answer)"):
            asyncio.run(SshAgents(machine, None).clean(TARGET))
