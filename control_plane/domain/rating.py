"""The price of metered time, computed once per interval."""

from control_plane.domain.money import Nano, accrued


def charge(nano_per_gpu_hour: Nano, gpu_seconds_before: int, gpu_seconds: int) -> Nano:
    """The price of an interval as the difference of two totals, so that the parts always add up."""
    total = accrued(nano_per_gpu_hour, gpu_seconds_before + gpu_seconds)
    return Nano(total - accrued(nano_per_gpu_hour, gpu_seconds_before))
