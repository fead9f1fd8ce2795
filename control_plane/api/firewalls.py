"""The firewall of a lease. The reconciler brings changes to the machine, so they are answered with 202."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency
from control_plane.api.auditing import note_made
from control_plane.api.documents import made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.firewalls import firewall_rule_view, firewall_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import firewalls
from control_plane.services.idempotency import Connection
from control_plane.wire.firewalls import FirewallRuleRequest, FirewallRuleView, FirewallView


class FirewallController(Controller):
    path = "/leases/{lease_id:str}/firewall-rules"
    tags = ("firewalls",)

    @get(
        "/",
        operation_id="getFirewall",
        permission=Permission.FIREWALL_RULES_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(409),
    )
    async def show(self, request: ApiRequest, lease_id: FromPath[str]) -> FirewallView:
        """Which ports of the machine of a lease are open to whom, and whether the machine knows it."""
        found = await firewalls.show(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return firewall_view(found)

    @post(
        "/",
        operation_id="createFirewallRule",
        permission=Permission.FIREWALL_RULES_CREATE,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(FirewallRuleView, 202),
    )
    async def create(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[FirewallRuleRequest]
    ) -> Response[bytes]:
        """Open ports of the machine of a lease to networks. The machine has the rule within seconds."""
        wanted_lease = read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            rule = await firewalls.add(
                connection,
                request.world,
                request.principal.organization_id,
                wanted_lease,
                protocol=data.protocol,
                ports=data.ports,
                sources=data.sources,
                reach=request.reach,
            )
            return rule if isinstance(rule, Refused) else Made(firewall_rule_view(wanted_lease, rule))

        return await idempotency.once(request, effect, status=202)

    @delete(
        "/{rule_id:str}",
        operation_id="deleteFirewallRule",
        permission=Permission.FIREWALL_RULES_DELETE,
        scope=ScopeKind.LEASE,
        responses=refusable(409),
    )
    async def remove(self, request: ApiRequest, lease_id: FromPath[str], rule_id: FromPath[str]) -> None:
        """Close what a rule opened, unless another rule opens it too. Open connections stay open."""
        wanted_lease = read_lease_id(lease_id)
        deleted = await firewalls.delete(
            request.world,
            request.principal.organization_id,
            wanted_lease,
            read_id(Prefix.FIREWALL_RULE, rule_id),
            reach=request.reach,
            note=lambda rule: note_made(request.scope, firewall_rule_view(wanted_lease, rule)),
        )
        if isinstance(deleted, Refused):
            raise refusal(deleted)
