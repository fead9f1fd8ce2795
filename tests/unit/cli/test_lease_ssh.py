"""Logging in to the machine of a lease: the certificate, the ssh command, and what ssh is configured with."""

import json
import socket
from pathlib import Path

import httpx
import pytest

from control_plane.cli.terminal import reaches
from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import (
    CERTIFICATE_ID,
    HOST_KEY,
    LEASE_ID,
    MACHINE_ID,
    Json,
    a_certificate,
    a_lease,
)
from tests.unit.cli.stand import OWN_KEY, Answer, Became, Stand

SHOW = f"GET /v1/leases/{LEASE_ID}"
CERTIFICATES = f"/v1/leases/{LEASE_ID}/ssh-certificates"
SIGNS: dict[str, Answer] = {
    f"POST {CERTIFICATES}": a_certificate("wanted"),
    f"GET {CERTIFICATES}/{CERTIFICATE_ID}": a_certificate(),
}
READY: dict[str, Answer] = {SHOW: a_lease(), **SIGNS}


def _asked(stand: Stand) -> list[str]:
    """What was asked of the API about certificates since the last look."""
    asked = [
        f"{request.method} {request.url.path.rpartition('/')[2]}"
        for request in stand.requests
        if "ssh-certificates" in request.url.path
    ]
    stand.requests.clear()
    return asked


def _ssh(stand: Stand, *more: str) -> list[str]:
    with pytest.raises(Became) as caught:
        stand.run("lease", "ssh", LEASE_ID, *more)
    return caught.value.command


NEW = ["POST ssh-certificates", f"GET {CERTIFICATE_ID}"]
LOOKED = [f"GET {CERTIFICATE_ID}"]


