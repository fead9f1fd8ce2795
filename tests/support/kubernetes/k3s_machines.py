"""K3s on local machines, installed as the product installs it: a binary, images and the install script, and no download.

With `K3S_BINARY`, `K3S_IMAGES` and `K3S_INSTALL` in the environment it is the real one.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

import asyncssh

from tests.support.kubernetes import parts
from tests.support.kubernetes.toolchain import expected_version
from tests.support.machines import Machine

CGROUP_V1 = "fail-cgroupv1=false"
"""What a kubelet needs on a host that has control groups of version 1, as local machines may."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    binary: Path
    images: Path
    script: Path


def artifacts(folder: Path) -> Artifacts:
    """The stand-in, made in `folder`, or the real K3s that the environment names."""
    real = os.environ.get("K3S_BINARY")
    if real:
        return Artifacts(Path(real), Path(os.environ["K3S_IMAGES"]), Path(os.environ["K3S_INSTALL"]))
    made = parts.image_archive(folder / "images.tar", expected_version())
    return Artifacts(parts.k3s(folder / "k3s"), made, parts.install_script())


def operators_files(folder: Path) -> Path:
    """A folder with the files of a release, as an operator makes it (`docs/clusters.md`)."""
    k3s = artifacts(folder)
    named = {"k3s": k3s.binary, "install.sh": k3s.script, "k3s-airgap-images-amd64.tar": k3s.images}
    for name, source in named.items():
        if source != folder / name:
            copyfile(source, folder / name)
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in named]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    return folder


async def place(machine: Machine, k3s: Artifacts) -> None:
    """Put the artifacts where the install script and the agent look for them."""
    async with machine.connected() as connection:
        for source, name in ((k3s.binary, "k3s"), (k3s.images, k3s.images.name), (k3s.script, "install.sh")):
            await asyncssh.scp(str(source), (connection, f"/tmp/{name}"))
    folder = "/var/lib/rancher/k3s/agent/images"
    await machine.sh(
        f"sudo install -m 755 /tmp/k3s /usr/local/bin/k3s && sudo mkdir -p {folder}"
        f" && sudo cp /tmp/{k3s.images.name} {folder}/"
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
