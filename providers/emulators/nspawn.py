"""Machines that really boot: systemd-nspawn containers with their own init, sshd, network and TUN device.

A machine gets from outside what a cloud would give it: user data, meta data and network
configuration as a NoCloud seed, an address on a bridge, and GPUs, here as the file that the
emulated NVML reads. Its disk is the shared image under an overlay in memory.

Every machine ends with the process that booted it: the kernel kills systemd-nspawn when its parent
ends (PR_SET_PDEATHSIG, set by setpriv), and the machine ends with systemd-nspawn. The kernel watches
the parent's *thread*, so the event loop must run in a thread that lives as long as the machines.
"""

import asyncio
import json
import os
import shutil
import signal
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from providers.emulators import host_resources
from providers.emulators.host import HostedMachine, HostedState, MachineSpec
from providers.emulators.host_resources import HostResourceError, Slot
from providers.emulators.node_support import ENVIRONMENT, NodeSupport

STATE = Path("/run/splitplane")
DRIVER_VERSION = "570.124.06"
SSH_PORT = 22
PROBE_SECONDS = 0.1
POWER_OFF_SECONDS = 3.0
CONSOLE_BYTES_MAX = 256 * 1024
ADDRESSES_FROM = 10
"""Lower addresses are reserved for the host, such as the gateway at .1 and a hub beside it."""

PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "wg": "wireguard-tools",
    "wireguard-go": "wireguard-go",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

ENTER_GROUPS = 'for group in $1; do echo $$ > "$group/cgroup.procs"; done; shift; exec "$@"'
"""A shell moves itself into the machine's control groups before it becomes nspawn."""


def missing_requirements() -> list[str]:
    """What this host lacks to boot machines, one line each; the command that installs packages comes last."""
    missing = {package for tool, package in PACKAGES.items() if shutil.which(tool) is None}
    if not KEYRING.exists():
        missing.add("debian-archive-keyring")
    sentences = []
    if os.geteuid() != 0:
        sentences.append("this process is not root: machines need network interfaces and mounts")
    if not Path("/dev/net/tun").exists():
        sentences.append("there is no /dev/net/tun: the mesh needs a TUN device")
    if missing:
        sentences.append(f"packages are missing: {', '.join(sorted(missing))}")
        sentences.append(f"apt-get install --yes {' '.join(sorted(missing))}")
    return sentences


@dataclass
class _Machine:
    spec: MachineSpec
    folder: Path
    address: str
    state: HostedState = HostedState.BOOTING
    why: str | None = None
    process: asyncio.subprocess.Process | None = None
    life: asyncio.Task[None] | None = None
    end: asyncio.Task[None] | None = None

    def hosted(self) -> HostedMachine:
        address = self.address if self.state is HostedState.RUNNING else None
        return HostedMachine(self.spec.name, self.state, address=address, ssh_port=SSH_PORT, why=self.why)


