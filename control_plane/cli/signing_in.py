"""Signing a person in from a terminal (RFC 8628), and keeping the session's access token fresh.

The refresh token is exchanged under a lock of the login file, because it can be used only once, and two commands may
run at the same time. Each takes what the other has stored.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from control_plane.cli import config
from control_plane.cli.config import Login, Session
from control_plane.cli.errors import CliError, not_the_api

CLIENT_ID = "splitplane-cli"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
EARLY_SECONDS = 60.0
"""So long before its end an access token is replaced."""
ANSWER_SECONDS = 8.0
"""Three tries fit into the half minute in which a refresh token may be used again because its answer was lost."""
SLOWED_BY_SECONDS = 5
Post = Callable[[str, Mapping[str, str]], httpx.Response]


@dataclass(frozen=True, slots=True)
class Code:
    """What a person confirms."""

    device_code: str
    user_code: str
    url: str
    whole_url: str
    """The URL with the code in it."""
    seconds: float
    interval: float


def oauth(url: str, transport: httpx.BaseTransport | None, agent: str) -> Post:
    """A function that posts forms to the API's OAuth endpoints. It raises httpx.TransportError."""

    def post(path: str, form: Mapping[str, str]) -> httpx.Response:
        with httpx.Client(
            base_url=url,
            transport=transport,
            timeout=ANSWER_SECONDS,
            headers={"User-Agent": agent, "Accept": "application/json"},
            follow_redirects=False,
        ) as client:
            return client.post(path, data=dict(form))

    return post


def start(post: Post, client_name: str) -> Code:
    """Ask for a code. Raises CliError."""
    response = post("/oauth/device_authorization", {"client_id": CLIENT_ID, "client_name": client_name})
    found = _document(response)
    if response.status_code != 200:
        raise _refusal(response, found)
    try:
        return Code(
            str(found["device_code"]),
            str(found["user_code"]),
            str(found["verification_uri"]),
            str(found["verification_uri_complete"]),
            float(found["expires_in"]),
            float(found.get("interval", 5)),
        )
    except (KeyError, ValueError, TypeError):
        raise not_the_api(
            "The API answered the sign-in with something that this version cannot read."
        ) from None


def wait(
    post: Post, code: Code, *, now: Callable[[], float], sleep: Callable[[float], None]
) -> Mapping[str, Any]:
    """Ask until the person has confirmed the code. Raises CliError."""
    ends, interval = now() + code.seconds, code.interval
    while True:
        sleep(interval)
        if now() >= ends:
            raise _expired()
        try:
            response = post("/oauth/token", {"grant_type": DEVICE_GRANT, "device_code": code.device_code})
        except httpx.TransportError:
            continue  # The network may come back before the code expires.
        found = _document(response)
        if response.status_code == 200:
            return found
        match found.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval += SLOWED_BY_SECONDS
            case "access_denied":
                raise CliError("The sign-in was refused in the browser.", code="sign_in_refused")
            case "expired_token":
                raise _expired()
            case _ if response.status_code < 500 and response.status_code != 429:
                raise _refusal(response, found)


def session(found: Mapping[str, Any], now: float) -> Session:
    """The session of an answer with tokens. Raises CliError."""
    try:
        return Session(
            id=str(found["session"]),
            refresh=str(found["refresh_token"]),
            access=str(found["access_token"]),
            ends_at=now + float(found["expires_in"]),
        )
    except (KeyError, ValueError, TypeError):
        raise not_the_api(
            "The API answered the sign-in with something that this version cannot read."
        ) from None


class SessionAuth(httpx.Auth):
    """Puts the session's access token into each request, and replaces it before it ends."""

    def __init__(
        self, login: Login, environ: Mapping[str, str], post: Post, now: Callable[[], float]
    ) -> None:
        self._login = login
        self._environ = environ
        self._post = post
        self._now = now

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        held = self._login.session
        return () if held is None else (held.access, held.refresh)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._fresh().access}"
        yield request

    def _fresh(self) -> Session:
        held = self._held()
        if self._is_fresh(held):
            return held
        with config.locked(self._environ):
            saved = config.stored(self._environ, self._login.profile) if self._login.stored else self._login
            if saved is None or saved.session is None:
                raise _ended(self._login)
            self._login = saved
            if not self._is_fresh(saved.session):
                self._login = replace(saved, session=self._exchanged(saved.session))
                if saved.stored:
                    config.update(self._environ, self._login)
        return self._held()

    def _held(self) -> Session:
        if self._login.session is None:
            raise _ended(self._login)
        return self._login.session

    def _is_fresh(self, held: Session) -> bool:
        return self._now() < held.ends_at - EARLY_SECONDS

    def _exchanged(self, held: Session) -> Session:
        """Raises httpx.TransportError when the API cannot do it now, so that the request is repeated."""
        response = self._post("/oauth/token", {"grant_type": "refresh_token", "refresh_token": held.refresh})
        found = _document(response)
        if response.status_code == 200:
            return session(found, self._now())
        if found.get("error") == "invalid_grant":
            raise _ended(self._login)
        if response.status_code >= 500 or response.status_code == 429:
            raise httpx.TransportError(f"it answered {response.status_code} to the refresh of the session")
        raise _refusal(response, found)


def _ended(login: Login) -> CliError:
    return CliError(
        f"Your session at {login.url} has ended. Sign in again: splitplane login --profile {login.profile}",
        code="session_ended",
    )


def _expired() -> CliError:
    return CliError("Nobody confirmed the code in time. Run splitplane login again.", code="sign_in_expired")


def _document(response: httpx.Response) -> Mapping[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(response: httpx.Response, found: Mapping[str, Any]) -> CliError:
    code = str(found.get("code") or found.get("error") or f"http_{response.status_code}")
    why = found.get("detail") or found.get("error_description")
    sentence = str(why) if why else f"The API answered {response.status_code} to the sign-in."
    return CliError(sentence, code=code, status=response.status_code)
