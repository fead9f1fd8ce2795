"""The addresses of the pods on this machine, if it is a node of a cluster.

CNI's plugin `host-local` keeps a file for each address that it has given to a pod (containernetworking/plugins,
plugins/ipam/host-local/backend/disk).
"""

import ipaddress
from pathlib import Path

from data_plane.documents.agent_config import POD_ADDRESSES

PODS_MAX = 110
"""What a kubelet runs at most, unless it is told otherwise."""


def addresses(folder: Path = Path(POD_ADDRESSES)) -> "tuple[str, ...]":
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
