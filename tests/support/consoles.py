"""Customers of a stage ask for the consoles of their machines."""

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.console import Console
from control_plane.domain.lease import Lease
from control_plane.domain.refusal import Refused
from control_plane.services import consoles
from control_plane.services.consoles import Shown
from tests.support.stage import Stage


async def ask(stage: Stage, lease: Lease) -> Console | Refused:
    async with stage.api.db.transaction(lease.organization_id) as connection:
        return await consoles.request(
            connection, stage.api, lease.organization_id, lease.id, reach=EVERYWHERE
        )


async def wanted(stage: Stage, lease: Lease) -> Console:
    asked = await ask(stage, lease)
    assert isinstance(asked, Console), asked
    return asked


async def shown(stage: Stage, console: Console) -> Shown | Refused:
    return await consoles.show(
        stage.api, console.organization_id, console.lease_id, console.id, reach=EVERYWHERE
    )
