"""The rule of SSH keys against OpenSSH itself: what we accept, `ssh-keygen` accepts with the same fingerprint."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from control_plane.domain.ssh_public_key import InvalidSshKeyError, SshPublicKey, parse
from tests.unit.domain.test_ssh_public_key import ACCEPTED, REFUSED, spoilt

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="OpenSSH's ssh-keygen is not installed here; CI has it"
)
GENERATED = (("ed25519", 256), ("ecdsa", 256), ("ecdsa", 384), ("ecdsa", 521), ("rsa", 2_048), ("rsa", 3_072))


def _fingerprint(folder: Path, line: str) -> str | None:
    """As ssh-keygen prints it; None for a line that it refuses."""
    file = folder / "key.pub"
    file.write_text(line + "\n")
    shown = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=False)
    return shown.stdout.split()[1] if shown.returncode == 0 else None


def _parsed(line: str) -> SshPublicKey | None:
    try:
        return parse(line)
    except InvalidSshKeyError:
        return None


def test_keys_that_openssh_makes_are_accepted_with_its_fingerprint(tmp_path: Path) -> None:
    for kind, bits in GENERATED:
        file = tmp_path / f"{kind}-{bits}"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-b", str(bits), "-N", "", "-f", file], check=True)
        line = file.with_suffix(".pub").read_text()
        assert parse(line).fingerprint == _fingerprint(tmp_path, line.strip()), (kind, bits)


def test_every_line_that_is_accepted_is_accepted_by_openssh(tmp_path: Path) -> None:
    chance = random.Random(7)
    spoilt_keys = [spoilt(line, chance) for line in ACCEPTED.values() for _ in range(60)]
    accepted = 0
    for line in [*ACCEPTED.values(), *(line for line, _ in REFUSED.values()), *spoilt_keys]:
        key = _parsed(line)
        if key is not None:
            accepted += 1
            assert _fingerprint(tmp_path, key.line) == key.fingerprint, line
    assert accepted > len(ACCEPTED), "some of the spoilt ones are still keys"
