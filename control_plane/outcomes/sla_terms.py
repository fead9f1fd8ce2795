"""Which terms a new lease gets."""

from datetime import datetime

from control_plane.db import sla_terms
from control_plane.db.connection import Connection
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier


async def promised(connection: Connection, request: CapacityRequest, now: datetime) -> int | Refused | None:
    """The version of the terms that a lease which is created now keeps; None when nothing is promised with it."""
    if request.purchase is PurchaseKind.SPOT:
        why = f"Nothing is promised with spot capacity, so it cannot be {request.sla}; ask for it on demand."
        return None if request.sla is SlaTier.BRONZE else Refused(RefusalCode.SLA_NOT_OFFERED, why)
    version = await sla_terms.version_of(connection, request.sla, now)
    if version is None and request.sla is not SlaTier.BRONZE:
        offered = [offer.terms.tier.value for offer in await sla_terms.in_force(connection, now)]
        named = f"choose one of {', '.join(offered)}" if offered else "none is offered now; leave it out"
        return Refused(RefusalCode.SLA_NOT_OFFERED, f"The tier {request.sla} is not offered; {named}.")
    return version
