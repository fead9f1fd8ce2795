"""Consoles over the API: who may ask and read, what is refused, and what is stored where."""

import pytest
from sqlalchemy import text

from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import Permission
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold, hold_denied
from tests.integration.api.test_subjects import account

pytestmark = pytest.mark.database


async def test_a_request_is_accepted_and_found_with_its_steps_below_its_lease(api: Api, acme: Tenant) -> None:
    lease, other = await acme.lease(), await acme.lease()
    answer = await acme.http.post(f"/v1/leases/{lease}/consoles")
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert (made["state"], made["source"], made["steps"]) == ("read", "steps", [])
    shown = await acme.http.get(answer.headers["Location"])
    assert shown.json()["steps"], shown.text
    assert (shown.json()["provider"], shown.json()["lines"]) == ("not_asked", [])
    hold(await acme.http.get(f"/v1/leases/{other}/consoles/{made['id']}"), "not_found")


async def test_who_may_only_read_leases_may_not_read_what_their_machines_printed(
    api: Api, acme: Tenant
) -> None:
    lease = await acme.lease()
    _, viewer, _ = await account(api, acme, "viewer", "viewer")
    denied = await viewer.post(f"/v1/leases/{lease}/consoles")
    hold_denied(denied, Permission.CONSOLES_READ)


async def test_a_suspended_organization_reads_on_and_an_ended_lease_is_refused(
    api: Api, acme: Tenant
) -> None:
    lease, ended = await acme.lease(), await acme.lease()
    async with api.owner.db.transaction() as connection:
        await connection.execute(
            text("UPDATE organizations SET state = :s"), {"s": OrganizationState.SUSPENDED}
        )
    assert (await acme.http.post(f"/v1/leases/{lease}/consoles")).status_code == 202
    await acme.http.post(f"/v1/leases/{ended}/release")
    hold(await acme.http.post(f"/v1/leases/{ended}/consoles"), "state_conflict")
