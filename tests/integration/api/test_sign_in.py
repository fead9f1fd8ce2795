"""People sign in with a real OpenID provider, terminals are confirmed, and service accounts get tokens."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Never
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import text

from control_plane.api import guesses
from control_plane.api.app import create_app
from control_plane.api.oauth import DEVICE_GRANT
from control_plane.api.refusals import LINES_AT_ONCE
from control_plane.db.rows import read
from control_plane.db.tables.every import metadata
from control_plane.domain.device_flow import LASTS as CODE_LASTS
from control_plane.domain.id_token import Person
from control_plane.domain.refusal import Refused
from control_plane.domain.session import LASTS, REPEATS
from control_plane.domain.signing_key import PUBLISHED_BEFORE, SIGNS_FOR, TOKEN_LASTS, VERIFIES_AFTER
from control_plane.services import people, sessions
from control_plane.services.key_ring import KeyRing
from control_plane.services.people import Candidate
from control_plane.services.signing_in import SigningIn
from control_plane.vault.errors import KeyManagerUnavailable
from control_plane.vault.token_keys import LocalTokenKeys
from tests.integration.api.conftest import SETTINGS, Api, erase, settle
from tests.integration.api.problems import SOME_ID, hold
from tests.integration.api.sign_in import URL, SignIn, hidden, signing_in_of
from tests.support import oidc_server
from tests.support.rows import rows

pytestmark = pytest.mark.database


@pytest.fixture(scope="module")
def provider() -> Iterator[oidc_server.Provider]:
    with oidc_server.running() as made:
        made.user("ada", email="ada@example.com", email_verified=True, name="Ada")
        made.user("eve", email="eve@example.com", email_verified=True)
        yield made


@pytest.fixture
async def world(api: Api, provider: oidc_server.Provider) -> SignIn:
    signing_in = signing_in_of(api, provider)
    api.app = create_app(api.world, SETTINGS, metrics=api.metrics, signing_in=signing_in, sleep=api.sleep)
    return SignIn(api, provider, signing_in, await api.tenant("acme"))


async def key_manager_away() -> Never:
    raise KeyManagerUnavailable("AWS KMS: ReadTimeoutError at decrypt")


GRACE = Person("https://issuer.example", "grace", "grace@example.com", "Grace")


async def me(world: SignIn, token: str) -> httpx.Response:
    return await world.http(token).get("/v1/me")


async def test_a_person_signs_a_terminal_in_and_acts_with_their_roles(world: SignIn) -> None:
    user = await world.invite(world.acme, "Ada@Example.com")
    device = await world.device()
    assert device["verification_uri_complete"] == f"{URL}/device?user_code={device['user_code']}"
    waits = await world.poll(device)
    assert (waits.status_code, waits.json()["error"]) == (400, "authorization_pending")
    await world.decide("ada", device["user_code"].lower().replace("-", " "))
    world.api.clock.advance(3)
    tokens = (await world.poll(device)).json()
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 900
    found = (await me(world, tokens["access_token"])).json()
    assert found["subject"] == user
    assert (await world.http(tokens["access_token"]).get("/v1/leases")).status_code == 200
    hold(await world.http(tokens["access_token"]).get("/v1/operator/loops"), "permission_denied")
    [listed] = (await world.acme.http.get("/v1/users")).json()["items"]
    assert (listed["state"], listed["name"]) == ("active", "Ada")


async def test_the_page_names_the_terminal_that_waits(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    device = await world.device("<script>alert(1)</script>\x1b[31m")
    browser, back = await world.browser("ada", device["user_code"])
    assert back.headers["location"] == f"/device?user_code={device['user_code'].replace('-', '')}"
    page = await browser.get("/device", params={"user_code": device["user_code"]})
    assert device["user_code"] in page.text
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text
    assert "\x1b" not in page.text
    assert "ada@example.com" in page.text
    for name in ("content-security-policy", "referrer-policy", "x-frame-options"):
        assert name in page.headers
    assert page.headers["cache-control"] == "no-store"


async def test_somebody_who_is_signed_in_as_somebody_else_can_change_that_on_the_page(world: SignIn) -> None:
    for subject in ("ada", "grace"):
        world.provider.user(subject, email=f"{subject}@example.com", email_verified=True)
        await world.invite(world.acme, f"{subject}@example.com")
    device = await world.device()
    browser, back = await world.browser("ada", device["user_code"])
    page = await browser.get(back.headers["location"])
    (link,) = re.findall(r'<a href="([^"]+)">Sign in as somebody else', page.text)
    begun = await browser.get(html.unescape(link))
    assert "prompt=select_account" in begun.headers["location"]
    back = await browser.get(world.provider.sign_in(begun.headers["location"], "grace"))
    page = await browser.get(back.headers["location"])
    assert "grace@example.com" in page.text
    assert "ada@example.com" not in page.text
    assert device["user_code"] in page.text
    begun = await world.http().get("/auth/start")
    assert "prompt=" not in begun.headers["location"]


async def test_a_browser_that_is_not_signed_in_is_sent_to_the_issuer_first(world: SignIn) -> None:
    device = await world.device()
    answer = await world.http().get("/device", params={"user_code": device["user_code"]})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/auth/start?user_code={device['user_code'].replace('-', '')}"


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    begun = await world.http().get("/auth/start")
    _, back = await world.browser("ada")
    for header in begun.headers.get_list("set-cookie") + back.headers.get_list("set-cookie"):
        assert "HttpOnly" in header
        assert "SameSite=lax" in header
        assert "Path=/" in header
        assert "Secure" not in header, "on a loopback address browsers would not send it back"
    api = world.api
    secure = SigningIn("https://api.example.com", world.signing_in.keys, world.signing_in.issuer)
    api.app = create_app(api.world, SETTINGS, signing_in=secure, sleep=api.sleep)
    [header] = (await world.http().get("/auth/start")).headers.get_list("set-cookie")
    assert header.startswith("__Host-splitplane-sign-in=")
    assert "Secure" in header


async def test_an_answer_of_the_issuer_is_of_no_use_in_another_browser(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    begun = await world.http().get("/auth/start")
    back = world.provider.sign_in(begun.headers["location"], "ada")
    busy = world.http()
    await busy.get("/auth/start")  # It has a sign-in of its own under way.
    for browser in (world.http(), busy):
        stolen = await browser.get(back)
        assert stolen.status_code == 400
        assert "sign_in_state" in stolen.text
        assert not any("person" in header for header in stolen.headers.get_list("set-cookie"))


async def test_an_answer_with_an_error_of_the_issuer_is_a_page(world: SignIn) -> None:
    answer = await world.http().get("/auth/callback", params={"error": "access_denied", "state": "x"})
    assert answer.status_code == 401
    assert "access_denied" in answer.text
    answer = await world.http().get("/auth/callback", params={"error": "<b>"})
    assert "<b>" not in answer.text


async def test_somebody_whom_nobody_invited_is_not_signed_in(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    _, back = await world.browser("eve")
    assert back.status_code == 403
    assert "not_invited" in back.text


async def test_only_addresses_of_the_configured_domains_may_sign_in(
    world: SignIn, provider: oidc_server.Provider
) -> None:
    await world.invite(world.acme, "ada@example.com")
    api = world.api
    strict = signing_in_of(api, provider, email_domains=frozenset({"example.org"}))
    api.app = create_app(api.world, SETTINGS, signing_in=strict, sleep=api.sleep)
    _, back = await world.browser("ada")
    assert back.status_code == 403
    assert "email_domain" in back.text


async def test_the_first_sign_in_binds_the_user_to_the_issuers_subject(
    world: SignIn, provider: oidc_server.Provider
) -> None:
    await world.invite(world.acme, "ada@example.com")
    await world.sign_in()
    provider.user("mallory", email="ada@example.com", email_verified=True)
    _, back = await world.browser("mallory")
    assert back.status_code == 403, "the address is bound to another subject"
    provider.user("ada", email="ada@elsewhere.example", email_verified=True)
    try:
        await world.sign_in()  # The subject counts, whatever the address is now.
    finally:
        provider.user("ada", email="ada@example.com", email_verified=True, name="Ada")


async def test_a_person_with_several_organizations_chooses(world: SignIn) -> None:
    other = await world.api.tenant("other")
    await world.invite(world.acme, "ada@example.com")
    await world.invite(other, "ada@example.com")
    device = await world.device()
    browser, _ = await world.browser("ada")
    page = (await browser.get("/device", params={"user_code": device["user_code"]})).text
    assert "acme" in page
    assert "other" in page
    tokens = await world.sign_in("ada", f"org_{other.id.hex}")
    assert tokens["organization"] == f"org_{other.id.hex}"
    third = await world.api.tenant("third")
    refused = await world.decide("ada", device["user_code"], f"org_{third.id.hex}")
    assert refused.status_code == 403
    assert "not_invited" in refused.text


async def test_a_terminal_that_is_refused_gets_no_tokens(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    device = await world.device()
    await world.decide("ada", device["user_code"], action="deny")
    assert (await world.poll(device)).json()["error"] == "access_denied"


async def test_a_code_works_once_and_expires(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    device = await world.device()
    await world.decide("ada", device["user_code"])
    assert (await world.poll(device)).status_code == 200
    world.api.clock.advance(10)
    assert (await world.poll(device)).json()["error"] == "expired_token"
    late = await world.device()
    await world.decide("ada", late["user_code"])
    world.api.clock.advance(CODE_LASTS.total_seconds())
    assert (await world.poll(late)).json()["error"] == "expired_token"
    assert (await world.token(grant_type=DEVICE_GRANT, device_code="spd_invented")).json()[
        "error"
    ] == "invalid_grant"


async def approved(world: SignIn) -> dict[str, Any]:
    """A terminal that Ada has confirmed, and that has not asked for its tokens yet."""
    device = await world.device()
    await world.decide("ada", device["user_code"], f"org_{world.acme.id.hex}")
    return device


async def test_a_code_is_not_used_up_when_its_tokens_cannot_be_made(
    world: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key manager is away, and then the process dies while it begins the session."""
    await world.invite(world.acme, "ada@example.com")
    device = await approved(world)
    with monkeypatch.context() as patched:
        patched.setattr(world.signing_in.keys, "signer", key_manager_away)
        answer = await world.poll(device)
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    world.api.clock.advance(3)

    async def dies(*_: object, **__: object) -> Never:
        raise RuntimeError("the process dies here")

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "begin", dies)
        assert (await world.poll(device)).status_code == 500
    world.api.clock.advance(3)
    assert (await world.poll(device)).status_code == 200
    assert len((await world.acme.http.get("/v1/sessions")).json()["items"]) == 1


