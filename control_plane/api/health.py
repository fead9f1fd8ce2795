"""Whether the process is up, and whether it can serve. It needs no key, so it reveals nothing else."""

from litestar import Controller, get

from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import ApiError
from control_plane.api.requests import ApiRequest
from control_plane.services import health
from control_plane.wire.health import Health


class HealthController(Controller):
    path = "/"
    tags = ["health"]  # noqa: RUF012 - the framework's way
    security: list[dict[str, list[str]]] = [{}]  # noqa: RUF012 - the framework's way; no key is needed here

    @get("/healthz", responses={400: PROBLEMS[400]}, sync_to_thread=False)
    def healthz(self) -> Health:
        """The process is up."""
        return Health("up")

    @get("/readyz", responses={400: PROBLEMS[400], 503: PROBLEMS[503]})
    async def readyz(self, request: ApiRequest) -> Health:
        """The database answers and has every column that this version needs."""
        missing = await health.missing_column(request.world)
        if missing is not None:
            raise ApiError("not_ready", "The database is not migrated to this version.")
        return Health("ready")
