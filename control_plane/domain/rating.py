"""The price of metered time, computed once per interval."""

from control_plane.domain.money import Nano, accrued


def charge(nano_per_unit_hour: Nano, unit_seconds_before: int, unit_seconds: int) -> Nano:
    """The price of an interval as the difference of two totals, so that the parts always add up."""
    total = accrued(nano_per_unit_hour, unit_seconds_before + unit_seconds)
    return Nano(total - accrued(nano_per_unit_hour, unit_seconds_before))
