"""The addresses of the pods on this machine, if it is a node of a cluster.

CNI's plugin `host-local` keeps a file for each address that it has given to a pod, in a folder that everybody may list
(plugins/ipam/host-local/backend/disk). On K3s the network is called `cbr0` (pkg/agent/flannel/setup.go).
"""

import ipaddress
from pathlib import Path

FOLDER = Path("/var/lib/cni/networks/cbr0")
PODS_MAX = 110
"""What a kubelet runs at most, unless it is told otherwise."""


def addresses(folder: Path = FOLDER) -> "tuple[str, ...]":
    """In their order. None where no pod has one, or where this is no node."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return ()
    found: list[ipaddress.IPv4Address] = []
    for name in names:
        try:
            found.append(ipaddress.IPv4Address(name))
        except ValueError:  # The plugin's own files, such as its lock.
            continue
    return tuple(map(str, sorted(found)[:PODS_MAX]))
