"""The main story: from a request to a bill that adds up."""

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano
from control_plane.domain.project import Project
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.services import billing, leases, projects
from control_plane.services.leases import WantedLease
from tests.support import laws
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
CUSTOMER = Actor(ActorKind.CUSTOMER, "test", "request-1")

_FACTS = text("""
SELECT 'interval' AS fact, i.project_id, i.machine_id, i.provider, i.region FROM intervals i WHERE i.lease_id = :id
UNION ALL SELECT 'charge', c.project_id, c.machine_id, c.provider, c.region FROM charges c WHERE c.lease_id = :id
""")
_PROJECTS = text("""
SELECT 'transaction' AS fact, t.project_id FROM transactions t WHERE t.kind = 'usage'
UNION ALL SELECT 'posting', p.project_id FROM postings p JOIN transactions t ON t.id = p.transaction_id
WHERE t.kind = 'usage'
UNION ALL SELECT 'journal', project_id FROM journal WHERE lease_id = :id
""")
_ASKED_FOR = text(
    "SELECT actor_kind, actor, request_id FROM journal WHERE lease_id = :id ORDER BY number LIMIT 1"
)


async def test_a_lease_becomes_ready_is_billed_by_the_second_and_leaves_nothing(stage: Stage) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready")
    await laws.check(stage.db, stage.cloud)
    ready_at = (await stage.lease_row(lease)).ready_at
    assert ready_at is not None

    await stage.play(5_000, step=500)
    await stage.release(lease)
    released_at = stage.clock.now()
    await stage.play_until(lease, "ended")
    await stage.play(10)
    await laws.check_finished(stage.db, stage.cloud)

    seconds = int((released_at - ready_at).total_seconds())
    totals = await billing.reconcile(stage.api, organization_id)
    assert totals.gpu_seconds == seconds
    assert totals.rated_nano == totals.posted_nano == Nano(seconds * 1_000_000)
    assert await stage.story(lease) == [
        "lease admitted",
        "lease placed",
        "machine intended",
        "machine asked",
        "machine accepted",
        "machine reachable",
        "machine verified",
        "lease verified",
        "lease released",
        "machine released",
        "machine confirmed_gone",
        "lease machines_gone",
    ]


async def _lease_in(stage: Stage, project: str | None) -> Lease | Refused:
    """A lease of an organization that has a project called research, in `project`."""
    organization_id = await stage.organization()
    async with stage.api.db.transaction(organization_id) as connection:
        assert isinstance(
            await projects.create(connection, stage.api, organization_id, name="research"), Project
        )
        return await leases.create(
            connection,
            stage.api,
            organization_id,
            WantedLease(CapacityRequest("h100x1"), "training", project, ssh_key_ids=[]),
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )


async def test_every_fact_of_a_lease_says_where_how_and_for_which_project_it_was_used(stage: Stage) -> None:
    lease = await _lease_in(stage, "research")
    assert isinstance(lease, Lease), lease
    await stage.play_until(lease, "ready")
    await stage.play(4_000, step=500)
    await stage.release(lease)
    await stage.finish()

    async with stage.db.reading() as connection:
        (machine,) = await rows(connection, text("SELECT id, provider, region FROM machines"))
        facts = await rows(connection, _FACTS, id=lease.id)
        of_projects = await rows(connection, _PROJECTS, id=lease.id)
        (asked,) = await rows(connection, _ASKED_FOR, id=lease.id)
    assert {row.fact for row in facts} == {"interval", "charge"}
    assert {tuple(row)[1:] for row in facts} == {
        (lease.project_id, machine.id, machine.provider, machine.region)
    }
    assert {row.fact for row in of_projects} == {"transaction", "posting", "journal"}
    assert {row.project_id for row in of_projects} == {lease.project_id}
    assert tuple(asked) == ("customer", "test", "request-1")

    until = stage.clock.now()
    charges = await billing.usage_page(
        stage.api,
        lease.organization_id,
        since=lease.created_at,
        until=until,
        after=None,
        limit=100,
        reach=EVERYWHERE,
    )
    assert {(charge.purchase, charge.price_book) for charge in charges} == {
        (PurchaseKind.ON_DEMAND, lease.price_book)
    }
    assert {(charge.project_id, charge.machine_id) for charge in charges} == {(lease.project_id, machine.id)}


async def test_a_lease_that_names_an_unknown_project_is_refused_and_holds_nothing(stage: Stage) -> None:
    refused = await _lease_in(stage, "development")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PROJECT_UNKNOWN
    async with stage.db.reading() as connection:
        assert (await rows(connection, text("SELECT count(*) AS n FROM holds")))[0].n == 0
