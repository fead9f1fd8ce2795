"""Until when a lease was used is one rule: the meter, the bill and the hold all follow it, and none has its own."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from uuid import UUID

import pytest

from control_plane.db.holds import Funded
from control_plane.db.usage import LeaseUsage, Metered
from control_plane.domain import metering
from control_plane.domain.admission import Standing
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.metering import HOUR, Use, UsedUntil, used_until
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState
from control_plane.domain.period import month_after, month_of
from control_plane.domain.sla import SlaTier
from control_plane.outcomes.funding import funding
from control_plane.services.billing import bill_lines
from reconciler.loops.money.meter_usage import intervals

# Full hours, so that the meter can close an interval at each of them.
READY = datetime(2026, 11, 20, 10, tzinfo=UTC)
NOW = READY + 4 * HOUR
MOMENTS = [None, *(READY + hours * HOUR for hours in range(5))]
PRICE = Nano(3_600)
"""One nano-dollar a second, on one GPU."""
STANDING = Standing(OrganizationState.ACTIVE, available_nano=Nano(0))
CASES = [
    Use(
        ready_at=READY,
        billed_until=billed,
        evidence_at=evidence,
        suspect_since=suspect,
        units=1,
        nano_per_unit_hour=PRICE,
        stopped_nano_per_unit_hour=PRICE,
        set_aside_nano=Nano(hours * 3_600),
        release_at=release,
    )
    for billed, evidence, suspect, hours, release in product(
        MOMENTS, MOMENTS, MOMENTS, (0, 2, 9), (None, READY + 2 * HOUR)
    )
]
LEASE, ORGANIZATION = LeaseId(UUID(int=1)), OrganizationId(UUID(int=2))


@dataclass(frozen=True)
class Answers:
    """How many seconds were used, as each of them has it."""

    metered: int
    billed: int
    held_for: int


def _answers(use: Use) -> Answers:
    known = asdict(use)
    metered = Metered(
        lease_id=LEASE,
        organization_id=ORGANIZATION,
        project_id=ProjectId(UUID(int=3)),
        metered_until=None,
        intervals=0,
        **known,
    )
    usage = LeaseUsage(
        id=LEASE,
        project_id=ProjectId(UUID(int=3)),
        project="default",
        name="training",
        sku="h100x1",
        sla=SlaTier.BRONZE,
        node_pool=None,
        metered_until=None,
        unit_seconds=0,
        gpu_count=1,
        amount_nano=Nano(0),
        stopped_unit_seconds=0,
        stopped_amount_nano=Nano(0),
        rest_unit_seconds=0,
        rest_amount_nano=Nano(0),
        **known,
    )
    funded = Funded(
        lease_id=LEASE,
        organization_id=ORGANIZATION,
        held_nano=use.set_aside_nano,
        posted_nano=Nano(0),
        warned=False,
        can_stop=False,
        kept_until=None,
        **known,
    )
    month = month_of(NOW)
    return Answers(
        metered=sum(interval.unit_seconds for interval in intervals(metered, NOW)),
        billed=sum(
            line.unrated_unit_seconds
            for line in bill_lines(usage, NOW, since=month, until=month_after(month))
        ),
        held_for=funding(funded, STANDING, NOW).unposted_nano,
    )


def _seconds(until: datetime) -> int:
    return int((until - READY).total_seconds())


def test_meter_and_bill_take_what_is_certain_and_the_hold_covers_what_may_be_billed() -> None:
    for use in CASES:
        used = used_until(use, NOW)
        certain, at_most = _seconds(used.certain), _seconds(used.at_most)
        assert _answers(use) == Answers(certain, certain, at_most), use


def test_nobody_computes_it_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = UsedUntil(READY + 7 * HOUR, READY + 9 * HOUR, ended=False)
    monkeypatch.setattr(metering, "used_until", lambda _use, _now: elsewhere)
    for use in CASES:
        assert _answers(use) == Answers(7 * 3_600, 7 * 3_600, 9 * 3_600), use
