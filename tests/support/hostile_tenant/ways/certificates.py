"""SSH certificates for leases of another tenant: one of them would open their machine."""

import httpx

from tests.support.hostile_tenant.way import Call, Stand, Way, by_call

_ASKED = Call("POST", "/v1/leases/{lease}/ssh-certificates", {"key": "{attackers public key}"})


async def _ask_for_own(stand: Stand) -> httpx.Response:
    return await _ASKED.send(stand, stand.mine)


def _is_found(answer: httpx.Response) -> bool:
    """The own lease is found: it gets a certificate, or has no machine yet that one could open."""
    return answer.is_success or answer.json()["code"] == "lease_not_ready"


WAYS = (
    Way(
        name="ask for an SSH certificate for a lease",
        why="the reconciler signs whatever row asks for it, for the principal of the lease",
        attempt=_ASKED.send,
        refused="lease_not_found",
        control=_ask_for_own,
        succeeds=_is_found,
        event="ssh_certificates.create",
    ),
    by_call(
        "list the SSH certificates of a lease",
        "it tells who logs in to their machines, and when",
        Call("GET", "/v1/leases/{lease}/ssh-certificates"),
        refused="lease_not_found",
        event="ssh_certificates.read",
    ),
)
