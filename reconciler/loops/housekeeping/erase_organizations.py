"""Erases the personal data of organizations that operators deleted, and destroys the keys of their secrets.

The public process may decide a deletion, and has no right to erase what this takes. One transaction erases everything
of one organization and stores when, so a crash leaves all of it or nothing.
"""

from datetime import timedelta
from functools import partial

from control_plane.db import organizations
from control_plane.domain.ids import OrganizationId
from control_plane.outcomes.organizations import erase
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "erase_organizations"
ERASED_PER_ACTIVATION_MAX = 20


async def activate(world: World) -> Report:
    async with world.db.reading() as connection:
        deleted = await organizations.unerased(connection, limit=ERASED_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(deleted))
    for organization_id in deleted:
        await each([organization_id], partial(_erase, world, report), report)
    report.more = len(deleted) == ERASED_PER_ACTIVATION_MAX and report.acted_on > 0
    return report


async def _erase(world: World, report: Report, organization_id: OrganizationId) -> None:
    async with world.db.transaction() as connection:
        report.count(
            await erase(
                connection,
                organization_id,
                destruction_id=world.new_id(),
                actor=world.actor(NAME),
                now=world.now(),
            )
        )


LOOP = Loop(NAME, timedelta(seconds=10), activate)
