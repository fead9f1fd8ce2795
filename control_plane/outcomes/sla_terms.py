"""Which terms a new lease gets, and the priority that comes with them."""

from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.db import sla_terms
from control_plane.db.connection import Connection
from control_plane.domain.purchase import TAKEN_BACK, PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import PRIORITY_DEFAULT, CapacityRequest
from control_plane.domain.sla import SlaTier


@dataclass(frozen=True, slots=True)
class Promised:
    """What a lease that is created now keeps."""

    version: int | None
    """The version of the terms of its tier; None when nothing is promised."""
    request: CapacityRequest
    """What was asked for, with the priority of the tier unless another one was."""


async def promised(connection: Connection, request: CapacityRequest, now: datetime) -> Promised | Refused:
    """What is promised with a lease for this request, or why its tier cannot be had."""
    if request.purchase in TAKEN_BACK:
        what = "spot capacity" if request.purchase is PurchaseKind.SPOT else "an interruptible lease"
        why = f"Nothing is promised with {what}, so it cannot be {request.sla}; ask for it on demand."
        bronze = request.sla is SlaTier.BRONZE
        return Promised(None, request) if bronze else Refused(RefusalCode.SLA_NOT_OFFERED, why)
    offers = {offer.terms.tier: offer for offer in await sla_terms.in_force(connection, now)}
    offer = offers.get(request.sla)
    if offer is None and request.sla is not SlaTier.BRONZE:
        named = f"choose one of {', '.join(offers)}" if offers else "none is offered now; leave it out"
        return Refused(RefusalCode.SLA_NOT_OFFERED, f"The tier {request.sla} is not offered; {named}.")
    if offer is None:
        return Promised(None, request)
    if request.priority == PRIORITY_DEFAULT:
        request = replace(request, priority=offer.terms.priority)
    return Promised(offer.version, request)
