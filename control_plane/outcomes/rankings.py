"""Rankings whose facts are read for one request alone: of a quote, a lease that is created, a spare, a pool."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from control_plane.db import catalogue, offer_blocks, preemptions, proof_records
from control_plane.db.connection import Connection
from control_plane.domain.admission import Proposal
from control_plane.domain.block import in_force
from control_plane.domain.envelope import Envelope
from control_plane.domain.ids import AccountName
from control_plane.domain.lot import Lot, lots_of
from control_plane.domain.money import Nano
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Failure
from control_plane.domain.ranking import Ranking, rank
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Shape
from control_plane.outcomes.leases import unhealthy_accounts
from control_plane.outcomes.market import Market


async def ranking_of(connection: Connection, proposal: Proposal, market: Market, now: datetime) -> Ranking:
    """The offers that can serve a request now, as a placement would rank them, and the others with their reasons; none
    when nothing ever can.
    """
    price = market.price
    if price is None or market.unserved is not None:
        return Ranking((), ())
    return await _rank(
        connection,
        proposal.request,
        price.sku.shape,
        price.nano_per_hour,
        market.lots,
        envelopes=[applied.envelope for applied in proposal.envelopes],
        now=now,
        failures={},
        yielded=await preemptions.kept_offers(connection),
    )


async def ranking_to_order(
    connection: Connection,
    request: CapacityRequest,
    shape: Shape,
    nano_per_hour: Nano,
    *,
    accounts: Sequence[AccountName],
    now: datetime,
    failures: Mapping[str, Failure],
    envelopes: Sequence[Envelope] = (),
) -> Ranking:
    """The offers of some accounts at which a machine may be ordered now: none that is kept for a lease in need."""
    offers = await catalogue.offers_of_shape(connection, shape.gpu_model, shape.gpu_count, accounts=accounts)
    return await _rank(
        connection,
        request,
        shape,
        nano_per_hour,
        lots_of(offers),
        envelopes=envelopes,
        now=now,
        failures=failures,
        yielded={each.offer_key for each in await preemptions.kept(connection)},
    )


async def _rank(
    connection: Connection,
    request: CapacityRequest,
    shape: Shape,
    nano_per_hour: Nano,
    lots: Sequence[Lot],
    *,
    envelopes: Sequence[Envelope],
    now: datetime,
    failures: Mapping[str, Failure],
    yielded: Collection[str],
) -> Ranking:
    """Rank lots by what is known now of accounts, proofs and blocks."""
    return rank(
        request,
        shape,
        nano_per_hour,
        lots,
        envelopes=envelopes,
        failures=failures,
        unhealthy_accounts=await unhealthy_accounts(connection),
        disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
        blocks=in_force(await offer_blocks.in_force(connection, now=now), now),
        now=now,
        yielded=yielded,
    )
