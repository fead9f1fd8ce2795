"""A stage on which every loop has something to do, and a lease is at every point of its life."""

import dataclasses
from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db import account_requests, audit, idempotency, projects
from control_plane.db import pools as pool_rows
from control_plane.db.engine import Database
from control_plane.db.idempotency import StoredAnswer
from control_plane.domain.account_request import AccountRequest, AccountVerb
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.audit import AuditLine, AuditOutcome, SubjectKind
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.envelope import Envelope
from control_plane.domain.ids import AccountRequestId, OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.pool import PoolPolicy
from control_plane.domain.power_action import PowerAction
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.world import uuid7
from data_plane.cluster.resource import NODE as NODES
from data_plane.cluster.resource import POD
from data_plane.documents.sample import Gpu, Xid
from data_plane.simulation.kubernetes import FakeClusters
from data_plane.simulation.servers import FakeServers
from providers.base import Needed
from providers.fake import Fault
from providers.fake import Settings as FakeSettings
from reconciler.cluster_tenants import tenant_of
from reconciler.worlds.telemetry import SampleArchive
from tests.support import (
    clusters,
    conditions,
    consoles,
    keys,
    machine_samples,
    node_pools,
    pools,
    power,
    promises,
    reconciliations,
    scaling,
)
from tests.support.archive import Shelf
from tests.support.challenger import FAILED
from tests.support.clock import Clock
from tests.support.firewall_rules import opened
from tests.support.hand_backs import asked_for_another
from tests.support.machine_samples import JUST_SETTLED
from tests.support.rows import rows
from tests.support.sample_store import TARGET, SampleStore
from tests.support.ssh_requests import requested, revoke, signed
from tests.support.ssh_rotation import store_authorities
from tests.support.stage import FAKE, Stage, set_stage

READY = frozenset(
    {
        "steady",
        "committed",
        "worried",
        "never boots",
        "bootstrapping",
        "admitting",
        "another tenant's",
        "booting",
        "answer lost with effect",
        "answer lost without effect",
        "intended",
        "placing",
        "proven",
        "suspect",
        "proving",
    }
)
"""What becomes ready, or stays it."""
ENDED = frozenset(
    {"limited", "outside", "closing", "released", "leaving", "left early", "broke", "overwritten"}
)
"""What ends by itself."""
LAST = frozenset({"request_reconciliations"})
"""Loops that run once a day, and have to be due at the end."""
LATE = LAST | frozenset(
    {
        "admit_customers",
        "bootstrap_machines",
        "challenge_machines",
        "close_leases",
        "collect_orphans",
        "erase_machines",
        "expire_machines",
        "fund_leases",
        "join_nodes",
        "leave_nodes",
        "rate_usage",
        "refresh_offers",
        "release_leases",
        "sweep_children",
        "sync_hub",
        "watch_nodes",
    }
)
"""Loops that stand still during the last minutes, so that they have something to do."""
NODE = "node"
"""How the names of node pools and of their leases begin."""
SCALED = f"{NODE}-scaled"
"""The node pool that follows an object in its cluster."""
TWO_MACHINES_MAX = timedelta(seconds=260)
"""How long a lease may pay for two: a lost answer is looked for, or what a dead worker holds becomes free."""

PROVEN = CapacityRequest("h100x1-proven")
COMMITTED = CapacityRequest("h100x1", purchase=PurchaseKind.COMMITTED, committed_days=2)
_CHALLENGE_AT = text("""
UPDATE machines SET proof_due_at = :due_at WHERE id IN (SELECT machine_id FROM claims WHERE lease_id = ANY(:ids))
""")
_TERM_ENDS_SOON = text("UPDATE leases SET release_at = :at WHERE id = :id")
"""Within a day, so that its customer is to be told."""
_FORGET_TRUST = text("UPDATE machines SET ssh_trust = 'another' WHERE id = :id")
_OUTDATE_LINK = text("""
UPDATE peers SET hub_key = 'of a hub before' WHERE claim_id = (SELECT id FROM claims WHERE machine_id = :id)
""")
_OUTDATE_AGENT = text("UPDATE agents SET agent_sha256 = repeat('1', 64) WHERE machine_id = :id")
_LEAKED_LONG_AGO = text(
    "UPDATE ssh_authorities SET retired_at = retired_at - interval '2 days' WHERE state = 'distrusted'"
)
_OWNERS = text("""
SELECT m.launch_key, l.name FROM machines m JOIN attempts a ON a.machine_id = m.id JOIN leases l ON l.id = a.lease_id
""")


