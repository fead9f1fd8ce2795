"""Authentication: an API key or an access token becomes a principal, or the answer is 401.

The owner of a key is cached with all that it may do, so that a read is one query and not two. A revocation of the key,
and a change of its owner's state or roles, remove the entry: at once in the process that did it, and in the others when
PostgreSQL tells them (services/changes.py), which takes milliseconds. No key is remembered for longer than a second,
because it takes a process seconds to find out that it hears nothing.
"""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from control_plane.api.errors import ApiError
from control_plane.api.guesses import TOKEN_PREFIX
from control_plane.domain.access import Holder, Principal
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.services import access_tokens, principals
from control_plane.services.api_keys import KEY_PREFIX
from control_plane.services.signing_in import SigningIn
from control_plane.world import World

REMEMBER_SECONDS = 1
KEYS_MAX = 10_000
SECRET_LENGTH_MAX = 200
TOKEN_LENGTH_MAX = 4_096
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="splitplane"'}


def actor(principal: Principal, request_id: str) -> Actor:
    """Who does what a request does, as the journal names it: the subject, whichever of its credentials it used."""
    kind = ActorKind.OPERATOR if principal.platform else ActorKind.CUSTOMER
    return Actor(kind, principal.subject.on_wire, request_id)


class Authenticator:
    def __init__(self, world: World, signing_in: SigningIn | None) -> None:
        self._world = world
        self._signing_in = signing_in
        self._known: dict[bytes, tuple[Principal | Holder | None, float]] = {}
        """For each digest of a secret: whose it is or was, and when it was looked up (Unix seconds)."""
        self._used: dict[OrganizationId, dict[ApiKeyId, datetime]] = {}
        """When keys were last used, by organization, until it is stored."""
        self._forgotten = 0
        """How often entries were removed: what was read before a removal must not be remembered after it."""

    async def principal(self, authorization: str | None) -> Principal:
        secret = _bearer(authorization)
        digest = principals.digest(secret)
        known = self._known.get(digest)
        if known is None or not self._is_fresh(known[1]):
            # The time before the look-up: this process may stand still while it waits for the answer.
            asked_at = self._world.now().timestamp()
            known = (await self._look_up_lastingly(secret), asked_at)
            if len(self._known) >= KEYS_MAX:
                self._known.clear()  # A flood of invented keys must not fill the memory.
            self._known[digest] = known
        principal, now = known[0], self._world.now()
        if not isinstance(principal, Principal) or (
            principal.expires_at is not None and now >= principal.expires_at
        ):
            raise unauthenticated()
        self._used.setdefault(principal.organization_id, {})[ApiKeyId(principal.credential_id)] = now
        return principal

    async def is_signed(self, authorization: str | None) -> bool:
        """Whether this is an access token that we signed and that has not expired, whatever its credential opens."""
        secret = (authorization or "").partition(" ")[2].strip()
        if self._signing_in is None or not secret.startswith(TOKEN_PREFIX):
            return False
        return await access_tokens.is_signed(self._world, self._signing_in, secret)

    def holder(self, secret: str) -> Holder | None:
        """Whose this access token was that was just refused; None when it never opened anything, or is no token."""
        known = self._known.get(principals.digest(secret))
        return known[0] if known is not None and isinstance(known[0], Holder) else None

    def forget(self, key: ApiKeyId) -> None:
        """Forget a key that was revoked, or that ends sooner."""
        self._forget(lambda principal: principal.credential_id == key)

    def forget_subject(self, subject: UUID) -> None:
        """Forget the keys of a user or a service account whose state or roles have changed.

        Keys that opened nothing are forgotten too: whoever is resumed may have some of them.
        """
        self._forget(lambda principal: principal.subject.id == subject, refused=True)

    def _forget(self, concerned: Callable[[Principal], bool], *, refused: bool = False) -> None:
        self._forgotten += 1
        for digest in [
            digest
            for digest, (owner, _) in self._known.items()
            if (concerned(owner) if isinstance(owner, Principal) else refused)
        ]:
            del self._known[digest]

    def forget_organization(self, organization_id: OrganizationId) -> None:
        """Forget the keys of an organization whose state changed."""
        self._forget(lambda principal: principal.organization_id == organization_id)

    def forget_all(self) -> None:
        """Forget every key, because revocations may have been missed."""
        self._forgotten += 1
        self._known.clear()

    async def store_uses(self) -> None:
        """Store when keys were used. It happens now and then, beside the requests."""
        used, self._used = self._used, {}
        for organization_id, uses in used.items():
            await principals.note_uses(self._world, organization_id, uses)

    def _is_fresh(self, looked_up_at: float) -> bool:
        return self._world.now().timestamp() < looked_up_at + REMEMBER_SECONDS

    async def _look_up_lastingly(self, secret: str) -> Principal | Holder | None:
        """The owner of a key, read after the last revocation that this process knows of."""
        while True:
            forgotten = self._forgotten
            owner = await self._look_up(secret)
            if forgotten == self._forgotten:
                return owner

    async def _look_up(self, secret: str) -> Principal | Holder | None:
        if secret.startswith(KEY_PREFIX):
            return await principals.of_secret(self._world, secret)
        if self._signing_in is None:
            return None
        return await access_tokens.principal_of(self._world, self._signing_in, secret)


def _bearer(authorization: str | None) -> str:
    scheme, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    is_key = secret.startswith(KEY_PREFIX) and len(secret) <= SECRET_LENGTH_MAX
    is_token = secret.startswith(TOKEN_PREFIX) and secret.count(".") == 2 and len(secret) <= TOKEN_LENGTH_MAX
    if scheme.lower() != "bearer" or not (is_key or is_token) or not secret.isascii():
        raise ApiError(
            "unauthenticated",
            "Send an API key as `Authorization: Bearer spk_...`.",
            headers=_CHALLENGE,
        )
    return secret


def unauthenticated() -> ApiError:
    """The answer to a key that opens nothing. It does not say why, or whether the key ever did."""
    return ApiError("unauthenticated", "This API key is unknown, expired or revoked.", headers=_CHALLENGE)
