"""Browsers: the way to the issuer and back, and the page on which a person confirms a terminal.

Two cookies, both HttpOnly, SameSite=Lax and (but on a loopback address) Secure: one binds the sign-in to the browser
that began it, the other says for ten minutes who signed in. No code and no token is in a page or in a URL of ours.
"""

import hashlib
import hmac

from litestar import Controller, Response, get, post
from litestar.datastructures import Cookie

from control_plane.api import observe, sign_in_page
from control_plane.api.auditing import note_refused_holder, note_refused_sign_in
from control_plane.api.errors import KINDS
from control_plane.api.forms import form, query
from control_plane.api.identifiers import read_organization_id
from control_plane.api.oauth import configured
from control_plane.api.requests import ApiRequest
from control_plane.domain.access import Holder
from control_plane.domain.audit import Happening
from control_plane.domain.device_flow import Device, typed
from control_plane.domain.id_token import Person
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.services import devices, people
from control_plane.services.people import PERSON_LASTS
from control_plane.services.signing_in import SigningIn

SIGN_IN_SECONDS = 600
"""So long a person may take at the issuer."""
DENIED = "access_denied"
"""The code of RFC 8628, section 3.5, for a terminal that a person refused."""
Page = Response[bytes]


class SignInController(Controller):
    path = "/auth"
    include_in_schema = False

    @get("/start")
    async def start(self, request: ApiRequest) -> Page:
        """Send the browser to the issuer. With `user_code` it comes back to that terminal.

        With `choose_account` the issuer asks who the person is, for somebody who was signed in as somebody else.
        """
        signing_in, fields = configured(request), query(request)
        user_code = typed(fields.get("user_code", "")) or ""
        begun = await people.begin(signing_in, choose_account="choose_account" in fields)
        if isinstance(begun, Refused):
            return _refused(request, begun)
        cookie = _cookie(signing_in, "sign-in", f"{begun.secret}.{user_code}", SIGN_IN_SECONDS)
        return _redirect(begun.url, cookie)

    @get("/callback")
    async def callback(self, request: ApiRequest) -> Page:
        """The issuer sends the browser back here."""
        signing_in, fields = configured(request), query(request)
        kept = request.cookies.get(_name(signing_in, "sign-in"))
        secret, _, user_code = (kept or "").partition(".")
        if "code" not in fields:
            return _refused(request, _issuer_said(fields.get("error", "")))
        found = await people.finish(
            request.context.world,
            signing_in,
            secret=secret or None,
            state=fields.get("state", ""),
            code=fields["code"],
        )
        over = _cookie(signing_in, "sign-in", "", 0)
        if isinstance(found, Refused):
            return _refused(request, found, over)
        ticket = await people.ticket(request.context.world, signing_in, found)
        seconds = int(PERSON_LASTS.total_seconds())
        where = f"/device?user_code={user_code}" if typed(user_code) else "/device"
        return _redirect(where, over, _cookie(signing_in, "person", ticket, seconds))


class DeviceController(Controller):
    path = "/device"
    include_in_schema = False

    @get("/")
    async def show(self, request: ApiRequest) -> Page:
        """Which terminal waits with this code, for a person who is signed in."""
        signing_in, text = configured(request), query(request).get("user_code", "")
        person = await _person(request, signing_in)
        if person is None:
            code = typed(text)
            return _redirect(f"/auth/start?user_code={code}" if code else "/auth/start")
        if not text:
            return _html(sign_in_page.enter_code(person))
        found = await _waiting(request, person, text)
        if isinstance(found, Refused):
            note_refused_sign_in(request, found.code)
            return _html(sign_in_page.enter_code(person, found.why), KINDS[found.code].status)
        users = await people.users_of(request.context.world, person)
        token = _form_token(request, signing_in)
        return _html(sign_in_page.confirm(found, typed(text) or "", person, users, token))

    @post("/", status_code=200)
    async def decide(self, request: ApiRequest) -> Page:
        """Sign the terminal in, or refuse it."""
        signing_in, fields = configured(request), await form(request)
        person = await _person(request, signing_in)
        # SameSite=Lax keeps the cookie from forms of other sites; the token keeps out what would share our site.
        genuine = hmac.compare_digest(
            fields.get("form_token", "").encode(), _form_token(request, signing_in).encode()
        )
        if person is None or not genuine:
            why = "The page is too old; open it again."
            return _refused(request, Refused(RefusalCode.SIGN_IN_STATE, why))
        found = await _waiting(request, person, fields.get("user_code", ""))
        if isinstance(found, Refused):
            return _refused(request, found)
        code = typed(fields["user_code"]) or ""
        if fields.get("action") != "confirm":
            refused = await devices.deny(request.context.world, code)
            note_refused_sign_in(request, DENIED)
        else:
            organization = read_organization_id(fields.get("organization", ""))
            refused = await devices.confirm(request.context.world, person, code, organization)
        if isinstance(refused, Refused):
            noted = refused.code is RefusalCode.NOT_INVITED and await _note_not_invited(request, person)
            return _page_of(request, refused) if noted else _refused(request, refused)
        return _html(sign_in_page.done(fields.get("action") == "confirm"))


