"""How tests sign people in: browsers, terminals and a real OpenID provider, around the app without sockets."""

import re
from dataclasses import dataclass
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from control_plane.api.oauth import DEVICE_GRANT
from control_plane.identity.issuer import Client, Issuer
from control_plane.services.key_ring import KeyRing
from control_plane.services.signing_in import SigningIn
from control_plane.vault.token_keys import LocalTokenKeys
from control_plane.world import utc_now
from tests.integration.api.conftest import Api, Tenant
from tests.support import oidc_server

URL = "http://127.0.0.1:8080"


@dataclass
class SignIn:
    """The app with sign-in, as a person and their terminal use it."""

    api: Api
    provider: oidc_server.Provider
    signing_in: SigningIn
    acme: Tenant

    def http(self, token: str | None = None) -> httpx.AsyncClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app=self.api.app, raise_app_exceptions=False)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
        return httpx.AsyncClient(transport=transport, base_url=URL, headers=headers)

    async def invite(self, tenant: Tenant, email: str, *, role: str = "member") -> str:
        answer = await tenant.http.post("/v1/users", json={"email": email, "name": email.partition("@")[0]})
        assert answer.status_code == 201, answer.text
        user = str(answer.json()["id"])
        body = {"subject": user, "role": role, "scope": {"kind": "organization"}}
        bound = await tenant.http.post("/v1/role-bindings", json=body)
        assert bound.status_code == 201, bound.text
        return user

    async def browser(self, subject: str, user_code: str = "") -> tuple[httpx.AsyncClient, httpx.Response]:
        """A browser in which a person has signed in, and the answer to its return from the issuer."""
        browser = self.http()
        begun = await browser.get("/auth/start", params={"user_code": user_code} if user_code else {})
        assert begun.status_code == 303, begun.text
        return browser, await browser.get(self.provider.sign_in(begun.headers["location"], subject))

    async def device(self, name: str = "splitplane on laptop") -> dict[str, Any]:
        form = {"client_id": "splitplane-cli", "client_name": name}
        answer = await self.http().post("/oauth/device_authorization", data=form)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def token(self, **form: str) -> httpx.Response:
        return await self.http().post("/oauth/token", data=form)

    async def poll(self, device: dict[str, Any]) -> httpx.Response:
        return await self.token(grant_type=DEVICE_GRANT, device_code=device["device_code"])

    async def decide(
        self, subject: str, user_code: str, organization: str | None = None, action: str = "confirm"
    ) -> httpx.Response:
        browser, _ = await self.browser(subject, user_code)
        page = await browser.get("/device", params={"user_code": user_code})
        assert page.status_code == 200, page.text
        form = hidden(page.text) | {"action": action}
        if organization is not None:
            form["organization"] = organization
        return await browser.post("/device", data=form)

    async def sign_in(self, subject: str = "ada", organization: str | None = None) -> dict[str, Any]:
        device = await self.device()
        done = await self.decide(subject, device["user_code"], organization)
        assert "Your terminal is signed in" in done.text, done.text
        answer = await self.poll(device)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of a page's form."""
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))


def signing_in_of(api: Api, provider: oidc_server.Provider, **more: Any) -> SigningIn:
    issuer = Issuer(Client(provider.issuer, "splitplane", "planted-client-secret"), now=utc_now)
    ring = KeyRing(api.world, LocalTokenKeys([X25519PrivateKey.generate()]))
    return SigningIn(URL, ring, issuer, **more)
