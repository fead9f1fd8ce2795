"""Quotes: what a lease would cost and where it would be placed, without buying; and quotes whose price is kept."""

from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.db import quotes
from control_plane.db.connection import Connection
from control_plane.db.quotes import Overview
from control_plane.domain.access import Reach
from control_plane.domain.admission import Admitted, admit
from control_plane.domain.decision import NotAdmitted
from control_plane.domain.ids import OrganizationId, Prefix, QuoteId, on_wire
from control_plane.domain.price import Price
from control_plane.domain.quote import LASTS, KeptQuote, asked_for, differs
from control_plane.domain.ranking import Ranking
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.outcomes import sla_terms
from control_plane.outcomes.lease_orders import new_proposal
from control_plane.outcomes.market import market_of
from control_plane.outcomes.rankings import ranking_of
from control_plane.services.places import Place, place_of
from control_plane.world import World

__all__ = ["Overview"]  # For controllers and views, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class Quote:
    """What a lease would cost and where it would be placed, without buying."""

    place: Place
    request: CapacityRequest
    verdict: Admitted | NotAdmitted
    listed: Price | None
    """The price book's price; None when we do not sell the SKU."""
    price: Price | None
    """With the factor of a burst, where the lease would use one."""
    ranking: Ranking
    kept: KeptQuote | None = None
    """None unless it is kept."""


async def quote(
    world: World,
    organization_id: OrganizationId,
    request: CapacityRequest,
    *,
    project: str | None = None,
    environment: str | None = None,
    reach: Reach,
) -> Quote | Refused:
    """What a lease would cost, and whether it would be admitted in this project and environment, as by `create`."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        place = await place_of(connection, organization_id, project, environment, reach=reach)
        if isinstance(place, Refused):
            return place
        promised = await sla_terms.promised(connection, request, now)
        if isinstance(promised, Refused):
            return promised
        request = promised.request
        market = await market_of(connection, organization_id, request, now, cache=world.offers)
        proposal = await new_proposal(connection, place.of_leases, request, market, now, lock=False)
        ranking = await ranking_of(connection, proposal, market, now)
    verdict = admit(proposal)
    price = verdict.price if isinstance(verdict, Admitted) else market.price
    return Quote(place, request, verdict, market.price, price, ranking)


async def keep(connection: Connection, world: World, quote: Quote) -> Quote:
    """Keep the price of a quote, in the caller's transaction. One that no offer can serve is not kept."""
    price, now = quote.listed, world.now()
    if price is None or not quote.ranking.candidates:
        return quote
    project, environment, request = quote.place.project, quote.place.environment, quote.request
    kept = KeptQuote(
        id=QuoteId(world.new_id()),
        organization_id=project.organization_id,
        project_id=project.id,
        environment_id=environment.id,
        sku=request.sku,
        regions=request.regions,
        providers=request.providers,
        price_nano_per_hour_max=request.price_nano_per_hour_max,
        network_gbps_min=request.network_gbps_min,
        purchase=request.purchase,
        sla=request.sla,
        nano_per_unit_hour=price.nano_per_unit_hour,
        stopped_nano_per_unit_hour=price.stopped_nano,
        list_nano_per_unit_hour=price.listed_nano,
        price_book=price.book,
        price_agreement_id=price.agreement_id,
        committed_days=price.term_days,
        quoted_at=now,
        expires_at=now + LASTS,
    )
    await quotes.insert(connection, kept)
    return replace(quote, kept=kept)


async def show(
    world: World, organization_id: OrganizationId, quote_id: QuoteId, *, reach: Reach
) -> Overview | Refused:
    """A quote that was kept, until it is deleted."""
    async with world.db.reading(organization_id) as connection:
        found = await quotes.show(connection, organization_id, quote_id)
    if found is None or not reach.contains(found.quote.scope):
        return Refused(RefusalCode.NOT_FOUND, "There is no such quote, or no longer.")
    return found


@dataclass(frozen=True, slots=True)
class Quoted:
    """What a lease asks for, and where, that is created for a quote."""

    quote: KeptQuote
    request: CapacityRequest
    place: Place


async def quoted(
    connection: Connection,
    organization_id: OrganizationId,
    quote_id: QuoteId,
    request: CapacityRequest,
    *,
    project: str | None,
    environment: str | None,
    reach: Reach,
    now: datetime,
) -> Quoted | Refused:
    """What a lease for this quote asks for. What the request leaves out is the quote's."""
    kept = await quotes.get(connection, organization_id, quote_id)
    if kept is None:
        why = f"There is no quote {on_wire(Prefix.QUOTE, quote_id)}, or no longer; POST /v1/quotes makes one."
        return Refused(RefusalCode.QUOTE_UNKNOWN, why)
    asked = asked_for(kept, request, now)
    if isinstance(asked, Refused):
        return asked
    place = await place_of(
        connection,
        organization_id,
        project or on_wire(Prefix.PROJECT, kept.project_id),
        environment or on_wire(Prefix.ENVIRONMENT, kept.environment_id),
        reach=reach,
    )
    if isinstance(place, Refused):
        return place
    if place.project.id != kept.project_id:
        return differs(kept, "project", "another one")
    if place.environment.id != kept.environment_id:
        return differs(kept, "environment", "another one")
    return Quoted(kept, asked, place)
