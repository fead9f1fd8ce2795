"""How files arrive on a machine, by the scripts themselves."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from data_plane.access.port import StepFailed
from data_plane.access.step import Answer, Step, detail_of
from data_plane.cluster import files
from data_plane.cluster.files import CHECK, FIND, FOLDER, PUT, StillSending
from data_plane.cluster.k3s_files import K3sFile

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Here:
    """A session whose machine is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, step: Step, *arguments: str) -> subprocess.Popen[bytes]:
        script = step.script.replace(FOLDER, str(self.folder))
        command = ["sh", "-c", script, "splitplane", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    async def run(
        self, step: Step, arguments: list[str], *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> Answer:
        begun = self.begin(step, *arguments)
        output, detail = begun.communicate(stdin, timeout=20)
        return Answer(begun.returncode, output, detail_of(detail, private))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "files")


def _waits(begun: subprocess.Popen[bytes]) -> bool:
    """Whether a step waits for the lock."""
    try:
        children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
        return any(Path(f"/proc/{child}/comm").read_text() == "flock\n" for child in children)
    except (FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
        return False


async def _answer(here: Here, step: Step, *arguments: str, stdin: bytes = b"") -> Answer:
    return await here.run(step, list(arguments), stdin=stdin)


async def test_two_runs_that_send_the_same_file_make_one_file(here: Here) -> None:
    """The connection of the first one is slow. The second one waits for it, and what it brings is there by then."""
    slow = here.begin(PUT, DIGEST, "0")
    assert slow.stdin is not None
    assert slow.stdout is not None
    part = here.folder / f"{DIGEST}.part"
    while not part.exists():
        assert slow.poll() is None
    other = here.begin(PUT, DIGEST, "0")
    assert other.stdin is not None
    other.stdin.write(CONTENT[:HALF])
    other.stdin.close()
    other.stdin = None
    while not _waits(other) and part.stat().st_size == 0:
        pass  # It waits for the lock, or nothing keeps it from writing.
    slow.stdin.write(CONTENT[:HALF])
    assert slow.communicate(timeout=20)[0] == b"%d\n" % HALF
    assert other.communicate(timeout=20)[0] == b"%d\n" % HALF
    assert (await _answer(here, PUT, DIGEST, str(HALF), stdin=CONTENT[HALF:])).output == b"%d\n" % len(
        CONTENT
    )
    assert (await _answer(here, CHECK, DIGEST)).exit_status == 0
    assert (here.folder / DIGEST).read_bytes() == CONTENT
    late = await _answer(here, PUT, DIGEST, str(HALF), stdin=CONTENT[HALF:])
    assert late.output == b"%d\n" % len(CONTENT), "a run that is behind finds it complete"
    assert (await _answer(here, CHECK, DIGEST)).exit_status == 0
    assert (here.folder / DIGEST).read_bytes() == CONTENT


async def test_a_turn_ends_in_time_and_the_next_one_goes_on_there(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", HALF)
    path = tmp_path / "k3s"
    path.write_bytes(CONTENT)
    file = K3sFile(path, DIGEST, len(CONTENT))
    times = iter([0, 0, files.TURN_SECONDS, 0, 0, 0])
    monkeypatch.setattr(files, "monotonic", lambda: next(times))
    with pytest.raises(StillSending) as sending:
        await files.send(here, [file])  # type: ignore[arg-type] # It has what `send` uses of a session.
    assert (sending.value.arrived, sending.value.seconds) == (HALF, files.TURN_SECONDS)
    assert (await _answer(here, FIND, DIGEST, str(len(CONTENT)))).output == b"%d\n" % HALF
    await files.send(here, [file])  # type: ignore[arg-type] # The same.
    assert (here.folder / DIGEST).read_bytes() == CONTENT


async def test_what_was_damaged_is_deleted_and_sent_again(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "k3s"
    path.write_bytes(CONTENT)
    file = K3sFile(path, DIGEST, len(CONTENT))
    here.folder.mkdir()
    (here.folder / f"{DIGEST}.part").write_bytes(b"x" * (len(CONTENT) + 7))
    with pytest.raises(StepFailed, match="another digest"):
        await files.send(here, [file])  # type: ignore[arg-type] # It has what `send` uses of a session.
    (here.folder / DIGEST).write_bytes(b"damaged on the disk")
    await files.send(here, [file])  # type: ignore[arg-type] # The same.
    assert (here.folder / DIGEST).read_bytes() == CONTENT
