"""The audit log of requests: every change has its line, in the transaction of the change, and so has every refusal."""

from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from control_plane.outcomes import audit as outcomes
from tests.integration.api.conftest import Api, Tenant
from tests.support.rows import rows

pytestmark = pytest.mark.database
_LINES = "SELECT * FROM {table} ORDER BY {order}"


async def as_superuser(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def pending(api: Api) -> list[Any]:
    async with api.owner.db.reading() as connection:
        return list(await rows(connection, text(_LINES.format(table="audit_pending", order="number"))))


async def seal(api: Api) -> list[Any]:
    """Every line of the log, in its place."""
    async with api.owner.db.transaction() as connection:
        await outcomes.seal(connection, limit=1_000, now=api.clock.now())
    async with api.owner.db.reading() as connection:
        return list(
            await rows(
                connection, text(_LINES.format(table="audit_events", order="organization_id, sequence"))
            )
        )


async def test_a_created_lease_has_a_line_with_who_where_and_the_rule(api: Api, acme: Tenant) -> None:
    before = len(await pending(api))
    answer = await acme.http.post(
        "/v1/leases",
        json={"sku": "h100x1", "ssh_key_ids": []},
        headers={"User-Agent": "terraform/1.9 spk_" + "a" * 43},
    )
    assert answer.status_code == 202
    (line,) = (await pending(api))[before:]
    assert (line.event, line.outcome, line.subject_kind) == ("leases.create", "allowed", "service_account")
    assert line.organization_id == acme.id
    assert line.targets == [answer.json()["id"]]
    assert line.project == answer.json()["project_id"]
    assert line.request_id == answer.headers["x-request-id"]
    assert line.client == "terraform/1.9 [removed]"
    assert line.details == {"operation": "createLease"}
    assert line.credential.startswith("key_")


async def test_a_line_links_the_journal_of_its_transaction(api: Api, acme: Tenant) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    lines = [line for line in await seal(api) if lease in line.targets]
    async with api.owner.db.reading() as connection:
        journal = await rows(
            connection, text("SELECT number, event FROM journal WHERE lease_id IS NOT NULL ORDER BY number")
        )
    assert [line.event for line in lines] == ["leases.create", "leases.release"]
    assert [line.links["journal"] for line in lines] == [
        [one.number for one in journal if one.event == "admitted"],
        [one.number for one in journal if one.event == "released"],
    ]


async def test_a_change_whose_line_cannot_be_written_does_not_commit(
    api: Api, acme: Tenant, database_url: str
) -> None:
    await as_superuser(
        database_url, "ALTER TABLE audit_pending ADD CONSTRAINT full_disk CHECK (false) NOT VALID"
    )
    answer = await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []})
    assert answer.status_code == 500
    async with api.owner.db.reading() as connection:
        assert not await rows(connection, text("SELECT id FROM leases"))


async def test_a_credit_is_in_the_chains_of_both_organizations_and_links_the_ledger(
    api: Api, acme: Tenant
) -> None:
    operator = await api.tenant("ops", platform=True, credit=None)
    path = f"/v1/operator/organizations/org_{acme.id.hex}/credits"
    answer = await operator.http.post(path, json={"amount_usd": "5"})
    assert answer.status_code == 201, answer.text
    lines = [line for line in await seal(api) if line.event == "credits.create" and line.request_id]
    theirs = next(line for line in lines if line.organization_id == acme.id)
    ours = next(line for line in lines if line.organization_id == operator.id)
    assert theirs.subject_organization == f"org_{operator.id.hex}"
    assert (theirs.address, theirs.client) == (None, None), (
        "the customer does not learn where our people work"
    )
    assert ours.client is not None
    assert len(theirs.links["transactions"]) == 1


async def test_a_line_cannot_be_edited_and_leaves_only_for_its_chain(
    api: Api, acme: Tenant, database_url: str
) -> None:
    await acme.lease()
    for statement in (
        "UPDATE audit_pending SET subject = 'nobody'",
        "DELETE FROM audit_pending",
        "TRUNCATE audit_pending",
    ):
        with pytest.raises(Exception, match="not edited"):
            await as_superuser(database_url, statement)
    assert await seal(api)
    for statement in (
        "UPDATE audit_events SET subject = 'x'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
    ):
        with pytest.raises(Exception, match="append-only"):
            await as_superuser(database_url, statement)
