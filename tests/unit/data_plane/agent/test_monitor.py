"""The agent's watch over emulated cards, with faults that happen as a test's clock goes."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from data_plane.agent import __main__ as agent
from data_plane.agent.events import Event, Events
from data_plane.agent.kernel_log_source import Unreadable
from data_plane.agent.monitor import EARLY_SECONDS, SETTLE_SECONDS, Monitor, watch
from data_plane.agent.schedule import PERIODS, Schedule
from data_plane.documents.health import (
    Ecc,
    Fabric,
    GpuHealth,
    Health,
    MigHealth,
    Profile,
    Recovery,
    Usage,
    Xid,
)
from data_plane.documents.protocol import decode, encode
from data_plane.inspection.health import READ_HEALTH
from data_plane.nvml import emulation_file
from data_plane.nvml.library import Library, Unanswered
from tests.support.cards import BOOT, MODELS, Clock, Log, described, library, monitor


def looks(watched: Monitor, clock: Clock, times: int, every: float = 10) -> list[Health]:
    def rest(_: Events, seconds: float) -> bool:
        clock.sleep(seconds)
        return False

    documents = watch(
        watched,
        every,
        monotonic=clock,
        sleep=clock.sleep,
        beside=lambda listener: None,
        rest=rest,
    )
    return [next(documents) for _ in range(times)]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_reports_its_health_and_is_understood(model: str) -> None:
    clock = Clock()
    health = monitor(model, clock=clock).look()
    assert decode(encode(health).encode()) == health
    assert (health.source, health.at) == ("emulated", BOOT)
    assert [reading.group for reading in health.readings] == list(PERIODS)
    assert all(reading.calls and not reading.refused for reading in health.readings)


def test_a_healthy_idle_card_looks_so() -> None:
    card = monitor("h100-sxm-8", clock=Clock()).look().gpus[3]
    assert (card.uuid, card.bus_id, card.lost) == (
        "GPU-h100-0000-4000-8000-000000000003",
        "0000:61:00.0",
        False,
    )
    assert card.usage == Usage(81559, 0, 81559, 0, 0, 0, 0, memory_reserved_mib=0)
    assert card.throttle.reasons == pynvml.nvmlClocksEventReasonGpuIdle
    assert card.recovery == Recovery(0)
    assert (card.nvlink.links, card.nvlink.active, card.nvlink.crc_flit_errors) == (18, 18, 0)
    assert card.fabric == Fabric("completed", 0, 0, "healthy")
    assert card.mig == MigHealth(enabled=False, pending=False, instances=0)
    assert (card.ecc.enabled, card.ecc.rows_pending, card.ecc.rows_failed) == (True, False, False)
    assert (card.power.power_mw, card.power.temperature_c, card.power.memory_temperature_c) == (
        70_000,
        31,
        36,
    )


def test_a_consumer_card_without_ecc_says_so_by_saying_nothing() -> None:
    card = monitor("rtx4090-1", clock=Clock()).look().gpus[0]
    assert (card.ecc, card.recovery, card.fabric, card.mig) == (Ecc(), Recovery(), Fabric(), MigHealth())
    assert (card.usage.compute_processes, card.usage.utilisation_percent) == (0, 0)


def test_a_divided_card_is_not_counted_idle_by_a_counter_that_it_does_not_have() -> None:
    card = monitor("a100-mig", clock=Clock()).look().gpus[0]
    assert (card.mig.instances, card.usage.utilisation_percent, card.usage.compute_processes) == (4, None, 0)


def process(pid: int) -> dict[str, Any]:
    return {"pid": pid, "usedGpuMemory": 512 << 20, "gpuInstanceId": 0, "computeInstanceId": 0}


FAULTS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "somebody computes": (
        {
            "answers": {
                "nvmlDeviceGetComputeRunningProcesses_v3": [process(7), process(8)],
                "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 40},
                "nvmlDeviceGetMemoryInfo": {
                    "total": 80 << 30,
                    "reserved": 1 << 30,
                    "used": 70 << 30,
                    "free": 9 << 30,
                },
            }
        },
        lambda card: card.usage,
        Usage(80 << 10, 70 << 10, 9 << 10, 97, 40, 2, 0, memory_reserved_mib=1 << 10),
    ),
    "videos are encoded": (
        {
            "answers": {
                "nvmlDeviceGetEncoderUtilization": [37, 100_000],
                "nvmlDeviceGetDecoderUtilization": [12, 100_000],
            }
        },
        lambda card: (card.usage.encoder_percent, card.usage.decoder_percent),
        (37, 12),
    ),
    "its links transfer data": (
        {"fields": {"138": {"4294967295": 5_000}, "139": {"4294967295": 7_000}, "197": 11, "198": 13}},
        lambda card: (
            card.nvlink.sent_kib,
            card.nvlink.received_kib,
            card.pcie.sent_bytes,
            card.pcie.received_bytes,
        ),
        (5_000, 7_000, 11, 13),
    ),
    "corrected errors rise": (
        {"fields": {"3": 120_000, "5": 2**40}},
        lambda card: (card.ecc.corrected_volatile, card.ecc.corrected_aggregate),
        (120_000, 2**40),
    ),
    "an uncorrected error": (
        {"fields": {"4": 1, "6": 3}},
        lambda card: (card.ecc.uncorrected_volatile, card.ecc.uncorrected_aggregate),
        (1, 3),
    ),
    "a row waits for a reset": (
        {"fields": {"143": 1, "144": 1}},
        lambda card: (card.ecc.rows_remapped_uncorrected, card.ecc.rows_pending, card.ecc.rows_failed),
        (1, True, False),
    ),
    "a row cannot be remapped": (
        {"fields": {"143": 8, "145": 1}},
        lambda card: (card.ecc.rows_pending, card.ecc.rows_failed),
        (False, True),
    ),
    "heat": (
        {
            "answers": {
                "nvmlDeviceGetCurrentClocksEventReasons": 8 | 64,
                "nvmlDeviceGetTemperature": {"0": 93},
            },
            "fields": {"270": 5_000_000_000},
        },
        lambda card: (card.throttle.reasons, card.throttle.hardware_thermal_ns, card.power.temperature_c),
        (72, 5_000_000_000, 93),
    ),
    "a link is down": (
        {"fields": {"165": {str(n): int(n != 4) for n in range(18)}, "59": 2}},
        lambda card: (card.nvlink.links, card.nvlink.active, card.nvlink.recoveries),
        (18, 17, 2),
    ),
    "half the lanes": (
        {"answers": {"nvmlDeviceGetCurrPcieLinkWidth": 8}, "fields": {"94": 4_000}},
        lambda card: (card.pcie.width, card.pcie.replays),
        (8, 4_000),
    ),
    "the driver advises a reset": ({"fields": {"230": 4}}, lambda card: card.recovery.action, 4),
    "the fabric comes apart": (
        {
            "answers": {
                "nvmlDeviceGetGpuFabricInfoV": {
                    "status": 999,
                    "state": 2,
                    "healthMask": 1,
                    "healthSummary": 2,
                }
            }
        },
        lambda card: card.fabric,
        Fabric("in_progress", 999, 1, "unhealthy"),
    ),
    "divided by root": (
        {"answers": {"nvmlDeviceGetMigMode": [1, 1]}, "instances": [{}, {}]},
        lambda card: card.mig,
        MigHealth(enabled=True, pending=True, instances=2),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_seen_on_its_card_and_on_no_other(fault: tuple[dict[str, Any], Any, Any]) -> None:
    step, part, expected = fault
    clock = Clock()
    cards = monitor("h100-sxm-8", {"at": 100, "gpu": 6, **step}, clock=clock)
    before = cards.look().gpus
    clock.sleep(PERIODS["mig"])
    after = cards.look().gpus
    assert part(after[6]) == expected
    assert part(before[6]) != expected
    assert [card for card in after if card.index != 6] == [card for card in before if card.index != 6]


def test_how_busy_the_units_of_a_card_were_is_known_from_the_second_reading_on() -> None:
    clock = Clock()
    busy = {"at": 0, "gpu": 0, "answers": {"nvmlGpmMetricsGet": {"1": 97.5, "5": 41.25, "10": 0}}}
    watched = monitor("h100-sxm-8", busy, clock=clock)
    profiles = []
    for _ in range(4):
        profiles.append([card.profile for card in watched.look().gpus[:2]])
        clock.sleep(PERIODS["profile"])
    assert profiles == [[Profile(), Profile()]] + 3 * [[Profile(9_750, 4_125, 0), Profile()]]


def test_a_unit_of_which_nothing_is_known_is_null_and_the_others_are_read() -> None:
    clock = Clock()
    odd = {"at": 0, "gpu": 0, "answers": {"nvmlGpmMetricsGet": {"1": float("nan"), "10": 101.0, "5": 1.0}}}
    watched = monitor("h100-sxm-8", odd, clock=clock)
    watched.look()
    clock.sleep(PERIODS["profile"])
    assert watched.look().gpus[0].profile == Profile(None, 100, None)


def test_counters_of_nvlink_5_are_summed_over_the_links() -> None:
    worn = {"at": 0, "gpu": 0, "fields": {"221": {str(n): n for n in range(18)}, "214": {"3": 2}}}
    link = monitor("b200-8", worn, clock=Clock()).look().gpus[0].nvlink
    assert (link.symbol_errors, link.recoveries_failed, link.crc_flit_errors) == (153, 2, None)


def test_an_older_driver_has_older_words() -> None:
    old = {
        "at": 0,
        "gpu": 0,
        "answers": {
            "nvmlDeviceGetCurrentClocksEventReasons": None,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 4,
            "nvmlDeviceGetComputeRunningProcesses_v3": None,
            "nvmlDeviceGetComputeRunningProcesses_v2": [process(7), process(8)],
            "nvmlDeviceGetGraphicsRunningProcesses_v3": None,
            "nvmlDeviceGetGraphicsRunningProcesses_v2": [process(9)],
        },
    }
    card = monitor("l4-1", old, clock=Clock()).look().gpus[0]
    assert card.throttle.reasons == 4
    assert (card.usage.compute_processes, card.usage.graphics_processes) == (2, 1)


def test_processes_of_which_no_driver_says_anything_are_not_none() -> None:
    silent = {f"nvmlDeviceGet{kind}RunningProcesses_v3": None for kind in ("Compute", "Graphics")}
    card = monitor("l4-1", {"at": 0, "gpu": 0, "answers": silent}, clock=Clock()).look().gpus[0]
    assert (card.usage.compute_processes, card.usage.graphics_processes) == (None, None)


def test_a_card_that_our_own_look_woke_is_not_taken_for_busy() -> None:
    """A driver that wakes a card with ECC scrubs its memory, which counts as utilisation (nvml.h)."""
    clock = Clock()
    woken = {"at": 0, "gpu": 1, "answers": {"nvmlDeviceGetUtilizationRates": {"gpu": 100, "memory": 60}}}
    calm = {"at": 1, "gpu": 1, "answers": {"nvmlDeviceGetUtilizationRates": {"gpu": 0, "memory": 0}}}
    (document,) = agent.healths(library("l40s-2", woken, calm, clock=clock), None, sleep=clock.sleep)
    assert [card.usage.utilisation_percent for card in document.gpus] == [0, 0]
    assert clock.now == SETTLE_SECONDS
    watching = agent.healths(library("l40s-2", woken, calm, clock=Clock()), 10, sleep=Clock().sleep)
    assert next(watching).gpus[1].usage.utilisation_percent == 100


@pytest.mark.parametrize("processes", [[], [{"pid": 7, "usedGpuMemory": 512 << 20}]])
def test_a_card_at_work_is_busy_whether_its_processes_show_or_not(processes: list[Any]) -> None:
    clock = Clock()
    work = {
        "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 40},
        "nvmlDeviceGetComputeRunningProcesses_v3": processes,
    }
    cards = library("l40s-2", {"at": 0, "gpu": 0, "answers": work}, clock=clock)
    (document,) = agent.healths(cards, None, sleep=clock.sleep)
    assert document.gpus[0].usage.utilisation_percent == 97
    assert clock.now == (0 if processes else SETTLE_SECONDS)


def test_a_login_outlasts_all_the_time_that_the_agent_allows_itself() -> None:
    assert READ_HEALTH.seconds - 2 > agent.HANGS_SECONDS + SETTLE_SECONDS  # For Python to start.


def test_a_group_is_read_when_it_is_due_and_its_last_word_stands_until_then() -> None:
    clock = Clock()
    broken = {"at": 12, "gpu": 0, "fields": {"4": 1, "230": 2}}
    documents = looks(monitor("l40s-2", broken, clock=clock), clock, 8)
    assert [one.gpus[0].recovery.action for one in documents] == [0, 0, 2, 2, 2, 2, 2, 2]
    assert [one.gpus[0].ecc.uncorrected_volatile for one in documents] == [0, 0, 0, 0, 0, 0, 1, 1]
    when = {reading.group: reading.at - BOOT for reading in documents[7].readings}
    assert when["usage"] == when["throttle"] == 70
    assert (when["ecc"], when["pcie"], when["identity"]) == (60, 60, 0)


def test_a_card_that_is_lost_keeps_its_last_word_and_the_others_are_read_on() -> None:
    clock = Clock()
    script = ({"at": 5, "gpu": 1, "lost": True}, {"at": 15, "gpu": 0, "fields": {"230": 1}})
    documents = looks(monitor("l40s-2", *script, clock=clock), clock, 3)
    assert [[card.lost for card in one.gpus] for one in documents] == [
        [False, False],
        [False, True],
        [False, True],
    ]
    assert documents[2].gpus[1] == GpuHealth(**{**vars(documents[0].gpus[1]), "lost": True})
    assert documents[2].gpus[0].recovery.action == 1


def test_a_card_that_was_lost_before_we_came_has_no_name_and_a_place() -> None:
    document = monitor("l40s-2", {"at": 0, "gpu": 0, "lost": True}, clock=Clock()).look()
    assert document.gpus[0] == GpuHealth(0, None, None, lost=True)
    assert not document.gpus[1].lost


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_a_card_that_will_not_say_who_it_is_is_lost_and_the_others_are_read(call: str, error: int) -> None:
    """A process that starts after XID 79 often gets UNKNOWN for the card, and never GPU_IS_LOST."""
    clock = Clock()
    cards = library("l40s-2", clock=clock)
    asked = getattr(cards.api, call)
    fallen = {0, cards.api.nvmlDeviceGetHandleByIndex(0)}

    def answer(card: object) -> object:
        if card in fallen:
            raise pynvml.NVMLError(error)
        return asked(card)

    setattr(cards.api, call, answer)
    watched = Monitor(cards, Schedule(10), Unreadable(), monotonic=clock, unix=clock.unix)
    document = watched.look()
    assert document.gpus[0] == GpuHealth(0, None, None, lost=True)
    assert (document.gpus[1].lost, document.gpus[1].usage.compute_processes) == (False, 0)
    assert decode(encode(document).encode()) == document
    refused = {reading.group: reading.refused for reading in document.readings}
    assert refused["identity"] == (error == pynvml.NVML_ERROR_UNKNOWN)
    fallen.clear()
    assert [card.lost for card in watched.look().gpus] == [False, False]


def test_a_card_that_stops_saying_who_it_is_keeps_its_last_word() -> None:
    clock = Clock()
    unsaid = {"at": 5, "gpu": 0, "answers": {"nvmlDeviceGetUUID": {"error": "UNKNOWN"}}}
    watched = monitor("l40s-2", unsaid, clock=clock)
    before = watched.look().gpus[0]
    clock.sleep(PERIODS["identity"])
    after = watched.look().gpus[0]
    assert (after.uuid, after.usage, after.lost) == (before.uuid, before.usage, True)


def test_a_card_that_comes_back_is_found_at_the_next_look() -> None:
    clock = Clock()
    script = ({"at": 0, "gpu": 0, "lost": True}, {"at": 15, "gpu": 0, "lost": False})
    documents = looks(monitor("l40s-2", *script, clock=clock), clock, 3)
    assert [one.gpus[0].lost for one in documents] == [True, True, False]
    assert documents[2].gpus[0].uuid == "GPU-l40s-0000-4000-8000-000000000000"


def test_a_card_that_moved_up_is_not_also_the_lost_one_in_its_old_place() -> None:
    clock = Clock()
    cards = library("l40s-2", {"at": 5, "gpu": 0, "lost": True}, clock=clock)
    watched = Monitor(cards, Schedule(3600), Unreadable(), monotonic=clock, unix=clock.unix)
    second = watched.look().gpus[1].uuid
    by_index = cards.api.nvmlDeviceGetHandleByIndex
    cards.api.nvmlDeviceGetHandleByIndex = lambda index: by_index(1 - index)
    clock.sleep(3600)
    document = watched.look()
    assert [(card.uuid, card.lost) for card in document.gpus] == [(second, False), (None, True)]
    assert decode(encode(document).encode()) == document


def test_a_card_that_vanishes_is_missed_within_the_hour_and_at_once_after_an_event() -> None:
    clock = Clock()
    vanished = {"at": 5, "count": 1}
    silent = looks(monitor("l40s-2", vanished, clock=clock, interval=600), clock, 7, every=600)
    assert [len(one.gpus) for one in silent] == [2, 2, 2, 2, 2, 2, 1]
    clock = Clock()
    announced = {"at": 5, "gpu": 0, "event": pynvml.nvmlEventTypeGpuUnavailableError}
    watched = monitor("l40s-2", vanished, announced, clock=clock)
    watched.look()
    hear(watched, clock)
    clock.sleep(10)
    assert len(watched.look().gpus) == 1


def test_no_count_at_all_ends_the_watch_with_a_reason() -> None:
    cards = monitor("l4-1", {"at": 0, "count": 10**6}, clock=Clock())
    with pytest.raises(Unanswered, match="more than"):
        cards.look()


def test_what_a_slow_getter_costs_is_in_the_document() -> None:
    slow = {"at": 0, "gpu": 0, "slow": {"nvmlDeviceGetPowerUsage": 0.25}}
    readings = {one.group: one for one in monitor("l40s-2", slow, clock=Clock()).look().readings}
    assert readings["power"].microseconds == 250_000
    assert readings["recovery"].microseconds == 0
    assert readings["recovery"].calls == 2


def test_what_was_refused_is_counted_and_what_is_not_supported_is_not() -> None:
    odd = {
        "at": 0,
        "gpu": 0,
        "answers": {"nvmlDeviceGetPowerUsage": {"error": "UNKNOWN"}, "nvmlDeviceGetTemperature": None},
    }
    document = monitor("l4-1", odd, clock=Clock()).look()
    refused = {one.group: one.refused for one in document.readings}
    assert Counter(refused.values()) == {0: len(PERIODS) - 1, 1: 1}
    assert refused["power"] == 1
    assert (document.gpus[0].power.power_mw, document.gpus[0].power.sm_mhz) == (None, 345)


def hear(watched: Monitor, clock: Clock) -> None:
    """Listen as the watch does, with the thread's work done here: up to now, without waiting."""
    events = watched.listen()
    until = clock.now + 10
    while clock.now < until:
        events.wait()
    clock.now = until


