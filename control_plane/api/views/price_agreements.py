"""Agreed prices on the wire."""

from control_plane.api.views.money import money, money_or_none
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.price_agreement import PriceAgreement
from control_plane.wire.price_agreements import PriceAgreementView


def price_agreement_view(agreement: PriceAgreement) -> PriceAgreementView:
    return PriceAgreementView(
        id=on_wire(Prefix.PRICE_AGREEMENT, agreement.id),
        organization_id=on_wire(Prefix.ORGANIZATION, agreement.organization_id),
        sku=agreement.sku,
        region=agreement.region,
        sla=None if agreement.sla is None else agreement.sla.value,
        purchase=agreement.purchase.value,
        price_per_unit_hour=money(agreement.nano_per_unit_hour),
        stopped_price_per_unit_hour=money_or_none(agreement.stopped_nano_per_unit_hour),
        valid_from=agreement.valid_from,
        valid_until=agreement.valid_until,
        agreed_at=agreement.agreed_at,
        agreed_by=agreement.agreed_by,
        reason=agreement.reason,
    )
