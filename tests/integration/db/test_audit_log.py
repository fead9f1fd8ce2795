"""The chains of the audit log in the database: sealing, what loops do, exports to a bucket, and pruning."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

import boto3
import pytest
from moto import mock_aws
from sqlalchemy import text

from control_plane import __main__ as main
from control_plane.cli import audit_chain
from control_plane.db import audit
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.domain.audit import EVENTS, AuditLine, AuditOutcome, Happening, SubjectKind
from control_plane.domain.audit_chain import canonical
from control_plane.domain.ids import OrganizationId
from control_plane.domain.permission import Permission
from control_plane.outcomes.audit import seal
from control_plane.services import administration
from control_plane.services import audit as services
from control_plane.vault.audit_keys import AuditSigner, new_private
from control_plane.world import World, uuid7
from reconciler import audit_bucket
from reconciler.archive import ArchiveError
from reconciler.audit_keys import KEY_LASTS, StoredAuditKeys
from reconciler.audit_verification import every_chain
from reconciler.loops.audit import export_audit, prune_audit, seal_audit
from reconciler.s3_archive import S3Archive
from reconciler.worlds.audit import AuditWorld
from tests.integration.db.sample import A, B, a_row, fill, insert
from tests.support.archive import Shelf
from tests.support.clock import START, Clock
from tests.support.keys import AFTER
from tests.support.rows import rows

pytestmark = pytest.mark.database
TENANT = OrganizationId(A)
NOW = START.replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await fill(connection, A, B)
        for table in ("audit_events", "audit_pending", "audit_chains", "audit_checkpoints", "audit_keys"):
            await connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
            await connection.execute(text(f"DELETE FROM {table}"))
            await connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
    await owner.close()
    made = Database(database_url, role=Role.RECONCILER, pool_size=3, readers=1)
    yield made
    await made.close()


def line(days_ago: float = 0, tenant: UUID | None = A, **other: Any) -> AuditLine:
    given: dict[str, Any] = {
        "id": uuid7(),
        "organization_id": tenant,
        "at": NOW - timedelta(days=days_ago),
        "event": "leases.create",
        "outcome": AuditOutcome.ALLOWED,
        "subject": "sa_1",
        "subject_kind": SubjectKind.SERVICE_ACCOUNT,
        "targets": ("le_" + "1" * 32, "le_" + "2" * 32),
        "links": {"journal": [1, 2]},
        "details": {"count": 3, "operation": "createLease"},
    }
    return AuditLine(**(given | other))


async def written(db: Database, *lines: AuditLine) -> None:
    async with db.transaction() as connection:
        await audit.insert(connection, lines)
    async with db.transaction() as connection:
        await seal(connection, limit=1_000, now=NOW)


def world(db: Database, shelf: Shelf | None = None, **other: Any) -> AuditWorld:
    clock = Clock(NOW)
    return AuditWorld(db=db, now=clock.now, new_id=uuid7, open_bucket=lambda _: shelf or Shelf(), **other)


async def exported_to(db: Database, bucket: str | None) -> None:
    """As `python -m reconciler audit-bucket` does."""
    await audit_bucket.choose(db, bucket, now=lambda: NOW, new_id=uuid7)


async def chain(db: Database, tenant: UUID | None = A) -> list[Any]:
    async with db.reading() as connection:
        return await audit.after(
            connection, None if tenant is None else OrganizationId(tenant), after=0, limit=100
        )


async def test_a_line_is_read_as_it_was_written_and_sealed(db: Database) -> None:
    wanted = line(code="x", client='a "b"', at=NOW + timedelta(microseconds=123_456), region="eu")
    await written(db, wanted)
    (found,) = await chain(db)
    assert found.line == AuditLine(**{name: getattr(wanted, name) for name in AuditLine.__dataclass_fields__})


async def test_each_organization_and_the_platform_has_a_chain_of_its_own(db: Database) -> None:
    await written(db, line(), line(tenant=B), line(tenant=None), line())
    assert [sealed.sequence for sealed in await chain(db)] == [1, 2]
    assert [sealed.sequence for sealed in await chain(db, B)] == [1]
    assert [sealed.sequence for sealed in await chain(db, None)] == [1]


async def test_a_line_that_was_stored_twice_gets_one_place_and_keeps_no_other_from_theirs(
    db: Database,
) -> None:
    again = line()
    await written(db, again, again)
    await written(db, again, line())
    assert [sealed.sequence for sealed in await chain(db)] == [1, 2]
    async with db.reading() as connection:
        assert await audit.oldest_pending(connection) is None


async def test_two_processes_that_seal_at_once_make_one_chain(db: Database) -> None:
    async with db.transaction() as connection:
        await audit.insert(connection, [line() for _ in range(5)])
    async with db.transaction() as first:
        assert await seal(first, limit=3, now=NOW) == 3
        async with db.transaction() as second:
            assert await seal(second, limit=3, now=NOW) == 0
    async with db.transaction() as connection:
        assert await seal(connection, limit=3, now=NOW) == 2
    assert [sealed.sequence for sealed in await chain(db)] == [1, 2, 3, 4, 5]


async def test_heads_are_stored_and_logged_and_a_line_that_waits_too_long_is_an_error(db: Database) -> None:
    await written(db, line(), line())
    report = await seal_audit.activate(world(db))
    (event,) = report.events
    assert (event.name, event.facts["sequence"]) == ("audit_head", "2")
    assert (await seal_audit.activate(world(db))).events == [], "no head moved"
    async with db.transaction() as connection:
        await audit.insert(connection, [line(days_ago=1)])
        async with db.transaction() as other:
            assert await audit.lock(other)
            report = await seal_audit.activate(world(db))
    assert report.errors == []


async def test_a_day_is_one_object_whose_bytes_are_the_same_again(db: Database) -> None:
    await exported_to(db, "audit")
    await written(db, line(2), line(2), line(1), line(0), line(2, tenant=B))
    shelf = Shelf()
    while (await export_audit.activate(world(db, shelf))).more:
        pass
    name = f"org_{A.hex}"
    assert [key for key in sorted(shelf.objects) if key.startswith(name)] == [
        f"{name}/{NOW - timedelta(days=2):%Y-%m-%d}/{1:012d}-{2:012d}.jsonl",
        f"{name}/{NOW - timedelta(days=1):%Y-%m-%d}/{3:012d}-{3:012d}.jsonl",
    ], "the day that is not over is not exported"
    for body in shelf.objects.values():
        assert isinstance(audit_chain.verify(body.splitlines(keepends=True)), audit_chain.Whole)
    async with db.transaction() as connection:  # As after a crash between the upload and its record.
        await connection.execute(text("UPDATE audit_chains SET exported_sequence = 0"))
    while (await export_audit.activate(world(db, shelf))).more:
        pass
    assert len(shelf.objects) == 3


async def test_a_bucket_that_refuses_is_an_error_and_is_asked_again(db: Database) -> None:
    await exported_to(db, "audit")
    await written(db, line(2))
    shelf = Shelf()
    shelf.fails = True
    report = await export_audit.activate(world(db, shelf))
    assert (report.errors, report.more) == (["S3 answers AccessDenied"], False)
    shelf.fails = False
    assert (await export_audit.activate(world(db, shelf))).acted_on == 1


async def test_objects_arrive_in_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="audit")
        await S3Archive("audit", client).put("org_1/2026-11-22/1-2.jsonl", b"{}\n")
        stored = client.get_object(Bucket="audit", Key="org_1/2026-11-22/1-2.jsonl")
        assert stored["Body"].read() == b"{}\n"
        with pytest.raises(ArchiveError, match="NoSuchBucket"):
            await S3Archive("nothing", client).put("key", b"")


async def test_old_lines_are_pruned_and_the_rest_still_verifies(db: Database) -> None:
    await written(db, line(500), line(450), line(399), line(1))
    report = await prune_audit.activate(world(db))
    assert report.acted_on == 2
    async with db.transaction() as connection:
        await seal(connection, limit=10, now=NOW)
    kept = await chain(db)
    assert [(sealed.sequence, sealed.line.event) for sealed in kept] == [
        (3, "leases.create"),
        (4, "leases.create"),
        (5, "audit.prune"),
    ]
    async with db.reading() as connection:
        before = await audit.beginning(connection, TENANT)
    assert (before.sequence, before.hash) == (2, kept[0].previous)


async def test_while_the_log_is_exported_only_exported_lines_are_pruned_by_whatever_process(
    db: Database,
) -> None:
    await written(db, line(500), line(450), line(1))
    shelf = Shelf()
    assert (await export_audit.activate(world(db, shelf))).looked_at == 0
    await exported_to(db, "audit")
    assert (await prune_audit.activate(world(db))).acted_on == 0
    await export_audit.activate(world(db, shelf))
    assert (await prune_audit.activate(world(db))).acted_on == 1
    assert len(shelf.objects) == 1
    await exported_to(db, None)
    assert (await prune_audit.activate(world(db))).acted_on == 1
    async with db.reading() as connection:
        chosen = await rows(
            connection,
            text("SELECT rule FROM audit_pending WHERE event = 'audit_exports.set' ORDER BY number"),
        )
    assert [line.rule for line in chosen] == ["host", "host:ended"]


async def test_a_line_that_cannot_be_sealed_stops_its_own_chain_loudly_and_no_other(db: Database) -> None:
    """The fault of its chain is repaired by a version that can seal it, and nothing is lost until then."""
    bad = line(targets=("le_nobody's",), request_id="req_1")
    async with db.transaction() as connection:
        await audit.insert(connection, [line(), bad, line(), line(tenant=B), line(tenant=None)])
    for sealed in (3, 0):
        report = await seal_audit.activate(world(db))
        assert report.acted_on == sealed
        (error,) = report.errors
        assert error.startswith(f"The chain org_{A.hex} of the audit log stands still at line ")
        assert "cannot be sealed: MalformedIdError" in error
    assert [len(await chain(db, tenant)) for tenant in (A, B, None)] == [1, 1, 1]
    with patch("control_plane.outcomes.audit._leases", return_value=[]):
        report = await seal_audit.activate(world(db))
    assert (report.acted_on, report.errors) == (2, [])
    assert (await chain(db))[1].line.id == bad.id
    assert [check.why async for check in every_chain(db)] == [None] * 3


async def test_a_chain_that_cannot_be_read_holds_up_no_export_of_another(db: Database) -> None:
    await exported_to(db, "audit")
    await written(db, line(2), line(2, tenant=B))
    shelf, first = Shelf(), min(A, B)
    read = audit.after

    async def after(connection: Connection, organization_id: OrganizationId | None, **other: Any) -> Any:
        if organization_id == first:
            raise ValueError("a newer version wrote it")
        return await read(connection, organization_id, **other)

    with patch.object(audit, "after", after):
        report = await export_audit.activate(world(db, shelf))
    assert report.errors == [f"org_{first.hex}: ValueError: a newer version wrote it"]
    assert [key.split("/")[0] for key in shelf.objects] == [f"org_{max(A, B).hex}"]


async def test_the_database_keeps_every_line_for_thirty_days_whatever_the_setting(db: Database) -> None:
    await written(db, line(20), line(10), line(1))
    with pytest.raises(Exception, match="30 days"):
        await prune_audit.activate(world(db, audit_kept=timedelta(days=5)))
    assert len(await chain(db)) == 3


async def test_what_loops_do_to_machines_and_leases_is_a_line_that_links_the_journal(db: Database) -> None:
    async with db.transaction() as connection:
        for event, after in (
            ("asked", "launching"),
            ("accepted", "booting"),
            ("verified", "verified"),
            ("released", "terminating"),
            ("confirmed_gone", "gone"),
        ):
            await connection.execute(
                text("""
                INSERT INTO journal (machine_id, at, actor_kind, actor, event, state_before, state_after)
                SELECT id, :now, 'loop', 'launch_machines', :event, 'intended', :after FROM machines ORDER BY id LIMIT 1
                """),
                {"now": NOW, "event": event, "after": after},
            )
        await connection.execute(
            text("""
            INSERT INTO journal (organization_id, project_id, lease_id, at, actor_kind, actor, event, state_before,
                                 state_after)
            SELECT organization_id, project_id, id, :now, 'loop', 'fund_leases', 'unfunded', 'ready', 'ending'
            FROM leases WHERE organization_id = :tenant LIMIT 1
            """),
            {"now": NOW, "tenant": A},
        )
    async with db.transaction() as connection:
        await seal(connection, limit=100, now=NOW)
    platform = await chain(db, None)
    assert [sealed.line.event for sealed in platform] == [
        "machines.order",
        "machines.create",
        "machines.terminate",
        "machines.end",
    ]
    (ended,) = await chain(db)
    assert (ended.line.event, ended.line.rule, ended.line.subject) == (
        "leases.end",
        "journal:unfunded",
        "fund_leases",
    )
    async with db.reading() as connection:
        numbers = {row.number for row in await rows(connection, text("SELECT number FROM journal"))}
    for sealed in (*platform, ended):
        assert set(sealed.line.links["journal"]) <= numbers
        assert sealed.line.event in EVENTS
    assert all(sealed.line.links["launch_key"] for sealed in platform)


async def test_a_frozen_account_is_a_line_of_the_platform_and_so_is_its_thaw(db: Database) -> None:
    async with db.transaction() as connection:
        for since in (NOW, None):
            await connection.execute(
                text("UPDATE provider_accounts SET frozen_since = CAST(:since AS timestamptz)"),
                {"since": since},
            )
            await connection.execute(text("UPDATE provider_accounts SET frozen_lists = 7"))
    async with db.transaction() as connection:
        await seal(connection, limit=100, now=NOW)
    assert [sealed.line.event for sealed in await chain(db, None)] == [
        "provider_accounts.freeze",
        "provider_accounts.thaw",
    ]


async def test_the_end_of_an_orphan_is_a_line_of_the_platform_with_its_launch_key(db: Database) -> None:
    async with db.transaction() as connection:
        for _ in range(2):  # The provider is asked again until the machine is gone.
            await connection.execute(
                text("UPDATE orphans SET terminate_asked_at = coalesce(terminate_asked_at, :now)"),
                {"now": NOW},
            )
        (orphan,) = await rows(connection, text("SELECT account, launch_key FROM orphans"))
    async with db.transaction() as connection:
        await seal(connection, limit=100, now=NOW)
    (sealed,) = await chain(db, None)
    assert (sealed.line.event, sealed.line.subject) == ("orphans.end", "collect_orphans")
    assert sealed.line.links == {"launch_key": [orphan.launch_key]}
    assert sealed.line.details == {"account": orphan.account}


async def test_keys_of_access_tokens_have_lines_when_they_are_made_and_when_they_are_removed(
    db: Database, database_url: str
) -> None:
    """The API, which makes them, writes no line of the platform's chain: a trigger does."""
    api = Database(database_url, role=Role.API, pool_size=1, readers=1)
    admin = Database(database_url, role=Role.ADMIN, pool_size=1, readers=1)
    key = a_row("signing_keys", A, 9, made_at=NOW, signs_from=NOW, signs_until=NOW + timedelta(days=30))
    async with api.transaction() as connection:
        await insert(connection, "signing_keys", key)
    host = administration.recorded(World(admin, now=Clock(NOW).now), Happening.SIGNING_KEYS_REMOVE, None)
    listed = await administration.keys_of_tokens(host)  # A list changes nothing, so it has no line.
    assert key["id"] in {found.id for found, _ in listed}
    assert await administration.remove_key_of_tokens(host, key["id"]) is None
    assert await administration.remove_key_of_tokens(host, key["id"]) is not None, "it is removed already"
    await api.close()
    await admin.close()
    async with db.transaction() as connection:
        await seal(connection, limit=100, now=NOW)
    made, removed = [sealed.line for sealed in await chain(db, None)]
    assert (made.event, made.subject, made.details) == ("signing_keys.make", "api", {"key": key["id"]})
    assert (removed.event, removed.subject, removed.rule) == ("signing_keys.remove", "administrator", "host")