def test_an_event_is_heard_once_although_the_kernel_logs_it_too() -> None:
    clock = Clock()
    log = Log([])
    fallen = {"at": 3, "gpu": 1, "xid": 79}
    watched = monitor("l40s-2", fallen, clock=clock, log=log)
    watched.look()
    hear(watched, clock)
    log.lines = [(79, "0000:43:00.0", BOOT + 11), (31, "0000:1b:00.0", BOOT - 500)]
    document = watched.look()
    assert document.events
    assert document.xids == (
        Xid("xid", 31, "0000:1b:00.0", BOOT - 500, "log"),
        Xid("xid", 79, "0000:43:00.0", BOOT + 10, "both"),
    )
    assert decode(encode(document).encode()) == document


def test_an_event_brings_what_it_changes_forward() -> None:
    clock = Clock()
    struck = {"at": 3, "gpu": 0, "xid": 48, "fields": {"4": 1}}
    watched = monitor("l40s-2", struck, clock=clock)
    watched.look()
    hear(watched, clock)
    assert watched.look().gpus[0].ecc.uncorrected_volatile == 1


def test_a_mode_that_changes_is_read_when_the_event_comes() -> None:
    clock = Clock()
    divided = {
        "at": 3,
        "gpu": 0,
        "event": pynvml.nvmlEventMigConfigChange,
        "answers": {"nvmlDeviceGetMigMode": [1, 1]},
    }
    watched = monitor("h100-sxm-8", divided, clock=clock)
    assert watched.look().gpus[0].mig.enabled is False
    hear(watched, clock)
    assert watched.look().gpus[0].mig.enabled is True


