"""How several API processes share one rate of requests: what one asks for, and what it gets.

A process spends from a stock of tokens of its own, so that no request waits for the database. In the background it
reports what it took on its own account, and has its stock refilled from a bucket that all processes share.
"""

from dataclasses import dataclass
from uuid import UUID

from control_plane.domain.ids import OrganizationId


@dataclass(frozen=True, slots=True)
class Ask:
    """What one process asks of one shared bucket."""

    bucket: UUID
    """The id of what is limited: an organization, or one of its API keys."""
    organization_id: OrganizationId
    taken: float
    """Tokens that the process gave out on its own account since it asked last; negative when it gives some back."""
    wanted: float
    """Tokens that it wants for its stock."""
    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Given:
    """What it got."""

    bucket: UUID
    granted: float
    level: float
    """The tokens that are left in the shared bucket. Negative while processes took more on their own account."""


@dataclass(frozen=True, slots=True)
class Answer:
    processes: int
    """How many API processes share the buckets now, this one included."""
    given: tuple[Given, ...]
