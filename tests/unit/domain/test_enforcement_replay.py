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
from control_plane.domain.reading import Reading
from control_plane.domain.sla import SlaTier
from control_plane.domain.throughput import Sampled
from reconciler.enforcement_rules import parse_rules
from tests.support import golden
from tests.support.enforcement import RULES, TEXT, a_lease

FOLDER = Path("tests/fixtures/enforcement")
INCIDENT: dict[str, Any] = json.loads((FOLDER / "incident.json").read_text(encoding="utf-8"))
DECISIONS = FOLDER / "incident_decisions.txt"


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
