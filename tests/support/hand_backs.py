"""Customers who want another machine."""

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import Refused
from control_plane.services import repairs
from tests.support.stage import Stage


async def asked_for_another(stage: Stage, lease: Lease) -> None:
    """The customer of a lease wants its machine to be replaced."""
    async with stage.api.db.transaction(lease.organization_id) as connection:
        handed = await repairs.hand_back(
            connection, stage.api, lease.organization_id, lease.id, why="it is broken", reach=EVERYWHERE
        )
    assert not isinstance(handed, Refused), handed
