"""An emulated payment provider: it takes payments, gives money back, and tells us by signed events, as often as it likes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

import httpx

from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.payment import signature

PATH = "/payments/events"


@dataclass
class PaymentProvider:
    http: httpx.AsyncClient
    """Of the API, without a key."""
    now: Callable[[], datetime]
    secret: bytes
    sent: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])
    """The bodies of all events, with their signatures."""
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def pay(
        self, customer: OrganizationId, usd: str, *, payment: str, **changes: str
    ) -> httpx.Response:
        """A customer pays."""
        return await self._tell("payment.succeeded", customer, usd, payment, changes)

    async def give_back(
        self, customer: OrganizationId, usd: str, *, payment: str, **changes: str
    ) -> httpx.Response:
        """Money of a payment is given back."""
        return await self._tell("payment.refunded", customer, usd, payment, changes)

    async def charge_back(
        self, customer: OrganizationId, usd: str, *, payment: str, **changes: str
    ) -> httpx.Response:
        """The customer's bank takes money of a payment back."""
        return await self._tell("payment.charged_back", customer, usd, payment, changes)

    async def _tell(
        self, kind: str, customer: OrganizationId, usd: str, payment: str, changes: dict[str, str]
    ) -> httpx.Response:
        event = {
            "id": f"evt-{next(self._numbers)}",
            "type": kind,
            "organization_id": on_wire(Prefix.ORGANIZATION, customer),
            "payment": payment,
            "amount": usd,
            "currency": "USD",
        }
        body = json.dumps(event | changes).encode()
        self.sent.append((body, self.signed(body)))
        return await self.send(*self.sent[-1])

    def signed(self, body: bytes, *, ago: int = 0, secret: bytes | None = None) -> str:
        """The header of a body that was sent some seconds ago."""
        at = int(self.now().timestamp()) - ago
        return f"t={at},v1={signature(secret or self.secret, at, body)}"

    async def again(self, number: int = -1) -> httpx.Response:
        """Send an event once more, as it was."""
        return await self.send(*self.sent[number])

    async def send(self, body: bytes, header: str | None) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if header is not None:
            headers["Splitplane-Signature"] = header
        return await self.http.post(PATH, content=body, headers=headers)
