"""The server of a cluster on a host over SSH: built from the operator's files, built again, and dismantled."""

import asyncio
import hashlib
import http.client
import ssl
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

import pytest
import pytest_asyncio
import yaml

from control_plane.domain.overlay import PODS, SERVICES, address_of, range_of
from data_plane.access.authority import new_authority
from data_plane.access.port import Access, StepFailed
from data_plane.access.ssh import new_host_key
from data_plane.cluster import files, k3s_files
from data_plane.cluster.k3s_files import K3sFile
from data_plane.cluster.servers import ServerOrder
from data_plane.cluster.ssh_servers import SshServers
from data_plane.mesh.port import OverlayPlace
from providers.emulators.host import MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost
from tests.support.certificates import our_access
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_machines import operators_files
from tests.support.kubernetes.tier import NODES
from tests.support.kubernetes.toolchain import expected_version
from tests.support.machines import IMAGES, Machine, boot_order, ready

pytestmark = NODES
NAME = "sp-server-host"
LEFT = (
    "sudo sh -c 'ls -d /etc/rancher /usr/local/bin/k3s /etc/wireguard/spoverlay* /var/lib/splitplane/files;"
    " ls -A /var/lib/rancher; pgrep -a k3s; pgrep -a etcd' 2>/dev/null || true"
)
"""What a server would leave: files, processes, the overlay's interface."""


@dataclass
class ServerHost:
    machine: Machine
    access: Access
    folder: Path
    """The operator's files."""

    @property
    def servers(self) -> SshServers:
        return SshServers(self.access, k3s_files.read(self.folder))

    @property
    def order(self) -> ServerOrder:
        target = self.machine.target
        place = OverlayPlace(address_of(5, 1), str(range_of(5)), str(PODS))
        return ServerOrder(target, target.address, place, str(SERVICES), "a-credential-of-servers")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHost]:
    support = NodeSupport(parts.parts(expected_version()))
    nspawn = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print), nodes=support)
    try:
        authority, key = new_authority(), new_host_key()
        access = our_access(authority)
        await nspawn.boot(MachineSpec(NAME, boot_order(key, [authority], NAME), ()))
        target = await ready(nspawn, access, NAME, key)
        folder = await asyncio.to_thread(operators_files, tmp_path_factory.mktemp("release"))
        yield ServerHost(Machine(target, authority), access, folder)
    finally:
        await nspawn.close()


async def test_a_server_is_built_from_the_operators_files_answers_outside_and_leaves_nothing(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 3 * 1024 * 1024)
    identity = await host.servers.install(host.order)
    assert identity.version.startswith("v1.")
    assert identity.endpoint == f"https://{host.machine.target.address}:6443"
    assert "a-credential-of-servers" not in repr(identity) + repr(host.order)
    assert yaml.safe_load(identity.admin_kubeconfig)["users"][0]["user"]["client-key-data"] not in repr(
        identity
    )
    await asyncio.to_thread(_answers, identity.endpoint, identity.ca_pem, identity.admin_kubeconfig)
    started = "systemctl show k3s --property=ExecMainStartTimestampMonotonic"
    before = await host.machine.sh(started)
    assert await host.servers.install(host.order) == identity
    assert await host.machine.sh(started) == before, "what is done is left as it is"
    address = await host.machine.sh("ip -4 -o address show dev spoverlay")
    assert address_of(5, 1) in address
    await host.servers.dismantle(host.order.host)
    assert (await host.machine.sh(LEFT)).strip() == ""
    await host.servers.dismantle(host.order.host)


def _answers(endpoint: str, ca_pem: str, kubeconfig: str) -> None:
    """The API server admits the administrator, and shows a certificate of its authority for the address outside."""
    user = yaml.safe_load(kubeconfig)["users"][0]["user"]
    context = ssl.create_default_context(cadata=ca_pem)
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    address, _, port = endpoint.removeprefix("https://").rpartition(":")
    connection = http.client.HTTPSConnection(address, int(port), timeout=10, context=context)
    connection.request("GET", "/api/v1/namespaces/kube-system")
    assert connection.getresponse().status == 200


async def test_a_file_that_arrives_in_part_is_continued_and_a_damaged_one_is_refused(
    host: ServerHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 1_000)
    content = bytes(range(256)) * 10
    path = tmp_path / "a file"
    path.write_bytes(content)
    whole = K3sFile(path, hashlib.sha256(content).hexdigest(), len(content))
    async with host.access.connect(host.machine.target) as session:
        await host.machine.sh(f"sudo mkdir -p {files.FOLDER}")
        half = f"sudo tee {files.FOLDER}/{whole.sha256}.part"
        await host.machine.sh(f"printf '' | {half}")
        await files.send(session, whole)
        await files.send(session, whole)
        kept = await host.machine.sh(f"sudo sha256sum {files.FOLDER}/{whole.sha256}")
        assert kept.startswith(whole.sha256)
        other = K3sFile(path, "0" * 64, len(content))
        with pytest.raises(StepFailed, match="another digest"):
            await files.send(session, other)
        assert "0000" not in await host.machine.sh(f"sudo ls {files.FOLDER}")


def test_files_that_are_missing_unnamed_or_damaged_are_refused_with_what_to_do(
    host: ServerHost, tmp_path: Path
) -> None:
    for name in ("k3s", "install.sh", "SHA256SUMS"):
        copyfile(host.folder / name, tmp_path / name)
    assert k3s_files.read(tmp_path).images == ()
    (tmp_path / "k3s").write_bytes(b"another one")
    with pytest.raises(k3s_files.K3sFilesError, match="another digest"):
        k3s_files.read(tmp_path)
    (tmp_path / "k3s-airgap-images-arm64.tar").write_bytes(b"")
    copyfile(host.folder / "k3s", tmp_path / "k3s")
    with pytest.raises(k3s_files.K3sFilesError, match=r"does not name k3s-airgap-images-arm64\.tar"):
        k3s_files.read(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(k3s_files.K3sFilesError, match="make it with: sha256sum"):
        k3s_files.read(tmp_path)
