"""What the provider of a machine is told: a text that can be sent as it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from control_plane.domain.health import Fault, FaultCode, Source, Verdict
from control_plane.domain.repair_ticket import WIDTH, Done, Known, Ticket, faults_of, text_of

AT = datetime(2026, 11, 20, 15, 16, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
UUIDS = tuple(f"GPU-b76c6f85-9473-52f2-a106-5c04476ce80{index}" for index in range(4))
LOST = Fault(
    FaultCode.GPU_LOST, 3, None, Source.SAMPLE, AT, AT + MINUTE, AT + MINUTE, "GPU 3 does not answer"
)
FELL = Fault(
    FaultCode.MACHINE_ERROR, 3, 79, Source.LOOK, AT, AT, AT, "XID 79: the GPU has fallen off the bus"
)
TICKET = Ticket(
    repair="rp_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c",
    provider="lambda_cloud",
    account="lambda_cloud/research",
    region="us-east-1",
    native_type="gpu_4x_h100_sxm5",
    reference="0920582c7ff041399e34823a0be62549",
    gpu_count=4,
    gpu_uuids=UUIDS,
    opened_at=AT + 2 * MINUTE,
    closed_at=None,
    verdict=Verdict.QUARANTINED,
    why="a GPU does not answer: GPU 3 does not answer",
    faults=(FELL, LOST),
    done=(
        Done(AT + 3 * MINUTE, "next step: challenge; its GPUs can prove the contrary"),
        Done(AT + 9 * MINUTE, "it is rebooted, because a reset may end the fault"),
    ),
)
TEXT = """\
Machine 0920582c7ff041399e34823a0be62549 is not healthy (quarantined): a GPU
does not answer: GPU 3 does not answer.

Provider    lambda_cloud
Account     lambda_cloud/research
Region      us-east-1
Instance    0920582c7ff041399e34823a0be62549
Type        gpu_4x_h100_sxm5, 4 GPUs
Since       2026-11-20 15:16:00 UTC
Our id      rp_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c
Opened      2026-11-20 15:18:00 UTC

What was found (times are UTC)
- 2026-11-20 15:16:00  XID 79: the GPU has fallen off the bus (GPU 3,
  GPU-b76c6f85-9473-52f2-a106-5c04476ce803): an error that takes the machine
  out. By our reading over SSH.
- 2026-11-20 15:16:00  GPU 3 does not answer
  (GPU-b76c6f85-9473-52f2-a106-5c04476ce803): a GPU does not answer. By the
  agent on the machine, last 2026-11-20 15:17:00, confirmed 2026-11-20
  15:17:00.

What we did
- 2026-11-20 15:19:00  next step: challenge; its GPUs can prove the contrary.
- 2026-11-20 15:25:00  it is rebooted, because a reset may end the fault.

GPUs
- 0: GPU-b76c6f85-9473-52f2-a106-5c04476ce800
- 1: GPU-b76c6f85-9473-52f2-a106-5c04476ce801
- 2: GPU-b76c6f85-9473-52f2-a106-5c04476ce802
- 3: GPU-b76c6f85-9473-52f2-a106-5c04476ce803
"""


def test_the_text_names_the_machine_as_its_provider_does_and_has_the_evidence_with_its_times() -> None:
    assert text_of(TICKET) == TEXT


def test_the_number_of_gpus_is_said_in_words_that_fit_it() -> None:
    for count, said in ((0, "no GPUs"), (1, "1 GPU"), (8, "8 GPUs")):
        assert f"gpu_4x_h100_sxm5, {said}\n" in text_of(replace(TICKET, gpu_count=count))


def test_no_line_is_longer_than_a_screen_and_an_id_is_never_broken() -> None:
    long = "/subscriptions/" + "0123456789abcdef/" * 8
    lines = text_of(replace(TICKET, reference=long, why="it is slow " * 30)).splitlines()
    assert [line for line in lines if len(line) > WIDTH and long not in line] == []
    assert sum(long in line for line in lines) == 2


def test_a_machine_without_readings_or_faults_is_named_by_what_is_known() -> None:
    bare = replace(TICKET, reference=None, gpu_uuids=(), faults=(), done=())
    text = text_of(bare)
    assert text.startswith("A machine of ours is not healthy (quarantined)")
    assert "Instance    you have not told us its id" in text
    assert "Since       2026-11-20 15:18:00 UTC" in text
    assert "- nothing yet" in text
    assert "GPUs\n" not in text.replace("4 GPUs\n", "")


def test_a_repair_that_is_over_is_told_as_such() -> None:
    text = text_of(replace(TICKET, closed_at=AT + 60 * MINUTE))
    assert "was not healthy" in text
    assert "Closed      2026-11-20 16:16:00 UTC" in text


def test_what_its_provider_lists_is_told_as_theirs() -> None:
    listed = Fault(FaultCode.PROVIDER_DOWN, None, None, Source.PROVIDER, AT, AT, AT, "as 'stopped'")
    text = text_of(replace(TICKET, faults=(listed,)))
    assert "its provider lists it as down: as 'stopped'. By your lists." in text.replace("\n  ", " ")


def test_what_only_the_machine_says_is_told_as_not_confirmed() -> None:
    text = text_of(replace(TICKET, faults=(replace(LOST, confirmed_at=None),)))
    assert "not confirmed by us." in text.replace("\n  ", " ")


def test_a_fault_that_several_moments_show_is_told_once_with_all_that_was_known_of_it() -> None:
    early = replace(LOST, last_at=AT, confirmed_at=None)
    later = replace(LOST, last_at=AT + 5 * MINUTE)
    again = replace(LOST, first_at=AT + 60 * MINUTE, last_at=AT + 61 * MINUTE, confirmed_at=None)
    known = [Known(AT + 60 * MINUTE, (again,)), Known(AT, (early, FELL)), Known(AT + 5 * MINUTE, (later,))]
    assert faults_of(known) == [later, FELL, again]
