"""Kubeconfigs on the wire."""

import base64
from datetime import datetime

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.kubeconfig import KubeconfigState, namespace_of
from control_plane.services.kubeconfigs import Shown
from control_plane.wire.kubeconfigs import KubeconfigView


def kubeconfig_view(shown: Shown, now: datetime) -> KubeconfigView:
    kubeconfig = shown.kubeconfig
    state = kubeconfig.state(now)
    sealed = kubeconfig.sealed if state is KubeconfigState.ISSUED else None
    return KubeconfigView(
        id=kubeconfig.wire_id,
        name=kubeconfig.name,
        cluster_id=on_wire(Prefix.CLUSTER, kubeconfig.cluster_id),
        cluster=shown.cluster,
        project_id=on_wire(Prefix.PROJECT, kubeconfig.project_id),
        project=shown.project,
        namespace=namespace_of(kubeconfig.project_id),
        role=kubeconfig.role,
        state=state,
        sealed=None if sealed is None else base64.b64encode(sealed).decode(),
        expires_at=kubeconfig.expires_at,
        rotates=None if kubeconfig.rotates is None else on_wire(Prefix.KUBECONFIG, kubeconfig.rotates),
        subject=kubeconfig.subject.on_wire,
        credential=kubeconfig.credential,
        requested_at=kubeconfig.requested_at,
        issued_at=kubeconfig.issued_at,
        refused_why=kubeconfig.refused_why,
        revoked_at=kubeconfig.revoked_at,
        revoked_why=kubeconfig.revoked_why,
    )
