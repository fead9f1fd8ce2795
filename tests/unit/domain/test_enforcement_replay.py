"""A recorded incident leads to the same decisions, byte for byte, and other rules can be tried on it."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from control_plane.domain.enforcement import Detector, Symptom
from control_plane.domain.enforcement_replay import Decision, Recorded, replay
from control_plane.domain.enforcement_rules import EnforcementRules
from control_plane.domain.known_conditions import FundingWarning, funding_symptom
from control_plane.domain.reading import GpuReading, Reading, ServerReading
from control_plane.domain.sla import SlaTier
from control_plane.domain.throughput import Sampled, Usual
from reconciler.enforcement_rules import parse_rules
from tests.support import golden
from tests.support.enforcement import RULES, TEXT, a_lease

FOLDER = Path("tests/fixtures/enforcement")
INCIDENT: dict[str, Any] = json.loads((FOLDER / "incident.json").read_text(encoding="utf-8"))
DECISIONS = FOLDER / "incident_decisions.txt"
SLOW: dict[str, Any] = json.loads((FOLDER / "slow.json").read_text(encoding="utf-8"))


def recorded(entry: dict[str, Any]) -> Recorded:
    lease = a_lease(
        entry["number"], tier=SlaTier(entry["tier"]), priority=entry["priority"], region=entry["region"]
    )
    samples = [
        Sampled(datetime.fromisoformat(sample["at"]), msgspec.convert(sample["reading"], Reading))
        for sample in entry["samples"]
    ]
    own: list[tuple[datetime, Detector, Symptom]] = []
    if "unfunded" in entry:
        warning = msgspec.convert(entry["unfunded"], FundingWarning, strict=False)
        own.append((warning.warned_at, Detector.UNFUNDED, funding_symptom(warning)))
    stop = entry.get("idle_stop_seconds")
    return Recorded(lease, samples, own, idle_stop=None if stop is None else timedelta(seconds=stop))


def played(rules: EnforcementRules) -> list[Decision]:
    incident = [recorded(entry) for entry in INCIDENT["leases"]]
    began, ended = (datetime.fromisoformat(INCIDENT[word]) for word in ("began", "ended"))
    return replay(incident, rules, began, ended)


def slowed(entry: dict[str, Any]) -> Recorded:
    """A lease of the second incident, whose samples are written as series: each lasts until the next one begins."""
    began, samples = datetime.fromisoformat(SLOW["began"]), []
    for second in range(0, 60 * SLOW["minutes"], 15):
        now = [series for series in entry["series"] if series["from"] <= second][-1]
        gpu = GpuReading(
            0, utilisation_percent=95, temperature_c=now.get("temperature"), throttle_reasons=now["throttle"]
        )
        server = ServerReading(
            8000,
            "vllm",
            kv_cache_bp=now.get("kv", 3_000),
            running=10,
            waiting=now.get("waiting", 0),
            generation_tokens_per_second=now["tokens"],
        )
        reading = Reading(source="nvml", gpus=(gpu,), servers=(server,))
        samples.append(Sampled(began + timedelta(seconds=second), reading))
    usual = Usual({int(batch): median for batch, median in SLOW["usual"].items()})
    return Recorded(a_lease(entry["number"], tier=SlaTier(entry["tier"])), samples, usual=usual)


def text(decisions: list[Decision]) -> str:
    return "".join(
        f"{decision.at:%H:%M:%S} lease {decision.lease_id.int} {decision.detector}: {decision.did}"
        f"{'' if decision.planned_at is None else f' for {decision.planned_at:%H:%M:%S}'}"
        f"{'' if decision.expires_at is None else f' until {decision.expires_at:%H:%M:%S}'}"
        f"{'' if decision.outcome is None else f' ({decision.outcome})'}: {decision.why}\n"
        for decision in decisions
    )


def test_a_recorded_incident_gives_the_same_decisions_byte_for_byte() -> None:
    found = text(played(RULES))
    golden.check(DECISIONS, found)
    assert text(played(RULES)) == found


def test_what_is_slow_is_checked_or_asked_for_smaller_batches_or_only_told_by_its_cause() -> None:
    began = datetime.fromisoformat(SLOW["began"])
    ended = began + timedelta(minutes=SLOW["minutes"])
    found = replay([slowed(entry) for entry in SLOW["leases"]], RULES, began, ended)
    golden.check(FOLDER / "slow_decisions.txt", text(found))
    throughput = [each for each in found if each.detector is Detector.THROUGHPUT_DEGRADATION]
    did = {
        number: [each.did for each in throughput if each.lease_id.int == number and each.did != "found"]
        for number in (1, 2, 3)
    }
    assert did[1] == ["notify", "check_machine", "closed"], (
        "once, although it was between its levels meanwhile"
    )
    assert did[2][:2] == ["notify", "smaller_batch"]
    assert set(did[2][2:-1]) == {"smaller_batch"}, "asked again while it lasts"
    assert did[3] == ["notify", "closed"], "nobody knows why"


def test_the_order_in_which_leases_were_recorded_changes_no_decision() -> None:
    INCIDENT["leases"].reverse()
    try:
        assert sorted(text(played(RULES)).splitlines()) == sorted(
            DECISIONS.read_text(encoding="utf-8").splitlines()
        )
    finally:
        INCIDENT["leases"].reverse()


def test_other_rules_can_be_tried_on_what_has_happened() -> None:
    deaf = parse_rules(TEXT.replace("watch_bp = 2000", "watch_bp = 10001"))
    assert Detector.KV_CACHE_GROWTH in {decision.detector for decision in played(RULES)}
    assert Detector.KV_CACHE_GROWTH not in {decision.detector for decision in played(deaf)}
