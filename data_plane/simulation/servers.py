"""Simulated K3s servers, for development without root, and for scenario tests."""

import base64
import json
from dataclasses import dataclass, field

from data_plane.access.port import AccessError, StepFailed, Target
from data_plane.cluster.servers import ServerIdentity, ServerOrder

VERSION = "v1.36.3+simulated"
_PEM = base64.b64encode(b"simulated").decode()
_USER = {"client-certificate-data": _PEM, "client-key-data": _PEM}
_ADMIN = json.dumps({"users": [{"name": "default", "user": _USER}]})


@dataclass
class FakeServers:
    """Remembers which hosts run a server. Each call raises the first entry of `fail_next`, if any, and does nothing."""

    running: dict[str, ServerOrder] = field(default_factory=dict[str, ServerOrder])
    """The servers by the addresses of their hosts."""
    fences: dict[str, int] = field(default_factory=dict[str, int])
    """The highest fence that was seen at each host."""
    fail_next: list[AccessError] = field(default_factory=list[AccessError])

    async def install(self, order: ServerOrder) -> ServerIdentity:
        self._call(order.host, order.fence)
        self.running[order.host.address] = order
        return ServerIdentity(
            version=VERSION,
            endpoint=f"https://{order.outside}:6443",
            ca_pem="-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n",
            admin_kubeconfig=_ADMIN,
        )

    async def dismantle(self, host: Target, *, fence: int) -> None:
        self._call(host, fence)
        self.running.pop(host.address, None)

    def _call(self, host: Target, fence: int) -> None:
        if self.fail_next:
            raise self.fail_next.pop(0)
        if fence < self.fences.get(host.address, 0):
            raise StepFailed("take host", None, "a later worker has changed this host")
        self.fences[host.address] = fence