async def build(db: Database, clock: Clock) -> Stage:
    stage = await set_stage(db, clock, settings=FakeSettings(boot_seconds=30.0))
    archive = SampleArchive(Shelf(), every_seconds=60, kept_days=90)
    stage.world = dataclasses.replace(stage.world, targets=(TARGET,), post=SampleStore(), archive=archive)
    broke = await stage.organization(usd=4)
    await stage.lease(broke, name="broke")  # Its machine is not stopped: that would save nothing.
    stage.clock.advance(1)
    stage.sell_cheap_stops()
    stage.book = [
        dataclasses.replace(
            price, committed_nano_per_unit_hour=Nano(2_700_000_007), committed_days=COMMITTED.committed_days
        )
        for price in stage.book
    ]
    command = await store_authorities(stage)
    rich = await stage.organization()
    await pools.waiting(stage)
    async with db.transaction() as connection:
        await connection.execute(_POOL_SERVES, {"sla": "gold"})
    await clusters.created(stage, "eu-1")
    await stage.run("build_clusters")
    await node_pools.pool(stage, rich, name=f"{NODE}-open", nodes=1)
    shrinking = await node_pools.pool(stage, rich, name=f"{NODE}-leaving", nodes=1)
    steady = await stage.lease(rich, name="steady")
    released = await stage.lease(rich, name="released")
    leaving = await stage.lease(rich, name="leaving")
    closing = await stage.lease(rich, name="closing")
    limited = await stage.lease(
        rich, name="limited", terms=LeaseTerms(auto_release=AutoRelease(after_seconds=3_600))
    )
    committed = await stage.lease(rich, COMMITTED, name="committed")
    left_early = await stage.lease(rich, COMMITTED, name="left early")
    proven = await stage.lease(rich, PROVEN, name="proven")
    suspect = await stage.lease(rich, PROVEN, name="suspect")
    overwritten = await stage.lease(rich, PROVEN, name="overwritten")
    await stage.play(60, step=5, without=LAST)
    await _challenge_soon(stage, proven, suspect)
    await stage.play(30 * 60, step=60, without=LAST)
    await stage.lease(await stage.organization(usd=4), name="worried")
    await stage.play(60, step=5, without=LAST)
    await stage.play(17 * 60, step=60, without=LAST)
    stage.cloud.faults.script("launch", Fault.NEVER_BOOTS)
    await stage.lease(rich, name="never boots")
    await stage.play(4 * 60, step=60, without=LAST)

    narrowed = await stage.organization()
    await stage.lease(narrowed, name="outside")
    await stage.narrow(narrowed, Envelope(gpus=0))
    await stage.plant()
    await stage.play(9 * 60, step=60, without=LATE)
    await stage.release(closing)
    await stage.play(65, step=5, without=LATE)
    await stage.run("refresh_offers")  # Older ones are not sold.
    await stage.lease(rich, name="admitting")
    await node_pools.pool(stage, rich, name=f"{NODE}-joining", nodes=1)
    await stage.play(40, step=4, without=LATE)
    await stage.run("bootstrap_machines")
    await stage.lease(rich, name="bootstrapping")
    await stage.lease(rich, PROVEN, name="proving")
    await stage.play(36, step=4, without=LATE)
    await stage.lease(await stage.organization(), name="another tenant's")
    await stage.lease(rich, name="booting")
    await stage.play(4, without=LATE)
    await stage.release(released)
    await stage.release(overwritten)
    await stage.run("release_machines")
    stage.cloud.faults.script("launch", Fault.LOST_AFTER_EFFECT, Fault.LOST_WITHOUT_EFFECT)
    for name in ("answer lost with effect", "answer lost without effect"):
        await stage.lease(rich, name=name)
        await stage.run("place_leases")
        await stage.run("launch_machines")
    await stage.lease(rich, name="intended")
    await stage.run("place_leases")
    await node_pools.delete(stage, shrinking)
    await stage.run("scale_pools")
    await stage.lease(rich, name="placing")
    await stage.release(leaving)
    await stage.release(left_early, accept_fee=Nano(NANO_MAX))
    async with db.transaction(rich) as connection:
        answer = StoredAnswer(b"digest", 202, b"{}")
        await idempotency.insert(connection, rich, "old", answer, now=clock.now() - timedelta(days=8))
    async with db.transaction() as connection:
        request = AccountRequest(AccountRequestId(uuid7()), FAKE, AccountVerb.TEST, None, "is it well?")
        await account_requests.insert(connection, request, actor=ADMINISTRATOR, now=clock.now())
    await keys.store(db, clock, keys.BEFORE, rich, b"under the old master key")
    await keys.store(db, clock, keys.AFTER, rich, b"under an old data key", age=timedelta(days=91))
    async with db.transaction() as connection:
        await connection.execute(
            _TERM_ENDS_SOON, {"id": committed.id, "at": clock.now() + timedelta(hours=20)}
        )
    await stage.narrow(narrowed, Envelope(gpus=0, ends_after_seconds=300))
    await _audited(stage, await stage.organization(), 500, 499)
    for _ in range(2):
        await stage.run("export_audit")
    await _audited(stage, await stage.organization(), 2)
    deleted = await stage.organization()
    await stage.close_organization(deleted)
    await stage.run("close_organizations")
    await stage.delete_organization(deleted)
    await stage.close_organization(await stage.organization())
    await signed(stage, steady, 1)
    await revoke(stage, steady, 1)
    await requested(stage, steady)
    await opened(stage, steady, 8080)
    await consoles.wanted(stage, steady)
    await command.rotate(leaked=True)
    await _rotated(stage, steady)
    await clusters.created(stage, "deleting")
    await stage.run("build_clusters")
    await clusters.deleted(stage, "deleting")
    await _tenants(stage, rich, broke)
    await _children(stage, steady, released)
    await _works(stage, steady)
    await power.asked(stage, steady, PowerAction.REBOOT)
    await power.asked(stage, limited, PowerAction.STOP)
    closed = await stage.organization()
    await node_pools.pool(stage, closed, cluster="ready")
    await stage.close_organization(closed)
    await clusters.created(stage, "building")
    await reconciliations.asked_for(db, clock.now())
    await promises.broken(stage, steady.id)
    await _sick(stage, suspect, handed_back=proven)
    await _yields(stage, steady, to=suspect)
    await conditions.full_memory(stage, steady)
    await conditions.taken(stage, steady, lasts=timedelta(seconds=30))
    async with db.transaction() as connection:
        await connection.execute(_TUNNELS_DUE, {"now": clock.now()})
        await connection.execute(_SERVER_KEYS_ASKED, {"now": clock.now()})
        await connection.execute(_POOL_SERVES, {"sla": None})
        growing = pools.a_pool(
            2,
            sku=PROVEN.sku,
            policy=PoolPolicy.FIXED,
            machines_min=1,
            created_at=clock.now(),
            changed_at=clock.now(),
        )
        assert await pool_rows.insert(connection, growing)
    stage.clock.advance(3)
    await stage.check()
    return stage