async def test_an_approval_is_worth_nothing_once_the_user_is_suspended(world: SignIn) -> None:
    user = await world.invite(world.acme, "ada@example.com")
    device = await approved(world)
    assert (await world.acme.http.post(f"/v1/users/{user}/suspend")).is_success
    assert (await world.poll(device)).json()["error"] == "access_denied"
    assert (await world.acme.http.get("/v1/sessions")).json()["items"] == []


async def test_after_a_closure_no_sign_in_writes_into_the_organization(world: SignIn) -> None:
    """Neither a terminal that was confirmed before, nor a person whose browser stood still meanwhile."""
    await world.invite(world.acme, "ada@example.com")
    device = await approved(world)
    operator = await world.api.tenant("us", platform=True)
    path = f"/v1/operator/organizations/org_{world.acme.id.hex}"
    await world.invite(world.acme, GRACE.email)
    found = await people.users_of(world.api.world, GRACE)
    assert [user.organization_id for user in found] == [world.acme.id]
    assert (await operator.http.post(f"{path}/closures", json={"reason": "test"})).status_code == 201
    assert (await world.poll(device)).json()["error"] == "access_denied"

    async def as_before(*_: object) -> list[Candidate]:
        return list(found)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(people, "users_of", as_before)
        late = await people.become(world.api.world, GRACE, world.acme.id)
    assert isinstance(late, Refused)
    await settle(world.api, world.acme)
    assert (await operator.http.post(f"{path}/deletions", json={"reason": "test"})).status_code == 201
    await erase(world.api, world.acme)
    async with world.api.owner.db.reading() as connection:
        assert await read(connection, text("SELECT id FROM sessions"), UUID) == []
        assert await read(connection, text("SELECT id FROM device_authorizations"), UUID) == []


