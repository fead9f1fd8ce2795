"""Leases: create, list, read, follow, explain and release them."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.catalogue import requested_by
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.streams import (
    HEARTBEAT,
    HEARTBEAT_POLLS,
    LINES_PER_POLL,
    POLL_SECONDS,
    RETRY,
    EventStream,
    event,
)
from control_plane.api.views.journal import journal_line
from control_plane.api.views.leases import explanation_view, lease_view, status_view
from control_plane.api.views.proofs import proof_view
from control_plane.domain.ids import LeaseId, Prefix
from control_plane.domain.lease import LeaseState
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.status import Phase
from control_plane.services import leases, proofs
from control_plane.services.idempotency import Connection
from control_plane.wire.common import NAME_LENGTH_MAX, NAME_PATTERN
from control_plane.wire.journal import JournalPage
from control_plane.wire.leases import ExplanationView, LeasePage, LeaseRequest, LeaseView, StreamEnd
from control_plane.wire.proofs import ProofPage

States = Annotated[
    list[LeaseState] | None,
    QueryParameter(name="state", max_items=8, description="Only leases in these states; may be repeated."),
]
OfProject = Annotated[
    str | None,
    QueryParameter(
        name="project",
        pattern=NAME_PATTERN,
        max_length=NAME_LENGTH_MAX,
        description="Only leases of the project with this name.",
    ),
]


class LeaseController(Controller):
    path = "/leases"
    tags = ["leases"]  # noqa: RUF012 - the framework's way

    @post("/", permission=Permission.LEASES_CREATE, status_code=202, responses=made(LeaseView, 202))
    async def create(self, request: ApiRequest, data: JSONBody[LeaseRequest]) -> Response[bytes]:
        """Create a lease. 202: it is admitted, and the price of its first hour is held; a machine follows."""
        world, principal = request.world, request.principal
        requested = requested_by(data)
        keys = [read_id(Prefix.SSH_KEY, key) for key in data.ssh_key_ids]
        name = data.name if data.name is not None else f"{requested.sku[:50]}-{world.new_id().hex[-6:]}"

        async def effect(connection: Connection) -> Made | Refused:
            lease = await leases.create(
                connection,
                world,
                principal.organization_id,
                requested,
                name=name,
                ssh_key_ids=keys,
                actor=request.actor,
                project=data.project,
            )
            if isinstance(lease, Refused):
                return lease
            return Made(lease_view(leases.shown_new(lease, world.now())))

        return await idempotency.once(request, effect, status=202, collection="/v1/leases")

    @get("/", permission=Permission.LEASES_READ, responses=refusable(422))
    async def index(
        self,
        request: ApiRequest,
        states: States = None,
        project: OfProject = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LeasePage:
        """Your leases, newest first."""
        found = await leases.page(
            request.world,
            request.principal.organization_id,
            before=paging.moment("leases", cursor),
            states=states,
            project=project,
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found,
            limit,
            lambda shown: paging.after_moment(
                "leases", shown.overview.lease.created_at, shown.overview.lease.id
            ),
        )
        return LeasePage(tuple(lease_view(shown) for shown in page), following)

    @get("/{lease_id:str}", permission=Permission.LEASES_READ, responses=PROBLEMS)
    async def show(self, request: ApiRequest, lease_id: FromPath[str]) -> LeaseView:
        """One lease with its status, machine and proof."""
        shown = await leases.get(request.world, request.principal.organization_id, read_lease_id(lease_id))
        if isinstance(shown, Refused):
            raise refusal(shown)
        return lease_view(shown)

    @post(
        "/{lease_id:str}/release",
        permission=Permission.LEASES_RELEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def release(self, request: ApiRequest, lease_id: FromPath[str]) -> Response[bytes]:
        """Release a lease. Billing stops now; the machine is terminated after that. Repeating it changes nothing."""
        await idempotency.no_body(request)
        world, principal, wanted = request.world, request.principal, read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            released = await leases.release(
                connection, world, principal.organization_id, wanted, actor=request.actor
            )
            if isinstance(released, Refused):
                return released
            return Made(lease_view(leases.shown(released, world.now())))

        return await idempotency.once(request, effect, status=202, collection="/v1/leases")

    @get("/{lease_id:str}/journal", permission=Permission.LEASES_READ, responses=PROBLEMS)
    async def journal(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> JournalPage:
        """Everything that happened to the lease, oldest first."""
        found = await leases.journal_page(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            after=paging.number("journal", cursor),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda row: paging.after_number("journal", row.number))
        return JournalPage(tuple(journal_line(row) for row in page), following)

    @get("/{lease_id:str}/proofs", permission=Permission.PROOFS_READ, responses=PROBLEMS)
    async def proofs(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> ProofPage:
        """How the GPUs of the lease's machines answered our challenges, newest first."""
        found = await proofs.page(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            before=paging.moment("proofs", cursor),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda row: paging.after_moment("proofs", row.at, row.id))
        return ProofPage(tuple(proof_view(row) for row in page), following)

    @get("/{lease_id:str}/explanation", permission=Permission.LEASES_READ, responses=PROBLEMS)
    async def explanation(self, request: ApiRequest, lease_id: FromPath[str]) -> ExplanationView:
        """Why the lease is where it is: admission, placements with every rejected offer, attempts and proofs."""
        principal = request.principal
        found = await leases.explain(request.world, principal.organization_id, read_lease_id(lease_id))
        if isinstance(found, Refused):
            raise refusal(found)
        return explanation_view(found, request.disclosure)

    @get(
        "/{lease_id:str}/events",
        permission=Permission.LEASES_READ,
        responses=PROBLEMS,
        media_type="text/event-stream",
    )
    async def events(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        until: Annotated[
            Literal["ready", "ended"] | None,
            QueryParameter(description="When to end the stream; the default is `ended`."),
        ] = None,
    ) -> EventStream:
        """Server-sent events: `status` at once and after every change, `journal` lines with ids, then `end`."""
        wanted = read_lease_id(lease_id)
        after = _last_event_id(request.headers.get("last-event-id", ""))
        first = await leases.watch(
            request.world, request.principal.organization_id, wanted, after=after, limit=LINES_PER_POLL
        )
        if isinstance(first, Refused):
            raise refusal(first)
        return request.context.streams.open(_events(request, wanted, after, until_ready=until == "ready"))


