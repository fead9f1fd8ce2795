"""What other processes changed, as this process hears it: leases, API keys, what subjects may do, organizations."""

from collections.abc import Callable
from uuid import UUID

from control_plane.db.bell import ANYTHING, LEASES
from control_plane.db.listen import Listener
from control_plane.domain.ids import ApiKeyId, LeaseId, OrganizationId
from control_plane.domain.organization import OrganizationState

API_KEYS = "splitplane_api_keys"
"""The channel of keys that were revoked or end sooner. A trigger sends to it when a transaction commits: see the first
migration."""
SUBJECTS = "splitplane_subjects"
"""The channel of users and service accounts whose state or roles have changed, likewise."""


ORGANIZATIONS = "splitplane_organizations"
"""The channel of organizations whose state changed, as their id and the state, sent in the same way."""


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
        subject: Callable[[UUID], None],
        organization: Callable[[OrganizationId, OrganizationState], None],
        anything: Callable[[], None],
    ) -> None:
        """Call `lease` when a lease's status or journal may have changed, `api_key` when a key was revoked, `subject`
        when the state or the roles of a user or a service account have changed, and `organization` when an organization
        has another state.

        `anything` is called when changes may have been missed. Call this once, before `run`.
        """
        if self._listener is not None:
            self._listener.on(LEASES, lambda payload: _each_lease(payload, lease, anything))
            self._listener.on(API_KEYS, lambda payload: api_key(ApiKeyId(UUID(payload))))
            self._listener.on(ORGANIZATIONS, lambda payload: organization(*_organization(payload)))
            self._listener.on(SUBJECTS, lambda payload: subject(UUID(payload)))
            self._listener.on_connected(anything)

    async def run(self) -> None:
        """Hear changes until cancelled."""
        if self._listener is not None:
            await self._listener.run()


def _organization(payload: str) -> tuple[OrganizationId, OrganizationState]:
    text, _, state = payload.partition(" ")
    return OrganizationId(UUID(text)), OrganizationState(state)


def _each_lease(payload: str, lease: Callable[[LeaseId], None], anything: Callable[[], None]) -> None:
    if payload == ANYTHING:
        anything()
        return
    for text in payload.split():
        lease(LeaseId(UUID(text)))
