"""Private keys in files that other users may read are refused."""

from pathlib import Path

import pytest

from environment.private_files import TooOpen, read_private


def test_only_a_file_that_nobody_else_may_access_is_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"secret")
    for mode in (0o600, 0o400, 0o700):
        path.chmod(mode)
        assert read_private(path) == b"secret", oct(mode)
    for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666):
        path.chmod(mode)
        with pytest.raises(TooOpen, match=f"mode {mode:04o}.*; run: chmod 600 {path}") as caught:
            read_private(path)
        assert "secret" not in str(caught.value), oct(mode)
