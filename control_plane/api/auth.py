"""Who asks: an API key becomes a principal, or the answer is 401.

A key's owner is remembered for `REMEMBER_SECONDS`, so that a read is one query and not two. A
revoked key therefore works for at most that long in a process that has just seen it.
"""

from dataclasses import dataclass

from control_plane.api.errors import ApiError
from control_plane.domain.actor import ActorKind
from control_plane.domain.ids import ApiKeyId, OrganizationId, Prefix, on_wire
from control_plane.domain.permission import Role
from control_plane.services import api_keys
from control_plane.world import World

REMEMBER_SECONDS = 5
KEYS_MAX = 10_000
SECRET_LENGTH_MAX = 200
_ACTOR_KINDS = {Role.CUSTOMER: ActorKind.CUSTOMER, Role.OPERATOR: ActorKind.OPERATOR}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="splitplane"'}


@dataclass(frozen=True, slots=True)
class Principal:
    """An organization, through one of its keys."""

    organization_id: OrganizationId
    api_key_id: ApiKeyId
    operator: bool
    actor: str
    """The key's id on the wire: what journal and log name."""
    actor_kind: ActorKind


class Authenticator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[bytes, tuple[Principal | None, float]] = {}
        """Digest of the secret to its owner and until when (Unix seconds) that is believed."""

    async def principal(self, authorization: str | None) -> Principal:
        secret = _bearer(authorization)
        digest = api_keys.digest(secret)
        now = self._world.now().timestamp()
        known = self._known.get(digest)
        if known is None or known[1] <= now:
            known = (await self._look_up(secret), now + REMEMBER_SECONDS)
            if len(self._known) >= KEYS_MAX:
                self._known.clear()  # A flood of made-up keys costs look-ups, not memory.
            self._known[digest] = known
        if known[0] is None:
            raise ApiError("unauthenticated", "This API key is unknown or revoked.", headers=_CHALLENGE)
        return known[0]

    async def _look_up(self, secret: str) -> Principal | None:
        owner = await api_keys.owner_of(self._world, secret)
        if owner is None:
            return None
        return Principal(
            owner.organization_id,
            owner.api_key_id,
            owner.role is Role.OPERATOR,
            on_wire(Prefix.API_KEY, owner.api_key_id),
            _ACTOR_KINDS[owner.role],
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
