"""The right to log in ends while a certificate is being requested: no certificate is left over, whoever comes first."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from control_plane.db import issued, ssh_certificates
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold
from tests.integration.api.test_ssh_certificates import OTHER_KEY, ask, ready, state_of
from tests.integration.api.test_subjects import account, grant
from tests.support.cases import case
from tests.support.stage import Stage

pytestmark = pytest.mark.database

BLOCKED_SECONDS = 0.15
"""A request that waits for a lock is not answered within this time; without a wait, it takes a tenth of it."""


@dataclass
class Race:
    """Somebody who may log in to a lease, and what takes that right away."""

    lease: str
    client: httpx.AsyncClient
    end: Callable[[], Awaitable[httpx.Response]]
    revokes: str
    """The function that revokes, the last step of its transaction."""
    why: str
    code: str
    """How a request is refused once the right is gone."""
    key: str = OTHER_KEY

    async def ask(self) -> httpx.Response:
        return await ask(self.client, self.lease, self.key)


async def _of_key(api: Api, acme: Tenant, _: Tenant) -> Race:
    stored = (await acme.http.post("/v1/ssh-keys", json={"name": "laptop", "public_key": SSH_KEY})).json()[
        "id"
    ]
    return Race(
        await ready(api, acme),
        acme.http,
        lambda: acme.http.delete(f"/v1/ssh-keys/{stored}"),
        "revoke_of_key",
        "ssh_key_deleted",
        "ssh_key_unknown",
        key=stored,
    )


async def _of_key_of_a_lease(api: Api, acme: Tenant, _: Tenant) -> Race:
    stored = (await acme.http.post("/v1/ssh-keys", json={"name": "desk", "public_key": OTHER_KEY})).json()[
        "id"
    ]
    return Race(
        await ready(api, acme, ssh_key_ids=[stored]),
        acme.http,
        lambda: acme.http.delete(f"/v1/ssh-keys/{stored}"),
        "revoke_of_key",
        "ssh_key_deleted",
        "ssh_key_not_admitted",
    )


async def _of_credential(api: Api, acme: Tenant, _: Tenant) -> Race:
    issued = (await acme.http.post("/v1/api-keys", json={"name": "one"})).json()
    return Race(
        await ready(api, acme),
        api.client(issued["secret"]),
        lambda: acme.http.delete(f"/v1/api-keys/{issued['key']['id']}"),
        "revoke_of_credentials",
        "credential_ended",
        "unauthenticated",
    )


async def _of_rotation(api: Api, acme: Tenant, _: Tenant) -> Race:
    issued = (await acme.http.post("/v1/api-keys", json={"name": "two"})).json()
    path = f"/v1/api-keys/{issued['key']['id']}/rotations"
    return Race(
        await ready(api, acme),
        api.client(issued["secret"]),
        lambda: acme.http.post(path, json={"overlap_hours": 0}),
        "revoke_beyond",
        "credential_ended",
        "unauthenticated",
    )


async def _of_subject(api: Api, acme: Tenant, _: Tenant) -> Race:
    subject, client, _key = await account(api, acme, "leaver", "member")
    return Race(
        await ready(api, acme),
        client,
        lambda: acme.http.post(f"/v1/service-accounts/{subject}/suspend"),
        "revoke_of_subject",
        "subject_ended",
        "unauthenticated",
    )


async def _of_role(api: Api, acme: Tenant, _: Tenant) -> Race:
    subject, client, _key = await account(api, acme, "narrowed", "viewer")
    binding = (await grant(acme.http, subject, "member")).json()["id"]
    return Race(
        await ready(api, acme),
        client,
        lambda: acme.http.delete(f"/v1/role-bindings/{binding}"),
        "revoke_these",
        "role_ended",
        "permission_denied",
    )


async def _of_lease(api: Api, acme: Tenant, _: Tenant) -> Race:
    lease = await ready(api, acme)
    return Race(
        lease,
        acme.http,
        lambda: acme.http.post(f"/v1/leases/{lease}/release"),
        "revoke_of_leases",
        "lease_ended",
        "lease_not_ready",
    )


def _of_organization(path: str, why: str, code: str) -> Callable[[Api, Tenant, Tenant], Awaitable[Race]]:
    async def race(api: Api, _: Tenant, operator: Tenant) -> Race:
        tenant = await api.tenant(path)
        url = f"/v1/operator/organizations/org_{tenant.id.hex}/{path}"
        return Race(
            await ready(api, tenant),
            tenant.http,
            lambda: operator.http.post(url, json={"reason": "unpaid"}),
            "revoke_all",
            why,
            code,
        )

    return race


RACES = (
    *(_of_key, _of_key_of_a_lease, _of_credential, _of_rotation, _of_subject, _of_role, _of_lease),
    _of_organization("suspensions", "organization_suspended", "organization_suspended"),
    _of_organization("closures", "organization_closed", "unauthenticated"),
)


@asynccontextmanager
async def _paused(function: str) -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """A transaction that has called the function goes on when the second event is set. The first says that it has."""
    reached, go = asyncio.Event(), asyncio.Event()
    owner = issued if hasattr(issued, function) else ssh_certificates
    original = getattr(owner, function)

    async def pausing(*positional: Any, **named: Any) -> Any:
        result = await original(*positional, **named)
        reached.set()
        await go.wait()
        return result

    with patch.object(owner, function, pausing):
        yield reached, go


async def _overlapping(
    first: Awaitable[httpx.Response], second: Callable[[], Awaitable[httpx.Response]], pauses_in: str
) -> tuple[httpx.Response, httpx.Response]:
    """The answers to two requests, of which the second is sent before the first one is committed."""
    async with _paused(pauses_in) as (reached, go):
        before = asyncio.ensure_future(first)
        await asyncio.wait({before, asyncio.ensure_future(reached.wait())}, return_when="FIRST_COMPLETED")
        assert not before.done(), f"{pauses_in} was not called: {before.result().text}"
        after = asyncio.ensure_future(second())
        await asyncio.wait({after}, timeout=BLOCKED_SECONDS)
        go.set()
        return await before, await after


async def test_a_certificate_that_is_requested_while_the_right_to_log_in_ends_is_revoked(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    for make in RACES:
        race = await make(api, acme, operator)
        with case(race.why):
            requested, ended = await _overlapping(race.ask(), race.end, "insert")
            assert requested.status_code == 202, requested.text
            assert ended.is_success, ended.text
            assert await state_of(api, requested.json()) == (race.why, True)
    assert [report.looked_at for report in await stage.run("sign_ssh_certificates")] == [0]


async def test_no_certificate_is_requested_once_the_right_to_log_in_is_being_taken_away(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    for make in RACES:
        race = await make(api, acme, operator)
        with case(race.why):
            ended, requested = await _overlapping(race.end(), race.ask, race.revokes)
            assert ended.is_success, ended.text
            hold(requested, race.code)
    assert [report.looked_at for report in await stage.run("sign_ssh_certificates")] == [0]