def test_each_command_of_an_administrator_has_an_event() -> None:
    assert main._EVENTS.keys() == main._AS_ADMINISTRATOR.keys()


TAMPERING = {
    "an edited line": ("UPDATE audit_events SET subject = 'nobody' WHERE sequence = 2", "line 2 was changed"),
    "a missing line": ("DELETE FROM audit_events WHERE sequence = 2", "line 2 is missing"),
    "a missing end": ("DELETE FROM audit_events WHERE sequence = 3", "line 3 is missing"),
    "an end that is cut off everywhere but at its checkpoint": (
        """WITH cut AS (DELETE FROM audit_events WHERE sequence = 3)
        UPDATE audit_chains c SET sequence = 2, hash = e.hash FROM audit_events e
        WHERE e.sequence = 2 AND e.organization_id = c.organization_id""",
        "line 3 is missing",
    ),
    "a chain without its head": ("DELETE FROM audit_chains", "no head"),
}


@pytest.mark.parametrize("name", TAMPERING)
async def test_whoever_goes_around_the_triggers_is_found(db: Database, database_url: str, name: str) -> None:
    await written(db, line(), line(), line())
    await seal_audit.activate(world(db))
    assert [str(check) async for check in every_chain(db)] == [f"org_{A.hex}: 3 lines, whole"]
    statement, why = TAMPERING[name]
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        for table in ("audit_events", "audit_chains"):
            await connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        await connection.execute(text(statement))
    await owner.close()
    (check,) = [check async for check in every_chain(db)]
    assert why in (check.why or "whole")


