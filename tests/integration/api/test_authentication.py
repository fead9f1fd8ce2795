"""Without a valid API key no endpoint answers."""

from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db.fast import FastConnection
from control_plane.services import principals
from tests.integration.api.conftest import Api, Shared, Tenant
from tests.integration.api.endpoints import ENDPOINTS
from tests.integration.api.problems import SOME_ID, hold
from tests.support.cases import case

pytestmark = pytest.mark.database


def _wrong(secret: str) -> list[str | None]:
    """Authorization headers that are not those of the key."""
    return [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {secret}",
        secret,
        f"Bearer {secret[:-1]}",
        f"Bearer {secret}x",
        f"Bearer {secret.upper()}",
        "Bearer spk_",
        "Bearer spk_" + "x" * 30_000,
        "Bearer spk_\x00",
        "Bearer spk_ÿ",
    ]


async def test_without_a_key_that_is_known_nothing_answers(shared: Shared) -> None:
    anonymous = shared.api.anonymous
    for endpoint in ENDPOINTS:
        if endpoint.public:
            continue
        path = endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")
        for authorization in _wrong(shared.acme.secret):
            headers = [] if authorization is None else [(b"Authorization", authorization.encode("latin-1"))]
            with case(endpoint, (authorization or "no header")[:20]):
                answer = await anonymous.request(endpoint.method, path, json=endpoint.body, headers=headers)
                hold(answer, "unauthenticated")
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_is_not_remembered_from_before_the_process_stood_still(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_secret = principals.of_secret

    async def slow(*arguments: Any) -> Any:
        found = await of_secret(*arguments)
        api.clock.advance(25)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(principals, "of_secret", slow)
        assert (await acme.http.get("/v1/me")).status_code == 200
    async with api.owner.db.transaction() as connection:
        await connection.execute(text("UPDATE api_keys SET revoked_at = now()"))
    hold(await acme.http.get("/v1/me"), "unauthenticated")


async def test_a_revoked_key_is_refused_on_the_same_way_and_in_the_same_words_as_one_that_never_was(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs between them could be measured, and tell that a stolen key once was right."""
    made = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
    assert (await acme.http.delete(f"/v1/api-keys/{made['key']['id']}")).is_success
    statements: list[str] = []
    execute = FastConnection.execute

    async def noted(self: FastConnection, statement: Any, *values: Any) -> Any:
        if "set_config" not in str(statement):  # Whom the connection acted for before.
            statements.append(str(statement))
        return await execute(self, statement, *values)

    monkeypatch.setattr(FastConnection, "execute", noted)
    ways = []
    for secret in ("spk_" + "x" * (len(made["secret"]) - 4), made["secret"]):
        api.app.state.context.authenticator.forget_all()
        statements.clear()
        answer = await api.client(secret).get("/v1/skus")
        hold(answer, "unauthenticated")
        told = answer.json() | {"request_id": None}
        headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
        ways.append((list(statements), told, headers))
    assert ways[0][0], "the key is looked up"
    assert ways[0] == ways[1]
