"""Whether the process is up, and whether it can serve. It needs no key, so it reveals nothing else."""

from litestar import Controller, get

from control_plane.api.documents import problems
from control_plane.api.errors import ApiError
from control_plane.api.requests import ApiRequest
from control_plane.services import health
from control_plane.wire.health import Health


class HealthController(Controller):
    path = "/"
    tags = ("health",)
    security: list[dict[str, list[str]]] = [{}]  # noqa: RUF012 - the framework's way; no key is needed here

    @get("/healthz", operation_id="getHealth", responses=problems(400, 429), sync_to_thread=False)
    def healthz(self) -> Health:
        """The process is up."""
        return Health("up")

    @get("/readyz", operation_id="getReadiness", responses=problems(400, 429, 503))
    async def readyz(self, request: ApiRequest) -> Health:
        """The database answers, has every column that this version needs, and agrees with the host on the time."""
        fault = await health.why_not_ready(request.world)
        if fault is not None:
            raise ApiError("not_ready", fault)
        return Health("ready")
