"""The certificates of the verifier and its caller, made by the commands of docs/operating.md, are taken by TLS."""

import re
import ssl
import subprocess
from pathlib import Path

import pytest

NAME = "verifier.dev.splitplane.internal"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    page = Path("docs/operating.md").read_text().partition("**Certificates.**")[2]
    block = re.search(r"(?:^    .+\n)+", page, re.MULTILINE)
    assert block
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.group()], cwd=tmp_path, check=True, capture_output=True
    )
    return tmp_path


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """A whole handshake in memory: the version of TLS. Raises SSLError when a side refuses the other's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for side in sides:
        side.do_handshake()
    return sides[0].version()


def _sides(folder: Path, *, caller: str = "caller") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    for context, name in ((server, "verifier"), (client, caller)):
        context.load_verify_locations(folder / "verifier-ca.pem")
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return server, client


def test_each_side_takes_the_other(made: Path) -> None:
    assert _handshake(*_sides(made), NAME) == "TLSv1.3"


def test_the_verifier_is_taken_under_its_name_alone(made: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(*_sides(made), "another.dev.splitplane.internal")


def test_a_verifier_does_not_pass_for_a_caller(made: Path) -> None:
    with pytest.raises(ssl.SSLError):
        _handshake(*_sides(made, caller="verifier"), NAME)
