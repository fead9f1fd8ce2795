"""The agent as a service: what it delivers, keeps, drops, does, and when it ends."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.agent import tasks
from data_plane.agent.service import Service
from data_plane.agent.spool import HEARTBEAT_BYTES_MAX, HEARTBEATS, Spool
from data_plane.documents.agent_config import ENDED, Config, read_config
from data_plane.documents.heartbeat import (
    HEARTBEATS_MAX,
    TASKS,
    Answer,
    Delivery,
    Heartbeat,
    Result,
    Task,
    Verdict,
)
from data_plane.documents.inventory import Gpu, Inventory
from data_plane.documents.protocol import Failure
from data_plane.documents.protocol import encode as document
from data_plane.simulation.access import idle

CONFIG = Config("0" * 64, "10.64.0.1", "10.64.0.2")


@dataclass
class Hub:
    """Answers deliveries as it is told to, and remembers what it accepted."""

    accepted: list[int] = field(default_factory=list[int])
    away: bool = False
    verdict: Verdict = "accepted"
    task: Task | None = None
    results: list[Result] = field(default_factory=list[Result])
    lines: int = 0
    last: Heartbeat | None = None

    def send(self, delivery: Delivery) -> Answer:
        if self.away:
            raise OSError("no route to the hub")
        self.lines += 1
        if self.verdict != "accepted":
            return Answer(self.verdict)
        self.accepted += [each.sequence for each in delivery.heartbeats]
        self.results += [each.result for each in delivery.heartbeats if each.result is not None]
        self.last = delivery.heartbeats[-1]
        task, self.task = self.task, None
        return Answer("accepted", self.accepted[-1], task)


def _service(hub: Hub, folder: Path, *, most: int = 512) -> Service:
    return Service(
        CONFIG,
        Spool(folder, HEARTBEATS, most),
        hub.send,
        lambda task: Result(task, done=True, digest=None, detail=""),
    )


def _beat(service: Service, times: int) -> None:
    for _ in range(times):
        assert service.beat()


def test_what_waited_while_the_hub_was_away_is_delivered_in_order_and_once(tmp_path: Path) -> None:
    hub = Hub()
    service = _service(hub, tmp_path)
    _beat(service, 2)
    hub.away = True
    _beat(service, 40)
    assert hub.accepted == [1, 2]
    hub.away = False
    _beat(service, 1)
    assert hub.accepted == list(range(1, 44))
    assert hub.lines == 2 + -(-41 // HEARTBEATS_MAX)
    assert len(service.spool) == 0


def test_the_spool_is_bounded_and_says_how_many_it_dropped(tmp_path: Path) -> None:
    hub = Hub(away=True)
    service = _service(hub, tmp_path, most=10)
    _beat(service, 25)
    assert len(service.spool) == 10
    files = [path for path in tmp_path.iterdir() if path.name != "last.json"]
    assert len(files) == 10
    assert all(path.stat().st_size < HEARTBEAT_BYTES_MAX for path in files)
    hub.away = False
    _beat(service, 1)
    assert hub.accepted == list(range(17, 27)), "the oldest are dropped"
    assert hub.last is not None
    assert (hub.last.dropped, hub.last.spooled) == (15, 10)


def test_an_agent_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    hub = Hub(away=True)
    _beat(_service(hub, tmp_path, most=4), 6)
    hub.away = False
    again = _service(hub, tmp_path, most=4)
    assert again.spool.dropped == 2
    _beat(again, 1)
    assert hub.accepted == [4, 5, 6, 7]


def test_an_agent_that_lost_its_folder_counts_on_from_what_the_hub_has(tmp_path: Path) -> None:
    asked: list[int] = []

    def send(delivery: Delivery) -> Answer:
        asked.extend(each.sequence for each in delivery.heartbeats)
        return Answer("accepted", max(100, asked[-1]))

    service = _service(Hub(), tmp_path)
    service.send = send
    _beat(service, 3)
    assert asked == [1, 101, 102]


def test_damaged_files_cost_one_heartbeat_each_and_never_the_service(tmp_path: Path) -> None:
    hub = Hub(away=True)
    service = _service(hub, tmp_path)
    _beat(service, 3)
    next(path for path in tmp_path.iterdir() if path.name.startswith("0000000000000002")).write_bytes(
        b"{" * 9999
    )
    (tmp_path / "last.json").write_text("nonsense")
    hub.away = False
    again = _service(hub, tmp_path)
    _beat(again, 1)
    assert hub.accepted == [1, 3, 4]
    assert again.spool.dropped == 1


def _full(*_: object) -> int:
    raise OSError("no space left on device")


def test_a_full_disk_loses_heartbeats_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    service = _service(hub, tmp_path)
    _beat(service, 1)
    monkeypatch.setattr(Path, "write_bytes", _full)
    _beat(service, 3)
    monkeypatch.undo()
    _beat(service, 1)
    assert hub.accepted == [1, 5], "the gap shows how many were lost"
    assert service.spool.dropped == 3


def test_each_verdict_has_its_consequence(tmp_path: Path) -> None:
    kept: dict[Verdict, int] = {"not_known": 1, "too_fast": 1, "version_not_known": 1, "malformed": 0}
    for verdict, left in kept.items():
        folder = tmp_path / verdict
        folder.mkdir()
        service = _service(Hub(verdict=verdict), folder)
        assert service.beat(), f"{verdict} must not end the agent"
        assert len(service.spool) == left, verdict
    (tmp_path / "ended").mkdir()
    slept: list[float] = []
    assert _service(Hub(verdict="ended"), tmp_path / "ended").run(slept.append) == ENDED
    assert slept == []


def test_a_hub_that_answers_nonsense_is_tried_again(tmp_path: Path) -> None:
    """An answer that accepts less than was delivered must not make a loop without end either."""
    service = _service(Hub(), tmp_path)
    service.send = lambda _: Answer("accepted", 0)
    _beat(service, 2)
    assert len(service.spool) == 2


def test_a_task_is_done_once_and_its_result_is_in_the_next_heartbeat(tmp_path: Path) -> None:
    hub = Hub(task="verify")
    service = _service(hub, tmp_path)
    _beat(service, 3)
    assert hub.results == [Result("verify", done=True, digest=None, detail="")]


def test_every_task_has_a_result_whatever_the_machine_does(tmp_path: Path) -> None:
    agent = tmp_path / "agent.pyz"
    agent.write_bytes(b"agent")
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "stray").write_text("left by somebody")
    spool = Spool(folder, HEARTBEATS, 512)
    cards = tuple(
        Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{UUID(int=index)}", 81559, "none", None, None)
        for index in range(8)
    )
    inventory = Inventory("emulated", "570.124.06", cards, ancestors=((None,) * 8,) * 8)
    read = {
        "inventory": document(inventory).encode(),
        "health": document(idle(inventory)).encode(),
    }
    done = {task: tasks.perform(task, agent, spool, read.__getitem__) for task in TASKS}
    assert all(result.done for result in done.values()), done
    assert done["topology"].detail.startswith("8 GPUs, driver 570.124.06")
    assert done["report"].detail == "8 GPUs, 0 lost, 0 errors, emulated"
    assert done["clean"].detail == "1 files deleted"

    def fails(error: Exception) -> Callable[[str], bytes]:
        def fail(_: str) -> bytes:
            raise error

        return fail

    for broken in (
        fails(OSError("gone\n")),
        fails(subprocess.TimeoutExpired("agent", 60)),
        lambda _: b"{}",
        lambda _: document(Failure("no_gpu_library", "not there")).encode(),
    ):
        result = tasks.perform("topology", agent, spool, broken)
        assert not result.done
        assert result.detail


def test_the_configuration_is_what_we_wrote_and_shows_no_credential(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.write_text(
        '{"credential": "%s", "hub": "10.64.0.1", "own": "10.64.0.2", "port": 9440, "seconds": 60,'
        ' "samples_port": 9441, "sample_seconds": 15}' % ("0" * 64)
    )
    assert read_config(path) == CONFIG
    assert "0000" not in repr(CONFIG)
