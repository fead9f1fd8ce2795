"""Which kernel log an agent without rights can read."""

from pathlib import Path

import pytest

from data_plane.agent import kernel_log_source


def test_without_rights_and_without_a_journal_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel_log_source.find(lambda: 0.0, tmp_path / "absent").name == "unreadable"
