"""Customers of a stage reboot, stop and start the machines of their leases."""

from control_plane.db.lease_overviews import Overview
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.lease import Lease
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import Refused
from control_plane.services import powers
from tests.support.stage import CUSTOMER, Stage


async def ask(stage: Stage, lease: Lease, action: PowerAction) -> Overview | Refused:
    async with stage.api.db.transaction(lease.organization_id) as connection:
        return await powers.change(
            connection,
            stage.api,
            lease.organization_id,
            lease.id,
            action,
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )


async def asked(stage: Stage, lease: Lease, action: PowerAction) -> None:
    taken = await ask(stage, lease, action)
    assert isinstance(taken, Overview), taken
