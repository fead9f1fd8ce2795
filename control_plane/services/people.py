"""People: who somebody is after a sign-in with the issuer, and as which user of which organization they go on.

What the browser holds in between is signed by us and lasts ten minutes: the database stores nothing of a sign-in that
is under way. A cookie holds one random secret, of which state, nonce and code verifier are derived, so that an answer
of the issuer is of use in the browser alone that asked for it.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from control_plane.db import organizations, sign_ins, users
from control_plane.db.sign_ins import Candidate
from control_plane.domain.id_token import Person
from control_plane.domain.ids import OrganizationId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import SubjectEvent, step
from control_plane.domain.transitions import Moved
from control_plane.identity.errors import IdentityError
from control_plane.identity.issuer import Attempt
from control_plane.identity.tokens import PERSON, sign, verify
from control_plane.services.sessions import random_secret
from control_plane.services.signing_in import NOT_CONFIGURED, SigningIn
from control_plane.world import World

__all__ = ["Candidate", "Person"]  # For controllers, which must not import the layer below.

PERSON_LASTS = timedelta(minutes=10)
"""So long a browser may confirm terminals after a sign-in."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that begins: where the browser goes, and what it keeps in a cookie."""

    url: str = field(repr=False)
    secret: str = field(repr=False)


def _derived(secret: str, what: str) -> str:
    made = hmac.new(secret.encode(), what.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


async def begin(signing_in: SigningIn | None, *, choose_account: bool = False) -> Begun | Refused:
    """Send a browser to the issuer, which is to ask again who the person is if they `choose_account`."""
    if signing_in is None or signing_in.issuer is None:
        return NOT_CONFIGURED
    secret = random_secret()
    challenge = hashlib.sha256(_derived(secret, "verifier").encode()).digest()
    attempt = Attempt(
        state=_derived(secret, "state"),
        nonce=_derived(secret, "nonce"),
        code_challenge=base64.urlsafe_b64encode(challenge).decode().rstrip("="),
        redirect_uri=signing_in.redirect_uri,
        choose_account=choose_account,
    )
    try:
        return Begun(await signing_in.issuer.authorization_url(attempt), secret)
    except IdentityError as error:
        return error.refused


async def finish(
    world: World, signing_in: SigningIn | None, *, secret: str | None, state: str, code: str
) -> Person | Refused:
    """Who signed in, when the issuer sends the browser back."""
    if signing_in is None or signing_in.issuer is None:
        return NOT_CONFIGURED
    if secret is None or not hmac.compare_digest(state.encode(), _derived(secret, "state").encode()):
        why = "This sign-in was begun in another browser, or too long ago; start again."
        return Refused(RefusalCode.SIGN_IN_STATE, why)
    found = await signing_in.issuer.redeem(
        code,
        code_verifier=_derived(secret, "verifier"),
        nonce=_derived(secret, "nonce"),
        redirect_uri=signing_in.redirect_uri,
    )
    if isinstance(found, Refused):
        return found
    if not _may_come(signing_in, found):
        why = f"People with an email address at {found.email.rpartition('@')[2]} cannot sign in here."
        return Refused(RefusalCode.EMAIL_DOMAIN, why)
    if not await users_of(world, found):
        return _not_invited(found)
    return found


def _may_come(signing_in: SigningIn, person: Person) -> bool:
    domain = person.email.rpartition("@")[2].lower()
    return not signing_in.email_domains or domain in signing_in.email_domains


def _not_invited(person: Person) -> Refused:
    why = f"No organization has invited {person.email}; ask an administrator of yours to invite this address."
    return Refused(RefusalCode.NOT_INVITED, why)


async def ticket(world: World, signing_in: SigningIn, person: Person) -> str:
    """What the browser keeps of a person who has signed in. Raises KeyManagerError."""
    claims = {"sub": person.subject, "of": person.issuer, "email": person.email, "name": person.name}
    return sign(
        await signing_in.keys.signer(),
        PERSON,
        claims,
        issuer=signing_in.url,
        token_id=world.new_id().hex,
        now=world.now(),
        lasts=PERSON_LASTS,
    )


async def of_ticket(world: World, signing_in: SigningIn, text: str | None) -> Person | None:
    if text is None:
        return None
    claims = verify(text, PERSON, await signing_in.keys.keys(), issuer=signing_in.url, now=world.now())
    if claims is None:
        return None
    return Person(str(claims["of"]), str(claims["sub"]), str(claims["email"]), str(claims["name"]))


async def users_of(world: World, person: Person) -> Sequence[Candidate]:
    """The users that a person is, or becomes with the first sign-in, by the names of their organizations."""
    async with world.db.reading() as connection:
        return await sign_ins.candidates(connection, person)


async def become(world: World, person: Person, organization_id: OrganizationId) -> Candidate | Refused:
    """Go on as the user of an organization, who is bound to the person from then on."""
    found = [user for user in await users_of(world, person) if user.organization_id == organization_id]
    # A user who is bound already goes before one who has the same address and is not.
    for user in sorted(found, key=lambda user: not user.bound):
        async with world.db.transaction(organization_id) as connection:
            # Nothing is written into an organization that is closed, and perhaps erased, since it was found.
            if not await organizations.hold_open(connection, organization_id):
                break
            if not await sign_ins.bind(connection, organization_id, user.user_id, person, state=user.state):
                continue
            moved = step(user.state, SubjectEvent.SIGNED_IN)
            if isinstance(moved, Moved):
                await users.move(
                    connection, organization_id, user.user_id, before=moved.before, after=moved.after
                )
            return user
    return _not_invited(person)
