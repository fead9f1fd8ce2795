"""What other processes changed in the database, as this process hears it: leases, and API keys that were revoked."""

from collections.abc import Callable
from uuid import UUID

from control_plane.db.bell import ANYTHING, LEASES
from control_plane.db.listen import Listener
from control_plane.domain.ids import ApiKeyId, LeaseId

API_KEYS = "splitplane_api_keys"
"""The channel of revoked keys. A trigger sends to it when a transaction commits: see the first migration."""


class Changes:
    """Passes on what a listener hears. Without a listener it hears nothing, and says so."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener

    @property
    def listening(self) -> bool:
        """Whether changes are heard now. While they are not, look at the database instead."""
        return self._listener is not None and self._listener.listening

    def subscribe(
        self,
        *,
        lease: Callable[[LeaseId], None],
        api_key: Callable[[ApiKeyId], None],
        anything: Callable[[], None],
    ) -> None:
        """Call `lease` when a lease's status or journal may have changed, and `api_key` when a key was revoked.

        `anything` is called when changes may have been missed. Call this once, before `run`.
        """
        if self._listener is not None:
            self._listener.on(LEASES, lambda payload: _each_lease(payload, lease, anything))
            self._listener.on(API_KEYS, lambda payload: api_key(ApiKeyId(UUID(payload))))
            self._listener.on_connected(anything)

    async def run(self) -> None:
        """Hear changes until cancelled."""
        if self._listener is not None:
            await self._listener.run()


def _each_lease(payload: str, lease: Callable[[LeaseId], None], anything: Callable[[], None]) -> None:
    if payload == ANYTHING:
        anything()
        return
    for text in payload.split():
        lease(LeaseId(UUID(text)))
