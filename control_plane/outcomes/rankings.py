"""The ranking of a request that is not stored as a lease: of a quote, and of a lease that is created for one."""

from datetime import datetime

from control_plane.db import offer_blocks, proof_records
from control_plane.db.connection import Connection
from control_plane.domain.admission import Proposal
from control_plane.domain.block import in_force
from control_plane.domain.placement import PROOF_RECORD_WINDOW
from control_plane.domain.ranking import Ranking, rank
from control_plane.outcomes.leases import unhealthy_accounts
from control_plane.outcomes.market import Market


async def ranking_of(connection: Connection, proposal: Proposal, market: Market, now: datetime) -> Ranking:
    """The offers that can serve a request now, and the others with their reasons; none when nothing ever can."""
    price = market.price
    if price is None or market.unserved is not None:
        return Ranking((), ())
    return rank(
        proposal.request,
        price.sku.shape,
        price.nano_per_hour,
        market.lots,
        envelopes=[applied.envelope for applied in proposal.envelopes],
        failures={},
        unhealthy_accounts=await unhealthy_accounts(connection),
        disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
        blocks=in_force(await offer_blocks.in_force(connection, now=now), now),
        now=now,
    )
