"""What the control plane makes of the agent's answer, from emulated cards to the report that a loop reads."""

from dataclasses import replace

import pytest

from data_plane.access.port import StepFailed, Target
from data_plane.access.step import Answer
from data_plane.agent import inventory
from data_plane.documents.protocol import Failure, Message, encode
from data_plane.inspection.bundle import Bundle
from data_plane.inspection.gpus import RUN_AGENT, gpu_report
from data_plane.inspection.health import (
    READ_HEALTH,
    GpuHealth,
    HealthReport,
    SeenXid,
    health_report,
)
from tests.support.cards import BOOT, Clock, Log, library, monitor

AGENT = Bundle(b"agent", "a" * 64)
TARGET = Target("10.0.0.1", 22, "ssh-ed25519 AAAA", "sp-1")


def answered(message: Message, status: int = 0) -> Answer:
    return Answer(status, encode(message).encode(), "")


def report(message: Message, status: int = 0) -> HealthReport:
    return health_report(READ_HEALTH, answered(message, status), AGENT.sha256)


def test_an_idle_machine_is_reported_idle() -> None:
    health = report(monitor("h100-sxm-8", clock=Clock()).look())
    assert health.source == "emulated"
    assert health.agent_sha256 == AGENT.sha256
    assert health.gpus[5] == GpuHealth(
        index=5,
        uuid="GPU-h100-0000-4000-8000-000000000005",
        lost=False,
        processes=0,
        utilisation_percent=0,
        memory_used_mib=0,
        recovery_action=0,
        throttle=1,
        xids=(),
    )
    assert (health.xids, health.kernel_log_read) == ((), False)
    assert health.document["gpus"][5]["ecc"]["rows_failed"] is False


def test_a_busy_card_counts_processes_of_both_kinds() -> None:
    busy = {
        "at": 0,
        "gpu": 1,
        "answers": {
            "nvmlDeviceGetComputeRunningProcesses_v3": [{"pid": 7}, {"pid": 8}],
            "nvmlDeviceGetGraphicsRunningProcesses_v3": [{"pid": 9}],
            "nvmlDeviceGetUtilizationRates": {"gpu": 100, "memory": 3},
        },
    }
    card = report(monitor("l40s-2", busy, clock=Clock()).look()).gpus[1]
    assert (card.processes, card.utilisation_percent) == (3, 100)


def test_processes_that_nobody_counted_are_unknown_and_not_none() -> None:
    mute = {
        "at": 0,
        "gpu": 0,
        "answers": {
            "nvmlDeviceGetComputeRunningProcesses_v3": {"error": "NO_PERMISSION"},
            "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
        },
    }
    assert report(monitor("l4-1", mute, clock=Clock()).look()).gpus[0].processes is None


def test_an_error_stands_at_its_card_and_a_switchs_only_in_the_list() -> None:
    log = Log([(79, "0000:43:00.0", BOOT - 9), (31, "0000:1b:00.0", BOOT - 7)])
    health = monitor("l40s-2", clock=Clock(), log=log).look()
    switch = replace(health.xids[0], kind="sxid", number=20034)
    nameless = replace(health.xids[0], bus_id=None, number=48)
    seen = report(replace(health, xids=(*health.xids, switch, nameless)))
    assert [card.xids for card in seen.gpus] == [(31,), (79,)]
    assert seen.xids == (
        SeenXid(79, BOOT - 9, "0000:43:00.0", of_switch=False),
        SeenXid(31, BOOT - 7, "0000:1b:00.0", of_switch=False),
        SeenXid(20034, BOOT - 9, "0000:43:00.0", of_switch=True),
        SeenXid(48, BOOT - 9, None, of_switch=False),
    )
    assert seen.kernel_log_read


def test_a_lost_card_is_reported_and_its_neighbours_too() -> None:
    cards = report(monitor("l40s-2", {"at": 0, "gpu": 0, "lost": True}, clock=Clock()).look()).gpus
    assert [(card.lost, card.uuid is None) for card in cards] == [(True, True), (False, False)]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (
            answered(Failure("nvml_hangs", "GPU 3: nvmlDeviceGetPowerUsage has not answered for 35 s"), 3),
            "GPU 3",
        ),
        (answered(inventory.read(library("l4-1"))), "did not answer with a health document"),
        (Answer(0, b"", ""), "malformed"),
        (Answer(127, b"", "python3: not found"), "not found"),
    ],
)
def test_anything_else_is_a_failed_step_that_says_why(answer: Answer, detail: str) -> None:
    with pytest.raises(StepFailed, match=detail) as caught:
        health_report(READ_HEALTH, answer, AGENT.sha256)
    assert caught.value.step == "read health"


def test_health_is_no_inventory() -> None:
    with pytest.raises(StepFailed, match="did not answer with an inventory"):
        gpu_report(RUN_AGENT, answered(monitor("l4-1", clock=Clock()).look()), AGENT.sha256)


def test_the_whole_inventory_is_kept_beside_what_is_decided_by() -> None:
    read = gpu_report(RUN_AGENT, answered(inventory.read(library("b200-8"))), AGENT.sha256)
    assert read.gpus[7].memory_mib == 183359
    assert read.inventory["gpus"][7]["nvlinks"][17]["speed_mbps"] == 50_000
    assert read.source == "emulated"
