"""Kubeconfigs of projects. The reconciler issues them, so a request is answered with 202."""

import base64
from datetime import timedelta

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_word
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.kubeconfigs import kubeconfig_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import kubeconfigs
from control_plane.services.idempotency import Connection
from control_plane.services.kubeconfigs import KubeconfigRole, Shown, WantedKubeconfig
from control_plane.wire.kubeconfigs import (
    KubeconfigPage,
    KubeconfigRequest,
    KubeconfigRotationRequest,
    KubeconfigView,
)

_COLLECTION = "/v1/kubeconfigs"


class KubeconfigController(Controller):
    path = "/"
    tags = ("kubeconfigs",)

    @post(
        "/clusters/{cluster:str}/kubeconfigs",
        operation_id="createKubeconfig",
        permission=Permission.KUBECONFIGS_CREATE,
        scope=ScopeKind.PROJECT,
        status_code=202,
        responses=made(KubeconfigView, 202),
    )
    async def create(
        self, request: ApiRequest, cluster: FromPath[str], data: JSONBody[KubeconfigRequest]
    ) -> Response[bytes]:
        """Request a kubeconfig, which opens the namespace of a project in a cluster.

        202: it is issued within seconds, and `Location` is where to get it. The file is sealed for the public key.
        """
        word = read_word("cluster", cluster)
        wanted = WantedKubeconfig(
            data.name,
            data.project,
            KubeconfigRole(data.role),
            timedelta(minutes=data.lasts_minutes),
            base64.b64decode(data.public_key),
        )

        async def effect(connection: Connection) -> Made | Refused:
            return _made(
                request,
                await kubeconfigs.request(
                    connection, request.world, request.principal, word, wanted, reach=request.reach
                ),
            )

        return await idempotency.once(request, effect, status=202, collection=_COLLECTION, gives_access=True)

    @get(
        "/kubeconfigs",
        operation_id="listKubeconfigs",
        permission=Permission.KUBECONFIGS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> KubeconfigPage:
        """Kubeconfigs of your projects, newest first: who can get into which cluster, and until when."""
        found = await kubeconfigs.page(
            request.world,
            request.principal.organization_id,
            reach=request.reach,
            before=paging.moment("kubeconfigs", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found,
            limit,
            lambda row: paging.after_moment("kubeconfigs", row.kubeconfig.requested_at, row.kubeconfig.id),
        )
        now = request.world.now()
        return KubeconfigPage(tuple(kubeconfig_view(row, now) for row in page), following)

    @get(
        "/kubeconfigs/{kubeconfig_id:str}",
        operation_id="getKubeconfig",
        permission=Permission.KUBECONFIGS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, kubeconfig_id: FromPath[str]) -> KubeconfigView:
        """One kubeconfig, with the sealed file once it is issued."""
        found = await kubeconfigs.show(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.KUBECONFIG, kubeconfig_id),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return kubeconfig_view(found, request.world.now())

    @post(
        "/kubeconfigs/{kubeconfig_id:str}/rotations",
        operation_id="rotateKubeconfig",
        permission=Permission.KUBECONFIGS_CREATE,
        scope=ScopeKind.PROJECT,
        status_code=202,
        responses=made(KubeconfigView, 202),
    )
    async def rotate(
        self, request: ApiRequest, kubeconfig_id: FromPath[str], data: JSONBody[KubeconfigRotationRequest]
    ) -> Response[bytes]:
        """Request a kubeconfig in place of an issued one, with its name, project, role and duration.

        The old one ends after the overlap, which begins when the new one is issued.
        """
        old = read_id(Prefix.KUBECONFIG, kubeconfig_id)

        async def effect(connection: Connection) -> Made | Refused:
            return _made(
                request,
                await kubeconfigs.rotate(
                    connection,
                    request.world,
                    request.principal,
                    old,
                    base64.b64decode(data.public_key),
                    overlap=timedelta(minutes=data.overlap_minutes),
                    reach=request.reach,
                ),
            )

        return await idempotency.once(request, effect, status=202, collection=_COLLECTION, gives_access=True)

    @post(
        "/kubeconfigs/{kubeconfig_id:str}/revoke",
        operation_id="revokeKubeconfig",
        permission=Permission.KUBECONFIGS_REVOKE,
        scope=ScopeKind.PROJECT,
        status_code=200,
        responses=made(KubeconfigView, 200),
    )
    async def revoke(self, request: ApiRequest, kubeconfig_id: FromPath[str]) -> Response[bytes]:
        """Revoke a kubeconfig. It has no rights within seconds; its open exec sessions go on until they end."""
        wanted = read_id(Prefix.KUBECONFIG, kubeconfig_id)

        async def effect(connection: Connection) -> Made | Refused:
            return _made(
                request,
                await kubeconfigs.revoke(
                    connection,
                    request.world,
                    request.principal.organization_id,
                    wanted,
                    reach=request.reach,
                ),
            )

        return await idempotency.once(request, effect, status=200)


def _made(request: ApiRequest, found: Shown | Refused) -> Made | Refused:
    return found if isinstance(found, Refused) else Made(kubeconfig_view(found, request.world.now()))
