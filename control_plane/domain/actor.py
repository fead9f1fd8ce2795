"""Who did something, as the journal keeps it."""

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    CUSTOMER = "customer"
    """A request with a customer's API key."""
    OPERATOR = "operator"
    """A request with an operator's API key, or an administrator at the host."""
    LOOP = "loop"
    """A loop of the reconciler."""


@dataclass(frozen=True, slots=True)
class Actor:
    kind: ActorKind
    name: str
    """The API key's id on the wire, or the loop's name."""
    request_id: str | None = None
    """Of the HTTP request, as the API's log names it; None for loops."""


def loop(name: str) -> Actor:
    return Actor(ActorKind.LOOP, name)


ADMINISTRATOR = Actor(ActorKind.OPERATOR, "administrator")
"""A command that was run on the host with the database's own login."""
