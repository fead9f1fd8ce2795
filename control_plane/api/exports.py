"""Exports of charges in FOCUS: a customer's own, and for finance those of all organizations."""

from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.exports import export_view
from control_plane.domain.export_run import MANIFEST, FileName
from control_plane.domain.ids import Prefix
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import exports
from control_plane.services.exports import Exported
from control_plane.services.idempotency import Connection
from control_plane.wire.exports import ExportPage, ExportRequest, ExportView

NAMES = (*(name.value for name in FileName), MANIFEST)
_BYTES = "application/octet-stream"
_MEDIA_TYPES = {
    FileName.CSV.value: "text/csv",
    FileName.PARQUET.value: "application/vnd.apache.parquet",
    MANIFEST: "application/json",
}


class ExportController(Controller):
    path = "/exports"
    tags = ("exports",)

    @get(
        "/",
        operation_id="listExports",
        permission=Permission.EXPORTS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ExportPage:
        """Exports of your organization's charges, newest first."""
        return await _page(request, limit, cursor, covers_all=False)

    @post(
        "/",
        operation_id="createExport",
        permission=Permission.EXPORTS_CREATE,
        scope=ScopeKind.ORGANIZATION,
        responses=made(ExportView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ExportRequest]) -> Response[bytes]:
        """Export the charges of a month. Then fetch both files of it, and last its manifest."""
        return await _create(request, data, covers_all=False)

    @get(
        "/{export_id:str}",
        operation_id="getExport",
        permission=Permission.EXPORTS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, export_id: FromPath[str]) -> ExportView:
        """An export, with the files that were fetched so far."""
        return export_view(await _found(request, export_id, covers_all=False))

    @get(
        "/{export_id:str}/files/{file:str}",
        operation_id="getExportFile",
        permission=Permission.EXPORTS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(409),
        media_type=_BYTES,
    )
    async def show_file(self, request: ApiRequest, export_id: FromPath[str], file: FromPath[str]) -> Stream:
        """A file of an export: `focus-1.2.csv`, `focus-1.2.parquet`, or `manifest.json` once both were fetched."""
        return await _file(request, export_id, file, covers_all=False)


class ExportOfAllController(Controller):
    path = "/finance/exports"
    tags = ("exports",)

    @get(
        "/",
        operation_id="listExportsOfAll",
        permission=Permission.EXPORTS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ExportPage:
        """Exports of the charges of all organizations, newest first."""
        return await _page(request, limit, cursor, covers_all=True)

    @post(
        "/",
        operation_id="createExportOfAll",
        permission=Permission.EXPORTS_CREATE_ALL,
        scope=ScopeKind.PLATFORM,
        responses=made(ExportView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ExportRequest]) -> Response[bytes]:
        """Export the charges of all organizations in a month."""
        return await _create(request, data, covers_all=True)

    @get(
        "/{export_id:str}",
        operation_id="getExportOfAll",
        permission=Permission.EXPORTS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, export_id: FromPath[str]) -> ExportView:
        """An export of all organizations, with the files that were fetched so far."""
        return export_view(await _found(request, export_id, covers_all=True))

    @get(
        "/{export_id:str}/files/{file:str}",
        operation_id="getExportFileOfAll",
        permission=Permission.EXPORTS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409),
        media_type=_BYTES,
    )
    async def show_file(self, request: ApiRequest, export_id: FromPath[str], file: FromPath[str]) -> Stream:
        """A file of an export of all organizations."""
        return await _file(request, export_id, file, covers_all=True)


async def _page(request: ApiRequest, limit: int, cursor: str | None, *, covers_all: bool) -> ExportPage:
    kind = "exportsofall" if covers_all else "exports"
    found = await exports.page(
        request.world,
        request.principal.organization_id,
        covers_all=covers_all,
        before=paging.moment(kind, cursor),
        limit=limit + 1,
    )
    page, following = paging.cut(
        found, limit, lambda exported: paging.after_moment(kind, exported.run.created_at, exported.run.id)
    )
    return ExportPage(tuple(map(export_view, page)), following)


async def _create(request: ApiRequest, data: ExportRequest, *, covers_all: bool) -> Response[bytes]:
    month = parse_month(data.period)

    async def effect(connection: Connection) -> Made | Refused:
        created = await exports.create(
            connection,
            request.world,
            request.principal.organization_id,
            month,
            covers_all=covers_all,
            final=data.final,
            seller=request.context.settings.seller,
            by=request.principal.subject.on_wire,
        )
        return created if isinstance(created, Refused) else Made(export_view(created))

    return await idempotency.once(request, effect, status=201)


async def _found(request: ApiRequest, export_id: str, *, covers_all: bool) -> Exported:
    run_id: UUID = read_id(Prefix.EXPORT_RUN, export_id)
    found = await exports.get(request.world, request.principal.organization_id, run_id, covers_all=covers_all)
    if isinstance(found, Refused):
        raise refusal(found)
    return found


async def _file(request: ApiRequest, export_id: str, name: str, *, covers_all: bool) -> Stream:
    found = await _found(request, export_id, covers_all=covers_all)
    if name not in NAMES:
        raise refusal(Refused(RefusalCode.NOT_FOUND, f"An export has {', '.join(NAMES)}."))
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if name == MANIFEST:
        content = exports.manifest_of(found)
        if isinstance(content, Refused):
            raise refusal(content)
        return Stream(iter([content]), media_type=_MEDIA_TYPES[name], headers=headers)
    made_now = exports.file(request.world, found, FileName(name))
    return Stream(made_now, media_type=_MEDIA_TYPES[name], headers=headers)