def _last_event_id(text: str) -> int:
    """The number of the last line that the client has; 0, which starts at the beginning, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


async def _events(
    request: ApiRequest, wanted: LeaseId, after: int, *, until_ready: bool
) -> AsyncIterator[bytes]:
    world, tenant, sleep = request.world, request.principal.organization_id, request.context.streams.sleep
    yield RETRY
    sent: object = None
    quiet = 0
    while True:
        seen = await leases.watch(world, tenant, wanted, after=after, limit=LINES_PER_POLL)
        if isinstance(seen, Refused):
            return
        shown, lines = seen
        chunk = b""
        for row in lines:
            chunk += event("journal", journal_line(row), event_id=row.number)
            after = row.number
        status = status_view(shown)
        if (status.phase, status.step, status.message) != sent:
            sent = (status.phase, status.step, status.message)
            chunk += event("status", status)
        quiet = 0 if chunk else quiet + 1
        if quiet >= HEARTBEAT_POLLS:
            chunk, quiet = HEARTBEAT, 0
        if chunk:
            yield chunk
        if len(lines) == LINES_PER_POLL:
            continue  # More is waiting.
        if shown.status.phase is Phase.ENDED:
            yield event("end", StreamEnd("ended"))
            return
        if until_ready and shown.status.phase in (Phase.READY, Phase.UNCONFIRMED, Phase.ENDING):
            # A lease that will never be ready ends the wait as well.
            yield event("end", StreamEnd("ready" if shown.status.phase is not Phase.ENDING else "ending"))
            return
        await sleep(POLL_SECONDS)