async def _sick(stage: Stage, lease: Lease, *, handed_back: Lease) -> None:
    """A machine is to be judged, looked at and repaired at the same time, and another one is to be replaced.

    It reported one fault that is known already, and one that is not; and its lease is to have another machine ready. A
    sample of this morning is to be thrown away.
    """
    await machine_samples.sent(stage, lease, Gpu(0, rows_failed=True), ago=2 * JUST_SETTLED)
    await asked_for_another(stage, handed_back)
    await stage.run("judge_health")
    async with stage.db.transaction() as connection:
        await connection.execute(_SPARE_WANTED, {"id": lease.id, "now": stage.clock.now()})
    at = int(stage.clock.now().timestamp())
    await machine_samples.sent(stage, lease, xids=(Xid("xid", 95, None, at),), ago=JUST_SETTLED)
    await machine_samples.sent(stage, lease, ago=timedelta(hours=2))
    await machine_samples.sent(stage, lease, ago=timedelta(hours=4))


async def _yields(stage: Stage, lease: Lease, *, to: Lease) -> None:
    """A lease was told that it yields its machine, and the other one needs it no longer."""
    async with stage.db.transaction() as connection:
        now = stage.clock.now()
        values = {
            "id": uuid7(),
            "lease": lease.id,
            "other": to.id,
            "now": now,
            "at": now + timedelta(minutes=2),
        }
        await connection.execute(_PREEMPTED, values)


async def _works(stage: Stage, lease: Lease) -> None:
    """Its provider announces work on the machine of a lease, far ahead."""
    (machine,) = await stage.machines(lease)
    assert machine.provider_ref is not None
    stage.cloud.plan_work(machine.provider_ref, stage.clock.now() + timedelta(days=14))
    async with stage.db.transaction() as connection:
        await connection.execute(_WORK_DUE, {"now": stage.clock.now()})


async def _children(stage: Stage, staying: Lease, over: Lease) -> None:
    """Start-up scripts of machines that booted, and a volume that is still needed."""
    for lease in (staying, over):
        (machine,) = await stage.machines(lease)
        stage.cloud.plant_child(machine.launch_key, "startup_script", Needed.UNTIL_BOOT)
        if lease is staying:
            stage.cloud.plant_child(machine.launch_key, "volume", Needed.WHILE_IT_EXISTS)


