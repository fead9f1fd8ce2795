"""Kubeconfigs, issued and taken back.

A kubeconfig is a ServiceAccount of its own and one token for it. The token ends by itself; deleting the ServiceAccount
ends it before. The API server may remember for up to 10 s that it accepted a token, whose rights are gone sooner, with
its bindings (docs/kubeconfigs.md).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from data_plane.cluster.objects import kubeconfig as file
from data_plane.cluster.objects import role as roles
from data_plane.cluster.objects.tenant import KUBECONFIGS_NAMESPACE, Tenant, name_of
from data_plane.cluster.port import KubernetesPort, delete_if_there
from data_plane.cluster.resource import CLUSTER_ROLE_BINDING, ROLE_BINDING, SERVICE_ACCOUNT

LIFE_MIN = timedelta(minutes=10)
"""Kubernetes issues no token of less."""
LIFE_MAX = timedelta(hours=24)


class Role(StrEnum):
    """What the holder may do in the namespace."""

    VIEW = "view"
    EDIT = "edit"


_ROLES = {Role.VIEW: roles.VIEW_ROLE, Role.EDIT: roles.EDIT_ROLE}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a kubeconfig leads: what its file says of the cluster."""

    name: str
    endpoint: str
    authority: str
    """PEM."""
    server_name: str
    """The name that the server's certificate has to have."""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    text: str = field(repr=False)
    """The file. It holds a token and is shown once."""
    expires_at: datetime


async def issue(
    port: KubernetesPort,
    address: Address,
    tenant: Tenant,
    kubeconfig: str,
    *,
    role: Role,
    all_nodes: bool,
    life: timedelta,
) -> Kubeconfig:
    """`kubeconfig` is its id, recorded before this call, so that whatever a crash leaves can be revoked.

    The holder sees the nodes of the tenant, or with `all_nodes`, which is for dedicated clusters, all of them.
    Raises ValueError for a life outside 10 minutes to 24 hours.
    """
    if not LIFE_MIN <= life <= LIFE_MAX:
        raise ValueError(f"a kubeconfig lives between {LIFE_MIN} and {LIFE_MAX}, not {life}")
    account = roles.service_account(tenant, kubeconfig)
    nodes = roles.ALL_NODES_ROLE if all_nodes else roles.own_nodes_role_name(tenant)
    for thing in (account, *roles.bindings(tenant, kubeconfig, work_role=_ROLES[role], nodes_role=nodes)):
        await port.apply(thing, take_over=True)
    seconds = int(life.total_seconds())
    issued = await port.request_token(account["metadata"]["name"], KUBECONFIGS_NAMESPACE, life_s=seconds)
    text = file.kubeconfig(
        name=address.name,
        endpoint=address.endpoint,
        authority=address.authority,
        server_name=address.server_name,
        tenant=tenant,
        token=issued.token,
    )
    return Kubeconfig(text, issued.expires_at)


async def revoke(port: KubernetesPort, tenant: Tenant, kubeconfig: str) -> None:
    """The ServiceAccount goes first: nothing else matters once its token is worth nothing."""
    name = name_of(kubeconfig)
    await delete_if_there(port, SERVICE_ACCOUNT, name, KUBECONFIGS_NAMESPACE)
    await delete_if_there(port, ROLE_BINDING, name, tenant.namespace)
    await delete_if_there(port, CLUSTER_ROLE_BINDING, f"splitplane:{name}", None)
