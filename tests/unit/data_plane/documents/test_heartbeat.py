"""The lines between agents and the hub: which are read, and which are refused."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from control_plane.domain.agent import AgentTask
from data_plane.documents import strict
from data_plane.documents.heartbeat import (
    HEARTBEATS_MAX,
    LINE_BYTES_MAX,
    TASKS,
    Answer,
    Delivery,
    Heartbeat,
    Result,
    Verdict,
    VersionNotKnown,
    encode,
    read_answer,
    read_delivery,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "heartbeats"


def test_what_agents_of_version_1_send_is_understood_for_as_long_as_they_may_run() -> None:
    delivery = read_delivery((FIXTURES / "version-1-delivery.json").read_bytes())
    assert delivery.credential == "5e" * 32
    boot = "0a2ab135-9d07-4dc4-b84f-559402d87ffd"
    result = Result("topology", done=True, digest="ab" * 32, detail="8 GPUs, driver 570.124.06, nvml")
    assert delivery.heartbeats == (
        Heartbeat(7, 1_795_800_000, 3600, boot, 0, 0),
        Heartbeat(8, 1_795_800_000, 3600, boot, 1, 2, result),
    )
    answer = read_answer((FIXTURES / "version-1-answer.json").read_bytes())
    assert answer == Answer("accepted", 8, "verify")


def test_what_one_side_writes_the_other_side_reads() -> None:
    beat = Heartbeat(1, 0, 0, "", 0, 0)
    delivery = Delivery("0" * 64, (beat,))
    assert read_delivery(encode(delivery)) == delivery
    for verdict in get_args(Verdict):
        assert read_answer(encode(Answer(verdict, 3))) == Answer(verdict, 3)


def test_a_line_of_a_newer_version_is_refused_with_an_answer_that_every_agent_reads() -> None:
    newer: dict[str, Any] = json.loads((FIXTURES / "version-1-delivery.json").read_bytes())
    newer |= {"protocol": 2, "something": "new"}
    with pytest.raises(VersionNotKnown):
        read_delivery(json.dumps(newer).encode())
    answer = json.loads(encode(Answer("version_not_known")))
    assert answer == {
        "protocol": 1,
        "kind": "answer",
        "verdict": "version_not_known",
        "accepted_through": 0,
        "task": None,
    }


def test_hostile_lines_are_malformed() -> None:
    right: dict[str, Any] = json.loads((FIXTURES / "version-1-delivery.json").read_bytes())
    beat: dict[str, Any] = right["heartbeats"][0]
    cases: dict[str, Any] = {
        "no object": [],
        "a version that is true": right | {"protocol": True},
        "no version": {key: value for key, value in right.items() if key != "protocol"},
        "an answer": right | {"kind": "answer"},
        "the id of a lease": right | {"lease": "le_" + "0" * 32},
        "a short credential": right | {"credential": "5e"},
        "a credential in capitals": right | {"credential": "5E" * 32},
        "no heartbeats": right | {"heartbeats": []},
        "too many heartbeats": right
        | {"heartbeats": [beat | {"sequence": n + 1} for n in range(HEARTBEATS_MAX + 1)]},
        "the same one twice": right | {"heartbeats": [beat, beat]},
        "a wrong order": right | {"heartbeats": [beat | {"sequence": 2}, beat | {"sequence": 1}]},
        "a negative sequence": right | {"heartbeats": [beat | {"sequence": -1}]},
        "a huge sequence": right | {"heartbeats": [beat | {"sequence": 1 << 60}]},
        "a fraction": right | {"heartbeats": [beat | {"at": 1.5}]},
        "an unknown task": right
        | {"heartbeats": [beat | {"result": {"task": "sh", "done": True, "digest": None, "detail": ""}}]},
        "a line break in a detail": right
        | {
            "heartbeats": [beat | {"result": {"task": "clean", "done": True, "digest": None, "detail": "\n"}}]
        },
    }
    for case in cases.values():
        with pytest.raises(strict.Malformed):
            read_delivery(json.dumps(case).encode())
    for line in (
        b"",
        b"\xff",
        b"[" * LINE_BYTES_MAX,
        b" " * (LINE_BYTES_MAX + 1),
        b'{"protocol":1,"protocol":1}',
    ):
        with pytest.raises(strict.Malformed):
            read_delivery(line)


def test_a_full_line_with_the_longest_results_fits() -> None:
    longest = Result("topology", done=True, digest="f" * 64, detail="~" * 300)
    beats = tuple(
        Heartbeat((1 << 53) - HEARTBEATS_MAX + n, 1 << 40, 1 << 40, "f" * 36, 1 << 20, 1 << 52, longest)
        for n in range(HEARTBEATS_MAX)
    )
    assert len(encode(Delivery("0" * 64, beats))) < LINE_BYTES_MAX / 2


def test_both_sides_know_the_same_tasks() -> None:
    assert {task.value for task in AgentTask} == set(TASKS)


def test_no_text_of_a_delivery_shows_its_credential() -> None:
    assert "5e5e" not in repr(read_delivery((FIXTURES / "version-1-delivery.json").read_bytes()))
