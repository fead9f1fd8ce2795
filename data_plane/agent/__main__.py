"""The agent's command line: `python3 agent.pyz inventory` prints one JSON document and ends.

Exit status 0 with an inventory, 3 with a failure document, 2 for a wrong command line. It holds no
secret, opens no socket, writes no file and needs no root.
"""

import sys
from pathlib import Path

from data_plane.agent import emulated, nvml
from data_plane.inventory import Inventory
from data_plane.protocol import VERSION, Failure, encode


def inventory(emulation: Path) -> "Inventory | Failure":
    """What NVML says; without the library, what the emulation file says."""
    try:
        return nvml.read()
    except nvml.NoLibrary:
        return emulated.read(emulation) or Failure("no_gpu_library", "libnvidia-ml.so.1 cannot be loaded")


def main(arguments: "list[str]", emulation: Path = emulated.PATH) -> int:
    if arguments == ["version"]:
        sys.stdout.write(f"{VERSION}\n")
        return 0
    if arguments != ["inventory"]:
        sys.stderr.write("usage: agent.pyz inventory | version\n")
        return 2
    message = inventory(emulation)
    sys.stdout.write(encode(message) + "\n")
    return 0 if isinstance(message, Inventory) else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
