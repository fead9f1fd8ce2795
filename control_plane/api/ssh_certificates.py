"""SSH certificates of a lease. The reconciler signs them, so a request is answered with 202."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.ssh_certificates import ssh_certificate_view
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import ssh_certificates
from control_plane.services.idempotency import Connection
from control_plane.wire.ssh_certificates import (
    SshCertificatePage,
    SshCertificateRequest,
    SshCertificateView,
)


class SshCertificateController(Controller):
    path = "/leases/{lease_id:str}/ssh-certificates"
    tags = ("SSH certificates",)

    @post(
        "/",
        operation_id="createSshCertificate",
        permission=Permission.SSH_CERTIFICATES_CREATE,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(SshCertificateView, 202),
    )
    async def create(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[SshCertificateRequest]
    ) -> Response[bytes]:
        """Request a certificate for an SSH key, which opens the machine of a ready lease for ten minutes.

        202: it is signed within a second, and `Location` is where to get it.
        """
        wanted_lease = read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            requested = await ssh_certificates.request(
                connection,
                request.world,
                request.principal,
                wanted_lease,
                data.key,
                reach=request.reach,
            )
            if isinstance(requested, Refused):
                return requested
            return Made(ssh_certificate_view(requested, request.world.now()))

        collection = f"/v1/leases/{on_wire(Prefix.LEASE, wanted_lease)}/ssh-certificates"
        return await idempotency.once(request, effect, status=202, collection=collection, gives_access=True)

    @get(
        "/",
        operation_id="listSshCertificates",
        permission=Permission.SSH_CERTIFICATES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        *,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> SshCertificatePage:
        """Who could log in to the machine of a lease, and when, newest first."""
        found = await ssh_certificates.page(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            before=paging.moment("ssh certificates", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("ssh certificates", row.requested_at, row.id)
        )
        now = request.world.now()
        return SshCertificatePage(tuple(ssh_certificate_view(row, now) for row in page), following)

    @get(
        "/{certificate_id:str}",
        operation_id="getSshCertificate",
        permission=Permission.SSH_CERTIFICATES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def show(
        self, request: ApiRequest, lease_id: FromPath[str], certificate_id: FromPath[str]
    ) -> SshCertificateView:
        """One SSH certificate, with the certificate itself once it is signed."""
        found = await ssh_certificates.get(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            read_id(Prefix.SSH_CERTIFICATE, certificate_id),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return ssh_certificate_view(found, request.world.now())

    @post(
        "/{certificate_id:str}/revoke",
        operation_id="revokeSshCertificate",
        permission=Permission.SSH_CERTIFICATES_REVOKE,
        scope=ScopeKind.LEASE,
        status_code=200,
        responses=made(SshCertificateView, 200),
    )
    async def revoke(
        self, request: ApiRequest, lease_id: FromPath[str], certificate_id: FromPath[str]
    ) -> Response[bytes]:
        """Revoke a certificate. Its machine refuses it within seconds, and ends the sessions that it opened."""
        wanted_lease = read_lease_id(lease_id)
        wanted = read_id(Prefix.SSH_CERTIFICATE, certificate_id)

        async def effect(connection: Connection) -> Made | Refused:
            found = await ssh_certificates.revoke(
                connection,
                request.world,
                request.principal.organization_id,
                wanted_lease,
                wanted,
                reach=request.reach,
            )
            if isinstance(found, Refused):
                return found
            return Made(ssh_certificate_view(found, request.world.now()))

        return await idempotency.once(request, effect, status=200)
