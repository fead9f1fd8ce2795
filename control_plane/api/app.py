"""The public process: what it serves, in one list.

It writes intent and reads rows. It holds no provider key and no SSH key, and it never calls a
provider or a machine: a 202 here is a row that the reconciler finds.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from litestar import Litestar, Router
from litestar.datastructures import State

from control_plane.api.accounts import AccountController
from control_plane.api.api_keys import ApiKeyController
from control_plane.api.billing import BillingController
from control_plane.api.catalogue import CatalogueController
from control_plane.api.credits import CreditController
from control_plane.api.documents import openapi
from control_plane.api.errors import answer
from control_plane.api.health import HealthController
from control_plane.api.leases import LeaseController
from control_plane.api.loops import LoopController
from control_plane.api.observe import Envelope, Metrics
from control_plane.api.organizations import OrganizationController
from control_plane.api.orphans import OrphanController
from control_plane.api.projects import ProjectController
from control_plane.api.proofs import ProofController
from control_plane.api.requests import ApiRequest, Context, authorized, public
from control_plane.api.ssh_keys import SshKeyController
from control_plane.api.streams import Sleep, Streams
from control_plane.settings import Settings
from control_plane.world import World

BODY_BYTES_MAX = 65_536
CONTROLLERS = (
    OrganizationController,
    CreditController,
    ApiKeyController,
    SshKeyController,
    ProjectController,
    CatalogueController,
    LeaseController,
    ProofController,
    BillingController,
    LoopController,
    OrphanController,
    AccountController,
)
"""Everything below /v1. Each route names the permission that it needs."""


def create_app(
    world: World,
    settings: Settings,
    *,
    metrics: Metrics | None = None,
    sleep: Sleep = asyncio.sleep,
    lifespan: Sequence[Callable[[Litestar], AbstractAsyncContextManager[None]]] = (),
) -> Litestar:
    """The app. `lifespan` opens and closes what the process owns; tests own their world themselves."""
    metrics = metrics or Metrics()
    streams = Streams(most=settings.streams_max, gauge=metrics.streams, sleep=sleep)
    app = Litestar(
        route_handlers=[
            Router("/", before_request=public, route_handlers=[HealthController]),
            Router("/v1", before_request=authorized, route_handlers=CONTROLLERS),
        ],
        request_class=ApiRequest,
        request_max_body_size=BODY_BYTES_MAX,
        exception_handlers={Exception: answer},
        openapi_config=openapi(),
        state=State({"context": Context(world, settings, streams, metrics)}),
        lifespan=list(lifespan),
        logging_config=None,
        debug=False,
    )
    app.asgi_handler = Envelope(app.asgi_handler, metrics, world.new_id)
    return app
