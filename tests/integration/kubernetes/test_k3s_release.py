"""A real K3s that the environment names is looked at before anything is installed, and refused in one sentence."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kubernetes.k3s_release import BINARY, IMAGES, INSTALL, K3sReleaseError, checked, suffix

SAYS = "k3s version v1.36.3+k3s1 (4c7cf5c6)\ngo version go1.26.0"


def _program(path: Path, says: str) -> None:
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)


def _archive() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("manifest.json"))
    return whole.getvalue()


def _release(folder: Path) -> dict[str, str]:
    """The environment of a release as its makers publish it."""
    _program(folder / "k3s", SAYS)
    (folder / "k3s-airgap-images-amd64.tar.gz").write_bytes(gzip.compress(_archive()))
    (folder / "install.sh").write_text("#!/bin/sh\n[ $INSTALL_K3S_SKIP_DOWNLOAD ]\n")
    names = {BINARY: "k3s", IMAGES: "k3s-airgap-images-amd64.tar.gz", INSTALL: "install.sh"}
    return {variable: str(folder / name) for variable, name in names.items()}


def test_a_release_is_taken_as_it_is(tmp_path: Path) -> None:
    found = checked(_release(tmp_path))
    assert [path.name for path in (found.binary, *found.images, found.script)] == [
        "k3s",
        "k3s-airgap-images-amd64.tar.gz",
        "install.sh",
    ]
    plain = tmp_path / "images.tar"
    plain.write_bytes(_archive())
    assert (suffix(found.images[0]), suffix(plain)) == (".tar.gz", ".tar")


def test_what_cannot_be_used_is_refused_in_a_sentence_that_says_what_to_change(tmp_path: Path) -> None:
    named: dict[str, tuple[Callable[[Path, dict[str, str]], object], str]] = {
        "no images": (
            lambda _, names: names.pop(IMAGES),
            "K3S_BINARY is set, so K3S_IMAGES has to be set too",
        ),
        "no such file": (
            lambda folder, names: names.update({INSTALL: f"{folder}/none"}),
            "K3S_INSTALL: there is no file",
        ),
        "not a program": (
            lambda folder, _: (folder / "k3s").write_bytes(b"\x7fELF of another machine"),
            "K3S_BINARY: .* does not run on this machine",
        ),
        "another program": (
            lambda folder, _: _program(folder / "k3s", "kubectl v1.36.3"),
            "is not K3s; `--version` printed 'kubectl v1.36.3'",
        ),
        "too old": (
            lambda folder, _: _program(folder / "k3s", SAYS.replace("1.36", "1.35")),
            "Kubernetes 1.35 is too old; clusters need 1.36 or newer",
        ),
        "an archive under another name": (
            lambda folder, names: _rename(folder, names, "images.zip"),
            "K3s reads no images.zip; it has to end with",
        ),
        "another kind of archive": (
            lambda folder, names: _rename(folder, names, "images.tar.zst"),
            "is no .tar.zst archive, whatever its name says",
        ),
        "a page instead of the script": (
            lambda folder, _: (folder / "install.sh").write_text("<html>"),
            "is not K3s' install script; get it from https://get.k3s.io",
        ),
    }
    for case, (change, says) in named.items():
        folder = tmp_path / case
        folder.mkdir()
        names = _release(folder)
        change(folder, names)
        with pytest.raises(K3sReleaseError) as refused:
            checked(names)
        assert re.search(says, str(refused.value)), f"{case}: {refused.value}"


def _rename(folder: Path, names: dict[str, str], name: str) -> None:
    Path(names[IMAGES]).rename(folder / name)
    names[IMAGES] = str(folder / name)