def test_the_event_of_a_card_that_can_no_longer_say_where_it_is_has_no_address() -> None:
    clock = Clock()
    cards = library("l40s-2", {"at": 1, "gpu": 0, "xid": 79, "lost": True}, clock=clock)
    events = Events(cards, [cards.must("nvmlDeviceGetHandleByIndex", index) for index in range(2)])
    assert events.wait()
    assert events.new() == [Event(pynvml.nvmlEventTypeXidCriticalError, 79, None)]
    assert events.new() == []


def test_cards_without_events_have_none_and_are_watched_all_the_same() -> None:
    clock = Clock()
    cards = library(
        "rtx4090-1", {"at": 0, "gpu": 0, "answers": {"nvmlDeviceGetSupportedEventTypes": 0}}, clock=clock
    )
    assert not Events(cards, [cards.must("nvmlDeviceGetHandleByIndex", 0)]).registered


def test_a_wait_that_fails_is_distinguished_from_one_in_which_nothing_happened() -> None:
    cards = library("l4-1")
    events = Events(cards, [cards.must("nvmlDeviceGetHandleByIndex", 0)])
    assert events.wait()  # Nothing happened.

    def gone(*arguments: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    cards.api.nvmlEventSetWait_v2 = gone
    assert not events.wait()


def test_where_no_log_may_be_read_the_document_says_so() -> None:
    document = monitor("l4-1", clock=Clock()).look()
    assert (document.kernel_log, document.xids) == ("unreadable", ())


def test_a_look_that_takes_longer_than_its_turn_delays_the_next_and_does_not_pile_up() -> None:
    clock = Clock()
    slow = {"at": 0, "gpu": 0, "slow": {"nvmlDeviceGetPowerUsage": 25}}
    documents = looks(monitor("l4-1", slow, clock=clock), clock, 4)
    assert [one.at - BOOT for one in documents] == [25, 60, 95, 130]


def test_a_card_fails_while_the_agent_watches_it_when_a_step_is_added_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(emulation_file, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    path = tmp_path / "nvml.json"
    before = {"at": 5, "gpu": 0, "answers": {"nvmlDeviceGetPowerUsage": 1000}}
    cards_of = described("h100-sxm-8")
    path.write_text(json.dumps({**cards_of, "script": [before]}))
    api = emulation_file.load(path)
    cards = Monitor(Library(api, "emulated"), Schedule(15), Unreadable(), monotonic=clock, unix=clock.unix)
    cards.look()
    events = cards.listen()
    clock.sleep(60)
    assert cards.look().gpus[0].power.power_mw == 1000
    step = {"at": 2, "gpu": 3, "xid": 79, "lost": True, "fields": {"230": 2}}
    path.write_text(json.dumps({**cards_of, "script": [before, step]}))
    clock.sleep(1)
    cards.look()
    clock.sleep(15)
    assert events.wait()
    after = cards.look()
    assert [card.index for card in after.gpus if card.lost] == [3]
    assert [(xid.number, xid.bus_id) for xid in after.xids] == [(79, None)], (
        "a lost card does not say where it is"
    )
    path.write_text("{")
    clock.sleep(15)
    assert len(cards.look().xids) == 1, "a file that is being written changes nothing"


def test_an_error_is_looked_at_soon_and_a_storm_of_them_every_five_seconds() -> None:
    clock = Clock()
    errors = [{"at": at, "gpu": 2, "xid": 31} for at in (20, 31, 32, 33, 34, 35, 36)]
    cards = monitor("h100-sxm-8", *errors, clock=clock)
    at: list[float] = []

    def rest(events: Events, seconds: float) -> bool:
        """As long as it takes until there is an event, a second at a time."""
        end = clock.now + seconds
        while clock.now < end:
            if events.wait() and events.rest(0):
                return True
        return False

    for document in watch(
        cards, 15, monotonic=clock, sleep=clock.sleep, beside=lambda listener: None, rest=rest
    ):
        at.append(clock.now)
        assert decode(encode(document).encode()) == document
        if clock.now > 50:
            break
    assert at[:2] == [0, 15]
    assert 20 <= at[2] <= 22, "soon after the error"
    assert all(later - earlier >= EARLY_SECONDS for earlier, later in pairwise(at)), at
    assert any(30 <= when < 31 for when in at), "the next usual look is where it was"
