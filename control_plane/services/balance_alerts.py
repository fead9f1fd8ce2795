"""What customers want to be warned of: their balance and their monthly budget, and the record of the warnings."""

from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.db import balance_alerts
from control_plane.db.balance_alerts import Recorded
from control_plane.db.connection import Connection
from control_plane.domain.balance_alert import BalanceAlerts, Funds, reached_percent, threshold
from control_plane.domain.exhaustion import BalanceState
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.period import month_of
from control_plane.world import World

__all__ = ["Recorded"]  # For controllers, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class ShownAlerts:
    """What an organization is warned of, and where its balance and its budget stand."""

    alerts: BalanceAlerts
    funds: Funds
    state: BalanceState
    warning: str | None
    """What the customer was told last; None while the balance is above the threshold."""

    @property
    def threshold_nano(self) -> Nano:
        return threshold(self.alerts, self.funds)

    @property
    def reached_percent(self) -> int:
        return reached_percent(self.alerts, self.funds)


async def show(world: World, organization_id: OrganizationId) -> ShownAlerts:
    async with world.db.reading(organization_id) as connection:
        return await _shown(connection, world, organization_id)


async def put(
    world: World, organization_id: OrganizationId, wanted: BalanceAlerts, *, by: str
) -> ShownAlerts:
    """Replace what an organization is warned of. The loop `watch_balances` looks at its balance within seconds."""
    async with world.db.transaction(organization_id) as connection:
        await balance_alerts.set_alerts(connection, organization_id, wanted, now=world.now(), by=by)
        return await _shown(connection, world, organization_id)


async def _shown(connection: Connection, world: World, organization_id: OrganizationId) -> ShownAlerts:
    stored, now = await balance_alerts.state(connection, organization_id), world.now()
    since = now if stored is None else stored.changed_at
    return ShownAlerts(
        await balance_alerts.alerts(connection, organization_id),
        await balance_alerts.funds(connection, organization_id, month=month_of(now), since=since),
        BalanceState.FUNDED if stored is None else stored.state,
        None if stored is None else stored.why,
    )


async def page(
    world: World, organization_id: OrganizationId, *, before: int | None, limit: int
) -> Sequence[Recorded]:
    """What an organization was told of its balance, newest first."""
    async with world.db.reading(organization_id) as connection:
        return await balance_alerts.page(connection, organization_id, before=before, limit=limit)
