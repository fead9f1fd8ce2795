"""What the units of hosts let their processes do."""

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted(Path("infra/host/units").glob("*.service"))
EXPOSURE_MAX = 12
"""In tenths, by `systemd-analyze security`: 0 is nothing, 100 everything. Files, sockets and the network remain."""


def test_every_unit_has_the_same_sandbox() -> None:
    sandboxes = {tuple(_sandbox(unit)) for unit in UNITS}
    assert len(sandboxes) == 1
    assert "MemoryDenyWriteExecute=yes" in next(iter(sandboxes))


def _sandbox(unit: Path) -> list[str]:
    lines = unit.read_text().splitlines()
    (end,) = [number for number, line in enumerate(lines) if line.startswith("UMask=")]
    return lines[lines.index("NoNewPrivileges=yes") : end]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_little_that_a_process_could_do_to_its_host(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout
