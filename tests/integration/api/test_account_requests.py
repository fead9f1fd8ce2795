"""Operators add and change provider accounts over HTTP; credentials go in and never come out."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import text

from control_plane.api.app import create_app
from control_plane.vault.errors import KeyManagerRefused, KeyManagerUnavailable
from control_plane.vault.sealing.port import KeyMaker
from tests.integration.api.conftest import SETTINGS, Api, Tenant
from tests.integration.api.problems import hold
from tests.support import keys
from tests.support.cases import case
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
ACCOUNTS, REQUESTS = "/v1/operator/provider-accounts", "/v1/operator/provider-account-requests"
ADD = {"account": "fake/second", "settings": {"api_key": "planted-key"}}


async def test_a_request_is_answered_at_once_and_its_outcome_is_read_later(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    asked = await operator.http.post(REQUESTS, json={"account": "fake", "verb": "test", "why": "ticket 1"})
    assert asked.status_code == 202
    request = asked.json()
    assert asked.headers["location"] == f"{REQUESTS}/{request['id']}"
    assert (request["verb"], request["outcome"], request["why"]) == ("test", None, "ticket 1")
    await stage.run("answer_account_requests")
    shown = (await operator.http.get(f"{REQUESTS}/{request['id']}")).json()
    assert (shown["outcome"], shown["code"]) == ("accepted", None)
    assert shown["said"] == "fake accepts the credentials and lists 0 machines of ours."
    assert (await operator.http.get(REQUESTS, params={"account": "fake"})).json()["items"] == [shown]
    assert (await operator.http.get(REQUESTS, params={"account": "local"})).json()["items"] == []


async def test_credentials_are_sealed_for_the_operators_organization_and_in_no_answer(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    answer = await operator.http.post(ACCOUNTS, json=ADD)
    assert answer.status_code == 202
    for shown in (answer, await operator.http.get(REQUESTS), await operator.http.get(ACCOUNTS)):
        assert "planted" not in shown.text
    async with stage.db.reading() as connection:
        (secret,) = await rows(connection, text("SELECT id, organization_id, ciphertext FROM secrets"))
    assert secret.organization_id == operator.id
    assert b"planted" not in secret.ciphertext
    opened = await keys.read(stage.db, keys.AFTER, secret.id)
    assert json.loads(opened or b"") == {"api_key": "planted-key"}


async def test_a_request_with_credentials_is_stored_once_per_key(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    answers = [
        await operator.http.post(ACCOUNTS, json=ADD, headers={"Idempotency-Key": "once"}) for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["idempotency-replayed"] == "true"
    async with stage.db.reading() as connection:
        assert len(await rows(connection, text("SELECT id FROM secrets"))) == 1


async def test_settings_that_cannot_be_any_are_refused_without_a_word_of_them(
    api: Api, operator: Tenant
) -> None:
    for settings in (
        {},
        {"a name": "planted"},
        {"api_key": ""},
        {"api_key": ["planted"]},
        {"api_key": 4711},
        {"api_key": "planted" * 2_000},
        "planted",
        {f"name{number}": "planted" for number in range(17)},
    ):
        with case(repr(settings)[:40]):
            answer = await operator.http.post(ACCOUNTS, json=ADD | {"settings": settings})
            hold(answer, "invalid_request")
            assert "planted" not in answer.text
            assert "4711" not in answer.text


class _Broken:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def make_data_key(self, *_: object) -> None:
        raise self._error


async def test_a_key_manager_that_fails_is_an_error_that_says_what_to_do_and_stores_nothing(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    async def ask(sealing: KeyMaker | None) -> tuple[int, str]:
        api.app = create_app(replace(api.world, sealing=sealing), SETTINGS)
        answer = await api.client(operator.secret).post(ACCOUNTS, json=ADD)
        assert "planted" not in answer.text
        return answer.status_code, answer.json()["code"]

    refused: KeyMaker = _Broken(KeyManagerRefused("AccessDenied"))  # type: ignore[assignment] # it has what is called
    away: KeyMaker = _Broken(KeyManagerUnavailable("no answer"))  # type: ignore[assignment] # it has what is called
    assert await ask(None) == (409, "secrets_not_configured")
    assert await ask(refused) == (409, "key_manager_refused")
    assert await ask(away) == (503, "key_manager_unavailable")
    async with stage.db.reading() as connection:
        for table in ("secrets", "data_keys", "account_requests"):
            assert not await rows(connection, text(f"SELECT id FROM {table}"))


async def test_an_account_shows_where_its_credentials_come_from_and_that_it_is_drained(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    await operator.http.post(REQUESTS, json={"account": "fake", "verb": "drain", "why": "ticket 1"})
    await stage.run("answer_account_requests")
    (account,) = (await operator.http.get(ACCOUNTS)).json()["items"]
    assert (account["credentials_from"], account["credentials_since"]) == ("environment", None)
    assert (account["drained_why"], account["drained_since"] is not None) == ("ticket 1", True)


async def test_a_request_that_does_not_exist_is_not_found(api: Api, operator: Tenant) -> None:
    for wrong in ("arq_" + "0" * 32, "key_" + "0" * 32, "x"):
        hold(await operator.http.get(f"{REQUESTS}/{wrong}"), "not_found")
