"""Access tokens: made for a session or for a service account's API key, and turned into a principal again.

A token names its credential. That row is looked up with each request, as it is for an API key, so that a token ends
with its session or key, and not only when it expires.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from control_plane.domain.access import Holder, Principal, confined
from control_plane.domain.ids import ApiKeyId, MalformedIdError, OrganizationId, Prefix, off_wire, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.signing_key import TOKEN_LASTS
from control_plane.domain.subject import Subject
from control_plane.identity.tokens import ACCESS, sign, verify
from control_plane.services import principals
from control_plane.services.signing_in import SigningIn
from control_plane.services.subjects import read_subject
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class AccessToken:
    token: str = field(repr=False)
    seconds: int
    """For how long it is valid."""
    scope: str | None = None
    """The permissions that it is limited to, separated by spaces; None when it is not."""


async def issue(
    world: World,
    signing_in: SigningIn,
    *,
    organization_id: OrganizationId,
    subject: Subject,
    credential: str,
    client_id: str,
    scope: frozenset[Permission] | None = None,
) -> AccessToken:
    """A token for a credential, by its id on the wire. Raises KeyManagerError."""
    words = None if scope is None else " ".join(sorted(scope))
    claims: dict[str, object] = {
        "sub": subject.on_wire,
        "org": on_wire(Prefix.ORGANIZATION, organization_id),
        "cred": credential,
        "client_id": client_id,
    }
    if words is not None:
        claims["scope"] = words
    token = sign(
        await signing_in.keys.signer(),
        ACCESS,
        claims,
        issuer=signing_in.url,
        token_id=world.new_id().hex,
        now=world.now(),
        lasts=TOKEN_LASTS,
    )
    return AccessToken(token, int(TOKEN_LASTS.total_seconds()), words)


async def is_signed(world: World, signing_in: SigningIn, token: str) -> bool:
    """Whether we signed this token, and it has not expired."""
    keys = await signing_in.keys.keys()
    return verify(token, ACCESS, keys, issuer=signing_in.url, now=world.now()) is not None


async def principal_of(world: World, signing_in: SigningIn, token: str) -> Principal | Holder | None:
    """Whose token this is. The holder alone when its credential opens nothing any more.

    None when it is none of ours, or has expired.
    """
    keys = await signing_in.keys.keys()
    claims = verify(token, ACCESS, keys, issuer=signing_in.url, now=world.now())
    credential = None if claims is None else _credential(claims.get("cred"))
    if claims is None or credential is None:
        return None
    found = (await principals.of_keys(world, [ApiKeyId(credential)])).get(ApiKeyId(credential))
    if found is None:
        return _holder(claims)
    if not _is_of(found, claims):
        return None
    end = datetime.fromtimestamp(claims["exp"], UTC)
    ends = end if found.expires_at is None else min(end, found.expires_at)
    return replace(confined(found, _scope(claims.get("scope"))), expires_at=ends)


def _is_of(principal: Principal, claims: Mapping[str, object]) -> bool:
    named = (principal.subject.on_wire, on_wire(Prefix.ORGANIZATION, principal.organization_id))
    return named == (claims.get("sub"), claims.get("org"))


def _holder(claims: Mapping[str, object]) -> Holder | None:
    """Whose token it was, by what we signed."""
    subject = read_subject(str(claims["sub"]))
    try:
        organization_id = OrganizationId(off_wire(Prefix.ORGANIZATION, str(claims.get("org"))))
    except MalformedIdError:
        return None
    return None if subject is None else Holder(organization_id, subject, str(claims["cred"]))


def _credential(text: object) -> UUID | None:
    try:
        word = str(text)
        return off_wire(Prefix.SESSION if word.startswith(f"{Prefix.SESSION}_") else Prefix.API_KEY, word)
    except MalformedIdError:
        return None


def _scope(text: object) -> frozenset[Permission] | None:
    """The permissions of a scope. A word that is no permission any more allows nothing."""
    if text is None:
        return None
    known = set(Permission)
    return frozenset(Permission(word) for word in str(text).split() if word in known)


def read_scope(text: str) -> frozenset[Permission] | None:
    """The permissions that a client asks for; None when a word is none."""
    words = text.split()
    known = set(Permission)
    return frozenset(Permission(word) for word in words) if words and set(words) <= known else None
