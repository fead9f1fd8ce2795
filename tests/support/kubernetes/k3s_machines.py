"""K3s on local machines, installed as the product installs it: a binary, images and the install script, and no download.

With `K3S_BINARY`, `K3S_IMAGES` and `K3S_INSTALL` in the environment it is the real one (`k3s_release.py`).
"""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

import asyncssh

from data_plane.cluster.k3s_files import DEVICE_PLUGIN, DEVICE_PLUGIN_ARCHIVE
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_release import Release, release, suffix
from tests.support.machines import Machine

CGROUP_V1 = "fail-cgroupv1=false"
"""What a kubelet needs on a host that has control groups of version 1, as local machines may."""


def operators_files(folder: Path) -> Path:
    """A folder with the files of a release, as an operator makes it (`docs/clusters.md`). Raises K3sReleaseError."""
    k3s = release(folder)
    named = {"k3s": k3s.binary, "install.sh": k3s.script} | image_names(k3s)
    for name, source in named.items():
        if source != folder / name:
            copyfile(source, folder / name)
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in named]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    return folder


def image_names(k3s: Release) -> dict[str, Path]:
    """The archives under names that the product takes and K3s reads."""
    return {f"k3s-airgap-images-{number}{suffix(path)}": path for number, path in enumerate(k3s.images)}


def add_device_plugin(folder: Path) -> None:
    """Add a device plugin that offers one GPU to an operator's files."""
    image = parts.device_plugin_archive(folder / DEVICE_PLUGIN_ARCHIVE, expected_version())
    (folder / DEVICE_PLUGIN).write_text(f"{image}\n")
    with (folder / "SHA256SUMS").open("a") as sums:
        for name in (DEVICE_PLUGIN, DEVICE_PLUGIN_ARCHIVE):
            sums.write(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n")


async def place(machine: Machine, k3s: Release) -> None:
    """Put the files of a release where the install script and the agent look for them."""
    images = image_names(k3s)
    async with machine.connected() as connection:
        for name, source in ({"k3s": k3s.binary, "install.sh": k3s.script} | images).items():
            await asyncssh.scp(str(source), (connection, f"/tmp/{name}"))
    folder = "/var/lib/rancher/k3s/agent/images"
    await machine.sh(
        f"sudo install -m 755 /tmp/k3s /usr/local/bin/k3s && sudo mkdir -p {folder}"
        f" && cd /tmp && sudo cp {' '.join(images)} {folder}/"
    )


async def install(machine: Machine, arguments: str, **environment: str) -> str:
    """Run the install script; what it and the start of the unit print. It may fail."""
    settings = {"INSTALL_K3S_SKIP_DOWNLOAD": "true", "INSTALL_K3S_EXEC": arguments, **environment}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    return await machine.sh(f"sudo env {given} timeout 90 sh /tmp/install.sh 2>&1 || true")


@dataclass(frozen=True, slots=True)
class Server:
    machine: Machine

    @property
    def url(self) -> str:
        return f"https://{self.machine.target.address}:6443"

    async def kubectl(self, arguments: str) -> str:
        return await self.k3s(f"kubectl {arguments}")

    async def k3s(self, arguments: str) -> str:
        """What it prints. Raises AssertionError, which says what it printed on standard error."""
        async with self.machine.connected() as connection:
            done = await connection.run(f"sudo k3s {arguments}")
        assert done.exit_status == 0, f"k3s {arguments}: {done.stderr!s}"
        return str(done.stdout)

    async def apply(self, thing: Mapping[str, object]) -> None:
        await self.kubectl(f"apply -f - <<'END'\n{json.dumps(thing)}\nEND")

    async def token(self, ttl: str) -> str:
        """A bootstrap token in its full form."""
        return (await self.k3s(f"token create --ttl {ttl}")).strip()
