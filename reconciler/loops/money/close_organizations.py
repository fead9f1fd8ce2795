"""Closes the books of closing organizations: once every lease has ended, all usage is posted and nothing is held.

The closure itself ended the leases and refused the API keys (`control_plane/services/organization_states.py`). What is
left is waiting for evidence: providers that confirm the end of machines, and the loops that meter, rate and post. An
organization that waits for longer than `STUCK_AFTER` is an error in this loop's report, with what it waits for.
"""

from datetime import datetime, timedelta
from functools import partial

from control_plane.db import organizations
from control_plane.db.organizations import Closing
from control_plane.domain.ids import Prefix, on_wire
from control_plane.outcomes.organizations import settle
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "close_organizations"
LOOKED_AT_PER_ACTIVATION_MAX = 1_000
STUCK_AFTER = timedelta(hours=1)
"""A provider takes minutes to confirm the end of a machine; after this time somebody has to look."""


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        closing = await organizations.closing(connection, limit=LOOKED_AT_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(closing))
    for organization in closing:
        if organization.is_complete:
            await each([organization], partial(_settle, world, report, now), report)
        elif now - organization.since > STUCK_AFTER:
            report.errors.append(_stuck(organization, now))
    return report


async def _settle(world: World, report: Report, now: datetime, organization: Closing) -> None:
    async with world.db.transaction() as connection:
        report.count(await settle(connection, organization.id, actor=world.actor(NAME), now=now))


def _stuck(organization: Closing, now: datetime) -> str:
    waited = timedelta(seconds=int((now - organization.since).total_seconds()))
    return f"{on_wire(Prefix.ORGANIZATION, organization.id)} has been closing for {waited}: {organization}."


LOOP = Loop(NAME, timedelta(seconds=5), activate)
