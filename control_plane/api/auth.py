"""Authentication: an API key becomes a principal, or the answer is 401.

The owner of a key is cached, so that a read is one query and not two. A revocation removes the entry: at once in the
process that did it, and in the others when PostgreSQL tells them (services/changes.py), which takes milliseconds. No
key is remembered for longer than a second, because it takes a process seconds to find out that it hears nothing.
"""

from dataclasses import dataclass

from control_plane.api.errors import ApiError
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import ApiKeyId, OrganizationId, Prefix, on_wire
from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import PERMISSIONS, Permission, Role
from control_plane.domain.subject import Subject
from control_plane.services import api_keys
from control_plane.world import World

REMEMBER_SECONDS = 1
KEYS_MAX = 10_000
SECRET_LENGTH_MAX = 200
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="splitplane"'}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an organization, through one of its API keys."""

    organization_id: OrganizationId
    subject: Subject
    api_key_id: ApiKeyId
    key_name: str
    """The key's id on the wire, for the journal and the log."""
    role: Role
    permissions: frozenset[Permission]
    state: OrganizationState
    """The state of the organization. Keys of organizations that are closing, closed or deleted have no principal."""

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
        """For each digest of a secret: its owner, and when it was looked up (Unix seconds)."""
        self._forgotten = 0
        """How often entries were removed: what was read before a removal must not be remembered after it."""

    async def principal(self, authorization: str | None) -> Principal:
        secret = _bearer(authorization)
        digest = api_keys.digest(secret)
        known = self._known.get(digest)
        if known is None or not self._is_fresh(known[1]):
            known = (await self._look_up_lastingly(secret), self._world.now().timestamp())
            if len(self._known) >= KEYS_MAX:
                self._known.clear()  # A flood of invented keys must not fill the memory.
            self._known[digest] = known
        if known[0] is None:
            raise unauthenticated()
        return known[0]

    def forget(self, key: ApiKeyId) -> None:
        """Forget a key that was revoked."""
        self._forgotten += 1
        for digest in [
            digest for digest, (owner, _) in self._known.items() if owner and owner.api_key_id == key
        ]:
            del self._known[digest]

    def forget_organization(self, organization_id: OrganizationId) -> None:
        """Forget the keys of an organization whose state changed."""
        self._forgotten += 1
        for digest in [
            digest
            for digest, (owner, _) in self._known.items()
            if owner and owner.organization_id == organization_id
        ]:
            del self._known[digest]

    def forget_all(self) -> None:
        """Forget every key, because revocations may have been missed."""
        self._forgotten += 1
        self._known.clear()

    def _is_fresh(self, looked_up_at: float) -> bool:
        return self._world.now().timestamp() < looked_up_at + REMEMBER_SECONDS

    async def _look_up_lastingly(self, secret: str) -> Principal | None:
        """The owner of a key, read after the last revocation that this process knows of."""
        while True:
            forgotten = self._forgotten
            owner = await self._look_up(secret)
            if forgotten == self._forgotten:
                return owner

    def has_opened(self, authorization: str | None) -> bool:
        """Whether this key was valid when it was last looked up, which may be a while ago."""
        known = self._known.get(api_keys.digest(_bearer(authorization))) if authorization else None
        return known is not None and known[0] is not None

    async def _look_up(self, secret: str) -> Principal | None:
        owner = await api_keys.owner_of(self._world, secret)
        if owner is None:
            return None
        return Principal(
            organization_id=owner.organization_id,
            subject=owner.subject,
            api_key_id=owner.api_key_id,
            key_name=on_wire(Prefix.API_KEY, owner.api_key_id),
            role=owner.role,
            permissions=PERMISSIONS[owner.role],
            state=owner.state,
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


def unauthenticated() -> ApiError:
    """The answer to a key that opens nothing. It does not say whether the key ever did."""
    return ApiError("unauthenticated", "This API key is unknown or revoked.", headers=_CHALLENGE)
