"""The file with which a customer's kubectl works: one cluster, one user, one context."""

import base64
import json

from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Token


def kubeconfig(
    *, name: str, endpoint: str, authority: str, server_name: str, tenant: Tenant, token: Token
) -> str:
    """The text of the file. It is JSON, which is YAML too.

    K3s signs a certificate for any address that a node names, the server's among them, so kubectl has to ask for a name
    that no node gets (`node_name.py`).
    """
    cluster = {
        "server": endpoint,
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        "tls-server-name": server_name,
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token.value}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": tenant.namespace}}
        ],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"
