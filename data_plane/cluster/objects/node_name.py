"""A name that no node gets: it has a password that nobody knows.

K3s signs a certificate for the name of a node, and whoever holds a bootstrap token may choose any name whose password
is not stored yet (pkg/nodepassword of K3s, 2026-11-23). Whoever had a certificate with the name of the cluster's server
could pose as it.
"""

import base64

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER
from data_plane.cluster.resource import SECRET, Object, head

NAMESPACE = "kube-system"
# In K3s' form: version, salt, parameters of scrypt, key. Nobody finds a password whose key is zero.
_HASH = f"$1:{'0' * 16}:15:8:1:{'A' * 86}"


def reserved_node_name(name: str) -> Object:
    secret = head(SECRET, f"{name}.node-password.k3s", NAMESPACE, labels={MANAGED_BY: MANAGER})
    return {
        **secret,
        "type": "Opaque",
        "immutable": True,
        "data": {"hash": base64.b64encode(_HASH.encode()).decode()},
    }