def test_a_certificate_is_used_until_it_has_less_than_a_minute_left_or_is_revoked(tmp_path: Path) -> None:
    stand = Stand(tmp_path, READY)
    command = _ssh(stand)
    assert _asked(stand) == NEW
    state = tmp_path / ".local/state/splitplane/ssh"
    assert f'IdentityFile="{state}/id_ed25519"' in command
    [file] = state.glob("*-cert.pub")
    assert f'CertificateFile="{file}"' in command
    assert file.read_text() == f"{a_certificate()['certificate']}\n"
    assert (state.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    _ssh(stand)
    assert _asked(stand) == LOOKED, "the same key, and the same certificate"
    for again, expected in (
        (a_certificate("revoked"), [*LOOKED, "POST ssh-certificates"]),
        (a_certificate(minutes=0.9), [*LOOKED, "POST ssh-certificates"]),
    ):
        with case(again["state"]):
            stand.answers = {**READY, f"GET {CERTIFICATES}/{CERTIFICATE_ID}": again}
            if again["state"] == "revoked":
                assert stand.run("lease", "ssh", LEASE_ID).code == 1
                assert _asked(stand) == [*expected, f"GET {CERTIFICATE_ID}"]
            else:
                _ssh(stand)
                assert _asked(stand) == LOOKED, "it was good for ten minutes when it was stored"
    stand = Stand(
        tmp_path / "other", {**READY, f"GET {CERTIFICATES}/{CERTIFICATE_ID}": a_certificate(minutes=0.9)}
    )
    for _ in range(2):
        _ssh(stand)
        assert _asked(stand) == NEW


def test_while_the_api_is_away_a_certificate_that_is_valid_is_used(tmp_path: Path) -> None:
    def away(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    stand = Stand(tmp_path, READY)
    get = ("ssh-certificate", "get", LEASE_ID, "--quiet", "--timeout", "1")
    assert stand.run(*get).out == f"{CERTIFICATE_ID}\n"
    stand.answers = {f"GET {CERTIFICATES}/{CERTIFICATE_ID}": away, f"POST {CERTIFICATES}": away}
    assert stand.run(*get).out == f"{CERTIFICATE_ID}\n"
    without = Stand(tmp_path / "other", stand.answers)
    assert without.run(*get).code == 3


def test_a_certificate_that_is_refused_or_never_signed_says_so(tmp_path: Path) -> None:
    for state, code in (("refused", "certificate_refused"), ("wanted", "not_signed")):
        with case(state):
            stand = Stand(tmp_path, {**READY, f"GET {CERTIFICATES}/{CERTIFICATE_ID}": a_certificate(state)})
            shown = stand.run("lease", "ssh", LEASE_ID)
            assert (shown.code, f"error: {code}: " in shown.err) == (1, True), shown.err
            assert len(stand.requests) < 40


def test_ones_own_key_is_signed_with_i_and_a_public_key_alone_gets_its_certificate_beside_it(
    tmp_path: Path,
) -> None:
    identity = tmp_path / "key"
    identity.touch(mode=0o600)
    identity.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    stand = Stand(tmp_path, READY)
    shown = stand.run("lease", "ssh", LEASE_ID, "-i", str(identity))
    assert (shown.code, "ssh-keygen -y -f" in shown.err) == (1, True)
    public = tmp_path / "key.pub"
    public.write_text("ssh-ed25519 AAAAmine me@host\n")
    command = _ssh(stand, "-i", str(identity))
    assert f'IdentityFile="{identity}"' in command
    assert json.loads(stand.requests[-2].content) == {"key": "ssh-ed25519 AAAAmine me@host"}
    shown = stand.run("ssh-certificate", "get", LEASE_ID, "--public-key", str(public))
    assert shown.code == 0, shown.err
    line = f"{a_certificate()['certificate']}\n"
    assert (tmp_path / "key-cert.pub").read_text() == line
    printed = stand.run("ssh-certificate", "get", LEASE_ID, "--public-key", str(public), "--output", "-")
    assert printed.out == line
    for wrong in (("--public-key", str(identity)), ("--public-key", str(public), "-i", str(identity))):
        stand.requests.clear()
        assert stand.run("ssh-certificate", "get", LEASE_ID, *wrong).code != 0
        assert stand.requests == [], "nothing was sent"


def test_the_configuration_gets_a_certificate_before_each_connection(tmp_path: Path) -> None:
    stand = Stand(tmp_path, READY)
    shown = stand.run("lease", "ssh-config", LEASE_ID, "--host", "gpu")
    state = tmp_path / ".local/state/splitplane"
    [certificate] = (state / "ssh").glob("*-cert.pub")
    assert shown.out.splitlines() == [
        f'Match originalhost gpu exec "splitplane ssh-certificate get {LEASE_ID} --quiet"',
        "Host gpu",
        "    HostName 203.0.113.7",
        "    Port 22",
        "    User ubuntu",
        f'    UserKnownHostsFile "{state}/known_hosts/{MACHINE_ID}"',
        "    GlobalKnownHostsFile /dev/null",
        "    StrictHostKeyChecking yes",
        f"    HostKeyAlias {MACHINE_ID}",
        "    UpdateHostKeys no",
        "    CheckHostIP no",
        "    ConnectTimeout 15",
        "    ForwardAgent no",
        "    IdentitiesOnly yes",
        f'    IdentityFile "{state}/ssh/id_ed25519"',
        f'    CertificateFile "{certificate}"',
    ]
    assert json.loads(stand.requests[-2].content) == {"key": OWN_KEY}
    wrong = stand.run("lease", "ssh-config", LEASE_ID, "--host", "a b")
    assert wrong.code == 1


def test_certificates_are_revoked_by_their_ids_or_all_that_are_valid(tmp_path: Path) -> None:
    old = a_certificate("expired", id="cert_019aa1b2c3d47e5f8a9b0c1d2e3f4a5e")
    known: dict[str, Answer] = {
        **answers.NAMES,
        SHOW: a_lease(),
        f"GET {CERTIFICATES}": {"items": [a_certificate(), old], "next_cursor": None},
        f"POST {CERTIFICATES}/{CERTIFICATE_ID}/revoke": a_certificate("revoked"),
    }
    for words in ((CERTIFICATE_ID,), ("--all",)):
        with case(words):
            stand = Stand(tmp_path, known)
            assert stand.run("ssh-certificate", "revoke", LEASE_ID, *words, "-q").out == f"{CERTIFICATE_ID}\n"
            assert [request.method for request in stand.requests].count("POST") == 1
    for wrong in ([], ["--all", CERTIFICATE_ID], ["le_1"]):
        with case(wrong):
            assert Stand(tmp_path, known).run("ssh-certificate", "revoke", LEASE_ID, *wrong).code == 2


def test_ssh_is_run_with_the_machines_key_pinned(tmp_path: Path) -> None:
    stand = Stand(tmp_path, READY)
    identity = tmp_path / "key.pub"
    identity.write_text("ssh-ed25519 AAAA\n")
    with pytest.raises(Became) as caught:
        stand.run("lease", "ssh", LEASE_ID, "-i", str(identity), "--", "nvidia-smi", "-L", "--json")
    command = caught.value.command
    assert command[0] == "ssh"
    assert command[-7:] == ["-p", "22", "--", "ubuntu@203.0.113.7", "nvidia-smi", "-L", "--json"]
    assert {"StrictHostKeyChecking=yes", "ConnectTimeout=15"} <= set(command)
    assert f"HostKeyAlias={MACHINE_ID}" in command
    pins = tmp_path / ".local/state/splitplane/known_hosts" / MACHINE_ID
    assert f'UserKnownHostsFile="{pins}"' in command
    assert pins.read_text() == f"{MACHINE_ID} {HOST_KEY}\n"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"host_key": None}, "no_host_key"),
        ({"address": None}, "no_address"),
        ({"host_key": f"{HOST_KEY}\n* {HOST_KEY}"}, "host_key_unreadable"),
        ({"host_key": "@cert-authority * ssh-ed25519 AAAA"}, "host_key_unreadable"),
        ({"address": "-oProxyCommand=touch /tmp/x"}, "address_unreadable"),
        ({"address": "a b"}, "address_unreadable"),
        ({"ssh_user": "-l"}, "address_unreadable"),
        ({"ssh_port": 0}, "address_unreadable"),
        ({"machine_id": "../../authorized_keys"}, "host_key_unreadable"),
    ],
)
def test_ssh_goes_nowhere_with_what_cannot_be_trusted(changes: Json, code: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path, {**READY, SHOW: a_lease(machine=answers.MACHINE | changes)})
    shown = stand.run("lease", "ssh", LEASE_ID)
    assert (shown.code, shown.err.partition(": ")[2].partition(":")[0]) == (1, code)


