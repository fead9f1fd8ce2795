"""The server of a cluster on a host over SSH: built from the operator's files, built again, and dismantled."""

import asyncio
import dataclasses
import hashlib
import http.client
import ssl
import tempfile
from base64 import b64decode
from pathlib import Path
from shutil import copyfile

import pytest
import yaml

from control_plane.db import clusters
from control_plane.domain.cluster import server_name
from control_plane.domain.overlay import PODS, SERVER_NUMBER, SERVICES, address_of, range_of
from data_plane.access.port import StepFailed
from data_plane.cluster import files, k3s_files, ssh_servers
from data_plane.cluster.k3s_files import K3sFile
from data_plane.cluster.resource import NODE
from data_plane.cluster.servers import ServerOrder
from data_plane.mesh.port import OverlayPlace
from reconciler import cluster_secrets
from tests.support.kubernetes.node_cloud import CLUSTER, NodeCloud
from tests.support.kubernetes.tier import NODES

pytestmark = NODES
LEFT = (
    "sudo sh -c 'ls -d /etc/rancher /usr/local/bin/k3s /etc/wireguard/spoverlay* /var/lib/splitplane/files;"
    " ls -A /var/lib/rancher; pgrep -a k3s; pgrep -a etcd' 2>/dev/null || true"
)
"""What a server would leave: files, processes, the overlay's interface."""


@pytest.fixture
async def host(cloud: NodeCloud) -> NodeCloud:
    """The cloud, whose cluster is built and whose loops stand still."""
    cloud.start()
    await cloud.until("the cluster is built", cloud.is_built)
    await cloud.stop()
    return cloud


async def _order(cloud: NodeCloud) -> ServerOrder:
    """What the cluster's server was built as."""
    cluster = await cloud.cluster()
    async with cloud.world.db.reading() as connection:
        stored = (await clusters.secrets_of(connection, cluster.id)).token_secret_id
    assert stored is not None
    credential = await cluster_secrets.opened(cloud.world, stored)
    overlay = cluster.overlay
    place = OverlayPlace(address_of(overlay, SERVER_NUMBER), str(range_of(overlay)), str(PODS))
    target = cloud.server.target
    name, fence = server_name(cluster.id), int(cloud.clock.now().timestamp() * 1000)
    return ServerOrder(target, target.address, place, name, str(SERVICES), credential, fence)


async def test_a_server_that_is_built_answers_outside_and_is_left_as_it_is_when_it_is_built_again(
    host: NodeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 3 * 1024 * 1024)
    order, cluster = await _order(host), await host.cluster()
    started = "systemctl show k3s --property=ExecMainStartTimestampMonotonic"
    before = await host.server.sh(started)
    identity = await host.world.servers.install(order)
    assert await host.server.sh(started) == before, "what is done is left as it is"
    assert (identity.endpoint, identity.ca_pem) == (cluster.endpoint, cluster.ca_pem)
    assert identity.version == cluster.version
    assert identity.version.startswith("v1.")
    assert identity.endpoint == f"https://{host.server.target.address}:6443"
    assert order.token not in repr(identity) + repr(order)
    key = yaml.safe_load(identity.admin_kubeconfig)["users"][0]["user"]["client-key-data"]
    assert key not in repr(identity)
    await asyncio.to_thread(_answers, identity.endpoint, identity.ca_pem, identity.admin_kubeconfig)
    address = await host.server.sh("ip -4 -o address show dev spoverlay")
    assert order.place.address in address
    # A worker whose process is gone leaves a step running at the host, and the next worker comes meanwhile.
    later = [dataclasses.replace(order, fence=order.fence + more) for more in (1, 2)]
    first, second = await asyncio.gather(*map(host.world.servers.install, later), return_exceptions=True)
    assert second == identity
    assert first == identity or "a later worker has changed this host" in str(first)
    assert await host.server.sh(started) == before


async def test_a_server_is_not_ready_before_its_own_node_has_registered_because_our_rules_would_refuse_it(
    host: NodeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await _order(host)
    async with host.kubernetes() as port:
        name = (await host.server.sh("hostname")).strip()
        node = await port.get(NODE, name)
        await port.delete(NODE, name)
        try:
            monkeypatch.setattr(ssh_servers, "NODE_REGISTERS_SECONDS", 1)
            with pytest.raises(StepFailed, match="has not registered its own Node"):
                await host.world.servers.install(order)
        finally:
            kept = {key: node["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
            await port.apply({**node, "metadata": kept})
    await host.world.servers.install(order)


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
    host: NodeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 1_000)
    content = bytes(range(256)) * 10
    path = tmp_path / "a file"
    path.write_bytes(content)
    whole = K3sFile(path, hashlib.sha256(content).hexdigest(), len(content))
    async with host.world.access.connect(host.server.target) as session:
        await host.server.sh(f"sudo mkdir -p {files.FOLDER}")
        half = f"sudo tee {files.FOLDER}/{whole.sha256}.part"
        await host.server.sh(f"printf '' | {half}")
        await files.send(session, [whole])
        await files.send(session, [whole])
        kept = await host.server.sh(f"sudo sha256sum {files.FOLDER}/{whole.sha256}")
        assert kept.startswith(whole.sha256)
        other = K3sFile(path, "0" * 64, len(content))
        with pytest.raises(StepFailed, match="another digest"):
            await files.send(session, [other])
        assert "0000" not in await host.server.sh(f"sudo ls {files.FOLDER}")


def test_files_that_are_missing_unnamed_or_damaged_are_refused_with_what_to_do(
    host: NodeCloud, tmp_path: Path
) -> None:
    (images, *_) = [path.name for path in sorted(host.release.glob("k3s-airgap-images-*"))]
    for name in ("k3s", "install.sh", "SHA256SUMS", images):
        copyfile(host.release / name, tmp_path / name)
    assert [file.name for file in k3s_files.read(tmp_path).images] == [images]
    (tmp_path / "k3s").write_bytes(b"another one")
    with pytest.raises(k3s_files.K3sFilesError, match="another digest"):
        k3s_files.read(tmp_path)
    (tmp_path / "k3s-airgap-images-arm64.tar").write_bytes(b"")
    copyfile(host.release / "k3s", tmp_path / "k3s")
    with pytest.raises(k3s_files.K3sFilesError, match=r"does not name k3s-airgap-images-arm64\.tar"):
        k3s_files.read(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(k3s_files.K3sFilesError, match="make it with: sha256sum"):
        k3s_files.read(tmp_path)


async def test_a_cluster_that_is_deleted_leaves_nothing_on_its_host(host: NodeCloud) -> None:
    """The last of this folder, because the others need the cluster."""
    late = await _order(host)
    host.start()
    await host.post(f"/operator/clusters/{CLUSTER}/deletion", operator=True)

    async def is_gone() -> bool:
        return await host.find_cluster() is None

    await host.until("the cluster is gone", is_gone)
    await host.stop()
    assert (await host.server.sh(LEFT)).strip() == ""
    fence = int(host.clock.now().timestamp() * 1000)
    await host.world.servers.dismantle(host.server.target, fence=fence)
    with pytest.raises(StepFailed, match="a later worker has changed this host"):
        await host.world.servers.dismantle(host.server.target, fence=fence - 1)
    with pytest.raises(StepFailed, match="a later worker has changed this host"):
        await host.world.servers.install(dataclasses.replace(late, fence=fence - 1))
    assert (await host.server.sh(LEFT)).strip() == "", "a worker that was late left nothing"
