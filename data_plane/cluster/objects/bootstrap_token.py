"""Bootstrap tokens: what a machine joins a cluster with, once, within minutes."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from data_plane.cluster.resource import SECRET, Object, head

LIFE_MAX = timedelta(minutes=30)
GROUP = "system:bootstrappers:k3s:default-node-token"
"""What K3s lets join as an agent. A server needs another credential, which no machine of a tenant ever holds."""
NAMESPACE = "kube-system"
_ID = re.compile(r"[a-z0-9]{6}")
_SECRET = re.compile(r"[a-z0-9]{16}")


@dataclass(frozen=True, slots=True)
class BootstrapToken:
    """Random parts of a token: 6 and 16 characters of `a-z0-9`."""

    id: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if not (_ID.fullmatch(self.id) and _SECRET.fullmatch(self.secret)):
            raise ValueError("a bootstrap token has 6 and 16 characters of a-z0-9")

    @property
    def secret_name(self) -> str:
        return f"bootstrap-token-{self.id}"

    def text(self, authority: str) -> str:
        """The token as an agent of K3s takes it.

        The hash is of the file of the cluster's CA. With it the agent knows the server before it sends the token; a
        token without it goes to whoever answers.
        """
        return f"K10{hashlib.sha256(authority.encode()).hexdigest()}::{self.id}.{self.secret}"


def bootstrap_secret(token: BootstrapToken, node: str, now: datetime, life: timedelta) -> Object:
    """Raises ValueError for a life of more than half an hour."""
    if not timedelta(0) < life <= LIFE_MAX:
        raise ValueError(f"a bootstrap token lives at most {LIFE_MAX}, not {life}")
    values = {
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": (now + life).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": GROUP,
        "description": node,
    }
    secret = head(SECRET, token.secret_name, NAMESPACE)
    return {**secret, "type": "bootstrap.kubernetes.io/token", "stringData": values}
