"""What a workload is asked for, from end to end on a real machine: samples, a finding, actions, the file, and the samples
that follow.

The agent, its tunnel, the relay on the hub, the ingest process with its database and the loops of enforcement are the
real ones. The workload answers as vLLM does and runs as a user without rights. The lease is one of a stage, whose agent
is the one on the machine.
"""

import asyncio
import dataclasses
import hashlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncssh
import pytest
import pytest_asyncio
from sqlalchemy import text

from control_plane.db import enforcement
from control_plane.db.enforcement import Arm
from control_plane.db.engine import Database, Role
from control_plane.domain.enforcement import Detector
from control_plane.domain.ids import EnforcementActionId
from control_plane.domain.lease import Lease
from control_plane.ingest.signals import READ_EVERY_SECONDS
from control_plane.world import utc_now, uuid7
from data_plane.access.authority import new_authority
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.documents.agent_config import Config
from data_plane.heartbeats.collector.exchange import Known
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.heartbeats.ssh_collector import SshCollector
from data_plane.inspection.agent_service import install_agent
from data_plane.inspection.bundle import build_agent, build_collector
from data_plane.mesh.hub import SshHub
from data_plane.mesh.machine import join_mesh, mesh_public_key
from data_plane.mesh.port import Peer, link
from providers.emulators.host import EmulatedGpu, MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost, missing_requirements
from reconciler.enforcement_rules import parse_rules
from tests.support import ingest_process
from tests.support.certificates import our_access
from tests.support.clock import WallClock
from tests.support.database import login_url
from tests.support.enforcement import TEXT
from tests.support.machines import IMAGES, Machine, boot_order, ready
from tests.support.networks import a_network
from tests.support.ready import ready_leases
from tests.support.stage import Stage, set_stage

pytestmark = [
    pytest.mark.machines,
    pytest.mark.database,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]
NETWORK = a_network(4)
SIGNAL = "/run/splitplane/signal.json"
SECONDS_MAX = 60
TOTAL_MIB = 81_559
LASTS = 12
"""Seconds that an action lasts unless it is taken again."""
SILENT = 25
"""Seconds without a sample after which what only samples show is over."""
# The rules that are shipped, in seconds where they have minutes.
QUICK = {
    "samples": {"gap_seconds": 10, "silent_seconds": SILENT, "renew_seconds": 5},
    "memory_pressure": {"enter_seconds": 3, "leave_seconds": 3},
    "bronze": {"step_seconds": 8},
    "lasts": dict.fromkeys(("throttle_admission", "smaller_batch", "stop_admission"), LASTS),
}
# As docs/enforcement.md has it: reads the file when it takes a batch. With `deaf` it does not.
WORKLOAD = """
import http.server, json, pathlib, sys
SIGNAL = pathlib.Path("/run/splitplane/signal.json")
class Server(http.server.BaseHTTPRequestHandler):
    batch = 64
    def do_GET(self):
        try:
            asked = None if "deaf" in sys.argv else json.loads(SIGNAL.read_text())
        except FileNotFoundError:
            asked = None
        if asked is not None and asked["action"] == "smaller_batch":
            Server.batch = 16
        used = 0.97 if Server.batch == 64 else 0.30
        body = f"vllm:kv_cache_usage_perc {used}\\nvllm:num_requests_running {Server.batch}\\n".encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", 8000), Server).serve_forever()
"""
_AGENT = text("""
INSERT INTO agents (claim_id, organization_id, machine_id, lease_id, due_at, digest)
SELECT c.id, c.organization_id, c.machine_id, c.lease_id, :now, :digest
FROM claims c WHERE c.lease_id = :lease_id AND c.ended_at IS NULL
ON CONFLICT (claim_id) DO UPDATE SET digest = :digest, next_digest = NULL
""")
_ACTIONS = text("""
SELECT a.id, a.action, e.ended FROM enforcement_actions a LEFT JOIN enforcement_ends e ON e.action_id = a.id
WHERE a.lease_id = :id ORDER BY a.at, a.id
""")
_FINDINGS = text("SELECT detector, outcome FROM findings WHERE lease_id = :id ORDER BY opened_at, id")
_SAMPLES = text("""
SELECT document -> 'servers' -> 0 -> 'kv_cache_bp' AS kv_bp FROM samples WHERE lease_id = :id ORDER BY at
""")
_UNDO = text("""
INSERT INTO enforcement_undos (action_id, asked_at, asked_by, why) VALUES (:id, :now, 'test', 'a benchmark')
""")


