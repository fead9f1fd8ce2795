"""How many event streams may be open: in this process, for each organization, and for each API key."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from control_plane.api.errors import ApiError
from control_plane.domain.access import Principal
from control_plane.settings import Settings


@dataclass(frozen=True, slots=True)
class _Bound:
    key: object
    most: int
    why: str


class Places:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._taken: Counter[object] = Counter()

    @contextmanager
    def take(self, principal: Principal) -> Iterator[None]:
        """A place for one stream. Raises ApiError `streams_exhausted`, which names the bound that is reached."""
        bounds = self._bounds(principal)
        for bound in bounds:
            if self._taken[bound.key] >= bound.most:
                raise ApiError("streams_exhausted", bound.why)
        keys = [bound.key for bound in bounds]
        self._taken.update(keys)
        try:
            yield
        finally:
            self._taken.subtract(keys)
            for key in keys:
                if not self._taken[key]:
                    del self._taken[key]

    def _bounds(self, principal: Principal) -> tuple[_Bound, ...]:
        settings = self._settings
        key, organization, process = (
            settings.streams_per_key_max,
            settings.streams_per_organization_max,
            settings.streams_max,
        )
        return (
            _Bound(
                principal.credential_id, key, f"{key} event streams of this API key are open on this server."
            ),
            _Bound(
                principal.organization_id,
                organization,
                f"{organization} event streams of your organization are open on this server.",
            ),
            _Bound(None, process, f"{process} event streams are open on this server."),
        )
