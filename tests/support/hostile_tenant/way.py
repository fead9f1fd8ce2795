"""One way to reach another tenant: what is sent, why it could work, and what has to come of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import httpx

from tests.support.hostile_tenant.things import Things


class SignIn(Protocol):
    """What ways through the sign-in of people need. Without it they are not tried."""

    url: str
    token: str
    """An access token of one of the attacker's people."""
    refresh_token: str
    person: httpx.AsyncClient
    """A browser in which the attacker has signed in."""
    service_account: str
    service_account_key: str

    def http(self) -> httpx.AsyncClient:
        """A client without credentials, at the API's own URL."""

    async def device(self) -> Mapping[str, Any]:
        """A new terminal that waits for its confirmation: the answer to the device authorization."""

    async def victims_callback(self) -> str:
        """Where the issuer sends the victim's browser back to, with a code that is still to be used."""

    async def stranger(self, email: str, *, verified: bool) -> httpx.Response:
        """The answer to a sign-in of somebody whom the issuer knows under this address."""


@dataclass(frozen=True)
class Stand:
    """Two tenants of one installation: the attacker with a client of its own, and what either has."""

    http: httpx.AsyncClient
    """The attacker's client."""
    secret: str
    """The API key of that client."""
    mine: Things
    theirs: Things
    common: Mapping[str, str]
    """What ways name besides, and what is no secret, such as `sku` and the id of the `attacker`."""
    operator: httpx.AsyncClient | None = None
    """A client of an operator, for controls: whoever may do it succeeds."""
    sign_in: SignIn | None = None

    def as_operator(self) -> "Stand":
        if self.operator is None:
            raise LookupError("there is no operator")
        return replace(self, http=self.operator)

    @property
    def anonymous(self) -> httpx.AsyncClient:
        """A client without a key, on the connections of the attacker's."""
        return httpx.AsyncClient(transport=self.http._transport, base_url=self.http.base_url)


Attempt = Callable[[Stand, Things], Awaitable[httpx.Response]]
Control = Callable[[Stand], Awaitable[httpx.Response]]


def succeeds(answer: httpx.Response) -> bool:
    return answer.is_success


OWN = "own"
"""Instead of a code: the answer is a success, and has nothing but what is the attacker's own."""


@dataclass(frozen=True, kw_only=True)
class Way:
    name: str
    why: str
    """Why it could have worked."""
    attempt: Attempt
    """Sends it, aimed at the things of a tenant: the victim's, or invented ones."""
    refused: str
    """The code of the refusal, or OWN."""
    control: Control
    """The same, aimed at what is the attacker's own: it succeeds, so it is the aim that is refused."""
    succeeds: Callable[[httpx.Response], bool] = succeeds
    """Whether the control did."""
    event: str | None = None
    """The event of the line in the attacker's audit log; None when the refusal has none."""
    no_line: str = ""
    """Why it has none."""
    echoes: bool = False
    """Whether the answer has lines of the attacker's own audit log, which name what other ways were aimed at."""
    compared: bool = True
    """Whether the same aimed at what nobody has is answered alike, to the byte."""
    makes: bool = False
    """Whether it makes something of the attacker's own."""
    known: tuple[str, ...] = ()
    """What the attacker knows of the victim's without sending it."""
    signs_in: bool = False
    """Whether it needs the sign-in of people."""
    by_operator: bool = False
    """Whether its control needs an operator."""
    needs: tuple[str, ...] = ()
    """Things that only some installations can plant: it is left out without them."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """A request. In its path, query, headers and body, `{lease}` stands for the id of a tenant's lease."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def send(self, stand: Stand, things: Things) -> httpx.Response:
        values = {**stand.common, **things.values, **things.places, "marker": things.marker}
        path = _filled(self.path, values)
        if self.query:
            path += f"?{httpx.QueryParams(_filled(dict(self.query), values))}"
        body = None if self.body is None else _filled(self.body, values)
        headers = _filled(dict(self.headers), values)
        request = stand.http.build_request(self.method, path, json=body, headers=headers)
        return await stand.http.send(request)


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    match value:
        case str():
            for what, thing in values.items():
                value = value.replace(f"{{{what}}}", thing)
            return value
        case dict():
            return {_filled(name, values): _filled(part, values) for name, part in value.items()}
        case list() | tuple():
            return [_filled(part, values) for part in value]
    return value


def by_call(
    name: str,
    why: str,
    call: Call,
    *,
    refused: str,
    event: str | None = None,
    no_line: str = "",
    control: Call | None = None,
    compared: bool = True,
    makes: bool = False,
    echoes: bool = False,
) -> Way:
    """A way that is one request, aimed at the attacker's own things as a control."""
    own = control or call

    async def controlled(stand: Stand) -> httpx.Response:
        return await own.send(stand, stand.mine)

    return Way(
        name=name,
        why=why,
        attempt=call.send,
        refused=refused,
        control=controlled,
        event=event,
        no_line=no_line,
        compared=compared,
        makes=makes,
        echoes=echoes,
    )