def quick_rules() -> str:
    """The shipped file with other times."""
    table, lines = "", list[str]()
    for line in TEXT.splitlines():
        if heading := re.fullmatch(r"\[(\w+)\].*", line):
            table = heading[1]
        field = line.partition("=")[0].strip()
        lines.append(f"{field} = {QUICK[table][field]}" if field in QUICK.get(table, {}) else line)
    return "\n".join(lines)


@dataclass
class Rented:
    """A machine with its hub."""

    host: NspawnHost
    access: SshAccess
    machine: Machine
    hub: Machine


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rented() -> AsyncIterator[Rented]:
    image = await asyncio.to_thread(ensure_image, IMAGES, print)
    host = await NspawnHost.open(image, nodes=NodeSupport())
    try:
        authority = new_authority()
        access = our_access(authority)
        keys = {name: new_host_key() for name in ("hub", "alice")}
        for name, key in keys.items():
            gpus = (EmulatedGpu("NVIDIA H100 80GB HBM3", TOTAL_MIB),) if name == "alice" else ()
            await host.boot(MachineSpec(name, boot_order(key, [authority], name), gpus))
        targets = await asyncio.gather(*(ready(host, access, name, keys[name]) for name in keys))
        machines = {name: Machine(target, authority) for name, target in zip(keys, targets, strict=True)}
        async with access.connect(machines["alice"].target) as session:
            peer = Peer(NETWORK.address_of(1), await mesh_public_key(session))
            joined = await SshHub(access, machines["hub"].target).sync(NETWORK, [peer])
            await join_mesh(session, link(NETWORK, joined, peer.address))
        await machines["alice"].sh("sudo useradd --system --no-create-home workload")
        # Inference servers take all of a GPU's memory when they start, and keep it.
        used = (TOTAL_MIB * 985 // 1_000) << 20
        memory = {"total": TOTAL_MIB << 20, "reserved": 0, "used": used, "free": (TOTAL_MIB << 20) - used}
        step: dict[str, object] = {"at": 0, "gpu": 0, "answers": {"nvmlDeviceGetMemoryInfo": memory}}
        await host.script_gpu("alice", step)
        yield Rented(host, access, machines["alice"], machines["hub"])
    finally:
        await host.close()


@dataclass
class Play:
    stage: Stage
    rented: Rented
    lease: Lease

    async def sh(self, command: str) -> str:
        return await self.rented.machine.sh(command)

    async def start(self, *, deaf: bool = False) -> None:
        """Start the workload, as a user without rights."""
        program = WORKLOAD.replace("'", '"')
        await self.sh(f"cat > /tmp/workload.py <<'END'\n{program}\nEND")
        await self.sh(
            "sudo systemd-run --quiet --collect --unit=workload --uid=workload"
            f" python3 /tmp/workload.py {'deaf' if deaf else ''}"
        )

    async def signal(self) -> dict[str, Any] | None:
        """The file, as the user of the workload reads it; None when there is none."""
        read = await self.sh(f"sudo -u workload cat {SIGNAL} 2>/dev/null || true")
        if not read:
            return None
        found: dict[str, Any] = json.loads(read)
        return found

    async def asked(self) -> str | None:
        found = await self.signal()
        return None if found is None else str(found["action"])

    async def _found(self, statement: Any) -> list[Any]:
        async with self.stage.db.reading() as connection:
            return list((await connection.execute(statement, {"id": self.lease.id})).all())

    async def actions(self) -> list[tuple[str, str | None]]:
        return [(row.action, row.ended) for row in await self._found(_ACTIONS)]

    async def findings(self) -> list[tuple[str, str | None]]:
        return [(row.detector, row.outcome) for row in await self._found(_FINDINGS)]

    async def cache(self) -> list[int]:
        """The use of the KV cache in the samples that were stored, in basis points."""
        return [row.kv_bp for row in await self._found(_SAMPLES) if row.kv_bp is not None]

    async def last_action(self) -> tuple[EnforcementActionId, str] | None:
        """The action that is in force."""
        running = [row for row in await self._found(_ACTIONS) if row.ended is None]
        return (running[-1].id, running[-1].action) if running else None

    async def undo(self, action_id: EnforcementActionId) -> None:
        async with self.stage.db.transaction() as connection:
            await connection.execute(_UNDO, {"id": action_id, "now": utc_now()})

    async def until(
        self, what: str, reached: Callable[[], Awaitable[bool]], *, seconds: float = SECONDS_MAX
    ) -> None:
        """Run the loops of enforcement until something is so."""
        end = time.monotonic() + seconds
        while True:
            await self.stage.run("enforce_rules")
            await self.stage.run("end_actions")
            if await reached():
                return
            if time.monotonic() > end:
                log = await self.sh("sudo journalctl -n 20 --no-pager -u splitplane-agent; true")
                seen = (await self.actions(), await self.findings(), (await self.cache())[-5:])
                raise AssertionError(f"{what}: {seen}\n{log}")
            await asyncio.sleep(0.3)  # Real machines take real time.

    async def is_asked(self, action: str | None) -> bool:
        return await self.asked() == action

    async def is_asked_for_more(self) -> bool:
        return await self.asked() in ("smaller_batch", "stop_admission")

    async def is_done(self) -> bool:
        return True

    async def is_later(self, moment: float) -> bool:
        return time.monotonic() > moment

    async def is_over(self) -> bool:
        return all(outcome is not None for _, outcome in await self.findings())

    async def is_in_force(self, action: str) -> bool:
        last = await self.last_action()
        return last is not None and last[1] == action


@pytest.fixture
async def play(db: Database, api_db: Database, database_url: str, rented: Rented) -> AsyncIterator[Play]:
    clock = WallClock(behind=timedelta(minutes=30))
    stage = await set_stage(db, clock, api_db=api_db)
    (lease,) = await ready_leases(stage, 1, seconds=0)
    clock.catch_up()
    stage.world = dataclasses.replace(stage.world, enforcement_rules=parse_rules(quick_rules()))
    credential = secrets.token_hex(32)
    digest = hashlib.sha256(credential.encode()).hexdigest()
    async with db.transaction() as connection:
        await connection.execute(_AGENT, {"now": utc_now(), "digest": digest, "lease_id": lease.id})
        why = Arm(Detector.MEMORY_PRESSURE, armed=True, at=utc_now(), set_by="test", why="a test")
        await enforcement.arm(connection, uuid7(), why)
    host = rented.host.gateway
    with ingest_process.running(login_url(database_url, Role.INGEST), host=host) as (_, url, metrics):
        await ingest_process.ready(metrics)
        at = IngestPlace(host, int(url.rpartition(":")[2]))
        collector = SshCollector(rented.access, rented.hub.target, build_collector(), at)
        await collector.exchange([Known(digest, ended=False, stored_through=0)], None)
        config = Config(credential, NETWORK.hub_address, NETWORK.address_of(1), seconds=1, sample_seconds=1)
        async with rented.access.connect(rented.machine.target) as session:
            await install_agent(session, build_agent(), config)
        made = Play(stage, rented, lease)
        try:
            yield made
        finally:
            await made.sh("sudo ip link set splitplane up")
            await made.sh("sudo systemctl stop workload splitplane-agent; true")


async def test_memory_fills_up_the_workload_is_asked_for_smaller_batches_and_its_samples_recover(
    play: Play,
) -> None:
    await play.start()
    await play.until("a smaller batch is asked for", lambda: play.is_in_force("smaller_batch"))
    await play.until("the file is there", lambda: play.is_asked("smaller_batch"), seconds=20)
    found = await play.signal()
    assert found is not None
    assert (found["version"], found["reason"], found["ends_at"]) == (1, "memory_pressure", None)
    now = int(await play.sh("date +%s"))
    assert now < found["until"] <= now + LASTS, "Unix seconds of the machine's clock"
    assert (await play.sh(f"stat -c '%a %U' {SIGNAL}")).split()[0] == "644", "everybody may read it"
    with pytest.raises(asyncssh.ProcessError):
        await play.sh(f"sudo -u workload sh -c 'echo x > {SIGNAL}'")

    await play.until("nothing is asked any more", lambda: play.is_asked(None))
    used = await play.cache()
    assert (max(used), used[-1]) == (9_700, 3_000), "the workload reacted, and its samples show it"
    order = list(dict.fromkeys(action for action, _ in await play.actions()))
    assert order[:3] == ["notify", "throttle_admission", "smaller_batch"]
    assert (await play.actions())[-1][1] == "over", "and nothing was undone by hand"
    assert [detector for detector, outcome in await play.findings() if outcome is None] == []


async def test_an_action_that_an_operator_undoes_is_asked_no_more(play: Play) -> None:
    await play.start(deaf=True)
    await play.until("a smaller batch is asked for", lambda: play.is_asked("smaller_batch"))
    last = await play.last_action()
    assert last is not None
    await play.undo(last[0])
    await play.until("the file is gone", lambda: play.is_asked(None), seconds=20)
    assert (await play.actions())[-1][1] == "undone"
    before = len(await play.actions())
    end = time.monotonic() + 6
    while time.monotonic() < end:
        await play.until("a look", play.is_done)
    assert len(await play.actions()) == before, "the detector leaves the lease alone, although memory is full"
    assert await play.signal() is None


async def test_a_machine_without_its_tunnel_is_asked_until_the_time_in_its_file_and_then_for_what_was_decided(
    play: Play,
) -> None:
    await play.start(deaf=True)
    await play.until("the file is there", lambda: play.is_asked("throttle_admission"))
    found = await play.signal()
    assert found is not None
    await play.sh("sudo ip link set splitplane down")
    await play.until("more is decided", lambda: play.is_in_force("smaller_batch"))
    assert await play.asked() in (None, "throttle_admission"), "it could not be told"
    await play.until("its time is over", lambda: play.is_asked(None), seconds=LASTS + 10)
    assert int(await play.sh("date +%s")) >= found["until"] - 2
    await play.sh("sudo ip link set splitplane up")
    await play.until("what was decided meanwhile is asked", play.is_asked_for_more)


async def test_what_is_over_before_the_agent_comes_back_is_never_asked(play: Play) -> None:
    await play.start(deaf=True)
    await play.until("something is found", lambda: play.is_in_force("notify"))
    await play.sh("sudo systemctl stop splitplane-agent")
    assert await play.signal() is None, "the folder goes with the agent"
    await play.until("something is asked for", lambda: play.is_in_force("throttle_admission"))
    await play.sh("sudo systemctl stop workload")
    await play.until("it is over", play.is_over)
    assert (await play.findings())[-1][1] == "silent", "nobody knows, so nothing goes on"
    before = await play.cache()
    read_again = time.monotonic() + READ_EVERY_SECONDS + 1
    await play.until("the ingest process knows", lambda: play.is_later(read_again))
    await play.sh("sudo systemctl start splitplane-agent")
    end = time.monotonic() + 8
    while time.monotonic() < end:
        assert await play.signal() is None
        await play.until("a look", play.is_done)
    assert len(await play.cache()) == len(before), "the workload is not there any more"
    assert await play.last_action() is None
