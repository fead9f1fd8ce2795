"""Authentication: an API key becomes a principal, or the answer is 401.

The owner of a key is cached for `REMEMBER_SECONDS`, so that a read is one query and not two. A revoked
key therefore works for at most that long in a process that has just seen it.
"""

from dataclasses import dataclass

from control_plane.api.errors import ApiError
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import ApiKeyId, OrganizationId, Prefix, on_wire
from control_plane.domain.permission import PERMISSIONS, Permission, Role
from control_plane.services import api_keys
from control_plane.world import World

REMEMBER_SECONDS = 5
KEYS_MAX = 10_000
SECRET_LENGTH_MAX = 200
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="splitplane"'}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an organization, through one of its API keys."""

    organization_id: OrganizationId
    api_key_id: ApiKeyId
    key_name: str
    """The key's id on the wire, for the journal and the log."""
    role: Role
    permissions: frozenset[Permission]

    def actor(self, request_id: str) -> Actor:
        """Who does what this request does, as the journal names it."""
        kind = ActorKind.OPERATOR if self.role is Role.OPERATOR else ActorKind.CUSTOMER
        return Actor(kind, self.key_name, request_id)

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions


class Authenticator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[bytes, tuple[Principal | None, float]] = {}
        """For each digest of a secret: its owner, and until when (Unix seconds) the entry is valid."""

    async def principal(self, authorization: str | None) -> Principal:
        secret = _bearer(authorization)
        digest = api_keys.digest(secret)
        now = self._world.now().timestamp()
        known = self._known.get(digest)
        if known is None or known[1] <= now:
            known = (await self._look_up(secret), now + REMEMBER_SECONDS)
            if len(self._known) >= KEYS_MAX:
                self._known.clear()  # A flood of invented keys must not fill the memory.
            self._known[digest] = known
        if known[0] is None:
            raise ApiError("unauthenticated", "This API key is unknown or revoked.", headers=_CHALLENGE)
        return known[0]

    async def _look_up(self, secret: str) -> Principal | None:
        owner = await api_keys.owner_of(self._world, secret)
        if owner is None:
            return None
        return Principal(
            organization_id=owner.organization_id,
            api_key_id=owner.api_key_id,
            key_name=on_wire(Prefix.API_KEY, owner.api_key_id),
            role=owner.role,
            permissions=PERMISSIONS[owner.role],
        )


def _bearer(authorization: str | None) -> str:
    scheme, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    if (
        scheme.lower() != "bearer"
        or not secret.startswith(api_keys.KEY_PREFIX)
        or len(secret) > SECRET_LENGTH_MAX
        or not secret.isascii()
    ):
        raise ApiError(
            "unauthenticated",
            "Send an API key as `Authorization: Bearer spk_...`.",
            headers=_CHALLENGE,
        )
    return secret