_WORK_DUE = text("UPDATE provider_accounts SET work_due_at = :now")
_TUNNELS_DUE = text("UPDATE nodes SET key_due_at = :now, tunnels_due_at = :now WHERE state = 'ready'")
_SERVER_KEYS_ASKED = text("UPDATE clusters SET server_key_asked_at = :now WHERE state = 'ready'")
_POOL_SERVES = text("UPDATE pools SET sla = CAST(:sla AS text)")
"""From the end on, the lease that is being placed may claim the machine that waits."""
_PREEMPTED = text("""
INSERT INTO preemptions (id, organization_id, project_id, lease_id, claim_id, machine_id, for_lease_id, offer_key, state,
                         why, harm_gpu_seconds, notified_at, interrupt_at)
SELECT :id, organization_id, project_id, lease_id, id, machine_id, :other, 'an offer', 'notified', 'a test', 60, :now, :at
FROM claims WHERE lease_id = :lease AND ended_at IS NULL
""")
_SPARE_WANTED = text("""
UPDATE repairs SET spare_wanted_at = :now WHERE machine_id = (SELECT machine_id FROM claims WHERE lease_id = :id)
""")
_UNNEEDED = text("""
UPDATE cluster_tenants SET unneeded_since = unneeded_since - interval '1 day', due_at = CAST(:now AS timestamptz)
WHERE unneeded_since IS NOT NULL
""")


async def _tenants(stage: Stage, staying: OrganizationId, gone: OrganizationId) -> None:
    """Projects in a cluster: one with kubeconfigs that are wanted, issued and revoked, one that has left."""
    cluster = await clusters.created(stage, "ready")
    await stage.run("build_clusters")
    await clusters.revoked(stage, await clusters.issued(stage, cluster, gone, "the last one"))
    await stage.run("keep_kubeconfigs")
    stage.clock.advance(1)
    await stage.run("keep_tenants")
    await clusters.issued(stage, cluster, staying, "issued")
    await clusters.revoked(stage, await clusters.issued(stage, cluster, staying, "revoked"))
    await clusters.asked(stage, cluster, staying, "wanted")
    await _scaled(stage, staying)
    async with stage.db.transaction() as connection:
        await connection.execute(_UNNEEDED, {"now": stage.clock.now()})


async def _scaled(stage: Stage, organization_id: OrganizationId) -> None:
    """A pod waits in a cluster, whose ScalingPolicy lets a pool have a node for it."""
    async with stage.db.reading() as connection:
        project = await projects.default(connection, organization_id)
    tenant = tenant_of(organization_id, project.id)
    assert isinstance(stage.world.kubernetes, FakeClusters)
    server = stage.world.kubernetes.at("https://ready.internal:6443")
    server.put(scaling.node_pool(tenant.namespace, SCALED))
    server.put(scaling.policy(tenant.namespace, pools={SCALED: (0, 1)}))
    server.put(scaling.pending(tenant, "waits", stage.clock.now() - timedelta(minutes=1)))


async def _audited(stage: Stage, organization_id: OrganizationId, *days_ago: int) -> None:
    """Lines of the audit log of so many days ago, in their chain."""
    lines = [
        AuditLine(
            id=uuid7(),
            organization_id=organization_id,
            at=stage.clock.now() - timedelta(days=days),
            event="leases.create",
            outcome=AuditOutcome.ALLOWED,
            subject="test",
            subject_kind=SubjectKind.SYSTEM,
        )
        for days in days_ago
    ]
    async with stage.db.transaction() as connection:
        await audit.insert(connection, lines)
    await stage.run("seal_audit")


async def _rotated(stage: Stage, behind: Lease) -> None:
    """The machine of one lease was away for so long that the SSH authority that leaked is removed without it."""
    while (await stage.run("trust_ssh_authorities"))[0].acted_on:
        stage.clock.advance(2)
    (machine,) = await stage.machines(behind)
    stage.access.machine(str(machine.address)).authorities = ("the one that leaked",)
    async with stage.db.transaction() as connection:
        await connection.execute(_FORGET_TRUST, {"id": machine.id})
        await connection.execute(_OUTDATE_AGENT, {"id": machine.id})
        await connection.execute(_OUTDATE_LINK, {"id": machine.id})
        await connection.execute(_LEAKED_LONG_AGO)


async def _challenge_soon(stage: Stage, *leases: Lease) -> None:
    """Make their next challenge due when the loops of LATE have settled; the second machine fails its first one."""
    async with stage.db.transaction() as connection:
        due_at = stage.clock.now() + timedelta(minutes=60)
        ids = [lease.id for lease in leases]
        await connection.execute(_CHALLENGE_AT, {"due_at": due_at, "ids": ids})
    where = (await stage.machines(leases[-1]))[-1].address
    assert where is not None
    stage.challenger.script(where, FAILED)


