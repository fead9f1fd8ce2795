"""Orphans: machines at a provider that no open record claims."""

from litestar import Controller, get

from control_plane.api.documents import PROBLEMS
from control_plane.api.requests import ApiRequest
from control_plane.api.views.orphans import orphan_view
from control_plane.domain.permission import Permission
from control_plane.services import orphans
from control_plane.wire.orphans import OrphanList


class OrphanController(Controller):
    path = "/operator/orphans"
    tags = ["orphans"]  # noqa: RUF012 - the framework's way

    @get("/", permission=Permission.ORPHANS_READ, responses=PROBLEMS)
    async def index(self, request: ApiRequest) -> OrphanList:
        """Machines with our launch keys that no open record claims, as the last lists showed them."""
        return OrphanList(tuple(orphan_view(row) for row in await orphans.every(request.world)))
