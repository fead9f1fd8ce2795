"""Free ports for servers that are started here, and started again."""

import errno
import secrets
import socket
from contextlib import ExitStack

FIRST, COUNT = 12_000, 18_000
"""Below those that Linux gives to connections by default (net.ipv4.ip_local_port_range: 32768 to 60999), so that no
connection takes the port of a server which is away for a moment. Those of Kubernetes' services, 30000 to 32767, lie
between.
"""


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that are free now, all different. Raises OSError for a host that is not this one."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            port = FIRST + secrets.randbelow(COUNT)
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
    return found
