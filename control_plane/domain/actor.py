"""Who did something, as the journal records it."""

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    CUSTOMER = "customer"
    """A request of a customer's user or service account."""
    OPERATOR = "operator"
    """A request of a user or a service account of the platform's organization, or an administrator at the host."""
    LOOP = "loop"
    """A loop of the reconciler."""


@dataclass(frozen=True, slots=True)
class Actor:
    kind: ActorKind
    name: str
    """The id of the user or the service account on the wire, or the loop's name."""
    request_id: str | None = None
    """The id of the HTTP request, as in the API's log; None for loops."""


def loop(name: str) -> Actor:
    return Actor(ActorKind.LOOP, name)


ADMINISTRATOR = Actor(ActorKind.OPERATOR, "administrator")
"""Somebody who ran a command on the host with the database's own login."""
