"""Promises of leases, for stages on which something is to be judged and credited."""

from pathlib import Path

from sqlalchemy import text

from control_plane.domain.ids import LeaseId, SlaBreachId
from control_plane.services import sla_terms
from control_plane.services.sla_terms import parse_terms
from control_plane.world import uuid7
from tests.support.stage import Stage

SHIPPED = Path("control_plane/sla_terms.toml").read_text(encoding="utf-8")
"""Gold keeps a machine until the next one is ready."""
TERMS = """
[bronze]
availability = [{ below = "99.9%", credit = "10%" }]
"""
_PROMISE = text("UPDATE leases SET sla_version = 1 WHERE id = :id")
_JUDGE = text("""
INSERT INTO sla_clocks (lease_id, organization_id, due_at) SELECT id, organization_id, :now FROM leases WHERE id = :id
""")
_BREACH = text("""
INSERT INTO sla_breaches (id, organization_id, project_id, lease_id, promise, month, sla, sla_version, since, found_at,
                          why, evidence)
SELECT :breach, organization_id, project_id, id, 'availability', date_trunc('month', CAST(:now AS timestamptz), 'UTC'),
       sla, sla_version, :now, :now, 'a test', '{}' FROM leases WHERE id = :id
""")
_ASSESSMENT = text("""
INSERT INTO sla_assessments (breach_id, number, organization_id, assessed_at, charged_nano, credit_nano, outside_nano,
                             why, evidence)
SELECT :breach, 1, organization_id, :now, 100, 10, :outside, 'a test', '{}' FROM leases WHERE id = :id
""")
_QUEUED = text("""
INSERT INTO sla_uncredited (organization_id, breach_id, since)
SELECT organization_id, :breach, :now FROM leases WHERE id = :id
""")


async def put_terms_in_force(stage: Stage, terms: str = SHIPPED) -> None:
    """These terms are promised with the leases that are created from now on."""
    async with stage.db.transaction() as connection:
        await sla_terms.load(connection, stage.api, parse_terms(terms))


async def broken(stage: Stage, lease_id: LeaseId, *, outside: int = 10) -> SlaBreachId:
    """A promise of this lease was broken, and 10 nano-USD are to be given back for it. It is to be judged again.

    `outside` is how much of that not only its machine shows.
    """
    breach = SlaBreachId(uuid7())
    await put_terms_in_force(stage, TERMS)
    async with stage.db.transaction() as connection:
        values = {"id": lease_id, "breach": breach, "now": stage.clock.now(), "outside": outside}
        for statement in (_PROMISE, _JUDGE, _BREACH, _ASSESSMENT, _QUEUED):
            names = statement.compile().params
            await connection.execute(statement, {name: values[name] for name in names})
    return breach