async def _owners(stage: Stage) -> Counter[str]:
    """How many machines live at the provider for each lease, by the lease's name."""
    async with stage.db.reading() as connection:
        owners = {row.launch_key: row.name for row in await rows(connection, _OWNERS)}
    return Counter(owners.get(machine.launch_key, "nobody") for machine in stage.cloud.alive())


class Patience:
    """Notices a lease that pays for two machines for too long."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._since: dict[str, datetime] = {}

    async def look(self) -> None:
        now = self._stage.clock.now()
        paid = await _owners(self._stage)
        self._since = {
            name: self._since.get(name, now)
            for name, machines in paid.items()
            if machines > 1 and name != "nobody"
        }
        for name, since in self._since.items():
            assert now - since <= TWO_MACHINES_MAX, f"{name} pays for two machines since {now - since}"


_ROWS = {
    "leases": """SELECT name, state, generation, attempts, due_at, metered_until, intervals, meter_closed,
                 funding_warned_at FROM leases ORDER BY name""",
    "attempts": """SELECT l.name, a.number, a.outcome, a.fail_reason, a.ended_at
                   FROM attempts a JOIN leases l ON l.id = a.lease_id ORDER BY 1, 2""",
    "claims": """SELECT l.name, c.attempt, c.due_at, c.work_until, c.tries, c.step, c.deadline_at, c.admitted_at,
                        c.ended_at, c.released_at
                 FROM claims c JOIN leases l ON l.id = c.lease_id ORDER BY 1, 2""",
    "machines": """SELECT l.name, m.provider_ref, m.state, m.generation, m.tries, m.due_at, m.work_until, m.step,
                          m.proof_due_at, m.suspect_since, m.erasing_until, m.passes, m.failed
                   FROM machines m JOIN attempts a ON a.machine_id = m.id JOIN leases l ON l.id = a.lease_id
                   ORDER BY l.name, a.number""",
    "proofs": """SELECT l.name, p.occasion, p.outcome, p.at FROM proofs p JOIN leases l ON l.id = p.lease_id
                 ORDER BY l.name, p.at""",
    "holds": """SELECT l.name, h.amount_nano, h.posted_nano, h.due_at FROM holds h JOIN leases l ON l.id = h.lease_id
                ORDER BY l.name""",
    "charges": "SELECT l.name, c.number FROM charges c JOIN leases l ON l.id = c.lease_id ORDER BY 1, 2",
    "unrated": "SELECT l.name, u.number FROM unrated u JOIN leases l ON l.id = u.lease_id ORDER BY 1, 2",
    "organizations": "SELECT state, generation, erased_at FROM organizations ORDER BY created_at, id",
    "hub_networks": "SELECT number, work_until, synced_at, empty_since FROM hub_networks ORDER BY number",
    "links": "SELECT hub_key, tries, due_at, work_until FROM peers ORDER BY network_id, host_number",
    "accounts": "SELECT * FROM provider_accounts ORDER BY name",
    "data_keys": "SELECT purpose, master, made_at, wrapped_at, due_at, work_until, tries FROM data_keys ORDER BY made_at",
    "secrets": "SELECT purpose, version, rotated_at FROM secrets ORDER BY created_at",
    "account_requests": "SELECT account, verb, outcome, finished_at, due_at, work_until, tries FROM account_requests",
    "ssh_authorities": "SELECT state, removed_at, secret_id IS NULL FROM ssh_authorities ORDER BY made_at, id",
    # Those that are being set up are told in whatever order their sessions go on, and intents have random ids.
    "ssh_trust": """SELECT id, ssh_trust, ssh_trust_due_at FROM machines
                    WHERE state NOT IN ('bootstrapping', 'intended') ORDER BY id""",
    "preemptions": "SELECT state, why, orders, closed_at FROM preemptions",
    "pools": "SELECT name, state, wanted, target, verified, starting, due_at FROM pools ORDER BY name",
    "clusters": """SELECT c.name, c.state, c.due_at, c.work_until, c.tries, c.token_secret_id IS NULL, h.name AS host
                   FROM clusters c LEFT JOIN server_hosts h ON h.cluster_id = c.id ORDER BY 1""",
    "kubeconfigs": """SELECT name, issued_at, sealed IS NULL, revoked_at, removed_at, due_at, work_until, tries
                      FROM kubeconfigs ORDER BY name""",
    "cluster_tenants": """SELECT project_id, ready_at, unneeded_since, due_at, work_until, tries FROM cluster_tenants
                          ORDER BY project_id""",
    "server_hosts": "SELECT name, ssh_trust, ssh_trust_due_at FROM server_hosts ORDER BY name",
    "agents": """SELECT l.name, a.agent_sha256, a.installed_at, a.due_at, a.tries, a.sequence, a.ended_at
                 FROM agents a JOIN leases l ON l.id = a.lease_id ORDER BY 1, 4""",
    "powers": """SELECT l.name, w.state, w.generation, w.due_at, w.tries, w.asked_at, w.accepted, w.listed, w.why
                 FROM powers w JOIN leases l ON l.id = w.lease_id ORDER BY 1""",
    "node_pools": "SELECT name, state, generation, due_at, waiting_code, why FROM node_pools ORDER BY created_at, id",
    "nodes": """SELECT n.state, n.generation, n.due_at, n.work_until, n.tries, n.leave_reason, n.deadline_at, n.unready_since,
                       n.applied_version, n.holders, n.next_key, n.old_key, n.key_holders, n.key_due_at, n.endpoint,
                       n.tunnels, n.tunnels_due_at, (SELECT count(*) FROM node_steps s WHERE s.node_id = n.id)
                FROM nodes n ORDER BY n.created_at, n.id""",
    "scaled_pools": """SELECT name, policy, nodes_min, nodes_max, looked_at, missing_since, scaled_at, scaled_why
                       FROM scaled_pools ORDER BY name""",
    "scaling_turns": "SELECT due_at, work_until, tries FROM scaling_turns ORDER BY id",
    "overlays": "SELECT due_at, work_until, applied_version, read_at FROM overlays ORDER BY cluster_id",
    "provider_firewalls": """SELECT l.name, p.version, p.tried_version, p.due_at, p.work_until, p.tries
                    FROM provider_firewalls p JOIN leases l ON l.id = p.lease_id ORDER BY 1""",
    "firewalls": """SELECT l.name, f.version, f.applied_version, f.problem, f.due_at, f.work_until, f.tries
                    FROM firewalls f JOIN leases l ON l.id = f.lease_id ORDER BY 1""",
    "health": """SELECT l.name, h.verdict, h.fault, h.faults::text, h.samples_until, h.looked_at, h.looked_why_not,
                        h.look_due_at, h.look_until
                 FROM machine_health h JOIN attempts a USING (machine_id) JOIN leases l ON l.id = a.lease_id ORDER BY 1""",
    "repairs": """SELECT l.name, r.fault, r.step, r.step_at, r.why, r.notified_at, r.due_at, r.work_until, r.tries, r.outcome,
                         r.spare_wanted_at
                  FROM repairs r JOIN attempts a USING (machine_id) JOIN leases l ON l.id = a.lease_id ORDER BY 1""",
    "samples": "SELECT received_at FROM samples ORDER BY 1",
    "sample_exports": "SELECT target, received_at, sequence FROM sample_exports ORDER BY 1",
    "sample_archives": "SELECT hour, rows, written_at, lost_at, deleted_at FROM sample_archives ORDER BY 1",
    "consoles": """SELECT l.name, c.answered_at, c.source, c.provider, c.machine, c.ticket, c.due_at, c.work_until, c.tries
                   FROM consoles c JOIN leases l ON l.id = c.lease_id ORDER BY 1""",
    "orphans": "SELECT provider_ref, terminate_asked_at, note FROM orphans ORDER BY provider_ref",
    "sla": """SELECT (SELECT count(*) FROM sla_uncredited), (SELECT count(*) FROM sla_assessments),
                     (SELECT sum(amount_nano) FROM sla_credits), (SELECT max(due_at) FROM sla_clocks)""",
    "reconciliations": "SELECT number, customers, remaining FROM reconciliation_batches",
    "counts": """SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM postings), (SELECT count(*) FROM peers),
                        (SELECT count(*) FROM organization_events),
                        (SELECT count(*) FROM health_changes), (SELECT count(*) FROM notices),
                        (SELECT count(*) FROM verification_reports), (SELECT count(*) FROM placements),
                        (SELECT max(observed_at) FROM offers)""",
}


async def seen_from_outside(stage: Stage) -> dict[str, object]:
    """The part of a stage that outlives every process, without random ids."""
    seen: dict[str, object] = {}
    async with stage.db.reading() as connection:
        for name, statement in _ROWS.items():
            # Rows that are equal in what a statement orders them by come in any order.
            found = await rows(connection, text(statement))
            seen[name] = sorted((tuple(map(_generated, row)) for row in found), key=repr)
    seen["bought"] = {ref: machine.ended_at for ref, machine in stage.cloud.machines.items()}
    seen["boots"] = {ref: (machine.boots, machine.stopped) for ref, machine in stage.cloud.machines.items()}
    seen["children"] = sorted(stage.cloud.leftovers)
    seen["hub"] = dict(stage.hub.networks), stage.hub.authorities
    assert isinstance(stage.world.servers, FakeServers)
    seen["servers"] = sorted(stage.world.servers.running)
    seen["kubernetes"] = _kept(stage)
    seen["written"] = _written(stage)
    seen["done"] = {
        address: (machine.customer, machine.revoked, machine.mesh_key, machine.link)
        for address, machine in stage.access.machines.items()
    }
    return seen


def _written(stage: Stage) -> frozenset[bytes]:
    """What the store and the archive of samples took."""
    assert isinstance(stage.world.post, SampleStore)
    return frozenset((*stage.world.post.bodies, *_archived(stage)))


def _archived(stage: Stage) -> frozenset[bytes]:
    assert stage.world.archive is not None
    assert isinstance(stage.world.archive.store, Shelf)
    return frozenset(stage.world.archive.store.objects.values())


def _kept(stage: Stage) -> set[tuple[str, ...]]:
    """Which objects are in which cluster."""
    assert isinstance(stage.world.kubernetes, FakeClusters)
    servers = stage.world.kubernetes.servers
    return {
        (endpoint, *map(str, place))
        for endpoint, server in servers.items()
        for place in server.objects
        if place[0] != POD.plural
    }


_SETTLED = {
    "leases": """SELECT l.name, l.state, l.meter_closed, h.amount_nano = 0 AS unheld, l.funding_warned_at IS NOT NULL AS warned
                 FROM leases l JOIN holds h ON h.lease_id = l.id ORDER BY 1""",
    "claims": """SELECT l.name, count(*) FILTER (WHERE c.ended_at IS NULL AND c.admitted_at IS NULL) AS wait,
                        count(*) FILTER (WHERE c.ended_at IS NOT NULL AND c.released_at IS NULL) AS unreleased
                 FROM claims c JOIN leases l ON l.id = c.lease_id GROUP BY 1 ORDER BY 1""",
    "machines": """SELECT l.name, m.state, count(*) AS machines
                   FROM machines m JOIN attempts a ON a.machine_id = m.id JOIN leases l ON l.id = a.lease_id
                   WHERE m.state <> 'gone' AND (m.state <> 'terminating' OR m.provider_ref IS NOT NULL)
                   GROUP BY 1, 2 ORDER BY 1, 2""",
    "unproven": "SELECT count(*) FROM machines WHERE state = 'verified' AND proof_due_at <= :now",
    "unrated": "SELECT count(*) FROM unrated",
    "stale": "SELECT name FROM provider_accounts WHERE offers_at < CAST(:now AS timestamptz) - interval '61 seconds'",
    "orphans": "SELECT count(*) FROM orphans",
    "answers": "SELECT count(*) FROM idempotency_keys",
    "organizations": "SELECT state, erased_at IS NULL, count(*) FROM organizations GROUP BY 1, 2 ORDER BY 1, 2",
    "reconciliations": "SELECT customers, remaining FROM reconciliation_batches",
    "references": "SELECT count(*) FROM proof_references",
    "data_keys": "SELECT master, destroyed_at, count(*) FROM data_keys GROUP BY 1, 2",
    "secrets": "SELECT version, count(*) FROM secrets GROUP BY 1",
    "account_requests": "SELECT verb, outcome FROM account_requests",
    "clusters": """SELECT c.name, c.state, c.token_secret_id IS NULL, c.admin_secret_id IS NULL,
                          c.server_key_asked_at IS NULL, h.name AS host
                   FROM clusters c LEFT JOIN server_hosts h ON h.cluster_id = c.id""",
    "kubeconfigs": "SELECT name, sealed IS NULL, revoked_why, removed_at IS NULL FROM kubeconfigs",
    "cluster_tenants": "SELECT project_id, ready_at IS NULL, unneeded_since IS NULL FROM cluster_tenants",
    "powers": "SELECT l.name, w.state, w.why FROM powers w JOIN leases l ON l.id = w.lease_id",
    "node_pools": "SELECT name, state, why FROM node_pools",
    "nodes": """SELECT p.name, n.state, count(*) FROM nodes n JOIN node_pools p ON p.id = n.node_pool_id
                WHERE n.state <> 'gone' GROUP BY 1, 2""",
    "node_keys": """SELECT next_key IS NULL, old_key IS NULL, key_due_at > CAST(:now AS timestamptz) + interval '1 day'
                    FROM nodes WHERE state = 'ready'""",
    "server_keys": "SELECT next_key IS NULL, old_key IS NULL, count(*) FROM overlays GROUP BY 1, 2",
    "ssh_authorities": "SELECT state, secret_id IS NULL FROM ssh_authorities",
    "ssh_trust": "SELECT count(*) FROM machines WHERE ssh_trust = 'another'",
    "pools": "SELECT name, state, target FROM pools",
    "health": """SELECT l.name, h.verdict, h.fault, h.look_due_at IS NULL
                 FROM machine_health h JOIN attempts a USING (machine_id) JOIN leases l ON l.id = a.lease_id""",
    "repairs": """SELECT l.name, r.step, r.notified_at IS NULL, r.outcome
                  FROM repairs r JOIN attempts a USING (machine_id) JOIN leases l ON l.id = a.lease_id""",
    "spares": """SELECT l.name, m.state, count(*) FROM machines m JOIN leases l ON l.id = m.reserved_for
                 WHERE m.state <> 'gone' GROUP BY 1, 2""",
    "notices": """SELECT l.name, n.kind, n.message, count(*) FROM notices n JOIN leases l ON l.id = n.lease_id
                  GROUP BY 1, 2, 3""",
    "samples": "SELECT received_at FROM samples",
    "sample_exports": "SELECT target, received_at FROM sample_exports",
    "sample_archives": "SELECT hour, rows, lost_at IS NULL FROM sample_archives",
    "server_hosts": "SELECT name FROM server_hosts WHERE ssh_trust IS NULL",
    "agents": """SELECT l.name, a.agent_sha256 IS NULL FROM agents a JOIN leases l ON l.id = a.lease_id
                 WHERE a.ended_at IS NULL""",
}


Settled = frozenset[tuple[object, ...]]


async def settled(stage: Stage) -> Settled:
    """The part of a stage that is the same in the end, however often a process died on the way."""
    found: set[tuple[object, ...]] = {("alive", *owner) for owner in (await _owners(stage)).items()}
    found |= {("child", child.ref) for child in stage.cloud.leftovers.values()}
    found |= {("on the hub", number, len(peers)) for number, peers in stage.hub.networks.items()}
    assert isinstance(stage.world.servers, FakeServers)
    found |= {("runs a server", address) for address in stage.world.servers.running}
    # A node is called by its id, which is random.
    found |= {("in a cluster", *place) for place in _kept(stage) if place[1] != NODES.plural}
    found |= {("nodes in clusters", sum(place[1] == NODES.plural for place in _kept(stage)))}
    # How samples are divided among requests to the store depends on when they were sent; that all were is `sample_exports`.
    found |= {("archived", body) for body in _archived(stage)}
    trusted = set(await stage.world.ssh_authorities.trusted())
    found |= {("the hub trusts them", set(stage.hub.authorities) == trusted)}
    async with stage.db.reading() as connection:
        for name, statement in _SETTLED.items():
            values = {"now": stage.clock.now()} if ":now" in statement else {}
            found |= {
                (name, *map(_generated, row)) for row in await rows(connection, text(statement), **values)
            }
    return frozenset(found)


def _generated(value: object) -> object:
    """The name of a lease that a loop made, without its random end."""
    return SCALED if isinstance(value, str) and value.startswith(f"{SCALED}-") else value


def _of_machines(states: dict[str, str]) -> dict[str, str]:
    """The states of leases that are no nodes."""
    return {name: state for name, state in states.items() if not name.startswith((NODE, "train"))}


async def ends_well(stage: Stage) -> None:
    """A new reconciler takes over: everything reaches its goal, and in the end nothing is left."""
    patience = Patience(stage)
    for step in (1, 4, 15, 40, *[61] * 11):
        await stage.round()
        await patience.look()
        states = _of_machines(await stage.states())
        if all(states[name] == "ready" for name in READY) and all(states[name] == "ended" for name in ENDED):
            break
        stage.clock.advance(step)
    assert {name for name, state in states.items() if state == "ready"} == READY, states
    assert {name for name, state in states.items() if state == "ended"} == ENDED, states
    await stage.check()

    await stage.release_all()
    for _ in range(20):
        await stage.round()
        if set((await stage.states()).values()) == {"ended"} and not stage.cloud.alive():
            break
        stage.clock.advance(61)
    for _ in range(2):
        await stage.round()
    await stage.check_finished()
    async with stage.db.reading() as connection:
        peers = (await rows(connection, text("SELECT count(*) AS n FROM peers")))[0].n
    assert peers == 0
    assert all(network == () for network in stage.hub.networks.values()), "the hub still lets a machine in"
