"""The pages of a sign-in: small, without scripts, and readable without styles."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from control_plane.domain.device_flow import Device, shown
from control_plane.domain.id_token import Person
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.refusal import Refused
from control_plane.services.people import Candidate

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --button: #2563eb; }
body { margin: 12vh auto 4rem; max-width: 26rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1rem; margin: 1rem 0; }
dt { opacity: .7; } dd { margin: 0; }
.code { font: 600 1.6rem/1.4 ui-monospace, monospace; letter-spacing: .08em; }
fieldset { border: 1px solid var(--line); border-radius: .4rem; margin: 1rem 0; } label { display: block; }
input[type=text] { font: 1.2rem ui-monospace, monospace; padding: .4rem .6rem; width: 100%; box-sizing: border-box; }
button { font: inherit; padding: .5rem 1.2rem; border-radius: .4rem; border: 1px solid var(--line); cursor: pointer; }
button.main { background: var(--button); border-color: var(--button); color: #fff; }
small { opacity: .7; overflow-wrap: anywhere; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _page(title: str, body: str) -> bytes:
    text = (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - Splitplane</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n{body}\n</main></body></html>\n"
    )
    return text.encode()


def refused(found: Refused, request_id: str) -> bytes:
    return _page(
        "You are not signed in",
        f"<p>{escape(found.why)}</p>\n<p><small>{escape(found.code)} - request {escape(request_id)}</small></p>",
    )


def enter_code(person: Person, why: str = "") -> bytes:
    remark = f"<p>{escape(why)}</p>" if why else ""
    return _page(
        "Sign a terminal in",
        f"""{remark}<p>You are signed in as {escape(person.email)}. Type the code that your terminal shows.</p>
<form action="/device" method="get"><p><label>Code
<input type="text" name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false" autofocus>
</label></p>
<p><button class="main">Continue</button></p></form>""",
    )


def confirm(
    device: Device, user_code: str, person: Person, users: Sequence[Candidate], form_token: str
) -> bytes:
    """The terminal, and who would be signed in: a person refuses one that somebody else has started."""
    return _page(
        "Sign this terminal in?",
        f"""<p class="code">{escape(shown(user_code))}</p>
<dl><dt>Client</dt><dd>{escape(device.client) or "unnamed"}</dd><dt>Address</dt><dd>{escape(device.address)}</dd>
<dt>Since</dt><dd>{device.created_at:%H:%M:%S} UTC</dd><dt>As</dt><dd>{escape(person.email)}</dd></dl>
<p>Confirm only if you started this yourself and your terminal shows the same code.</p>
<form action="/device" method="post"><input type="hidden" name="user_code" value="{escape(user_code)}">
<input type="hidden" name="form_token" value="{escape(form_token)}">
{_organizations(users)}
<p><button class="main" name="action" value="confirm">Sign in</button>
<button name="action" value="deny">Refuse</button></p></form>
<p><small>Not {escape(person.email)}?
<a href="/auth/start?choose_account=1&amp;user_code={escape(user_code)}">Sign in as somebody else</a></small></p>""",
    )


def _organizations(users: Sequence[Candidate]) -> str:
    names = {user.organization_id: user.organization for user in users}
    choices = [(on_wire(Prefix.ORGANIZATION, known), escape(name)) for known, name in names.items()]
    if len(choices) == 1:
        (known, name) = choices[0]
        return f'<p>Organization: {name}<input type="hidden" name="organization" value="{known}"></p>'
    radios = "\n".join(
        f'<label><input type="radio" name="organization" value="{known}" required> {name}</label>'
        for known, name in choices
    )
    return f"<fieldset><legend>Organization</legend>\n{radios}</fieldset>"


def done(signed_in: bool) -> bytes:  # noqa: FBT001 - the one thing that it says
    if signed_in:
        return _page("Signed in", "<p>Your terminal is signed in. You can close this page.</p>")
    return _page("Refused", "<p>The terminal was not signed in. You can close this page.</p>")
