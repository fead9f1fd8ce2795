"""Credit terms on the screen."""

from rich.console import Group, RenderableType

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import absolute, plural, rounded
from control_plane.wire.credit_terms import CreditTermsView


def terms_page(terms: CreditTermsView, organization: str) -> RenderableType:
    prepaid = terms.credit_limit.nano == 0
    return Group(
        heading(f"Credit terms of {organization}", "prepaid" if prepaid else "postpaid"),
        facts(
            ("Credit limit", f"{rounded(terms.credit_limit)} USD"),
            ("To be paid", f"{plural(terms.payment_days, 'day')} after an invoice is issued"),
            ("Reason", terms.reason),
            ("Set", f"{absolute(terms.changed_at)} by {terms.changed_by}"),
        ),
    )
