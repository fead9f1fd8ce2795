"""SSH certificates for leases of another tenant: one of them would open their machine."""

from tests.support.hostile_tenant.way import Call, Way, by_call

_OF_THEIRS = "/v1/leases/{lease}/ssh-certificates"
_BELOW_OWN = "/v1/leases/{attackers ready lease}/ssh-certificates"


def _way(name: str, event: str, call: Call, *, why: str, code: str, control: Call | None = None) -> Way:
    return by_call(name, why, call, refused=code, event=event, control=control)


WAYS = (
    _way(
        "ask for an SSH certificate for a lease",
        "ssh_certificates.create",
        Call("POST", _OF_THEIRS, {"key": "{attackers public key}"}),
        why="the reconciler signs whatever row asks for it, for the principal of the lease",
        code="lease_not_found",
    ),
    _way(
        "ask for an SSH certificate for a stored key of theirs",
        "ssh_certificates.create",
        Call("POST", _BELOW_OWN, {"key": "{ssh key}"}),
        why="the key is looked up by its id, and the answer has its fingerprint",
        code="ssh_key_unknown",
    ),
    _way(
        "list the SSH certificates of a lease",
        "ssh_certificates.read",
        Call("GET", _OF_THEIRS),
        why="it tells who logs in to their machines, and when",
        code="lease_not_found",
    ),
    _way(
        "read an SSH certificate of a lease",
        "ssh_certificates.read",
        Call("GET", f"{_OF_THEIRS}/{{certificate}}"),
        why="looked up by its id",
        code="lease_not_found",
    ),
    _way(
        "read an SSH certificate below an own lease",
        "ssh_certificates.read",
        Call("GET", f"{_BELOW_OWN}/{{certificate}}"),
        why="the lease is the attacker's, and the certificate is looked up by its id",
        code="not_found",
    ),
    _way(
        "revoke an SSH certificate of a lease",
        "ssh_certificates.revoke",
        Call("POST", f"{_OF_THEIRS}/{{second certificate}}/revoke"),
        why="it would end the sessions of whoever is logged in",
        code="lease_not_found",
    ),
    _way(
        "revoke an SSH certificate below an own lease",
        "ssh_certificates.revoke",
        Call("POST", f"{_BELOW_OWN}/{{second certificate}}/revoke"),
        why="the lease is the attacker's, and the update is made by the certificate's id",
        code="not_found",
    ),
)
