"""What `make image` puts into the image besides the commit: the named files, whole, and nothing else; and what the Containerfile demands."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

# Stands in for buildah, podman and docker: it keeps what it is given to build.
BUILDER = """\
#!/bin/sh
[ "$1" = build ] || { echo '{"components": []}'; exit 0; }
for context; do :; done
(cd "$context/files" && find . -type f | sort) > built
find "$context/files" ! -perm -o=r -o -perm /go=w > unfit
"""


class Checkout:
    """A commit with what builds the image, and a folder of files for it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.files, self.bin = folder / "checkout", folder / "files", folder / "bin"
        (self.root / "infra" / "image").mkdir(parents=True)
        for name in ("build", "Containerfile"):
            shutil.copy(f"infra/image/{name}", self.root / "infra" / "image")
        (self.root / ".gitignore").write_text("var/\nbuilt\nunfit\n")
        self.bin.mkdir()
        for name in ("buildah", "podman", "docker"):
            (self.bin / name).write_text(BUILDER)
            (self.bin / name).chmod(0o755)
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "all"]):
            subprocess.run(["git", *command], cwd=self.root, check=True)
        self.write("etc/ssl/rds.pem", "authorities")
        self.write("opt/k3s/k3s", "binary")
        digest = hashlib.sha256(b"binary").hexdigest()
        self.write("opt/k3s/SHA256SUMS", f"{digest}  k3s\n")

    def write(self, name: str, text: str) -> None:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def build(self, umask: int = 0o022) -> tuple[int, str]:
        """The exit status, and what it says."""
        environment = os.environ | {"FILES": str(self.files), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        ended = subprocess.run(
            [self.root / "infra" / "image" / "build"],
            env=environment,
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr

    def built(self) -> list[str]:
        return (self.root / "built").read_text().split()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_named_files_go_into_the_image(checkout: Checkout) -> None:
    status, said = checkout.build()
    assert status == 0, said
    assert checkout.built() == ["./etc/ssl/rds.pem", "./opt/k3s/SHA256SUMS", "./opt/k3s/k3s"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_user_of_the_image_reads_them_and_cannot_change_them(checkout: Checkout, umask: int) -> None:
    (checkout.files / "opt/k3s/k3s").chmod(0o600)
    status, said = checkout.build(umask)
    assert status == 0, said
    assert (checkout.root / "unfit").read_text() == ""


@pytest.mark.parametrize(
    "name", [".aws/credentials", "etc/passwd", "etc/ssl/key.pem", "opt/k3s/deeper/file", "opt/splitplane/x"]
)
def test_any_other_file_is_refused(checkout: Checkout, name: str) -> None:
    checkout.write(name, "x")
    status, said = checkout.build()
    assert status == 1
    assert "only etc/ssl/rds.pem and files in opt/k3s go into the image" in said
    assert not (checkout.root / "built").exists()


def test_a_link_is_refused(checkout: Checkout) -> None:
    (checkout.files / "opt" / "k3s" / "link").symlink_to("/etc/shadow")
    assert checkout.build()[0] == 1


def test_files_that_are_not_those_of_the_release_are_refused(checkout: Checkout) -> None:
    checkout.write("opt/k3s/k3s", "another binary")
    status, said = checkout.build()
    assert status == 1
    assert "is not what its SHA256SUMS says" in said


def _instructions() -> list[tuple[str, str]]:
    """Each instruction of the Containerfile, with its lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", Path("infra/image/Containerfile").read_text()).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in text.splitlines() if line.strip()]


def test_both_stages_start_from_one_base_that_is_named_by_its_digest() -> None:
    instructions = _instructions()
    bases = [value for name, value in instructions if name == "ARG" and value.startswith("BASE=")]
    assert len(bases) == 1
    assert re.fullmatch(r"BASE=docker\.io/library/python:[\w.-]+@sha256:[0-9a-f]{64}", bases[0])
    assert [value for name, value in instructions if name == "FROM"] == ["${BASE} AS build", "${BASE}"]


def test_the_image_runs_as_nobody_who_may_change_it() -> None:
    assert [value for name, value in _instructions() if name == "USER"][-1] == "10001:10001"


def test_the_image_fetches_only_packages_that_are_pinned_by_their_hashes() -> None:
    instructions = _instructions()
    assert "ADD" not in {name for name, _ in instructions}
    steps = [step for name, value in instructions if name == "RUN" for step in value.split(" && ")]
    assert not [step for step in steps if re.search(r"\b(curl|wget|apt-get|git)\b", step)]
    for step in steps:
        if "pip install" in step:
            assert "--require-hashes" in step or "--no-index" in step, step
        if "pip wheel" in step:
            assert "--no-deps --no-build-isolation" in step, step


def test_the_image_holds_its_list_of_packages_and_nothing_that_installs_more() -> None:
    instructions = _instructions()
    last = max(number for number, (name, _) in enumerate(instructions) if name == "FROM")
    first_stage = " && ".join(value for name, value in instructions[:last] if name == "RUN")
    assert re.search(r"cyclonedx-py environment [^&]*-o /opt/splitplane/sbom\.cdx\.json ", first_stage)
    assert "/opt/splitplane/bin/pip uninstall --yes pip setuptools" in first_stage
    copied = [value for name, value in instructions[last:] if name == "COPY"]
    assert copied == ["--chown=0:0 files/ /", "--from=build /opt/splitplane /opt/splitplane"]
