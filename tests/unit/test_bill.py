"""The lines of a bill: what is not yet billed belongs to the month in which it was used."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.db.usage import LeaseUsage
from control_plane.domain.ids import LeaseId, ProjectId
from control_plane.domain.money import Nano, accrued
from control_plane.domain.sla import SlaTier
from control_plane.services.billing import bill_lines

OCTOBER, NOVEMBER, DECEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11, 12))
PRICE = Nano(2_490_000_001)


def a_lease(**other: object) -> LeaseUsage:
    plain = {
        "id": LeaseId(UUID(int=1)),
        "name": "train",
        "project_id": ProjectId(UUID(int=2)),
        "project": "default",
        "sku": "h100x8",
        "sla": SlaTier.BRONZE,
        "gpu_count": 8,
        "node_pool": None,
        "ready_at": NOVEMBER - timedelta(hours=5),
        "units": 8,
        "nano_per_unit_hour": PRICE,
        "stopped_nano_per_unit_hour": PRICE,
        "billed_until": None,
        "evidence_at": NOVEMBER + timedelta(minutes=30),
        "suspect_since": None,
        "set_aside_nano": Nano(10**15),
        "release_at": None,
        "metered_until": None,
        "unit_seconds": 0,
        "amount_nano": Nano(0),
        "stopped_unit_seconds": 0,
        "stopped_amount_nano": Nano(0),
        "rest_unit_seconds": 0,
        "rest_amount_nano": Nano(0),
    }
    return LeaseUsage(**(plain | other))  # type: ignore[arg-type] # The values above have the types of the fields.


def _not_yet_billed(lease: LeaseUsage, since: datetime, until: datetime) -> tuple[int, int]:
    (line,) = bill_lines(lease, NOVEMBER + timedelta(minutes=31), since=since, until=until)
    return line.unrated_unit_seconds, line.unrated_nano


def test_what_is_not_yet_billed_is_divided_at_the_end_of_the_month() -> None:
    lease = a_lease()
    whole = 8 * (5 * 3_600 + 1_800)
    before, after = (_not_yet_billed(lease, *month) for month in ((OCTOBER, NOVEMBER), (NOVEMBER, DECEMBER)))
    assert (before[0], after[0]) == (8 * 5 * 3_600, 8 * 1_800)
    assert before[1] + after[1] == accrued(PRICE, whole)


def test_what_is_metered_is_billed_and_a_month_without_use_has_nothing_left() -> None:
    lease = a_lease(metered_until=NOVEMBER - timedelta(hours=1))
    assert _not_yet_billed(lease, OCTOBER, NOVEMBER)[0] == 8 * 3_600
    assert _not_yet_billed(a_lease(metered_until=NOVEMBER), OCTOBER, NOVEMBER) == (0, 0)
    assert _not_yet_billed(lease, DECEMBER, DECEMBER + timedelta(days=31)) == (0, 0)