@dataclass
class NspawnHost:
    """A MachineHost over systemd-nspawn. Create one with `await NspawnHost.open(root)`."""

    root: Path
    slot: Slot
    subnet: IPv4Network
    boot_seconds_max: float
    nodes: NodeSupport | None = None
    """What every machine gets so that it can become a node of Kubernetes."""
    router: IPv4Address | None = None
    """Through which machines reach everything outside of the subnet; without one, they reach nothing there."""
    _machines: dict[str, _Machine] = field(default_factory=dict[str, _Machine])
    _booted: int = 0

    @classmethod
    async def open(
        cls,
        root: Path,
        *,
        state: Path = STATE,
        boot_seconds_max: float = 60.0,
        nodes: NodeSupport | None = None,
    ) -> "NspawnHost":
        """Claim a slot, remove what dead processes left, and create the bridge. Raises HostResourceError.

        `root` is the image (`image.ensure_image`); `state` is a folder for short-lived files.
        """
        slot = await asyncio.to_thread(host_resources.claim_slot, state)
        try:
            subnet = await asyncio.to_thread(host_resources.make_bridge, slot)
        except BaseException:
            await asyncio.to_thread(host_resources.remove_bridge, slot)
            slot.release()
            raise
        return cls(root=root, slot=slot, subnet=subnet, boot_seconds_max=boot_seconds_max, nodes=nodes)

    @property
    def bridge(self) -> str:
        return self.slot.bridge

    @property
    def gateway(self) -> str:
        """The host's address on the bridge, at which machines reach services of the host."""
        return str(self.subnet[1])

    async def boot(self, spec: MachineSpec) -> None:
        if spec.name in self._machines:
            raise ValueError(f"a machine named {spec.name} exists")
        self._booted += 1
        folder = self.slot.folder / self.slot.machine(self._booted)
        machine = _Machine(spec, folder, self._free_address())
        self._machines[spec.name] = machine
        machine.life = asyncio.create_task(self._live(machine))

    def machines(self) -> dict[str, HostedMachine]:
        return {name: machine.hosted() for name, machine in self._machines.items()}

    async def destroy(self, name: str) -> None:
        machine = self._machines.get(name)
        if machine is None:
            return
        if machine.end is None or machine.end.done():  # An earlier attempt failed, so try again.
            machine.end = asyncio.create_task(self._end(machine))
        await asyncio.shield(machine.end)  # A cancelled caller must not leave half a machine behind.

    async def script_gpu(self, name: str, step: dict[str, object]) -> None:
        """Have a step happen to a machine's emulated cards. Raises KeyError for an unknown machine."""
        await asyncio.to_thread(_add_step, self._machines[name].folder / "nvml.json", step)

    async def close(self) -> None:
        await asyncio.gather(*(self.destroy(name) for name in list(self._machines)))
        await asyncio.to_thread(host_resources.remove_bridge, self.slot)
        self.slot.release()

    def console(self, name: str) -> str:
        machine = self._machines.get(name)
        return _console(machine.folder) if machine else ""

    def _free_address(self) -> str:
        """The address unused for longest: a reused address makes an ended machine look alive to its clients."""
        used = {machine.address for machine in self._machines.values()}
        places = self.subnet.num_addresses - 1 - ADDRESSES_FROM
        for step in range(places):
            address = str(self.subnet[ADDRESSES_FROM + (self._booted - 1 + step) % places])
            if address not in used:
                return address
        raise HostResourceError(f"all {places} addresses of {self.subnet} are in use")

    async def _live(self, machine: _Machine) -> None:
        """Boot a machine and watch it until its process ends."""
        try:
            _write_seed(machine, self.subnet.prefixlen, self.router)
            machine.process = await self._spawn(machine)
        except OSError as error:
            machine.state, machine.why = HostedState.FAILED, f"could not start: {error}"
            return
        ended = asyncio.create_task(machine.process.wait())
        reached = asyncio.create_task(_reachable(machine.address))
        try:
            await asyncio.wait(
                {ended, reached}, timeout=self.boot_seconds_max, return_when=asyncio.FIRST_COMPLETED
            )
            if reached.done():
                machine.state = HostedState.RUNNING
            elif not ended.done():
                machine.state = HostedState.FAILED
                machine.why = f"not reachable within {self.boot_seconds_max:.0f} s"
            status = await ended
            machine.state = HostedState.FAILED
            machine.why = f"powered off with status {status}: {_last_line(machine.folder)}"
        finally:
            ended.cancel()
            reached.cancel()

    async def _spawn(self, machine: _Machine) -> asyncio.subprocess.Process:
        groups = host_resources.make_control_groups(machine.folder, cpusets=self.nodes is not None)
        options = self.nodes.options(machine.folder) if self.nodes else []
        with (machine.folder / "console.log").open("wb") as console:
            return await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL"),
                *("sh", "-c", ENTER_GROUPS, "sh", " ".join(map(str, groups))),
                *(("env", *ENVIRONMENT) if self.nodes else ()),
                *_nspawn(machine, self.root, self.slot.bridge),
                *options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=asyncio.subprocess.STDOUT,
            )

    async def _end(self, machine: _Machine) -> None:
        if machine.life is not None:
            machine.life.cancel()
            await asyncio.wait({machine.life})
        if machine.process is not None:
            await _power_off(machine.process)
        await asyncio.to_thread(host_resources.clear_machine, machine.folder)
        del self._machines[machine.spec.name]


