"""What a local machine gets on top when it is to run containers of its own, as a node of Kubernetes does.

A cloud's machine has a kernel to itself; a local one shares the host's. Whatever a kubelet insists on and the host must
not change is therefore given to the machine alone: control groups that it may divide, kernel settings that are files of
its own, a store that containers' file systems can be mounted on.
"""

from dataclasses import dataclass
from pathlib import Path

PARTS = "/opt/kubernetes-parts"
"""Where the machine finds the programs of `NodeSupport.parts`."""
SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/netfilter/nf_conntrack_max",
)
"""What kubelets, kube-proxy and hardening guides set below /proc/sys. The machine writes to copies; the host stays as
it is. The last one can be written in the host's own network alone, and a kube-proxy that cannot set it may end
(kubernetes/kubernetes issue 141943)."""
ENVIRONMENT = ("SYSTEMD_NSPAWN_API_VFS_WRITABLE=network",)
"""For systemd-nspawn. Pods need forwarding, which is a setting of the machine's own network."""

SCRIPT = f"""\
#!/bin/sh
set -e
for group in /sys/fs/cgroup/*/; do
    mount -o remount,bind,rw "$group" 2> /dev/null || true
done
for name in {" ".join(SETTINGS)}; do
    [ -e "/proc/sys/$name" ] || continue
    copy="/run/kernel-settings/$name"
    mkdir -p "$(dirname "$copy")"
    cat "/proc/sys/$name" > "$copy"
    mount --bind "$copy" "/proc/sys/$name"
done
mount --make-rshared /
[ -e /etc/hosts ] || echo "127.0.0.1 localhost" > /etc/hosts # containerd copies it into pods.
"""
UNIT = """\
[Unit]
Description=Makes this machine able to run containers
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/libexec/node-support
"""
WANTED = "[Unit]\nWants=node-support.service\n"


@dataclass(frozen=True, slots=True)
class NodeSupport:
    parts: Path | None = None
    """A folder of programs that the machine sees, read-only."""

    def options(self, folder: Path) -> list[str]:
        """Options of systemd-nspawn for a machine whose files lie in `folder`; writes them there."""
        script, unit, wanted = (
            folder / "node-support",
            folder / "node-support.service",
            folder / "wanted.conf",
        )
        script.write_text(SCRIPT)
        script.chmod(0o755)
        unit.write_text(UNIT)
        wanted.write_text(WANTED)
        return [
            "--capability=CAP_SYSLOG",  # With /dev/kmsg, for the kubelet's watch for processes killed for memory.
            "--bind=/dev/kmsg",
            "--system-call-filter=@keyring",  # runc gives each container a keyring.
            "--tmpfs=/var/lib/rancher:mode=0755",  # An overlay cannot lie on the overlay that is the machine's disk.
            f"--bind-ro={script}:/usr/local/libexec/node-support",
            f"--bind-ro={unit}:/etc/systemd/system/node-support.service",
            f"--bind-ro={wanted}:/etc/systemd/system/sysinit.target.d/node-support.conf",
            *([f"--bind-ro={self.parts}:{PARTS}"] if self.parts is not None else []),
        ]
