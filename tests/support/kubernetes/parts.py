"""What a local machine needs to become a node: the real programs in one folder, the stand-in for K3s, and images."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipapp
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.golang.programs import CACHE
from tests.support.kubernetes.binaries import CONTAINER, CONTROL_PLANE, NETWORK_POLICIES, NODE
from tests.support.kubernetes.k3s.layout import AUXILIARY
from tests.support.kubernetes.k3s.node import PAUSE_IMAGE

DEBIAN = ("etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
PLUGINS = Path("/usr/lib/cni")
CNI = ("bridge", "host-local", "loopback", "portmap")
BUILT = (*CONTROL_PLANE, *NODE, NETWORK_POLICIES)
FILTERS = {
    "ipset": "ipset",
    **dict.fromkeys(
        (f"{name}{verb}" for name in ("iptables", "ip6tables") for verb in ("", "-save", "-restore")),
        "xtables-nft-multi",
    ),
}
"""The tools for packet filters that K3s has inside, by the names that they are called by: no machine has to have them."""
EXTENSIONS = "xtables"
HERE = Path(__file__).parent
SERVER_IMAGE = "docker.io/splitplane/server:1"
SHARED = ("__init__.py", "pki.py", "flags.py", "credentials.py")
"""What the stand-in has in common with the tests' own control plane."""


def parts(go: str, cache: Path = CACHE) -> Path:
    """A folder with every program that `layout.PARTS` names: hard links where the file system has them, else copies."""
    folder = cache / "kubernetes" / f"parts-{_digest(go)}"
    if folder.exists():
        return folder
    unfinished = Path(f"{folder}.{os.getpid()}")
    (unfinished / "cni").mkdir(parents=True)
    for binary in BUILT:
        _link(binary.path(go, cache), unfinished / binary.name)
    for name in DEBIAN:
        shutil.copy2(_found(name), unfinished / name)
    for name in CNI:
        shutil.copy2(PLUGINS / name, unfinished / "cni" / name)
    _add_filters(unfinished / AUXILIARY.name)
    try:
        unfinished.rename(folder)
    except OSError:  # Another process was faster.
        shutil.rmtree(unfinished)
    return folder


def _digest(go: str) -> str:
    files = [binary.path(go) for binary in BUILT]
    files += [*(_found(name) for name in (*DEBIAN, *FILTERS)), *(PLUGINS / name for name in CNI)]
    sizes = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps(sizes).encode()).hexdigest()[:16]


def _add_filters(folder: Path) -> None:
    """The tools for packet filters, with the libraries that a machine may lack."""
    libraries = folder / "lib"
    libraries.mkdir(parents=True)
    for program in sorted(set(FILTERS.values())):
        shutil.copy2(_found(program), libraries / program)
        for library in _libraries(_found(program)):
            shutil.copy2(library, libraries / library.name)
            extensions = library.resolve().parent / EXTENSIONS
            if library.name.startswith("libxtables.") and not (libraries / EXTENSIONS).exists():
                shutil.copytree(extensions, libraries / EXTENSIONS)
    there = AUXILIARY / "lib"
    for name, program in FILTERS.items():
        called = f"{there}/{program}" + ("" if name == program else f" {name}")
        environment = f"LD_LIBRARY_PATH={there} XTABLES_LIBDIR={there}/{EXTENSIONS}"
        (folder / name).write_text(f'#!/bin/sh\n{environment} exec {called} "$@"\n')
        (folder / name).chmod(0o755)


def _libraries(program: Path) -> list[Path]:
    """What a program links to, but the C library, which every machine has."""
    linked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    paths = [Path(line.split()[2]) for line in linked.splitlines() if " => /" in line]
    return [path for path in paths if not path.name.startswith("libc.")]


def _found(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not installed: python -m demo packages")
    return Path(path)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def k3s(target: Path) -> Path:
    """The stand-in as one executable file."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        package = root / "tests" / "support" / "kubernetes"
        shutil.copytree(HERE / "k3s", package / "k3s", ignore=shutil.ignore_patterns("__pycache__", "*.sh"))
        for name in SHARED:
            shutil.copy2(HERE / name, package / name)
        for parent in (root / "tests", root / "tests" / "support"):
            (parent / "__init__.py").touch()
        main = "import os, sys\nfrom tests.support.kubernetes.k3s.main import main\nname = os.path.basename(sys.argv[0])\n"
        main += "sys.exit(main(sys.argv[1:] if name == 'k3s' else [name, *sys.argv[1:]]))\n"
        (root / "__main__.py").write_text(main)
        zipapp.create_archive(root, target, interpreter="/usr/bin/python3 -I", compressed=True)
    target.chmod(0o755)
    return target


def install_script() -> Path:
    return HERE / "k3s" / "install.sh"


def image_archive(target: Path, go: str, *, pause: bool = True) -> Path:
    """The images that a node needs without a registry, in an archive as `docker save` makes it.

    They have the one file `/main`: a server for the tests' own pods, and the `pause` image of every pod.
    """
    layer = _layer(CONTAINER.path(go))
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/main"], "Cmd": ["pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    tags = [SERVER_IMAGE, *([f"docker.io/{PAUSE_IMAGE}"] if pause else [])]
    manifest = [{"Config": "config.json", "RepoTags": tags, "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return target


def device_plugin_archive(target: Path, go: str) -> str:
    """The image of a device plugin that offers one GPU, in an archive as `ctr images export` makes it. Its name."""
    layer = _layer(CONTAINER.path(go))
    layer_digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/main", "device-plugin", "nvidia.com/gpu", "GPU-0"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    blobs = [json.dumps(config).encode(), layer]
    described = [
        _descriptor(blob, f"application/vnd.oci.image.{kind}")
        for blob, kind in zip(blobs, _KINDS, strict=True)
    ]
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described[0], "layers": described[1:]}
    blobs.append(json.dumps(manifest).encode())
    top = _descriptor(blobs[-1], _MANIFEST)
    image = f"registry.invalid/device-plugin@{top['digest']}"
    index = {"schemaVersion": 2, "manifests": [top | {"annotations": {"io.containerd.image.name": image}}]}
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for blob in blobs:
            _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    return image


_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_KINDS = ("config.v1+json", "layer.v1.tar")


def _descriptor(blob: bytes, media_type: str) -> dict[str, Any]:
    return {
        "mediaType": media_type,
        "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}",
        "size": len(blob),
    }


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add(layer, "main", program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
