"""The tests' server whose programs are gone, because the checkout that started it was deleted."""

import shutil
import subprocess
from pathlib import Path

from tests.support.database import end_stranded


def started(folder: Path) -> tuple[Path, "subprocess.Popen[bytes]", Path]:
    """The directory of a server that runs, its process, and its program: a stand-in that waits for its end."""
    program, directory = folder / "postgres", folder / "server"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    program.chmod(0o755)
    directory.mkdir()
    process = subprocess.Popen([program, "60"])
    (directory / "postmaster.pid").write_text(f"{process.pid}\n{directory}\n", encoding="utf-8")
    return directory, process, program


def test_a_server_whose_programs_are_gone_is_ended_with_its_directory(tmp_path: Path) -> None:
    directory, process, program = started(tmp_path)
    program.unlink()
    end_stranded(directory)
    assert process.wait(10) != 0
    assert not directory.exists()


def test_a_server_that_has_its_programs_is_left_alone_and_so_is_one_that_does_not_run(tmp_path: Path) -> None:
    directory, process, _ = started(tmp_path)
    end_stranded(directory)
    assert process.poll() is None
    process.kill()
    process.wait(10)
    end_stranded(directory)
    assert directory.exists()
    end_stranded(tmp_path / "never")
