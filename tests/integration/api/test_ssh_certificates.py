"""SSH certificates: who gets one, what it says, and that whatever takes the right to log in away revokes it at once."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    load_ssh_public_identity,
)
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.domain.permission import Permission
from control_plane.domain.ssh_certificate import BACKDATED, LASTS, RECENT_MAX, WAITS_MAX
from control_plane.world import uuid7
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold, hold_denied
from tests.integration.api.test_subjects import account, grant, made
from tests.support.cases import case
from tests.support.rows import rows
from tests.support.stage import Stage
from tests.unit.domain.test_ssh_public_key import a_line, field

pytestmark = pytest.mark.database

OTHER_KEY = a_line("ssh-ed25519", field(b"o" * 32))
_READY = text("UPDATE leases SET state = 'ready', ready_at = created_at WHERE id = :id")

_SIGNED_IN = text("""
INSERT INTO sessions (id, organization_id, user_id, client, address, created_at, last_used_at, expires_at)
VALUES (:session, :organization, :user, '', '', :now, :now, :now)
""")
_REQUESTED = text("""
INSERT INTO ssh_certificates (id, organization_id, project_id, lease_id, serial, public_key, fingerprint, user_id,
                              credential, requested_at)
SELECT :id, organization_id, project_id, id, :serial, :key, 'SHA256:1', :user, :credential, :now
FROM leases WHERE id = :lease
""")


async def ready(api: Api, tenant: Tenant, **body: object) -> str:
    """A lease that is ready, as far as the API can tell; with `ssh_key_ids` limited to these keys."""
    lease = await tenant.lease(**{"ssh_key_ids": None, **body})
    async with api.owner.db.transaction() as connection:
        await connection.execute(_READY, {"id": UUID(hex=lease.removeprefix("le_"))})
    return lease


async def found(api: Api, statement: str, **values: object) -> Sequence[Any]:
    async with api.owner.db.reading() as connection:
        return await rows(connection, text(statement), **values)


def path_of(lease: str) -> str:
    return f"/v1/leases/{lease}/ssh-certificates"


async def ask(http: httpx.AsyncClient, lease: str, key: str = SSH_KEY) -> httpx.Response:
    return await http.post(path_of(lease), json={"key": key})


async def signed(stage: Stage, http: httpx.AsyncClient, lease: str, key: str = SSH_KEY) -> dict[str, Any]:
    answer = await ask(http, lease, key)
    assert answer.status_code == 202, answer.text
    [report] = await stage.run("sign_ssh_certificates")
    assert not report.errors
    shown: dict[str, Any] = (await http.get(answer.headers["Location"])).json()
    assert shown["state"] == "signed", shown
    return shown


async def state_of(api: Api, certificate: dict[str, Any]) -> tuple[str | None, bool]:
    """Why a certificate is revoked, and whether it is, in the database."""
    [row] = await found(
        api,
        "SELECT revoked_why, revoked_at FROM ssh_certificates WHERE id = :id",
        id=UUID(hex=certificate["id"].removeprefix("cert_")),
    )
    return row.revoked_why, row.revoked_at is not None


async def test_a_certificate_opens_one_lease_for_ten_minutes_and_names_who_asked(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await ready(api, acme)
    answer = await ask(acme.http, lease, f"{SSH_KEY} a comment")
    wanted = answer.json()
    assert (wanted["state"], wanted["certificate"], wanted["lease_id"]) == ("wanted", None, lease)
    assert answer.headers["Location"] == f"{path_of(lease)}/{wanted['id']}"
    api.clock.advance(1)
    [report] = await stage.run("sign_ssh_certificates")
    assert (report.looked_at, report.acted_on, report.errors) == (1, 1, [])
    shown = (await acme.http.get(answer.headers["Location"])).json()
    line = load_ssh_public_identity(shown["certificate"].encode())
    assert isinstance(line, SSHCertificate)
    me = (await acme.http.get("/v1/me")).json()
    assert line.valid_principals == [lease.encode()]
    public = line.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert public.decode().split() == SSH_KEY.split()[:2]
    assert (line.key_id.decode(), str(line.serial)) == (f"{me['subject']} on {lease}", shown["serial"])
    now = api.clock.now()
    assert (line.valid_after, line.valid_before) == (
        int((now - BACKDATED).timestamp()),
        int((now + LASTS).timestamp()),
    )
    assert (shown["subject"], shown["credential"]) == (me["subject"], me["api_key_id"])
    assert [report.looked_at for report in await stage.run("sign_ssh_certificates")] == [0]

    api.clock.advance(LASTS.total_seconds())
    [listed] = (await acme.http.get(path_of(lease))).json()["items"]
    assert listed == {**shown, "state": "expired"}
    audited = await found(
        api,
        "SELECT event, outcome, subject_kind, targets, rule FROM audit_pending WHERE event LIKE 'ssh_certificates.%'"
        " ORDER BY number",
    )
    assert [(line.event, line.outcome, line.subject_kind) for line in audited] == [
        ("ssh_certificates.create", "allowed", "service_account"),
        ("ssh_certificates.sign", "allowed", "loop"),
    ]
    assert all(set(line.targets) == {shown["id"], lease} for line in audited)
    assert audited[1].rule == f"request:{shown['credential']}"


async def test_an_idempotency_key_requests_one_certificate_only(api: Api, acme: Tenant) -> None:
    lease = await ready(api, acme)
    answers = [
        await acme.http.post(path_of(lease), json={"key": SSH_KEY}, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len((await acme.http.get(path_of(lease))).json()["items"]) == 1


async def test_a_request_is_refused_with_its_reason(api: Api, acme: Tenant, other: Tenant) -> None:
    stored = (await acme.http.post("/v1/ssh-keys", json={"name": "laptop", "public_key": SSH_KEY})).json()[
        "id"
    ]
    theirs = (await other.http.post("/v1/ssh-keys", json={"name": "k", "public_key": OTHER_KEY})).json()["id"]
    placing = await acme.lease(ssh_key_ids=None)
    open_to_all = await ready(api, acme)
    limited = await ready(api, acme, ssh_key_ids=[stored])
    shut = await ready(api, acme, ssh_key_ids=[])
    for lease, key, code in (
        (placing, SSH_KEY, "lease_not_ready"),
        (limited, OTHER_KEY, "ssh_key_not_admitted"),
        (shut, SSH_KEY, "ssh_key_not_admitted"),
        (open_to_all, "ssh-rsa nonsense", "ssh_key_invalid"),
        (open_to_all, theirs, "ssh_key_unknown"),
        (open_to_all, "ssh_0", "ssh_key_unknown"),
        (f"le_{0:032x}", SSH_KEY, "lease_not_found"),
    ):
        with case(f"{lease} {key} {code}"):
            hold(await ask(acme.http, lease, key), code)
    for lease, key in (
        (open_to_all, OTHER_KEY),
        (limited, SSH_KEY),
        (limited, stored),
        (open_to_all, stored),
    ):
        with case(f"{lease} {key}"):
            assert (await ask(acme.http, lease, key)).status_code == 202
    assert (await acme.http.delete(f"/v1/ssh-keys/{stored}")).status_code == 204
    refused = await ask(acme.http, limited)
    hold(refused, "ssh_key_not_admitted")
    assert "All of them were deleted" in refused.json()["detail"]


async def test_a_foreign_tenant_finds_neither_the_lease_nor_its_certificates(
    api: Api, stage: Stage, acme: Tenant, other: Tenant
) -> None:
    lease, own = await ready(api, acme), await ready(api, other)
    certificate = await signed(stage, acme.http, lease)
    path = f"{path_of(lease)}/{certificate['id']}"
    hold(await ask(other.http, lease), "lease_not_found")
    hold(await other.http.get(path_of(lease)), "lease_not_found")
    hold(await other.http.get(path), "lease_not_found")
    hold(await other.http.post(f"{path}/revoke"), "lease_not_found")
    hold(await other.http.get(f"{path_of(own)}/{certificate['id']}"), "not_found")
    hold(await other.http.post(f"{path_of(own)}/{certificate['id']}/revoke"), "not_found")
    assert await state_of(api, certificate) == (None, False)


async def test_who_may_read_may_not_log_in_and_a_role_reaches_its_leases_only(api: Api, acme: Tenant) -> None:
    lease, second = await ready(api, acme), await ready(api, acme)
    _, viewer, _ = await account(api, acme, "viewer", "viewer")
    _, finance, _ = await account(api, acme, "finance", "finance")
    _, member, _ = await account(api, acme, "member", "member", kind="lease", id=lease)
    for client in (viewer, finance):
        hold_denied(await ask(client, lease), Permission.SSH_CERTIFICATES_CREATE)
    assert (await viewer.get(path_of(lease))).status_code == 200
    hold_denied(await finance.get(path_of(lease)), Permission.SSH_CERTIFICATES_READ)
    assert (await ask(member, lease)).status_code == 202
    hold(await ask(member, second), "lease_not_found")


async def test_a_lease_has_a_bounded_number_of_certificates_and_revoking_makes_room_for_others_only(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await ready(api, acme)
    _, colleague, _ = await account(api, acme, "colleague", "member")
    for _ in range(RECENT_MAX):
        last = await ask(acme.http, lease)
        assert last.status_code == 202
    for client in (acme.http, colleague):
        hold(await ask(client, lease), "ssh_certificates_too_many")
    revoked = await acme.http.post(f"{last.headers['Location']}/revoke")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    hold(await ask(acme.http, lease), "ssh_certificates_too_many")
    assert (await ask(colleague, lease)).status_code == 202
    reports = [await stage.run("sign_ssh_certificates") for _ in range(3)]
    assert [(report.acted_on, report.more) for [report] in reports] == [(50, True), (50, True), (0, False)]
    api.clock.advance(LASTS.total_seconds())
    assert (await ask(acme.http, lease)).status_code == 202


async def test_a_request_that_waited_too_long_is_refused_and_a_credentials_end_is_the_certificates_end(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await ready(api, acme)
    ends_at = api.clock.now() + timedelta(minutes=5)
    wanted = {"name": "short", "expires_at": ends_at.isoformat()}
    short = api.client((await acme.http.post("/v1/api-keys", json=wanted)).json()["secret"])
    certificate = await signed(stage, short, lease)
    assert certificate["valid_before"].startswith(f"{ends_at:%Y-%m-%dT%H:%M:%S}")

    forgotten = await ask(acme.http, lease)
    api.clock.advance(WAITS_MAX.total_seconds())
    await stage.run("sign_ssh_certificates")
    shown = (await acme.http.get(forgotten.headers["Location"])).json()
    assert (shown["state"], shown["refused_why"], shown["certificate"]) == (
        "refused",
        "waited_too_long",
        None,
    )


async def _revoked_by_itself(api: Api, acme: Tenant, lease: str, certificate: dict[str, Any]) -> None:
    path = f"{path_of(lease)}/{certificate['id']}/revoke"
    first, second = await acme.http.post(path), await acme.http.post(path)
    assert first.json()["revoked_why"] == "requested"
    assert first.json() == second.json()


async def test_whatever_takes_the_right_to_log_in_away_revokes_at_once(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    lease = await ready(api, acme)
    stored = (await acme.http.post("/v1/ssh-keys", json={"name": "laptop", "public_key": SSH_KEY})).json()[
        "id"
    ]
    untouched = await signed(stage, acme.http, lease, OTHER_KEY)

    async def held(certificate: dict[str, Any], why: str) -> None:
        assert await state_of(api, certificate) == (why, True), why
        assert await state_of(api, untouched) == (None, False), f"{why} reaches no other certificate"

    with case("somebody asks for it"):
        certificate = await signed(stage, acme.http, lease, OTHER_KEY)
        await _revoked_by_itself(api, acme, lease, certificate)
        await held(certificate, "requested")
    with case("the stored key is deleted"):
        certificate = await signed(stage, acme.http, lease, stored)
        assert (await acme.http.delete(f"/v1/ssh-keys/{stored}")).status_code == 204
        await held(certificate, "ssh_key_deleted")
    with case("the API key is revoked"):
        issued = (await acme.http.post("/v1/api-keys", json={"name": "one"})).json()
        certificate = await signed(stage, api.client(issued["secret"]), lease)
        assert (await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}")).status_code == 204
        await held(certificate, "credential_ended")
    with case("the API key is rotated, and ends at once or later than its certificate"):
        for overlap, why in ((0, "credential_ended"), (2, None)):
            issued = (await acme.http.post("/v1/api-keys", json={"name": "one"})).json()
            certificate = await signed(stage, api.client(issued["secret"]), lease)
            path = f"/v1/api-keys/{issued['key']['id']}/rotations"
            assert (await acme.http.post(path, json={"overlap_hours": overlap})).status_code == 201
            assert await state_of(api, certificate) == (why, why is not None)
    for event in ("suspend", "remove"):
        with case(f"the service account is: {event}"):
            subject, client, _ = await account(api, acme, event, "member")
            certificate = await signed(stage, client, lease)
            path = f"/v1/service-accounts/{subject}"
            ended = await (
                acme.http.post(f"{path}/suspend") if event == "suspend" else acme.http.delete(path)
            )
            assert ended.is_success
            await held(certificate, "subject_ended")
    with case("a role ends, and no other one is left"):
        subject, client, _ = await account(api, acme, "runner")
        bindings = [
            (await grant(acme.http, subject, role, **scope)).json()["id"]
            for role, scope in (("member", {}), ("member", {"kind": "lease", "id": lease}), ("viewer", {}))
        ]
        certificate = await signed(stage, client, lease)
        assert (await acme.http.delete(f"/v1/role-bindings/{bindings[0]}")).status_code == 204
        assert await state_of(api, certificate) == (None, False), "the other role allows it"
        assert (await acme.http.delete(f"/v1/role-bindings/{bindings[1]}")).status_code == 204
        await held(certificate, "role_ended")
    with case("the lease is released"):
        ending = await ready(api, acme)
        certificate = await signed(stage, acme.http, ending)
        assert (await acme.http.post(f"/v1/leases/{ending}/release")).is_success
        await held(certificate, "lease_ended")
        hold(await ask(acme.http, ending), "lease_not_ready")
    with case("a request that waits is revoked as well, and is not signed"):
        issued = (await acme.http.post("/v1/api-keys", json={"name": "one"})).json()
        waiting = (await ask(api.client(issued["secret"]), lease)).json()
        assert (await acme.http.delete(f"/v1/api-keys/{issued['key']['id']}")).status_code == 204
        assert [report.looked_at for report in await stage.run("sign_ssh_certificates")] == [0]
        await held(waiting, "credential_ended")
    for path, why in (("suspensions", "organization_suspended"), ("closures", "organization_closed")):
        with case(f"the organization: {path}"):
            closed = await api.tenant(path)
            certificate = await signed(stage, closed.http, await ready(api, closed))
            body = {"reason": "unpaid"}
            answer = await operator.http.post(
                f"/v1/operator/organizations/org_{closed.id.hex}/{path}", json=body
            )
            assert answer.is_success, answer.text
            await held(certificate, why)
    audited = await found(
        api,
        "SELECT rule FROM audit_pending WHERE event = 'ssh_certificates.revoke' AND subject_kind = 'system'",
    )
    assert sorted(line.rule for line in audited) == sorted(
        f"revocation:{why}"
        for why in (
            *("ssh_key_deleted", "credential_ended", "credential_ended", "credential_ended", "subject_ended"),
            *("subject_ended", "role_ended", "lease_ended", "organization_suspended", "organization_closed"),
        )
    )


async def test_certificates_that_have_ended_are_revoked_for_their_sessions_without_a_line_each(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await ready(api, acme)
    subject, client, _ = await account(api, acme, "runner", "member")
    for _ in range(3):
        ended = await signed(stage, client, lease)
    api.clock.advance(LASTS.total_seconds())
    valid, waiting = await signed(stage, client, lease), (await ask(client, lease)).json()
    assert (await acme.http.delete(f"/v1/service-accounts/{subject}")).is_success
    for certificate in (ended, valid, waiting):
        assert await state_of(api, certificate) == ("subject_ended", True)
    lines = await found(api, "SELECT targets FROM audit_pending WHERE rule = 'revocation:subject_ended'")
    assert {line.targets[0] for line in lines} == {valid["id"], waiting["id"]}
    assert len(lines) == 2


async def test_a_suspended_user_and_an_ended_session_lose_their_certificates(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    """People have sessions; rows stand for them here, as signing in has tests of its own."""
    lease = await ready(api, acme)
    user = await made(acme.http, "/v1/users", email="ada@example.com", name="Ada")
    session, now = uuid7(), api.clock.now()
    values = {
        "session": session,
        "organization": acme.id,
        "user": UUID(hex=user.removeprefix("user_")),
        "now": now,
    }
    async with api.owner.db.transaction() as connection:
        await connection.execute(_SIGNED_IN, values)

    async def of_session() -> dict[str, Any]:
        certificate = uuid7()
        requested = {
            "id": certificate,
            "lease": UUID(hex=lease.removeprefix("le_")),
            "serial": certificate.int >> 80,
            "credential": f"ses_{session.hex}",
            "key": SSH_KEY,
            **values,
        }
        async with api.owner.db.transaction() as connection:
            await connection.execute(_REQUESTED, requested)
        await stage.run("sign_ssh_certificates")
        return {"id": f"cert_{certificate.hex}"}

    certificate = await of_session()
    assert await state_of(api, certificate) == (None, False)
    assert (await acme.http.delete(f"/v1/sessions/ses_{session.hex}")).status_code == 204
    assert await state_of(api, certificate) == ("credential_ended", True)
    certificate = await of_session()
    assert (await acme.http.post(f"/v1/users/{user}/suspend")).is_success
    assert await state_of(api, certificate) == ("subject_ended", True)


async def test_the_database_refuses_to_edit_a_certificate_or_to_undo_its_revocation(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await ready(api, acme)
    certificate = await signed(stage, acme.http, lease)
    statements = [
        "UPDATE ssh_certificates SET valid_before = valid_before + interval '1 day'",
        "UPDATE ssh_certificates SET serial = serial + 1",
        "UPDATE ssh_certificates SET certificate = 'another'",
        "UPDATE ssh_certificates SET lease_id = lease_id, credential = 'key_0'",
    ]
    for statement in statements:
        with pytest.raises(DBAPIError, match="not edited"):
            async with api.owner.db.transaction() as connection:
                await connection.execute(text(statement))
    await acme.http.post(f"{path_of(lease)}/{certificate['id']}/revoke")
    for statement in ("revoked_at = NULL, revoked_why = NULL", "revoked_at = now()"):
        with pytest.raises(DBAPIError, match="not edited"):
            async with api.world.db.transaction(acme.id) as connection:
                await connection.execute(text(f"UPDATE ssh_certificates SET {statement}"))
