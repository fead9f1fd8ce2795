"""Credit terms on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.services.credit_terms import CreditTerms
from control_plane.wire.credit_terms import CreditTermsView


def credit_terms_view(organization_id: OrganizationId, terms: CreditTerms) -> CreditTermsView:
    return CreditTermsView(
        organization_id=on_wire(Prefix.ORGANIZATION, organization_id),
        credit_limit=money(terms.limit_nano),
        payment_days=terms.payment_days,
        reason=terms.reason,
        changed_at=terms.changed_at,
        changed_by=terms.changed_by,
    )
