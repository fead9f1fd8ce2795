"""The hub, which is not asked while it is known to be silent (`domain/hub_silence.py`).

Many loops call the hub, and each call to one that hangs takes 8 to 20 s. So the first call that finds it silent tells
all others of this process, which fail at once. One of them tries again after 5 s, later once a minute, and its success
lets all of them go on. A network that fails by itself, because another call for it hangs, does not count: only when two
networks in a row ran out of time, it is the hub.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from control_plane.domain.hub_silence import HubSilence, failed
from data_plane.access.port import AccessError, HostKeyChanged, LoginRefused, StepFailed, Unreachable
from data_plane.mesh.hub import HubBusy
from data_plane.mesh.port import Hub, HubIdentity, Network, Peer, ReadAuthorities

Answer = TypeVar("Answer")
_LATE_MAX = 1
"""So many networks may run out of time before the hub itself counts as silent."""


class PatientHub:
    """`mesh.port.Hub`. One for each process."""

    def __init__(self, hub: Hub, now: Callable[[], datetime]) -> None:
        self._hub = hub
        self._now = now
        self._silence: HubSilence | None = None
        self._is_tried = False
        self._late: set[int | None] = set()

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        return await self._asked(network.number, lambda: self._hub.sync(network, peers, fence=fence))

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        await self._asked(network.number, lambda: self._hub.drop(network, fence=fence))

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        return await self._asked(None, lambda: self._hub.trust(read))

    async def _asked(self, network: int | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        if self._silence is None:
            return await self._called(network, call)
        if self._is_tried or self._now() < self._silence.asked_again_at():
            raise Unreachable(str(self._silence))
        self._is_tried = True
        try:
            return await self._called(network, call)
        finally:
            self._is_tried = False

    async def _called(self, network: int | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await call()
        except HubBusy:
            raise
        except (Unreachable, HostKeyChanged, LoginRefused) as error:
            self._was_silent(error)
            raise
        except StepFailed as error:
            if error.exit_status is None:
                self._ran_out_of_time(network, error)
            else:
                self._answered()
            raise
        self._answered()
        return answer

    def _ran_out_of_time(self, network: int | None, error: StepFailed) -> None:
        self._late.add(network)
        if len(self._late) > _LATE_MAX:
            self._was_silent(error)

    def _was_silent(self, error: AccessError) -> None:
        self._silence = failed(self._silence, f"{type(error).__name__}: {error}", self._now())

    def _answered(self) -> None:
        self._silence = None
        self._late.clear()
