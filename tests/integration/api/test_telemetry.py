"""Customers read what the machines of their leases measured, how they are, and let Prometheus scrape both."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from control_plane.db import samples
from control_plane.db.engine import Database
from control_plane.db.rows import read_one
from control_plane.db.samples import NewSample
from control_plane.domain import reading
from control_plane.domain.health import Fault, FaultCode, Source
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.permission import Permission
from data_plane.documents import sample as documents
from data_plane.documents.sample import Sample, Xid, encode_sample, notable
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold, hold_denied
from tests.integration.api.test_subjects import account
from tests.integration.db.sample import a_row, insert
from tests.support.clock import Clock
from tests.support.samples import busy_sample

pytestmark = pytest.mark.database


class Machine:
    """A machine of a lease, with an agent that sends samples."""

    def __init__(self, db: Database, clock: Clock, tenant: Tenant, lease: str, number: int = 1) -> None:
        self._db = db
        self._clock = clock
        self._tenant = tenant.id
        self.lease = lease
        self._lease_id = UUID(hex=lease.removeprefix("le_"))
        self._number = number
        self._sequence = 0
        self.project: UUID | None = None
        self.claim = a_row("claims", tenant.id, number)
        self.machine = a_row("machines", tenant.id, number, account="fake", gpu_count=8, region="eu-west-1")

    async def rent(self) -> "Machine":
        async with self._db.transaction() as connection:
            lease = text("SELECT project_id FROM leases WHERE id = :id")
            self.project = await read_one(connection, lease, UUID, id=self._lease_id)
            of = {"lease_id": self._lease_id, "machine_id": self.machine["id"]}
            await insert(connection, "machines", self.machine)
            await insert(
                connection,
                "claims",
                self.claim | of | {"project_id": self.project, "admitted_at": self._clock.now()},
            )
            agent = a_row("agents", self._tenant, self._number, claim_id=self.claim["id"], digest=None)
            await insert(connection, "agents", agent | of | {"reported_at": self._clock.now()})
        return self

    async def send(self, sample: Sample | None = None) -> None:
        self._sequence += 1
        sample = replace(sample or busy_sample(self._sequence), sequence=self._sequence)
        assert self.project is not None
        new = NewSample(
            organization_id=OrganizationId(self._tenant),
            project_id=ProjectId(self.project),
            claim_id=ClaimId(self.claim["id"]),
            lease_id=LeaseId(self._lease_id),
            machine_id=MachineId(self.machine["id"]),
            sequence=sample.sequence,
            at=self._clock.now(),
            received_at=self._clock.now(),
            skew_ms=1_500,
            notable=notable(sample),
            document=encode_sample(sample).decode(),
        )
        async with self._db.transaction() as connection:
            await samples.insert(connection, [new])

    async def end(self) -> None:
        ended = text("UPDATE agents SET ended_at = :now WHERE claim_id = :id")
        async with self._db.transaction() as connection:
            await connection.execute(ended, {"now": self._clock.now(), "id": self.claim["id"]})

    async def judge(self, verdict: str, fault: str, *faults: Fault, of_rows: tuple[Fault, ...] = ()) -> None:
        row = a_row(
            "machine_health",
            machine_id=self.machine["id"],
            verdict=verdict,
            fault=fault,
            why="It broke.",
            errors=[],
            faults=msgspec.to_builtins(faults),
            row_faults=msgspec.to_builtins(of_rows),
        )
        async with self._db.transaction() as connection:
            await insert(connection, "machine_health", row)

    async def alert(self, detector: str, *, since: datetime, closed: bool = False) -> None:
        row = a_row("findings", self._tenant, int(since.timestamp()), detector=detector, since=since)
        row |= {"claim_id": self.claim["id"], "lease_id": self._lease_id, "machine_id": self.machine["id"]}
        row |= {"project_id": self.project, "closed_at": since if closed else None}
        row |= {"outcome": "recovered" if closed else None, "why": "its customer was told"}
        async with self._db.transaction() as connection:
            await insert(connection, "findings", row)


@pytest.fixture
async def machine(api: Api, acme: Tenant, db: Database, clock: Clock) -> Machine:
    return await Machine(db, clock, acme, await acme.lease()).rent()


async def test_metrics_show_the_last_sample_in_the_units_of_people(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    path = f"/v1/leases/{machine.lease}/metrics"
    assert (await acme.http.get(path)).json()["latest"] is None
    await machine.send()
    clock.advance(20)
    shown = (await acme.http.get(path)).json()
    sample = busy_sample(1)
    latest = shown["latest"]
    assert (latest["age_seconds"], latest["clock_ahead_seconds"]) == (20.0, 1.5)
    assert [gpu["index"] for gpu in latest["gpus"]] == list(range(8))
    gpu = latest["gpus"][3]
    assert gpu["power_watts"] == (sample.gpus[3].power_mw or 0) / 1000
    assert gpu["throttled_by"] == ["power_limit"]
    assert latest["host"]["cpu_percent"] == (sample.host.cpu_bp or 0) / 100
    assert latest["servers"][0]["kv_cache_percent"] == (sample.servers[0].kv_cache_bp or 0) / 100
    (point,) = shown["window"]["points"]
    assert point["gpu_power_watts"] == sum(gpu.power_mw or 0 for gpu in sample.gpus) / 1000


async def test_a_window_has_as_many_points_as_can_be_drawn_and_its_step_follows(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    for _ in range(40):
        await machine.send()
        clock.advance(15)
    steps = {}
    for last in (60, 900, 1_800, 7_200):
        answer = await acme.http.get(f"/v1/leases/{machine.lease}/metrics", params={"last": last})
        window = answer.json()["window"]
        steps[last] = window["step_seconds"]
        times = [point["at"] for point in window["points"]]
        assert times == sorted(times)
        assert len(times) in (
            min(last, 600) // steps[last] - 1,
            min(last, 600) // steps[last],
            min(last, 600) // steps[last] + 1,
        )
    assert steps == {60: 15, 900: 15, 1_800: 15, 7_200: 60}
    for wrong in (59, 7_201, "x"):
        answer = await acme.http.get(f"/v1/leases/{machine.lease}/metrics", params={"last": wrong})
        assert answer.status_code in (400, 422), answer.text


async def test_health_is_the_verdict_with_the_age_of_each_piece_of_evidence(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    path = f"/v1/leases/{machine.lease}/health"
    await machine.send()
    clock.advance(30)
    (health,) = (await acme.http.get(path)).json()["machines"]
    assert (health["verdict"], health["fault"], health["since"]) == ("healthy", None, None)
    checks = {check["check"]: check for check in health["checks"]}
    assert (checks["samples"]["ok"], checks["samples"]["age_seconds"]) == (True, 30.0)
    assert (checks["provider"]["ok"], checks["proof"]["ok"]) == (True, None)
    clock.advance(600)
    await machine.judge("quarantined", "gpu_lost")
    (health,) = (await acme.http.get(path)).json()["machines"]
    assert (health["verdict"], health["fault"], health["why"]) == ("quarantined", "gpu_lost", "It broke.")
    assert [check["ok"] for check in health["checks"][:2]] == [False, False], "both are overdue"


async def test_health_lists_every_open_fault_and_alert_with_its_age(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    now = clock.now()

    def fault(code: FaultCode, source: Source, minutes: int, *, seen: bool) -> Fault:
        at = now - timedelta(minutes=minutes)
        return Fault(code, 2, None, source, at, at + timedelta(minutes=5), at if seen else None, "GPU 2 ...")

    wears = fault(FaultCode.MEMORY_WEARS, Source.SAMPLE, 10, seen=False)
    link = fault(FaultCode.NVLINK_DOWN, Source.LOOK, 30, seen=True)
    lost = replace(fault(FaultCode.PROVIDER_DOWN, Source.PROVIDER, 20, seen=True), gpu=None)
    await machine.judge("lost", "provider_down", wears, link, of_rows=(lost,))
    await machine.alert("kv_cache_growth", since=now - timedelta(minutes=3))
    await machine.alert("idle", since=now - timedelta(minutes=40), closed=True)
    (health,) = (await acme.http.get(f"/v1/leases/{machine.lease}/health")).json()["machines"]
    shown = [(each["fault"], each["age_seconds"], each["verdict"], each["gpu"]) for each in health["faults"]]
    assert shown == [
        ("nvlink_down", 1_800.0, "degraded", 2),
        ("provider_down", 1_200.0, "lost", None),
        ("memory_wears", 600.0, "degraded", 2),
    ]
    assert [each["confirmed_at"] is None for each in health["faults"]] == [False, False, True]
    assert health["faults"][0]["detail"] == "an NVLink is down: GPU 2 ..."
    (alert,) = health["alerts"]
    assert (alert["alert"], alert["age_seconds"]) == ("kv_cache_growth", 180.0)
    assert alert["why"] == "its customer was told"


async def test_a_lease_without_a_machine_has_no_health_and_no_metrics(acme: Tenant, api: Api) -> None:
    lease = await acme.lease()
    assert (await acme.http.get(f"/v1/leases/{lease}/health")).json()["machines"] == []
    assert (await acme.http.get(f"/v1/leases/{lease}/metrics")).json()["window"]["points"] == []


async def test_machines_are_counted_in_groups_healthy_and_not(
    machine: Machine, acme: Tenant, db: Database, clock: Clock
) -> None:
    other = await Machine(db, clock, acme, await acme.lease(), 2).rent()
    await other.judge("degraded", "nvlink_down")
    total = (await acme.http.get("/v1/machine-health")).json()["total"]
    assert (total["machines"], total["silent"]) == (2, 0), "they were handed over a moment ago"
    clock.advance(180)
    await machine.send()
    for by, name in (("region", "eu-west-1"), ("sku", "h100x1"), ("project", "default")):
        counted = (await acme.http.get("/v1/machine-health", params={"by": by})).json()
        (group,) = counted["groups"]
        assert group["name"] == name
        assert counted["total"] | {"name": name} == group
        assert (group["machines"], group["gpus"]) == (2, 16)
        assert (group["healthy"], group["unhealthy"], group["degraded"], group["silent"]) == (1, 1, 1, 1)


async def test_prometheus_reads_the_names_of_dcgm_exporter_with_the_lease_as_labels(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    lost = replace(busy_sample(1).gpus[2], lost=True)
    xid = Xid("xid", 79, lost.bus_id, 1)
    gpus = (*busy_sample(1).gpus[:2], lost, *busy_sample(1).gpus[3:])
    await machine.send(replace(busy_sample(1), gpus=gpus, xids=(xid,)))
    answer = await acme.http.get("/v1/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    power = families["DCGM_FI_DEV_POWER_USAGE"].samples
    assert {sample.labels["gpu"] for sample in power} == {str(n) for n in range(8)}
    assert {"UUID", "modelName", "Hostname", "device", "lease", "project", "machine_id"} <= set(
        power[0].labels
    )
    assert power[0].value == (busy_sample(1).gpus[0].power_mw or 0) / 1000
    xids = {sample.labels["gpu"]: sample.value for sample in families["DCGM_FI_DEV_XID_ERRORS"].samples}
    assert xids["2"] == 79
    assert sum(xids.values()) == 79
    verdicts = {s.labels["verdict"]: s.value for s in families["splitplane_machine_health"].samples}
    assert verdicts["healthy"] == 1
    assert sum(verdicts.values()) == 1
    (waiting,) = families["vllm:num_requests_waiting"].samples
    assert waiting.value == busy_sample(1).servers[0].waiting
    clock.advance(180)
    silent = list(text_string_to_metric_families((await acme.http.get("/v1/metrics")).text))
    shown = {family.name: [sample.value for sample in family.samples] for family in silent if family.samples}
    (read_at,) = families["splitplane_sample_timestamp_seconds"].samples
    assert shown.pop("splitplane_sample_timestamp_seconds") == [read_at.value], "only when it was read last"
    assert shown == {"splitplane_machines_shown": [1], "splitplane_machines_left_out": [0]}


async def test_a_lease_that_has_ended_leaves_prometheus_no_machine_that_seems_silent(
    machine: Machine, acme: Tenant, clock: Clock
) -> None:
    await machine.send()
    clock.advance(180)
    assert machine.lease in (await acme.http.get("/v1/metrics")).text
    await machine.end()
    assert machine.lease not in (await acme.http.get("/v1/metrics")).text


async def test_nobody_reads_of_another_organizations_machines_but_operators(
    machine: Machine, other: Tenant, operator: Tenant
) -> None:
    await machine.send()
    for what in ("metrics", "health"):
        hold(await other.http.get(f"/v1/leases/{machine.lease}/{what}"), "lease_not_found")
    assert machine.lease not in (await other.http.get("/v1/metrics")).text
    assert (await other.http.get("/v1/machine-health")).json()["total"]["machines"] == 0
    hold_denied(await other.http.get("/v1/operator/metrics"), Permission.TELEMETRY_READ_ALL)
    of_all = (await operator.http.get("/v1/operator/metrics")).text
    assert machine.lease in of_all
    assert "DCGM_FI_DEV_GPU_UTIL" in of_all


async def test_whoever_has_a_role_in_one_project_alone_sees_no_machine_of_another(
    machine: Machine, api: Api, acme: Tenant
) -> None:
    await machine.send()
    made = await acme.http.post("/v1/projects", json={"name": "elsewhere"})
    _, viewer, _ = await account(api, acme, "viewer", "viewer", kind="project", id=made.json()["id"])
    assert machine.lease not in (await viewer.get("/v1/metrics")).text
    assert (await viewer.get("/v1/machine-health")).json()["total"]["machines"] == 0
    hold(await viewer.get(f"/v1/leases/{machine.lease}/health"), "lease_not_found")


def test_what_is_shown_is_what_the_agent_sends() -> None:
    """Every value that the control plane reads of a sample has the name that the agent gives it."""
    for ours, theirs in (
        (reading.Reading, documents.Sample),
        (reading.GpuReading, documents.Gpu),
        (reading.HostReading, documents.Host),
        (reading.ServerReading, documents.Server),
        (reading.XidReading, documents.Xid),
        (reading.DiskReading, documents.Disk),
        (reading.NicReading, documents.Nic),
        (reading.FilesystemReading, documents.Filesystem),
        (reading.PressureReading, documents.Pressure),
    ):
        assert {*ours.__dataclass_fields__} <= {*theirs.__dataclass_fields__}, ours
