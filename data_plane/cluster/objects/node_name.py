"""A name that no node gets: it has a password that nobody knows.

K3s signs a certificate for the name of a node, and whoever holds a bootstrap token may choose any name whose password
is not stored yet (pkg/nodepassword of K3s, 2026-11-23). Whoever had a certificate with the name of the cluster's server
could pose as it.

Newer releases of K3s delete such Secrets: at each start those of another type than theirs, to create them again with
their own, and every minute those of their type for which there is no Node. A finalizer keeps ours: a delete only marks
it, the creation after that finds it there, and the password is compared with it as before.
"""

import base64

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER, OWN_PREFIX
from data_plane.cluster.resource import SECRET, Object, head

NAMESPACE = "kube-system"
FINALIZER = f"{OWN_PREFIX}/reserved"
# In K3s' form: version, salt, parameters of scrypt, key. Nobody finds a password whose key is zero.
_HASH = f"$1:{'0' * 16}:15:8:1:{'A' * 86}"


def reserved_node_name(name: str) -> Object:
    secret = head(
        SECRET,
        f"{name}.node-password.k3s",
        NAMESPACE,
        labels={MANAGED_BY: MANAGER},
        finalizers=[FINALIZER],
    )
    return {
        **secret,
        "type": "Opaque",
        "immutable": True,
        "data": {"hash": base64.b64encode(_HASH.encode()).decode()},
    }