async def test_a_terminal_that_asks_too_often_is_slowed(world: SignIn) -> None:
    device = await world.device()
    answers = [(await world.poll(device)).json()["error"] for _ in range(2)]
    assert answers == ["authorization_pending", "slow_down"]
    world.api.clock.advance(3)
    assert (await world.poll(device)).json()["error"] == "slow_down", "the interval has grown"
    world.api.clock.advance(13)
    assert (await world.poll(device)).json()["error"] == "authorization_pending"


async def test_guessing_codes_is_slowed(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    browser, _ = await world.browser("ada")
    for _ in range(5):
        answer = await browser.get("/device", params={"user_code": "BCDF-GHJK"})
        assert answer.status_code == 404
    hold(await browser.get("/device", params={"user_code": "BCDF-GHJK"}), "rate_limited")


async def test_a_form_of_another_site_confirms_nothing(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    device = await world.device()
    browser, _ = await world.browser("ada", device["user_code"])
    form = {"user_code": device["user_code"], "action": "confirm", "organization": f"org_{world.acme.id.hex}"}
    for forged in ({}, {"form_token": "x"}, {"form_token": "é"}):
        assert (await browser.post("/device", data=form | forged)).status_code == 400
    assert (await world.poll(device)).json()["error"] == "authorization_pending"


async def test_refresh_tokens_rotate_and_the_reuse_of_an_old_one_ends_the_session(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    first = await world.sign_in()
    second = (await world.token(grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
    third = (await world.token(grant_type="refresh_token", refresh_token=second["refresh_token"])).json()
    assert (await me(world, third["access_token"])).status_code == 200
    stolen = await world.token(grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    world.api.clock.advance(1)
    hold(await me(world, third["access_token"]), "unauthenticated")
    after = await world.token(grant_type="refresh_token", refresh_token=third["refresh_token"])
    assert after.json()["error"] == "invalid_grant"
    [session] = (await world.acme.http.get("/v1/sessions")).json()["items"]
    assert session["ended_why"] == "reused"


async def test_a_refresh_whose_answer_was_lost_may_be_repeated_for_half_a_minute(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    first = await world.sign_in()
    made = [
        (await world.token(grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
        for _ in range(3)
    ]
    # The client has one of the answers, not always the last one: a try may have stood still somewhere.
    has, lost = made[1], made[2]
    used = await world.token(grant_type="refresh_token", refresh_token=has["refresh_token"])
    assert used.status_code == 200
    # Whoever has another one is a thief: its use ends the session.
    thief = await world.token(grant_type="refresh_token", refresh_token=lost["refresh_token"])
    assert thief.json()["error"] == "invalid_grant"
    now_ended = await world.token(grant_type="refresh_token", refresh_token=used.json()["refresh_token"])
    assert now_ended.json()["error"] == "invalid_grant"
    second = await world.sign_in()
    await world.token(grant_type="refresh_token", refresh_token=second["refresh_token"])
    world.api.clock.advance(REPEATS.total_seconds())
    late = await world.token(grant_type="refresh_token", refresh_token=second["refresh_token"])
    assert late.json()["error"] == "invalid_grant"


async def test_a_refresh_that_fails_because_the_key_manager_is_away_uses_up_nothing(
    world: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    with monkeypatch.context() as patched:
        patched.setattr(world.signing_in.keys, "signer", key_manager_away)
        away = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert (away.status_code, away.json()["error"]) == (503, "temporarily_unavailable")
    world.api.clock.advance(REPEATS.total_seconds() + 1)
    back = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert back.status_code == 200


async def test_a_session_ends_after_a_month(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    world.api.clock.advance(LASTS.total_seconds())
    answer = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"


async def test_an_access_token_ends_after_a_quarter_of_an_hour(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    world.api.clock.advance(TOKEN_LASTS.total_seconds() - 5)
    assert (await me(world, tokens["access_token"])).status_code == 200
    world.api.clock.advance(5)
    hold(await me(world, tokens["access_token"]), "unauthenticated")


async def test_a_session_is_listed_and_ended_at_once(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    http = world.http(tokens["access_token"])
    [session] = (await http.get("/v1/sessions")).json()["items"]
    assert session["id"] == tokens["session"]
    assert session["client"] == "splitplane on laptop"
    assert (await http.delete(f"/v1/sessions/{session['id']}")).status_code == 204
    hold(await http.get("/v1/sessions"), "unauthenticated")
    hold(await world.acme.http.delete(f"/v1/sessions/{session['id']}"), "not_found")


async def test_others_sessions_are_hidden_from_members_and_foreign_ones_from_everybody(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    await world.invite(world.acme, "eve@example.com")
    ada, eve = await world.sign_in("ada"), await world.sign_in("eve")
    listed = (await world.http(eve["access_token"]).get("/v1/sessions")).json()["items"]
    assert [session["id"] for session in listed] == [eve["session"]]
    hold(await world.http(eve["access_token"]).delete(f"/v1/sessions/{ada['session']}"), "not_found")
    other = await world.api.tenant("other")
    assert (await other.http.get("/v1/sessions")).json()["items"] == []
    hold(await other.http.delete(f"/v1/sessions/{ada['session']}"), "not_found")
    assert len((await world.acme.http.get("/v1/sessions")).json()["items"]) == 2


async def test_signing_out_ends_the_session(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    for token in (tokens["refresh_token"], tokens["refresh_token"], "spr_invented", "x"):
        assert (await world.http().post("/oauth/revoke", data={"token": token})).status_code == 200
    world.api.clock.advance(1)
    hold(await me(world, tokens["access_token"]), "unauthenticated")


async def test_a_suspended_user_has_no_session_any_more_also_after_the_suspension(world: SignIn) -> None:
    user = await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    assert (await world.acme.http.post(f"/v1/users/{user}/suspend")).is_success
    world.api.clock.advance(1)
    hold(await me(world, tokens["access_token"]), "unauthenticated")
    _, back = await world.browser("ada")
    assert back.status_code == 403
    assert (await world.acme.http.post(f"/v1/users/{user}/resume")).is_success
    answer = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"


async def test_sessions_end_when_their_organization_is_closed(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    operator = await world.api.tenant("us", platform=True)
    path = f"/v1/operator/organizations/org_{world.acme.id.hex}/closures"
    assert (await operator.http.post(path, json={"reason": "test"})).status_code == 201
    world.api.clock.advance(1)
    hold(await me(world, tokens["access_token"]), "unauthenticated")
    answer = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"


# Service accounts


async def service_account(world: SignIn) -> tuple[str, str, str]:
    """Id, API key and key id of a service account that may lease."""
    made = (await world.acme.http.post("/v1/service-accounts", json={"name": "ci"})).json()
    body = {"subject": made["id"], "role": "member", "scope": {"kind": "organization"}}
    assert (await world.acme.http.post("/v1/role-bindings", json=body)).status_code == 201
    key = await world.acme.http.post("/v1/api-keys", json={"name": "ci", "subject": made["id"]})
    assert key.status_code == 201, key.text
    return made["id"], key.json()["secret"], key.json()["key"]["id"]


async def test_a_service_account_gets_a_token_for_its_key(world: SignIn) -> None:
    account, secret, key = await service_account(world)
    form = {"grant_type": "client_credentials"}
    for answer in (
        await world.http().post("/oauth/token", data=form, auth=(account, secret)),
        await world.token(**form, client_id=account, client_secret=secret),
    ):
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert "refresh_token" not in answer.json()
        found = (await me(world, answer.json()["access_token"])).json()
        assert found["subject"] == account
    token = answer.json()["access_token"]
    assert (await world.acme.http.delete(f"/v1/api-keys/{key}")).status_code == 204
    hold(await me(world, token), "unauthenticated")


async def test_a_scope_narrows_a_token_and_never_widens_it(world: SignIn) -> None:
    account, secret, _ = await service_account(world)
    form = {"grant_type": "client_credentials", "client_id": account, "client_secret": secret}
    answer = (await world.token(**form, scope="leases.read api_keys.create")).json()
    assert answer["scope"] == "api_keys.create leases.read"
    http = world.http(answer["access_token"])
    assert (await http.get("/v1/leases")).status_code == 200
    hold(await http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []}), "permission_denied")
    # What it makes can do no more than it can itself.
    hold(await http.post("/v1/api-keys", json={"name": "wide"}), "beyond_your_roles")
    for scope in ("loops.read", "leases.read nonsense", "owners.appoint"):
        refused = await world.token(**form, scope=scope)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_scope")


async def test_client_errors_have_the_form_of_oauth(world: SignIn) -> None:
    account, secret, _ = await service_account(world)
    grant = {"grant_type": "client_credentials"}
    wrong: list[tuple[dict[str, str], tuple[int, str]]] = [
        ({}, (400, "unsupported_grant_type")),
        ({"grant_type": "password"}, (400, "unsupported_grant_type")),
        (grant, (401, "invalid_client")),
        (grant | {"client_id": account, "client_secret": "spk_wrong"}, (401, "invalid_client")),
        (grant | {"client_id": "sa_other", "client_secret": secret}, (401, "invalid_client")),
        (grant | {"client_id": account, "client_secret": world.acme.secret}, (401, "invalid_client")),
        ({"grant_type": "refresh_token"}, (400, "invalid_grant")),
    ]
    for form, expected in wrong:
        answer = await world.http().post("/oauth/token", data=form or {"x": "y"})
        assert (answer.status_code, answer.json()["error"]) == expected, form
        assert set(answer.json()) == {"error", "error_description"}
    hold(await world.http().post("/oauth/token", json=grant), "unsupported_media_type")
    twice = "grant_type=client_credentials&grant_type=refresh_token"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    hold(await world.http().post("/oauth/token", content=twice, headers=kind), "bad_request")
    basic = await world.http().post("/oauth/token", data=grant, headers={"Authorization": "Basic ???"})
    assert basic.status_code == 401
    assert basic.headers["www-authenticate"].startswith("Basic")


async def refusals(world: SignIn) -> list[tuple[str, str | None, str | None]]:
    """Event, code and credential of the refusals that the organization's audit log has."""
    await world.api.app.state.context.refusals.flush()
    statement = text("SELECT * FROM audit_pending WHERE outcome = 'refused' ORDER BY number")
    async with world.api.owner.db.reading() as connection:
        lines = await rows(connection, statement)
    assert {line.organization_id for line in lines} <= {world.acme.id}
    assert all(line.address and line.request_id for line in lines)
    return [(line.event, line.code, line.credential) for line in lines]


async def test_what_was_somebodys_and_is_refused_has_a_line_in_the_audit_log(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    account, secret, key = await service_account(world)
    form = {"grant_type": "client_credentials", "client_secret": secret}
    of_key = (await world.token(**form, client_id=account)).json()["access_token"]
    assert await refusals(world) == []
    expected: list[tuple[str, str | None, str | None]] = []

    await world.token(**form, client_id=f"sa_{SOME_ID}")
    expected.append(("tokens.issue", "invalid_client", key))
    await world.token(**form, client_id=account, scope="loops.read")
    expected.append(("tokens.issue", "invalid_scope", key))
    assert (await world.acme.http.delete(f"/v1/api-keys/{key}")).status_code == 204
    await world.token(**form, client_id=account)
    await me(world, of_key)
    expected += [("me.read", "unauthenticated", key), ("tokens.issue", "unauthenticated", key)]

    assert (await world.acme.http.delete(f"/v1/sessions/{tokens['session']}")).status_code == 204
    await me(world, tokens["access_token"])
    await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    expected += [
        ("me.read", "unauthenticated", tokens["session"]),
        ("tokens.issue", "invalid_grant", tokens["session"]),
    ]
    assert sorted(map(str, await refusals(world))) == sorted(map(str, expected))


async def test_credentials_that_were_never_anybodys_have_no_line(world: SignIn) -> None:
    await world.token(grant_type="client_credentials", client_id="sa_x", client_secret="spk_invented")
    await world.token(grant_type="refresh_token", refresh_token=f"spr_{world.acme.id.hex}_invented")
    await me(world, "eyJ.a.b")
    assert await refusals(world) == []


async def test_a_person_who_tries_another_organization_is_in_the_log_of_their_own(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    await world.sign_in()
    other = await world.api.tenant("other")
    device = await world.device()
    refused = await world.decide("ada", device["user_code"], f"org_{other.id.hex}")
    assert refused.status_code == 403
    assert await refusals(world) == [("sessions.begin", "not_invited", None)]


# Tokens


async def published(world: SignIn) -> list[str]:
    return [key["kid"] for key in (await world.http().get("/.well-known/jwks.json")).json()["keys"]]


async def test_others_can_verify_our_tokens_with_what_we_publish(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    token = (await world.sign_in())["access_token"]
    metadata = (await world.http().get("/.well-known/oauth-authorization-server")).json()
    assert metadata["issuer"] == URL
    keys = (await world.http().get(urlsplit(metadata["jwks_uri"]).path)).json()
    [key] = jwt.PyJWKSet.from_dict(keys).keys
    times: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    claims = jwt.decode(token, key, algorithms=["EdDSA"], audience=URL, issuer=URL, options=times)
    assert claims["exp"] - claims["iat"] == 900
    assert jwt.get_unverified_header(token)["typ"] == "at+jwt"


async def test_keys_rotate_with_an_overlap_in_which_old_tokens_verify(world: SignIn) -> None:
    clock, ring = world.api.clock, world.signing_in.keys
    await world.invite(world.acme, "ada@example.com")
    await world.sign_in()
    [first] = await published(world)
    clock.advance((SIGNS_FOR - PUBLISHED_BEFORE).total_seconds())
    await ring.keep()
    assert await ring.keep() is None, "one is enough"
    both = await published(world)
    assert both[0] == first
    tokens = await world.sign_in()
    assert jwt.get_unverified_header(tokens["access_token"])["kid"] == first
    clock.advance(PUBLISHED_BEFORE.total_seconds() - 10)
    old = (await world.sign_in())["access_token"]
    clock.advance(60)
    new = (await world.sign_in())["access_token"]
    assert jwt.get_unverified_header(new)["kid"] == both[1]
    assert (await me(world, old)).status_code == 200
    clock.advance(VERIFIES_AFTER.total_seconds())
    assert await published(world) == [both[1]]


async def test_a_process_that_comes_second_signs_with_the_key_that_the_first_one_made(
    world: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has looked before there was a key, and makes one at the same time."""
    private = X25519PrivateKey.generate()
    rings = [KeyRing(world.api.world, LocalTokenKeys([private])) for _ in range(2)]
    assert await rings[1].keys() == []
    made = await rings[0].keep()
    assert made is not None
    assert (await rings[1].signer()).id == made.id


async def test_keys_of_tokens_follow_a_new_master_key_and_tokens_stay_valid(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    token = (await world.sign_in())["access_token"]
    [key] = await published(world)
    old, new = world.signing_in.keys._manager, X25519PrivateKey.generate()
    assert isinstance(old, LocalTokenKeys)
    await KeyRing(world.api.world, LocalTokenKeys([*old._keys.values(), new])).renew()
    only_new = KeyRing(world.api.world, LocalTokenKeys([new]))
    assert (await only_new.signer()).id == key
    assert (await me(world, token)).status_code == 200


async def test_a_key_that_is_removed_verifies_nothing_any_more(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    async with world.api.owner.db.transaction() as connection:
        await connection.execute(text("UPDATE signing_keys SET removed_at = now()"))
    world.api.clock.advance(1)
    hold(await me(world, tokens["access_token"]), "unauthenticated")
    fresh = (await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])).json()
    assert (await me(world, fresh["access_token"])).status_code == 200


async def test_forged_and_foreign_tokens_are_refused(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    token = (await world.sign_in())["access_token"]
    head, body, signature = token.split(".")
    browser, _ = await world.browser("ada")
    person = next(value for name, value in browser.cookies.items() if "person" in name)
    unsigned = jwt.encode(jwt.decode(token, options={"verify_signature": False}), "", algorithm="none")
    shared = jwt.encode({"sub": "x"}, "k" * 64, algorithm="HS256", headers={"kid": "x", "typ": "at+jwt"})
    for forged in (
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body[:-4]}AAAA.{signature}",
        person,  # What a browser keeps is no access token.
        unsigned,
        shared,
        "eyJ.a.b",
        "eyJ" + "a" * 5_000 + ".b.c",
    ):
        hold(await me(world, forged), "unauthenticated")


async def test_an_access_token_is_no_sign_in_of_a_browser(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    tokens = await world.sign_in()
    browser = world.http()
    browser.cookies.set("splitplane-person", tokens["access_token"])
    answer = await browser.get("/device")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/auth/start")


async def test_a_token_of_another_url_is_refused(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    token = (await world.sign_in())["access_token"]
    api = world.api
    other = SigningIn("https://other.example.com", world.signing_in.keys, None)
    api.app = create_app(api.world, SETTINGS, signing_in=other, sleep=api.sleep)
    hold(await me(world, token), "unauthenticated")


async def test_without_settings_there_are_no_tokens_and_the_answer_says_so(api: Api) -> None:
    anonymous = api.anonymous
    for method, path in (
        ("POST", "/oauth/token"),
        ("POST", "/oauth/device_authorization"),
        ("GET", "/.well-known/jwks.json"),
        ("GET", "/auth/start"),
        ("GET", "/device"),
    ):
        hold(await anonymous.request(method, path), "sign_in_not_configured")
    hold(await anonymous.get("/v1/me", headers={"Authorization": "Bearer eyJ.a.b"}), "unauthenticated")


async def test_no_code_token_or_secret_is_stored_in_clear_or_logged(
    world: SignIn, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    await world.invite(world.acme, "ada@example.com")
    account, secret, _ = await service_account(world)
    browser = world.http()
    device = await world.device()
    begun = await browser.get("/auth/start", params={"user_code": device["user_code"]})
    back = world.provider.sign_in(begun.headers["location"], "ada")
    returned = await browser.get(back)
    page = await browser.get("/device", params={"user_code": device["user_code"]})
    await browser.post("/device", data=hidden(page.text) | {"action": "confirm"})
    tokens = (await world.poll(device)).json()
    key = (await world.token(grant_type="client_credentials", client_id=account, client_secret=secret)).json()
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    planted = {
        "device code": device["device_code"],
        "user code": device["user_code"].replace("-", ""),
        "shown user code": device["user_code"],
        "code": query["code"],
        "state": query["state"],
        "access token": tokens["access_token"],
        "refresh token": tokens["refresh_token"],
        "token of a key": key["access_token"],
        "client secret": "planted-client-secret",
        "API key": secret,
        "cookie": begun.cookies["splitplane-sign-in"].partition(".")[0],
        "person": returned.cookies["splitplane-person"],
    }
    async with world.api.owner.db.reading() as connection:
        dumped = ""
        for table in metadata.tables:
            rows = await read(connection, text(f"SELECT row_to_json(t)::text FROM {table} t"), str)
            dumped += "\n".join(rows)
    logged = b"".join(capfdbinary.readouterr()).decode(errors="replace")
    for what, value in planted.items():
        assert value not in dumped, what
        assert value.encode().hex() not in dumped, what
        assert value not in logged, what
    assert tokens["session"].removeprefix("ses_") in dumped.replace("-", ""), (
        "the dump is of the right database"
    )


def test_a_token_lives_shorter_than_its_key_verifies() -> None:
    assert TOKEN_LASTS < VERIFIES_AFTER < timedelta(days=1) <= PUBLISHED_BEFORE < SIGNS_FOR


async def test_people_and_accounts_are_served_although_their_address_tried_too_many_secrets(
    world: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attacker behind a company's address must not sign the company out."""
    await world.invite(world.acme, "ada@example.com")
    account, secret, _ = await service_account(world)
    api, form = world.api, {"grant_type": "client_credentials", "client_id": account, "client_secret": secret}
    api.app = create_app(
        api.world, replace(SETTINGS, anonymous_requests_per_second=1), signing_in=world.signing_in
    )
    tokens = await world.sign_in()
    assert (await world.token(**form)).status_code == 200
    monkeypatch.setattr(guesses, "LANE_PER_SECOND", 1e-6)
    monkeypatch.setattr(guesses, "LANE_SECONDS_MAX", 0.01)  # Nobody's turn comes.
    for number in range(20):
        wrong = await world.token(**form | {"client_secret": f"spk_wrong{number}"})
    hold(wrong, "rate_limited")
    for _ in range(10):  # What was right here is never slowed, and neither is what we signed.
        assert (await world.token(**form)).status_code == 200
        answer = await world.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
        tokens = answer.json()
        assert (await me(world, tokens["access_token"])).status_code == 200
    hold(await me(world, "eyJ.a.b"), "rate_limited")


async def test_a_sign_in_that_is_refused_is_a_line_of_the_platform(world: SignIn) -> None:
    await world.invite(world.acme, "ada@example.com")
    device = await world.device()
    await world.decide("ada", device["user_code"], action="refuse")
    browser, _ = await world.browser("ada")
    await browser.get("/device", params={"user_code": "BCDF-GHJK"})
    await world.http().get(
        "/auth/callback", params={"code": "x", "state": "y"}, headers={"User-Agent": "curl/8"}
    )
    lines = await lines_of_refused_sign_ins(world.api)
    assert [line.code for line in lines] == ["access_denied", "device_not_found", "sign_in_state"]
    for line in lines:
        assert (line.organization_id, line.event, line.outcome) == (None, "sign_ins.refuse", "refused")
        assert (line.subject, line.subject_kind, line.rule) == ("api", "system", f"refusal:{line.code}")
        assert line.address
        assert line.request_id.startswith("req_")
    assert lines[2].client == "curl/8"


async def test_refused_sign_ins_are_lines_only_up_to_a_bound_and_then_a_count(world: SignIn) -> None:
    for number in range(LINES_AT_ONCE + 5):
        world.api.clock.advance(0.001 * number)
        await world.http().get("/auth/callback", params={"code": "x", "state": "y"})
    assert len(await lines_of_refused_sign_ins(world.api)) == LINES_AT_ONCE
    world.api.clock.advance(60)
    summary = (await lines_of_refused_sign_ins(world.api))[-1]
    assert (summary.event, summary.organization_id) == ("refusals.summarize", None)
    assert summary.details == {"codes": "sign_in_state=5", "count": 5}


async def lines_of_refused_sign_ins(api: Api) -> list[Any]:
    await api.app.state.context.refusals.flush()
    async with api.owner.db.reading() as connection:
        lines = text(
            "SELECT * FROM audit_pending WHERE subject_kind = 'system' AND outcome = 'refused' ORDER BY number"
        )
        return list(await rows(connection, lines))
