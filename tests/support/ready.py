"""Leases that are ready, as most stories begin."""

from control_plane.domain.lease import Lease
from tests.support.stage import Stage


async def ready_leases(stage: Stage, count: int, *, seconds: float) -> list[Lease]:
    """Leases of one organization that have been ready for these seconds: after a minute or two, their agents report."""
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(count)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(seconds, step=20)
    return leases
