"""The audit log of requests: every change has its line, in the transaction of the change, and so has every refusal."""

import json
from typing import Any, Never

import asyncpg
import pytest
from sqlalchemy import text

from control_plane.api.refusals import LINES_AT_ONCE
from control_plane.cli import audit_chain
from control_plane.outcomes import audit as outcomes
from control_plane.services import audit
from tests.integration.api.conftest import Api, Tenant, top_up
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


async def test_a_top_up_is_in_the_chains_of_both_organizations_and_links_the_ledger(
    api: Api, acme: Tenant
) -> None:
    operator = await api.tenant("ops", platform=True, credit=None)
    answer = await top_up(operator, f"org_{acme.id.hex}", "5")
    assert answer.status_code == 201, answer.text
    lines = [line for line in await seal(api) if line.event == "ledger.post" and line.request_id]
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


async def refused(api: Api) -> list[Any]:
    await api.app.state.context.refusals.flush()
    return [line for line in await pending(api) if line.outcome != "allowed"]


async def test_a_refusal_is_a_line_of_the_callers_organization(api: Api, acme: Tenant, other: Tenant) -> None:
    lease = await other.lease()
    assert (await acme.http.get(f"/v1/leases/{lease}")).status_code == 404
    assert (await acme.http.get("/v1/operator/organizations")).status_code == 403
    assert (await acme.http.post("/v1/leases", json={"sku": "h100x8", "ssh_key_ids": []})).status_code == 202
    assert (await acme.http.post("/v1/leases", json={"sku": "nothing", "ssh_key_ids": []})).status_code == 422
    lines = await refused(api)
    assert [(line.event, line.code, line.targets, line.rule) for line in lines] == [
        ("leases.read", "lease_not_found", [lease], "refusal:lease_not_found"),
        ("organizations.read_all", "permission_denied", [], "refusal:permission_denied"),
        ("leases.create", "sku_unknown", [], "refusal:sku_unknown"),
    ]
    assert {line.organization_id for line in lines} == {acme.id}, "the other organization learns nothing"


async def test_a_revoked_key_that_is_used_is_a_line_and_an_unknown_one_is_none(
    api: Api, acme: Tenant
) -> None:
    made = (await acme.http.post("/v1/api-keys", json={"name": "ci"})).json()
    assert (await acme.http.delete(f"/v1/api-keys/{made['key']['id']}")).status_code == 204
    assert (await api.client(made["secret"]).get("/v1/leases")).status_code == 401
    assert (await api.client("spk_" + "x" * 43).get("/v1/leases")).status_code == 401
    (line,) = await refused(api)
    assert (line.event, line.code, line.credential) == ("leases.read", "unauthenticated", made["key"]["id"])
    assert line.organization_id == acme.id


async def test_a_request_that_cannot_be_understood_is_no_refusal(api: Api, acme: Tenant) -> None:
    await acme.http.post("/v1/leases", json={"sku": 5})
    await acme.http.get("/v1/leases?nothing=1")
    assert await refused(api) == []


async def test_a_flood_of_refusals_is_counted_and_the_count_is_a_line(api: Api, acme: Tenant) -> None:
    for _ in range(LINES_AT_ONCE + 40):
        await acme.http.get("/v1/operator/organizations")
    lines = await refused(api)
    assert len(lines) == LINES_AT_ONCE
    api.clock.advance(60)
    (summary,) = (await refused(api))[LINES_AT_ONCE:]
    assert (summary.event, summary.details) == (
        "refusals.summarize",
        {"codes": "permission_denied=40", "count": 40},
    )
    api.clock.advance(60)
    assert len(await refused(api)) == LINES_AT_ONCE + 1


