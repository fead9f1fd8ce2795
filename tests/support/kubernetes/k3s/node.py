"""The parts of a node: containerd, the images that lie ready, the kubelet, and what enforces network policies."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes.credentials import kubeconfig
from tests.support.kubernetes.k3s.api import ApiError, Client
from tests.support.kubernetes.k3s.layout import AUXILIARY, PARTS, RUN, Layout
from tests.support.kubernetes.k3s.options import Options
from tests.support.kubernetes.k3s.processes import PartEndedError, Parts, say, write_private
from tests.support.kubernetes.pki import Pair

PAUSE_IMAGE = "rancher/mirrored-pause:3.6"
CONTAINERD = """\
version = 2
root = "{data}"
state = "{run}/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{data}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_cgroup = false
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{parts}/runc"
        SystemdCgroup = false
{more}  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{parts}/cni"
    conf_dir = "{cni}"
"""
# K3s looks for this program when it starts (https://docs.k3s.io/advanced, "Alternative Container Runtime Support").
NVIDIA = """\
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "{program}"
        SystemdCgroup = false
"""
NVIDIA_PROGRAM = "nvidia-container-runtime"
BRIDGED_ARE_FILTERED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    addresses: tuple[str, ...]
    url: str
    options: Options
    layout: Layout
    settings: Mapping[str, object]
    """What the server tells its agents (`/v1-k3s/config`)."""

    def client(self, name: str = "client-kubelet") -> Client:
        agent = self.layout.agent
        authority = (agent / "server-ca.crt").read_bytes()
        return Client(self.url, authority, (agent / f"{name}.crt", agent / f"{name}.key"))

    async def start(self, parts: Parts) -> None:
        """Raises PartEndedError."""
        await self._start_containerd(parts)
        await self._import_images()
        self._write_kubelet_files()
        self._offer_tools()
        await parts.start("kubelet", [str(PARTS / "kubelet"), *self._kubelet_flags()], environment=_path())
        if not self.settings.get("DisableNPC"):
            await self._start_network_policies(parts)

    async def is_registered(self) -> bool:
        try:
            await asyncio.to_thread(self.client().get, f"/api/v1/nodes/{self.name}")
        except ApiError:
            return False
        return True

    def _offer_tools(self) -> None:
        """Where K3s unpacks its own tools, and whoever cleans a node looks for them."""
        self.layout.tools.mkdir(parents=True, exist_ok=True)
        if not (self.layout.tools / AUXILIARY.name).is_symlink():
            (self.layout.tools / AUXILIARY.name).symlink_to(AUXILIARY)

    async def _start_network_policies(self, parts: Parts) -> None:
        """It waits for the Node. Packets between pods of one node pass a bridge, and are to be filtered too."""
        await asyncio.to_thread(BRIDGED_ARE_FILTERED.write_text, "1")
        command = [str(PARTS / "network-policies"), "--node", self.name]
        command += ["--kubeconfig", str(self.layout.agent / "k3scontroller.kubeconfig")]
        command += ["--services", str(self.settings["ServiceIPRange"])]
        await parts.start("network-policies", command, environment=_path())

    async def _start_containerd(self, parts: Parts) -> None:
        layout = self.layout
        nvidia = shutil.which(NVIDIA_PROGRAM, path=_path()["PATH"])
        text = CONTAINERD.format(
            data=layout.containerd,
            run=RUN,
            socket=layout.socket,
            pause=self.options.one("pause-image", PAUSE_IMAGE),
            snapshotter=self.options.one("snapshotter", "overlayfs"),
            parts=PARTS,
            cni=layout.cni,
            more="" if nvidia is None else NVIDIA.format(program=nvidia),
        )
        layout.containerd_config.write_text(text)
        command = [str(PARTS / "containerd"), "--config", str(layout.containerd_config)]
        await parts.start("containerd", command, environment=_path())

        async def answers() -> bool:
            return await _ctr(layout, "version") == 0

        await parts.until("containerd answers", answers)

    async def _import_images(self) -> None:
        for archive in sorted(self.layout.images.glob("*.tar")):
            if await _ctr(self.layout, "-n", "k8s.io", "images", "import", str(archive)) != 0:
                raise PartEndedError(f"the image archive {archive} could not be imported")
            say(f'level=info msg="imported images" file={archive}')

    def _write_kubelet_files(self) -> None:
        agent = self.layout.agent
        for name, file in (
            ("client-kubelet", "kubelet"),
            ("client-kube-proxy", "kubeproxy"),
            ("client-k3s-controller", "k3scontroller"),
        ):
            pair = Pair((agent / f"{name}.crt").read_bytes(), (agent / f"{name}.key").read_bytes())
            text = kubeconfig(self.url, (agent / "server-ca.crt").read_bytes(), pair)
            write_private(agent / f"{file}.kubeconfig", text.encode())
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(agent / "client-ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "clusterDomain": "cluster.local",
            "clusterDNS": ["10.43.0.10"],
            "containerRuntimeEndpoint": f"unix://{self.layout.socket}",
            "failSwapOn": False,
            "resolvConf": self.options.one("resolv-conf", "/etc/resolv.conf"),
            "protectKernelDefaults": self.options.is_on("protect-kernel-defaults"),
            "staticPodPath": str(agent / "pod-manifests"),
            "tlsCertFile": str(agent / "serving-kubelet.crt"),
            "tlsPrivateKeyFile": str(agent / "serving-kubelet.key"),
        }
        (agent / "pod-manifests").mkdir(exist_ok=True)
        (agent / "etc" / "kubelet.conf").write_text(json.dumps(config, indent=1))
        # Without one the kubelet has no names to give to pods; K3s writes its own then, too.
        Path("/etc/resolv.conf").touch()

    def _kubelet_flags(self) -> list[str]:
        agent = self.layout.agent
        settings = {
            "config": agent / "etc" / "kubelet.conf",
            "kubeconfig": agent / "kubelet.kubeconfig",
            "hostname-override": self.name,
            "node-ip": ",".join(self.addresses),
            "node-labels": ",".join(self.options.all("node-label")),
            "register-with-taints": ",".join(self.options.all("node-taint")),
        }
        given = [f"--{argument}" for argument in self.options.each("kubelet-arg")]
        return [*(f"--{name}={value}" for name, value in settings.items() if value), *given]


def _path() -> dict[str, str]:
    return {"PATH": f"{PARTS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{AUXILIARY}"}


async def _ctr(layout: Layout, *arguments: str) -> int:
    done = await asyncio.create_subprocess_exec(
        *(str(PARTS / "ctr"), "--address", str(layout.socket), "--timeout", "60s", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await done.wait()
