"""Reads the figures of the business metrics: leases, machines, liabilities, orphans, accounts, money, credits
that wait, organizations, clusters, warm pools, repairs.

When the database does not answer, the metrics keep the last figures, and their age shows it.
"""

from datetime import timedelta

from control_plane.db import (
    agents,
    cluster_figures,
    figures,
    repair_figures,
    sla_credits,
    usage,
    warm_pool_figures,
)
from control_plane.domain import agent
from control_plane.domain.metering import SILENT_AFTER
from reconciler.figures import FIGURES, Figures
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "read_figures"


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        read = Figures(
            at=now,
            leases=await figures.leases(connection, now=now),
            unmetered=await usage.silent(connection, before=now - SILENT_AFTER),
            silent_agents=await agents.count_silent(connection, before=now - agent.SILENT_AFTER),
            machines=await figures.machines(connection),
            unclaimed=await figures.unclaimed(connection, now=now),
            accounts=await figures.accounts(connection, now=now),
            unrated=await figures.unrated(connection),
            undecided=await sla_credits.undecided_figures(connection),
            organizations=await figures.organizations(connection),
            clusters=await cluster_figures.clusters(connection, now=now),
            node_pools=await cluster_figures.node_pools(connection),
            warm_pools=await warm_pool_figures.pools(connection, now=now),
            repairs=await repair_figures.repairs(connection),
        )
    FIGURES.figures = read
    return Report(looked_at=sum(count.leases for count in read.leases))


LOOP = Loop(NAME, timedelta(seconds=15), activate)