SIGNED_TAMPERING = {
    "a checkpoint that was moved to another line": (
        "UPDATE audit_checkpoints SET at = at + interval '1 second'",
        "the signature of the checkpoint at line 3 is not that of its key",
    ),
    "a signature of another key under the name of ours": (
        "UPDATE audit_keys SET public = decode(repeat('07', 32), 'hex')",
        "the signature of the checkpoint at line 3 is not that of its key",
    ),
    "a signature that was removed": (
        """UPDATE audit_checkpoints SET key_id = NULL, signature = NULL
        WHERE number = (SELECT max(number) FROM audit_checkpoints)""",
        "the checkpoint at line 4 is not signed, although an earlier one is",
    ),
    "a chain that was computed anew to its end": (
        """UPDATE audit_checkpoints c SET hash = decode(repeat('07', 32), 'hex') WHERE sequence = 3""",
        "line 3 has another hash than at its checkpoint",
    ),
}


class _RolledBackError(Exception):
    pass


class _Inside:
    """Reads inside of a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        yield self._connection


async def _signed_chain(db: Database, database_url: str) -> AuditSigner:
    """Four lines, with signed checkpoints at the third and the fourth. Returns the key."""
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", UUID(int=9), platform=True))
    await owner.close()
    keys = StoredAuditKeys(db, Clock(NOW).now, uuid7, AFTER)
    await written(db, line(), line(), line())
    await seal_audit.activate(world(db, audit_keys=keys))
    await written(db, line())
    later = Clock(NOW + timedelta(minutes=6))
    await seal_audit.activate(replace(world(db, audit_keys=keys), now=later.now))
    signer = await StoredAuditKeys(db, Clock(NOW).now, uuid7, AFTER).signer()  # As another process opens it.
    assert signer is not None
    return signer


async def test_whoever_changes_what_is_signed_is_found(db: Database, database_url: str) -> None:
    await _signed_chain(db, database_url)
    assert [check.why async for check in every_chain(db)] == [None]
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    for name, (statement, why) in SIGNED_TAMPERING.items():
        with suppress(_RolledBackError):
            async with owner.transaction() as connection:
                for table in ("audit_checkpoints", "audit_keys"):
                    await connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
                await connection.execute(text(statement))
                inside = cast("Database", _Inside(connection))
                (check,) = [check async for check in every_chain(inside)]
                assert why in (check.why or "whole"), name
                raise _RolledBackError
    await owner.close()


async def test_an_export_alone_tells_who_signed_it_and_whether_that_is_so(
    db: Database, database_url: str
) -> None:
    signer = await _signed_chain(db, database_url)
    api = Database(database_url, role=Role.API, pool_size=1, readers=1)
    parts = [part async for part in services.export(World(api, now=Clock(NOW).now), TENANT, after=0)]
    await api.close()
    lines = b"".join(parts).splitlines(keepends=True)
    whole = audit_chain.verify(lines)
    assert isinstance(whole, audit_chain.Whole)
    assert (whole.lines, whole.signed, whole.key) == (4, 4, signer.key_id)
    assert isinstance(audit_chain.verify(lines, key=signer.key_id), audit_chain.Whole)
    places = [place for place, each in enumerate(lines) if b'"kind":"checkpoint"' in each]
    assert len(places) == 2

    def fault(changed: list[bytes], key: str | None = None) -> str:
        found = audit_chain.verify(changed, key=key)
        return found.why if isinstance(found, audit_chain.Fault) else "whole"

    first, last = places
    moved = [*lines[:first], *lines[first + 1 : last], lines[first], *lines[last:]]
    assert "is about another line" in fault(moved)
    later = lines[first].replace(b'"at":"20', b'"at":"21')
    assert "signature of the checkpoint behind line 3" in fault([*lines[:first], later, *lines[first + 1 :]])
    assert "no checkpoint is signed by the key" in fault(lines, key="0" * 64)
    unsigned = [each for place, each in enumerate(lines) if place not in places]
    assert "no checkpoint is signed by the key" in fault(unsigned, key=signer.key_id)
    forger = AuditSigner(new_private())
    forged = []
    for each in lines:
        content = json.loads(each)
        if content.get("kind") == "checkpoint":
            signed = {name: value for name, value in content.items() if name not in ("public", "signature")}
            signed["key"] = forger.key_id
            content = signed | {
                "public": forger.public.hex(),
                "signature": forger.sign(canonical(signed)).hex(),
            }
        forged.append(canonical(content) + b"\n")
    assert fault(forged) == "whole", "a key of somebody else's is found only by whoever knows ours"
    assert "no checkpoint is signed by the key" in fault(forged, key=signer.key_id)


async def test_without_a_key_manager_or_operators_checkpoints_are_not_signed(db: Database) -> None:
    keys = StoredAuditKeys(db, Clock(NOW).now, uuid7, AFTER)
    assert await keys.signer() is None
    await written(db, line())
    await seal_audit.activate(world(db, audit_keys=keys))
    assert [check.why async for check in every_chain(db)] == [None]


async def test_a_key_signs_for_a_year_and_the_next_one_follows(db: Database, database_url: str) -> None:
    first = await _signed_chain(db, database_url)
    late = Clock(NOW + KEY_LASTS)
    second = await StoredAuditKeys(db, late.now, uuid7, AFTER).signer()
    assert second is not None
    assert second.key_id != first.key_id
    assert [check.why async for check in every_chain(db)] == [None]


async def test_a_pruned_chain_is_whole(db: Database) -> None:
    await written(db, line(500), line(1))
    await prune_audit.activate(world(db))
    assert [check.why async for check in every_chain(db)] == [None]


async def test_what_an_administrator_does_is_in_the_platforms_chain_and_in_the_organizations(
    db: Database, database_url: str
) -> None:
    admin = Database(database_url, role=Role.ADMIN, pool_size=1, readers=1)
    host = World(admin, now=Clock(NOW).now)
    made = await administration.bootstrap(
        administration.recorded(host, Permission.ORGANIZATIONS_CREATE, "acme"),
        "acme",
        top_up=None,
        gpu_quota=1,
    )
    assert isinstance(made, administration.FirstOrganization)
    await admin.close()
    async with db.transaction() as connection:
        await seal(connection, limit=10, now=NOW)
    for tenant in (None, made.id):
        (sealed,) = await chain(db, tenant)
        assert (sealed.line.event, sealed.line.subject) == ("organizations.create", "administrator")
        assert list(sealed.line.targets) == [f"org_{made.id.hex}"]
