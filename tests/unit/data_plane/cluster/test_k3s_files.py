"""What an operator's folder may say about the device plugin. The other files are read with real ones elsewhere."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from data_plane.cluster import k3s_files
from data_plane.cluster.k3s_files import K3sFiles, K3sFilesError

DIGEST = "sha256:" + "a" * 64
IMAGE = f"registry.invalid:5000/nvidia/k8s-device-plugin@{DIGEST}"


def _read(folder: Path, **files: bytes) -> K3sFiles:
    """A folder with these files besides the three that are always there."""
    named = {"k3s": b"k3s", "install.sh": b"sh", "k3s-airgap-images-amd64.tar": b"images"}
    named |= {name.replace("_", "-").replace("--", "."): content for name, content in files.items()}
    for path in folder.iterdir():
        path.unlink()
    for name, content in named.items():
        (folder / name).write_bytes(content)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in named.items()]
    (folder / "SHA256SUMS").write_text("\n".join(sums))
    return k3s_files.read(folder)


def _archive(*images: str) -> bytes:
    manifests = [{"digest": DIGEST, "annotations": {"io.containerd.image.name": image}} for image in images]
    content = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("index.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def test_a_device_plugin_is_named_by_digest_and_its_image_goes_to_nodes_alone(tmp_path: Path) -> None:
    assert _read(tmp_path).device_plugin is None
    fetched = _read(tmp_path, device_plugin__image=f"{IMAGE}\n".encode()).device_plugin
    assert fetched is not None
    assert (fetched.image, fetched.is_at_hand) == (IMAGE, False)
    found = _read(tmp_path, device_plugin__image=IMAGE.encode(), device_plugin__tar=_archive("other", IMAGE))
    assert found.device_plugin is not None
    assert found.device_plugin.is_at_hand
    always = ["k3s", "install.sh", "k3s-airgap-images-amd64.tar"]
    assert [file.name for file in found.all()] == [*always, "device-plugin.tar"]
    assert found.digests()[4:] == ["device-plugin.tar", found.archives[1].sha256]
    assert [file.name for file in found.of_server().all()] == always


def test_a_device_plugin_that_nodes_could_not_run_is_refused_at_the_start(tmp_path: Path) -> None:
    for name in ("nvcr.io/nvidia/k8s-device-plugin:v0.18.0", "", f"{IMAGE} --privileged", f"x@{DIGEST}"):
        with pytest.raises(K3sFilesError, match="is no image with a digest"):
            _read(tmp_path, device_plugin__image=name.encode())
    with pytest.raises(K3sFilesError, match=r"is there without device-plugin\.image"):
        _read(tmp_path, device_plugin__tar=_archive(IMAGE))
    for archive in (_archive(), _archive("docker.io/other:1"), b"no archive"):
        with pytest.raises(K3sFilesError, match=r"has no image with the name .* ctr images export"):
            _read(tmp_path, device_plugin__image=IMAGE.encode(), device_plugin__tar=archive)
    (tmp_path / "SHA256SUMS").write_text("")
    with pytest.raises(K3sFilesError, match="does not name"):
        k3s_files.read(tmp_path)


def test_a_folder_without_images_is_refused_at_the_start(tmp_path: Path) -> None:
    _read(tmp_path)
    (tmp_path / "k3s-airgap-images-amd64.tar").unlink()
    with pytest.raises(
        K3sFilesError, match=r"has no k3s-airgap-images-\*, .* take the archive of the same release"
    ):
        k3s_files.read(tmp_path)


def test_a_folder_without_digests_is_told_how_to_make_them_of_all_its_files(tmp_path: Path) -> None:
    with pytest.raises(K3sFilesError, match=r"sha256sum k3s\* install\.sh > SHA256SUMS"):
        k3s_files.read(tmp_path)
    (tmp_path / "device-plugin.image").touch()
    with pytest.raises(K3sFilesError, match=r"sha256sum k3s\* install\.sh device-plugin\* > SHA256SUMS"):
        k3s_files.read(tmp_path)
