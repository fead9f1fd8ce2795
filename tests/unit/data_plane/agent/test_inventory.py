"""The agent's own reading code over emulated cards of many models, and over cards that refuse."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from control_plane.domain.gpu import APPEARANCES
from data_plane.agent import inventory
from data_plane.documents.inventory import Inventory, Mig, NvLink, PcieLink
from data_plane.documents.protocol import decode, encode
from data_plane.nvml.library import Lost, Unanswered
from tests.support.cards import MODELS, described, library

NOWHERE = Path("/nonexistent")


def seen(model: str, *script: dict[str, Any]) -> Inventory:
    return inventory.read(library(model, *script), NOWHERE)


def every_call(model: str) -> list[str]:
    """Names of all calls that an inventory of this model makes."""
    cards = library(model)
    made: set[str] = set()
    api = cards.api

    class Heard:
        def __getattr__(self, name: str) -> Any:
            if name.startswith(("nvmlDevice", "nvmlGpuInstance")):
                made.add(name)
            return getattr(api, name)

    cards.api = Heard()
    inventory.read(cards, NOWHERE)
    return sorted(made)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_read_and_understood(model: str) -> None:
    read = seen(model)
    assert decode(encode(read).encode()) == read
    assert read.source == "emulated"
    assert [gpu.uuid for gpu in read.gpus] == [one["uuid"] for one in described(model)["gpus"]]
    assert len({gpu.bus_id for gpu in read.gpus}) == len(read.gpus)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_that_we_sell_looks_as_our_own_table_says(model: str) -> None:
    (gpu, *_) = seen(model).gpus
    looks = [look for look in APPEARANCES.values() if gpu.name in look.nvml_names]
    for look in looks:
        assert gpu.memory_total_mib in look.memory_mib


def test_a_card_is_identified_by_its_model_and_place() -> None:
    gpu = seen("h100-sxm-8").gpus[7]
    assert (gpu.name, gpu.memory_total_mib, gpu.compute_capability) == ("NVIDIA H100 80GB HBM3", 81559, "9.0")
    assert (gpu.pci_device_id, gpu.pci_subsystem_id, gpu.bus_id) == ("10de:2330", "10de:0000", "0000:df:00.0")
    assert (gpu.serial, gpu.board_part_number) == ("1650000000007", "900-00000-0000-000")
    assert (gpu.cores, gpu.bus_width_bits, gpu.brand, gpu.virtualization) == (16896, 5120, 14, "passthrough")
    assert (gpu.power_limit_mw, gpu.power_limit_max_mw, gpu.sm_max_mhz, gpu.memory_max_mhz) == (
        700_000,
        700_000,
        1980,
        2619,
    )
    assert gpu.pcie == PcieLink(5, 16, 5, 16)
    assert gpu.sharing == "none"


def test_a_text_that_the_bindings_leave_as_bytes_is_read() -> None:
    cards = library("h100-sxm-8")
    handle = cards.api.nvmlDeviceGetHandleByIndex(0)
    version = described("h100-sxm-8")["every_gpu"]["answers"]["nvmlDeviceGetGspFirmwareVersion"]
    assert cards.api.nvmlDeviceGetGspFirmwareVersion(handle) == version.encode()  # As nvidia-ml-py answers.
    assert seen("h100-sxm-8").gpus[0].gsp_firmware == version
    cards.api.nvmlDeviceGetGspFirmwareVersion = lambda card: b"570\xff"
    assert inventory.read(cards, NOWHERE).gpus[0].gsp_firmware is None


def test_a_consumer_card_says_less_and_is_read_all_the_same() -> None:
    (gpu,) = seen("rtx4090-1").gpus
    assert (gpu.name, gpu.memory_total_mib, gpu.brand) == ("NVIDIA GeForce RTX 4090", 24564, 5)
    assert (gpu.serial, gpu.board_part_number, gpu.inforom, gpu.mig, gpu.nvlinks) == (
        None,
        None,
        None,
        None,
        (),
    )


def test_links_to_switches_and_to_cards_are_distinguished() -> None:
    gpu = seen("h100-sxm-8").gpus[0]
    assert len(gpu.nvlinks) == 18
    assert gpu.nvlinks[17] == NvLink(
        17, active=True, version=6, speed_mbps=25000, remote="switch", remote_bus_id="0000:06:00.0"
    )
    pair = seen("a100-sxm-4").gpus
    assert {link.remote for link in pair[0].nvlinks} == {"gpu"}
    assert {link.remote_bus_id for link in pair[0].nvlinks} == {gpu.bus_id for gpu in pair[1:]}


def test_a_link_that_is_down_is_there_and_down() -> None:
    down = {"at": 0, "gpu": 2, "fields": {"165": {str(link): int(link != 5) for link in range(18)}}}
    links = seen("h200-sxm-8", down).gpus[2].nvlinks
    assert [link.link for link in links if not link.active] == [5]


def test_a_driver_before_the_state_field_is_asked_link_by_link() -> None:
    old = {
        "at": 0,
        "gpu": 0,
        "fields": {"165": None},
        "answers": {"nvmlDeviceGetNvLinkState": {"0": 1, "1": 0}},
    }
    assert [link.active for link in seen("a100-sxm-4", old).gpus[0].nvlinks[:3]] == [True, False, False]


def test_where_cards_meet_is_a_whole_and_symmetric_matrix() -> None:
    matrix = seen("b200-8").ancestors
    assert [matrix[0][other] for other in (0, 3, 4)] == ["self", "node", "system"]
    assert all(matrix[a][b] == matrix[b][a] for a in range(8) for b in range(8))


def test_every_part_of_a_divided_card_has_its_profile_and_its_place() -> None:
    (gpu,) = seen("a100-mig").gpus
    assert gpu.sharing == "mig"
    assert gpu.mig is not None
    assert [
        (
            one.profile,
            one.profile_id,
            one.placement and (one.placement.start, one.placement.size),
            one.multiprocessors,
        )
        for one in gpu.mig.instances
    ] == [
        ("3g.40gb", 9, (4, 4), 42),
        ("2g.20gb", 14, (2, 2), 28),
        ("1g.10gb", 19, (0, 1), 14),
        ("1g.10gb", 19, (1, 1), 14),
    ]
    (seven,) = seen("h100-mig").gpus
    assert seven.mig is not None
    assert len({one.uuid for one in seven.mig.instances}) == seven.mig.instances_max == 7


def test_without_root_a_part_has_no_place_and_everything_else() -> None:
    refused = {"nvmlDeviceGetGpuInstanceById": {"error": "NO_PERMISSION"}}
    parts = [
        {**one, "answers": {**one["answers"], "nvmlGpuInstanceGetInfo": {"error": "NO_PERMISSION"}}}
        for one in described("a100-mig")["gpus"][0]["instances"]
    ]
    (gpu,) = seen("a100-mig", {"at": 0, "gpu": 0, "answers": refused, "instances": parts}).gpus
    assert gpu.mig is not None
    first = gpu.mig.instances[0]
    assert (first.profile, first.placement, first.profile_id) == ("3g.40gb", None, None)


def test_a_mode_that_waits_for_a_reset_is_reported() -> None:
    (gpu, *_) = seen("h100-sxm-8", {"at": 0, "gpu": 0, "answers": {"nvmlDeviceGetMigMode": [0, 1]}}).gpus
    assert gpu.mig == Mig(enabled=False, pending=True, instances_max=7)


ERRORS = [
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "NO_PERMISSION",
    "INVALID_ARGUMENT",
    "TIMEOUT",
    "UNKNOWN",
    "CORRUPTED_INFOROM",
    NOT_TEXT := "a byte that is not UTF-8, which the bindings decode strictly",
]
NEEDED = {"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"}
OF_THE_MACHINE = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetTopologyCommonAncestor"}
FROM_ONE_CALL = 3
"""Values of a card that come from one call: the PCI structure has most."""


class Refusing:
    """An NVML of which one call always fails."""

    def __init__(self, inner: Any, call: str, error: str) -> None:
        self.inner, self.call, self.error = inner, call, error

    def __getattr__(self, name: str) -> Any:
        if name == self.call:
            return self.fail
        return getattr(self.inner, name)

    def fail(self, *arguments: object) -> None:
        if self.error == NOT_TEXT:
            b"NVIDIA L40S \xff".decode()
        raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{self.error}"))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("model", ["gh200-1", "a100-mig"])
def test_whatever_one_call_refuses_the_rest_is_read(model: str, error: str) -> None:
    """No matter which call it is: that a new value is asked for without care is the bug this catches."""
    whole = seen(model)
    for call in set(every_call(model)) - NEEDED - OF_THE_MACHINE:
        cards = library(model)
        cards.api = Refusing(cards.api, call, error)
        read = inventory.read(cards, NOWHERE)
        assert decode(encode(read).encode()) == read, call
        (before, *_), (after, *_) = whole.gpus, read.gpus
        missing = {key for key in vars(before) if getattr(before, key) != getattr(after, key)}
        assert len(missing) <= FROM_ONE_CALL, (call, missing)


@pytest.mark.parametrize("call", sorted(NEEDED))
def test_what_every_card_must_say_is_not_made_up(call: str) -> None:
    cards = library("l40s-2")
    cards.api = Refusing(cards.api, call, "UNKNOWN")
    with pytest.raises(Unanswered) as caught:
        inventory.read(cards, NOWHERE)
    assert (caught.value.code, caught.value.detail) == ("nvml_error", f"GPU 0: {call}: Unknown Error")


def test_an_error_that_has_no_readable_name_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = library("l4-1")
    monkeypatch.setattr(pynvml, "nvmlErrorString", lambda number: b"\xff".decode())
    monkeypatch.setattr(pynvml, "NVML_ERROR_NEW", 998, raising=False)
    cards.api = Refusing(cards.api, "nvmlDeviceGetName", "NEW")
    with pytest.raises(Unanswered, match="nvmlDeviceGetName: error 998"):
        inventory.read(cards, NOWHERE)


@pytest.mark.parametrize("call", every_call("l40s-2") + every_call("gh200-1"))
def test_a_card_lost_at_any_call_is_a_failure_and_never_a_shorter_list(call: str) -> None:
    cards = library("l40s-2" if call == "nvmlDeviceGetTopologyCommonAncestor" else "gh200-1")
    cards.api = Refusing(cards.api, call, "GPU_IS_LOST")
    with pytest.raises((Unanswered, Lost)) as caught:
        inventory.read(cards, NOWHERE)
    assert isinstance(caught.value, Unanswered) or call == "nvmlDeviceGetCount"
    if isinstance(caught.value, Unanswered):
        assert caught.value.code == "gpu_lost"
        assert "GPU 0" in caught.value.detail


def test_the_lost_card_among_eight_is_named() -> None:
    with pytest.raises(Unanswered) as caught:
        seen("h100-sxm-8", {"at": 0, "gpu": 5, "lost": True})
    assert caught.value.detail == "GPU 5 is lost"


def test_a_field_of_a_lost_card_is_a_loss_too() -> None:
    cards = library("h200-sxm-8")
    handle = cards.must("nvmlDeviceGetHandleByIndex", 0)

    class Lossy(Refusing):
        def nvmlDeviceGetFieldValues(self, card: object, ids: list[Any]) -> list[Any]:  # noqa: N802
            values: list[Any] = self.inner.nvmlDeviceGetFieldValues(card, ids)
            values[0].nvmlReturn = pynvml.NVML_ERROR_GPU_IS_LOST
            return values

    cards.api = Lossy(cards.api, "", "")
    with pytest.raises(Lost):
        cards.fields(handle, [230])


@pytest.mark.parametrize(
    "kind",
    [
        "UNSIGNED_INT",
        "UNSIGNED_LONG",
        "UNSIGNED_LONG_LONG",
        "SIGNED_LONG_LONG",
        "SIGNED_INT",
        "UNSIGNED_SHORT",
    ],
)
def test_a_field_of_any_width_is_read_as_the_number_that_the_driver_wrote(kind: str) -> None:
    member = {
        "UNSIGNED_INT": "uiVal",
        "UNSIGNED_LONG": "ulVal",
        "UNSIGNED_LONG_LONG": "ullVal",
        "SIGNED_LONG_LONG": "sllVal",
        "SIGNED_INT": "siVal",
        "UNSIGNED_SHORT": "usVal",
    }[kind]
    value = pynvml.c_nvmlFieldValue_t()
    value.value.ullVal = 0xFFFF_FFFF_FFFF_FFFF  # What a reader of the wrong width would see.
    setattr(value.value, member, 7)
    value.valueType = getattr(pynvml, f"NVML_VALUE_TYPE_{kind}")
    cards = library("l4-1")
    cards.api = type("Api", (), {"nvmlDeviceGetFieldValues": lambda self, handle, ids: [value]})()
    assert cards.fields(object(), [1]) == [7]


def test_more_cards_than_any_machine_has_are_not_read() -> None:
    cards = library("l4-1")
    cards.api = type(
        "Api", (), {"nvmlDeviceGetCount": lambda self: 10**6, "nvmlSystemGetDriverVersion": lambda self: "1"}
    )()
    with pytest.raises(Unanswered, match="more than"):
        inventory.read(cards, NOWHERE)


def test_a_recorded_number_out_of_all_bounds_is_null_and_the_card_is_read() -> None:
    odd = {
        "at": 0,
        "gpu": 0,
        "answers": {"nvmlDeviceGetEnforcedPowerLimit": 2**32 - 1, "nvmlDeviceGetSerial": "a\nb"},
    }
    (gpu,) = seen("l4-1", odd).gpus
    assert (gpu.power_limit_mw, gpu.serial, gpu.name) == (None, None, "NVIDIA L4")
