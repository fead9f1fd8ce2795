"""Preemptions on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import both, sentence, spaced
from control_plane.wire.preemptions import PreemptionDecisionView, PreemptionSwitchView, PreemptionView


def preemptions_pages(preemptions: Sequence[PreemptionView], now: datetime) -> RenderableType:
    if not preemptions:
        return Text("No lease yields its machine to another one.")
    parts: list[RenderableType] = []
    for preemption in preemptions:
        parts += [
            heading(preemption.id, spaced(preemption.state)),
            facts(
                ("Lease", preemption.lease_id),
                ("Machine", preemption.machine_id),
                ("For lease", preemption.for_lease_id),
                ("Why", sentence(preemption.why)),
                ("Harm", f"{preemption.harm_gpu_seconds:,} GPU-seconds"),
                ("Notified", both(preemption.notified_at, now)),
                ("Takes back", None if preemption.interrupted_at else both(preemption.interrupt_at, now)),
                ("Taken back", both(preemption.interrupted_at, now)),
                ("In its place", preemption.ordered_machine_id),
                ("Over", both(preemption.closed_at, now)),
            ),
            Text(),
        ]
    return Group(*parts[:-1])


def decisions_pages(decisions: Sequence[PreemptionDecisionView], now: datetime) -> RenderableType:
    if not decisions:
        return Text("Nothing was decided: no lease with a promise waited for capacity.")
    parts: list[RenderableType] = []
    for decision in decisions:
        parts += [
            heading(decision.for_lease_id, spaced(decision.decision)),
            facts(
                ("Decided", both(decision.at, now)),
                ("Why", sentence(decision.why)),
                ("Yields", decision.lease_id),
                ("Tier", decision.tier),
                ("Promised by", both(decision.deadline, now)),
                ("It waits", decision.waiting_why),
            ),
            *_considered(decision),
            Text(),
        ]
    return Group(*parts[:-1])


def _considered(decision: PreemptionDecisionView) -> list[RenderableType]:
    """The leases that were looked at, each with what speaks for it."""
    if not decision.considered:
        return []
    lines: list[RenderableType] = [Text(), Text("  Interruptible leases:", style="dim")]
    for each in decision.considered:
        lines += [
            Text(f"  {each.lease_id}  priority {each.priority}, harm {each.harm_gpu_seconds:,} GPU-seconds"),
            Text(f"    {each.why or 'It could yield its machine.'}", style="yellow" if each.why else "green"),
        ]
    return lines


def switch_page(switch: PreemptionSwitchView, now: datetime) -> RenderableType:
    armed = Text("armed", style="green") if switch.armed else Text("not armed: a dry run", style="yellow")
    return facts(
        ("Preemption", armed),
        ("Decided", both(switch.at, now)),
        ("By", switch.switched_by),
        ("Why", switch.reason),
    )