async def _note_not_invited(request: ApiRequest, person: Person) -> bool:
    """Who tries to get into an organization that is not theirs is in the audit log of those that are.

    False when none is theirs.
    """
    users = [user for user in await people.users_of(request.context.world, person) if user.bound]
    for user in users:
        holder = Holder(user.organization_id, Subject(SubjectKind.USER, user.user_id), None)
        note_refused_holder(request, holder, Happening.SESSIONS_BEGIN.value, RefusalCode.NOT_INVITED)
    return bool(users)


async def _person(request: ApiRequest, signing_in: SigningIn) -> Person | None:
    return await people.of_ticket(
        request.context.world, signing_in, request.cookies.get(_name(signing_in, "person"))
    )


async def _waiting(request: ApiRequest, person: Person, text: str) -> Device | Refused:
    """The terminal with this code. Wrong codes are counted for the person and slow down. Raises ApiError."""
    door, now = request.context.door, request.context.world.now().timestamp()
    door.may_try_codes(person.subject, now)
    code = typed(text)
    if code is None:
        found: Device | Refused = Refused(
            RefusalCode.DEVICE_NOT_FOUND,
            "A code has eight letters, such as BCDF-GHJK; type it as it is shown.",
        )
    else:
        found = await devices.waiting(request.context.world, code)
    if isinstance(found, Refused):
        door.wrong_code(person.subject, now)
    return found


def _issuer_said(error: str) -> Refused:
    word = error if error.isidentifier() and len(error) <= 60 else "no code"
    return Refused(RefusalCode.SIGN_IN_REFUSED, f"The issuer did not sign you in ({word}); start again.")


def _form_token(request: ApiRequest, signing_in: SigningIn) -> str:
    """What our own page sends back: only it knows the cookie, which no script can read."""
    ticket = request.cookies.get(_name(signing_in, "person"), "")
    return hashlib.sha256(f"form {ticket}".encode()).hexdigest()


def _name(signing_in: SigningIn, what: str) -> str:
    """With https, a name that browsers accept from us alone (RFC 6265bis, section 4.1.3)."""
    return f"{'__Host-' if signing_in.secure else ''}splitplane-{what}"


def _cookie(signing_in: SigningIn, what: str, value: str, seconds: int) -> Cookie:
    return Cookie(
        key=_name(signing_in, what),
        value=value,
        max_age=seconds,
        path="/",
        secure=signing_in.secure,
        httponly=True,
        samesite="lax",
    )


def _redirect(url: str, *cookies: Cookie) -> Page:
    headers = {**sign_in_page.HEADERS, "Location": url}
    return Response(b"", status_code=303, headers=headers, cookies=list(cookies), media_type="text/html")


def _html(page: bytes, status: int = 200) -> Page:
    return Response(page, status_code=status, headers=sign_in_page.HEADERS, media_type="text/html")


def _refused(request: ApiRequest, found: Refused, *cookies: Cookie) -> Page:
    note_refused_sign_in(request, found.code)
    return _page_of(request, found, *cookies)


def _page_of(request: ApiRequest, found: Refused, *cookies: Cookie) -> Page:
    page = sign_in_page.refused(found, observe.request_id(request.scope))
    return Response(
        page,
        status_code=KINDS[found.code].status,
        headers=sign_in_page.HEADERS,
        cookies=list(cookies),
        media_type="text/html",
    )