def test_the_id_of_a_lease_is_neither_a_line_of_a_configuration_nor_a_path(tmp_path: Path) -> None:
    for sent in (f"{LEASE_ID}\n    ProxyCommand touch /tmp/x", "le_/../../../../a", "le_1", f"{LEASE_ID}\n"):
        issued = {route.replace(LEASE_ID, sent): answer for route, answer in SIGNS.items()}
        stand = Stand(tmp_path, {SHOW: a_lease(id=sent), **SIGNS, **issued})
        for command in ("ssh", "ssh-config"):
            with case(command, sent):
                shown = stand.run("lease", command, LEASE_ID)
                assert (shown.code, shown.out) == (1, "")
                assert "lease_unreadable" in shown.err
    assert not list(tmp_path.rglob("*-cert.pub"))


def test_a_lease_that_is_not_ready_has_no_shell(tmp_path: Path) -> None:
    shown = Stand(tmp_path, {SHOW: a_lease("starting")}).run("lease", "ssh", LEASE_ID)
    assert (shown.code, "splitplane lease watch" in shown.err) == (1, True)


def test_the_ssh_command_can_be_printed_for_a_script(tmp_path: Path) -> None:
    shown = Stand(tmp_path, READY).run("lease", "ssh", LEASE_ID, "--print")
    assert shown.out.endswith("-p 22 -- ubuntu@203.0.113.7\n")


EMULATED = answers.EXPLANATION | {"reports": [answers.EXPLANATION["reports"][0] | {"source": "emulated"}]}


def test_a_simulated_machine_is_named_so_instead_of_waited_for(tmp_path: Path) -> None:
    known: dict[str, Answer] = {**READY, f"{SHOW}/explanation": EMULATED}
    shown = Stand(tmp_path, known, reached=False).run("lease", "ssh", LEASE_ID)
    assert shown.code == 1
    assert "error: machine_simulated: The machine of train-1 is simulated" in shown.err


def test_a_server_that_accepts_a_connection_and_says_nothing_is_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for says, reached in ((b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"", False)):
        ours, theirs = socket.socketpair()
        with case(says), theirs:
            theirs.sendall(says)
            theirs.shutdown(socket.SHUT_WR)
            monkeypatch.setattr(socket, "create_connection", lambda *_, line=ours, **__: line)
            assert reaches("10.99.0.2", 22) is reached


def test_ssh_decides_about_a_machine_that_is_real_or_that_answers(tmp_path: Path) -> None:
    real: dict[str, Answer] = {**READY, f"{SHOW}/explanation": answers.EXPLANATION}
    emulated: dict[str, Answer] = {**READY, f"{SHOW}/explanation": EMULATED}
    first = 1  # The first one requests a certificate, and the others look whether it is good.
    for known, reached in ((real, False), (emulated, True), (real, True)):
        stand = Stand(tmp_path, known, reached=reached)
        with pytest.raises(Became):
            stand.run("lease", "ssh", LEASE_ID)
        assert len(stand.requests) == (2 if reached else 3) + first
        first = 0


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    identity = tmp_path / "key"
    identity.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA\n")
    stand = Stand(tmp_path, READY)
    for mode, code in ((0o644, 1), (0o640, 1), (0o604, 1), (0o600, None), (0o400, None)):
        identity.chmod(mode)
        with case(oct(mode)):
            if code is None:
                with pytest.raises(Became):
                    stand.run("lease", "ssh", LEASE_ID, "-i", str(identity))
                continue
            shown = stand.run("lease", "ssh", LEASE_ID, "-i", str(identity))
            assert (shown.code, f"chmod 600 {identity}" in shown.err) == (code, True)
    assert stand.run("lease", "ssh", LEASE_ID, "-i", str(tmp_path / "none")).code == 1
