"""The event stream of one lease: its status at once and after every change, and its journal as it grows.

A `journal` event has as its id the reader's position behind the line, so that a client which returns with
`Last-Event-ID` gets every line once. A stream shows only what was committed.
"""

import asyncio
from typing import Annotated, Literal

from litestar import Controller, get
from litestar.params import FromPath, QueryParameter

from control_plane.api.auth import unauthenticated
from control_plane.api.catch_up import CatchUp
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_lease_id
from control_plane.api.requests import ApiRequest
from control_plane.api.streams import HEARTBEAT, RETRY, Closing, Emit, EventStream, Follower, Stream, event
from control_plane.api.views.journal import journal_line
from control_plane.api.views.leases import status_view
from control_plane.domain.access import confined
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.permission import Permission
from control_plane.domain.position import Position, parse
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import health, principals
from control_plane.services.lease_overviews import Watched
from control_plane.services.lease_reach import NOT_FOUND
from control_plane.wire.leases import StreamEnd
from control_plane.world import World

BLOCKED_SECONDS = 1.0
"""When to look again while a transaction that stays open keeps the stream from remembering more lines."""
DATABASE_AWAY_SECONDS = 2.0
"""When to look again after the database did not answer. The stream stays open meanwhile."""


class EventController(Controller):
    path = "/leases"
    tags = ("leases",)

    @get(
        "/{lease_id:str}/events",
        operation_id="streamLeaseEvents",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
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
        principal, context = request.principal, request.context
        position = parse(request.headers.get("last-event-id", "")) or Position()

        def follow(stream: Stream) -> Follower:
            return LeaseEvents(
                context.world,
                context.catch_up,
                stream,
                principal.organization_id,
                position=position,
                until_ready=until == "ready",
            )

        return EventStream(context.streams, read_lease_id(lease_id), principal, follow)


class LeaseEvents:
    """What one stream has sent, and what it sends next."""

    __slots__ = (
        "_catch_up",
        "_organization_id",
        "_position",
        "_reading",
        "_seen",
        "_sent",
        "_stream",
        "_until_ready",
        "_world",
    )

    def __init__(
        self,
        world: World,
        catch_up: CatchUp,
        stream: Stream,
        organization_id: OrganizationId,
        *,
        position: Position,
        until_ready: bool,
    ) -> None:
        self._world = world
        self._catch_up = catch_up
        self._stream = stream
        self._organization_id = organization_id
        self._position = position
        self._until_ready = until_ready
        self._reading: asyncio.Task[Watched | Refused] | None = None
        """The look at the lease that is under way. Heartbeats are sent meanwhile, because it may take long."""
        self._seen: Watched | None = None
        """What was read and is still to be sent."""
        self._sent: object = None
        """The last status that was sent."""

    async def begin(self) -> None:
        """Look at the key and the lease once the stream hears of changes, so that none falls in between."""
        known = await principals.of_keys(self._world, [self._stream.key])
        if self._stream.key not in known:
            raise unauthenticated()
        self._stream.principal = confined(known[self._stream.key], self._stream.principal.confined_to)
        seen = await self._read()
        if isinstance(seen, Refused):
            raise refusal(seen)
        self._seen = seen

    async def run(self, emit: Emit) -> None:
        try:
            await self._follow(emit)
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)

    async def _follow(self, emit: Emit) -> None:
        stream = self._stream
        while stream.closing is None:
            self._look()
            if self._seen is not None:
                if await self._send_seen(emit, self._seen):
                    return
                continue
            if stream.beat:
                await self._emit(emit, HEARTBEAT)
            await stream.news()
        await self._close(emit, stream.closing)

    async def _close(self, emit: Emit, why: Closing) -> None:
        if why is Closing.REVOKED:
            await emit(event("end", StreamEnd("revoked")))
        elif why is Closing.SERVER_STOPS:
            await emit(RETRY)  # The client comes back, to another process, behind its last event.

    def _look(self) -> None:
        """Begin to look at the lease when it may have changed; take what was read."""
        if self._reading is None and self._seen is None and self._stream.stale:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._stream.done_reading)
        elif self._reading is not None and self._reading.done():
            read, self._reading = self._reading, None
            self._take(read)

    def _take(self, read: asyncio.Task[Watched | Refused]) -> None:
        try:
            seen = read.result()
        except Exception as error:
            if not health.is_database_trouble(error):
                raise
            self._stream.look_within(DATABASE_AWAY_SECONDS)
            return
        if isinstance(seen, Refused):
            self._stream.close(Closing.LEASE_GONE)
        else:
            self._seen = seen

    async def _read(self) -> Watched | Refused:
        self._stream.stale = False
        seen = await self._catch_up.read(self._organization_id, self._stream.lease_id, self._position)
        if isinstance(seen, Refused):
            return seen
        reach = self._stream.principal.reach(Permission.LEASES_READ)
        return seen if reach.contains(seen.shown.overview.lease.scope) else NOT_FOUND

    async def _send_seen(self, emit: Emit, seen: Watched) -> bool:
        """Send what was read. Returns whether it was the end."""
        self._seen = None
        chunk = b""
        for line, position in seen.journal.unseen(self._position):
            chunk += event("journal", journal_line(line), event_id=str(position))
        self._position = seen.journal.behind(self._position)
        status = status_view(seen.shown)
        if (status.state, status.step, status.message) != self._sent:
            self._sent = (status.state, status.step, status.message)
            chunk += event("status", status)
        end = None if seen.journal.more else self._end(seen.shown.status.state)
        if end is not None:
            chunk += event("end", end)
        if chunk:
            await self._emit(emit, chunk)
        if seen.status_until is not None:
            self._stream.look_within((seen.status_until - self._world.now()).total_seconds())
        if seen.journal.blocks(self._position):
            self._stream.look_within(BLOCKED_SECONDS)
        elif seen.journal.more:
            self._stream.stale = True
        return end is not None

    def _end(self, state: LeaseState) -> StreamEnd | None:
        if state is LeaseState.ENDED:
            return StreamEnd("ended")
        if self._until_ready and state is LeaseState.READY:
            return StreamEnd("ready")
        if self._until_ready and state is LeaseState.ENDING:
            return StreamEnd("ending")  # A lease that will never be ready ends the wait as well.
        return None

    async def _emit(self, emit: Emit, chunk: bytes) -> None:
        await emit(chunk)
        self._stream.sent()