def _nspawn(machine: _Machine, root: Path, bridge: str) -> list[str]:
    folder = machine.folder
    return [
        *("systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay", "--boot"),
        *(f"--machine={folder.name}", f"--uuid={uuid5(NAMESPACE_URL, machine.spec.name)}"),
        *("--register=no", "--keep-unit"),  # This host may run without systemd.
        "--kill-signal=SIGKILL",  # On SIGTERM systemd-nspawn kills the machine at once and then cleans up.
        f"--network-bridge={bridge}",
        *("--capability=CAP_NET_ADMIN", "--bind=/dev/net/tun"),  # wireguard-go needs both.
        f"--bind-ro={folder}/seed:/var/lib/cloud/seed/nocloud-net",
        f"--bind-ro={folder}/nvml.json:/etc/emulated-nvml.json",
    ]


def _write_seed(machine: _Machine, prefix: int, router: IPv4Address | None) -> None:
    """Write what the machine gets from outside. Only root may read it: user data may hold a private host key."""
    machine.folder.mkdir(mode=0o700)
    seed = machine.folder / "seed"
    seed.mkdir(mode=0o700)
    name = machine.spec.name
    host0: dict[str, object] = {"addresses": [f"{machine.address}/{prefix}"]}
    if router is not None:
        host0["routes"] = [{"to": "0.0.0.0/0", "via": str(router)}]
    network = {"version": 2, "ethernets": {"host0": host0}}
    (seed / "user-data").write_text(machine.spec.user_data)
    # JSON is valid YAML, and json.dumps quotes it.
    (seed / "meta-data").write_text(json.dumps({"instance-id": name, "local-hostname": name}))
    (seed / "network-config").write_text(json.dumps(network))
    (machine.folder / "nvml.json").write_text(json.dumps(_hardware(machine.spec)))


def _hardware(spec: MachineSpec) -> dict[str, object]:
    """The machine's cards as the emulated NVML shows them. A machine's name determines its cards' UUIDs."""
    gpus = [
        {
            "index": index,
            "name": gpu.name,
            "uuid": f"GPU-{uuid5(NAMESPACE_URL, f'{spec.name}/{index}')}",
            "memory_total_mib": gpu.memory_mib,
        }
        for index, gpu in enumerate(spec.gpus)
    ]
    return {"driver_version": DRIVER_VERSION, "gpus": gpus}


def _add_step(path: Path, step: dict[str, object]) -> None:
    """Add a step to the script of the cards. In place, because a file that is bound into a machine stays the same."""
    described = json.loads(path.read_bytes())
    described["script"] = [*described.get("script", []), step]
    path.write_text(json.dumps(described))


async def _reachable(address: str) -> None:
    """Return when a connection is accepted or refused: either shows that the machine has its address."""
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, SSH_PORT), timeout=1.0)
        except ConnectionRefusedError:
            return
        except (OSError, TimeoutError):
            await asyncio.sleep(PROBE_SECONDS)
        else:
            writer.close()
            return


async def _power_off(process: asyncio.subprocess.Process) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), timeout=POWER_OFF_SECONDS)
        except TimeoutError:
            continue  # While it starts, systemd-nspawn reacts only to the second signal.


def _console(folder: Path) -> str:
    """The end of what a machine has printed: a machine may print as much as it likes."""
    try:
        with (folder / "console.log").open("rb") as opened:
            opened.seek(-min(CONSOLE_BYTES_MAX, opened.seek(0, os.SEEK_END)), os.SEEK_END)
            return opened.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _last_line(folder: Path) -> str:
    lines = _console(folder).strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