async def test_refusals_wait_while_the_database_is_away(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.http.get("/v1/operator/organizations")

    async def away(*_: object) -> None:
        raise ConnectionRefusedError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(audit, "store", away)
        with pytest.raises(ConnectionRefusedError):
            await api.app.state.context.refusals.flush()
    assert len(await refused(api)) == 1


async def test_lines_whose_storing_was_not_answered_have_one_place_each(
    api: Api, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of one organization's lines loses its answer, and the lines of another are not tried any more."""
    for tenant in (acme, other):
        await tenant.http.get("/v1/operator/organizations")
    store = audit.store

    async def unanswered(*arguments: Any) -> None:
        await store(*arguments)
        raise ConnectionResetError("the connection was cut at the commit")

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(audit, "store", unanswered)
            with pytest.raises(ConnectionResetError):
                await api.app.state.context.refusals.flush()
        await seal(api)  # So the first copy has its place before the second one comes.
    await api.app.state.context.refusals.flush()
    lines = [line for line in await seal(api) if line.outcome == "refused"]
    assert sorted(line.organization_id for line in lines) == sorted([acme.id, other.id])
    assert await pending(api) == []


async def test_a_count_of_refusals_and_a_refused_key_wait_for_the_database_too(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await acme.http.post("/v1/api-keys", json={"name": "old"})).json()
    await acme.http.delete(f"/v1/api-keys/{made['key']['id']}")
    for _ in range(LINES_AT_ONCE + 5):
        await acme.http.get("/v1/operator/organizations")
    await api.client(made["secret"]).get("/v1/leases")
    api.clock.advance(60)

    async def away(*_: object) -> Never:
        raise ConnectionRefusedError("the database is away")

    for broken in ("acts_of_refused_keys", "store"):
        with monkeypatch.context() as patched:
            patched.setattr(audit, broken, away)
            with pytest.raises(ConnectionRefusedError):
                await api.app.state.context.refusals.flush()
    lines = await refused(api)
    assert [line.details["count"] for line in lines if line.event == "refusals.summarize"] == [5]
    assert [line.credential for line in lines if line.code == "unauthenticated"] == [made["key"]["id"]]


async def test_nobodys_secret_is_in_the_log(api: Api, acme: Tenant) -> None:
    planted = "spk_" + "p" * 43
    made = (await acme.http.post("/v1/api-keys", json={"name": planted})).json()
    for secret in (planted, made["secret"]):
        headers = {"User-Agent": f"agent {secret}", "X-Forwarded-For": secret, "Idempotency-Key": secret}
        await acme.http.post("/v1/projects", json={"name": "p" + secret[4:20]}, headers=headers)
        await acme.http.get(f"/v1/leases/{secret}", headers=headers)
        await acme.http.delete(f"/v1/api-keys/{secret}", headers=headers)
        await api.client(secret).get(f"/v1/leases/{secret}")
    await refused(api)
    await seal(api)
    async with api.owner.db.reading() as connection:
        for table in ("audit_events", "audit_pending"):
            found = await rows(connection, text(f"SELECT e::text AS line FROM {table} e"))
            assert found or table == "audit_pending"
            for row in found:
                assert planted not in row.line
                assert made["secret"] not in row.line


async def test_lines_are_listed_newest_first_and_filtered(api: Api, acme: Tenant, other: Tenant) -> None:
    first, second = await acme.lease(), await acme.lease()
    await other.lease()
    await acme.http.post(f"/v1/leases/{first}/release")
    await acme.http.get("/v1/operator/organizations")
    await api.app.state.context.refusals.flush()
    await seal(api)
    answer = await acme.http.get("/v1/audit-events", params={"limit": 2})
    assert [line["event"] for line in answer.json()["items"]] == ["organizations.read_all", "leases.release"]
    following = {"limit": 2, "cursor": answer.json()["next_cursor"]}
    answer = await acme.http.get("/v1/audit-events", params=following)
    assert [line["targets"] for line in answer.json()["items"]] == [[second], [first]]
    for wanted, events in (
        ({"target": first}, ["leases.release", "leases.create"]),
        ({"outcome": "refused"}, ["organizations.read_all"]),
        ({"event": "leases.create"}, ["leases.create", "leases.create"]),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"subject": "sa_" + "0" * 32}, []),
    ):
        answer = await acme.http.get("/v1/audit-events", params=wanted)
        assert [line["event"] for line in answer.json()["items"]] == events, wanted
    answer = await acme.http.get("/v1/audit-events", params={"event": "leases.creat"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert "leases.create" in answer.json()["detail"]


async def test_operators_read_the_lines_of_every_organization(
    api: Api, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    mine, theirs = await acme.lease(), await other.lease()
    await seal(api)
    answer = await operator.http.get("/v1/operator/audit-events")
    assert [line["targets"] for line in answer.json()["items"]] == [[theirs], [mine]]
    answer = await operator.http.get("/v1/operator/audit-events", params={"chain": f"org_{acme.id.hex}"})
    assert [line["targets"] for line in answer.json()["items"]] == [[mine]]
    answer = await operator.http.get("/v1/operator/audit-events", params={"chain": "platform"})
    assert answer.json()["items"] == []


async def test_an_export_is_whole_and_the_check_knows_a_head_from_elsewhere(api: Api, acme: Tenant) -> None:
    for _ in range(3):
        await acme.lease()
    await seal(api)
    answer = await acme.http.get("/v1/audit-events/export")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.content.splitlines(keepends=True)
    head = (await acme.http.get("/v1/audit-chain")).json()
    found = audit_chain.verify(lines, (head["sequence"], head["hash"]))
    assert found == audit_chain.Whole(f"org_{acme.id.hex}", 1, 3, 3, head["hash"], 0, None)
    await acme.lease()
    await seal(api)
    later = await acme.http.get("/v1/audit-events/export", params={"after": 2})
    found = audit_chain.verify(later.content.splitlines(keepends=True))
    assert isinstance(found, audit_chain.Whole)
    assert (found.first, found.lines) == (3, 2)


async def test_any_single_change_of_an_export_is_found(api: Api, acme: Tenant) -> None:
    for _ in range(3):
        await acme.lease()
    await seal(api)
    whole = (await acme.http.get("/v1/audit-events/export")).content
    lines = whole.splitlines(keepends=True)

    def is_found(changed: list[bytes]) -> bool:
        return isinstance(audit_chain.verify(changed), audit_chain.Fault)

    for at in range(len(whole)):
        byte = (whole[at] ^ 1, ord("0"), ord("\n"), ord(" "))[at % 4]
        if byte != whole[at]:
            changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
            assert is_found(changed.splitlines(keepends=True)), f"byte {at} as {byte:#x}"
        assert is_found((whole[:at] + whole[at + 1 :]).splitlines(keepends=True)), f"byte {at} missing"
        assert is_found(whole[:at].splitlines(keepends=True)), f"cut at byte {at}"
    for at, line in enumerate(lines):
        assert is_found(lines[:at] + lines[at + 1 :]), f"line {at + 1} missing"
        assert is_found([*lines[:at], line, *lines[at:]]), f"line {at + 1} twice"
        for other in range(at):
            swapped = list(lines)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            assert is_found(swapped), f"lines {other + 1} and {at + 1} swapped"


async def test_a_chain_that_was_cut_off_and_ended_anew_is_found_by_a_head_from_elsewhere(
    api: Api, acme: Tenant
) -> None:
    for _ in range(3):
        await acme.lease()
    await seal(api)
    head = (await acme.http.get("/v1/audit-chain")).json()
    lines = (await acme.http.get("/v1/audit-events/export")).content.splitlines(keepends=True)
    last = json.loads(lines[2])
    forged = {"chain": last["chain"], "hash": last["hash"], "kind": "end", "sequence": last["sequence"]}
    cut = [*lines[:3], json.dumps(forged, sort_keys=True, separators=(",", ":")).encode() + b"\n"]
    assert isinstance(audit_chain.verify(cut), audit_chain.Whole), "by itself it looks whole"
    found = audit_chain.verify(cut, (head["sequence"], head["hash"]))
    assert isinstance(found, audit_chain.Fault)
    assert found.sequence == 3


async def test_a_change_that_is_refused_has_no_line_of_an_effect_right_after_one_that_took_place(
    operator: Tenant, acme: Tenant
) -> None:
    """PostgreSQL's counters of a session still contain the rows of the transaction before."""
    unknown = f"org_{'0' * 31}1"
    for organization, status in ((f"org_{acme.id.hex}", 200), (unknown, 404)) * 4:
        path = f"/v1/operator/organizations/{organization}/envelope"
        assert (await operator.http.put(path, json={"gpus": 64})).status_code == status
