"""Agreed prices on the screen."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, price, short_id, spaced
from control_plane.wire.price_agreements import PriceAgreementView


def agreement_page(agreement: PriceAgreementView, organization: str) -> RenderableType:
    stopped = agreement.stopped_price_per_unit_hour
    return Group(
        heading(f"Price of {agreement.sku} for {organization}", state(agreement, agreement.agreed_at)),
        facts(
            ("Agreement", agreement.id),
            ("Price", f"{price(agreement.price_per_unit_hour)} USD per unit and hour, {_kind(agreement)}"),
            ("Stopped", None if stopped is None else f"{price(stopped)} USD per unit and hour"),
            ("Region", agreement.region or "anywhere"),
            ("Tier", agreement.sla or "every tier"),
            ("From", absolute(agreement.valid_from)),
            ("Until", "it is ended" if agreement.valid_until is None else absolute(agreement.valid_until)),
            ("Reason", agreement.reason),
            ("By", agreement.agreed_by),
        ),
    )


def agreement_table(
    agreements: Sequence[PriceAgreementView], names: Mapping[str, str], now: datetime
) -> RenderableType:
    """`names` are those of organizations, by their ids."""
    if not agreements:
        return Text("No price was agreed on.")
    ids = [agreement.id for agreement in agreements]
    rows = [
        (
            short_id(agreement.id, ids),
            names.get(agreement.organization_id, agreement.organization_id),
            Text(agreement.sku, style="bold"),
            agreement.region or "anywhere",
            _kind(agreement) + ("" if agreement.sla is None else f", {agreement.sla}"),
            price(agreement.price_per_unit_hour),
            state(agreement, now),
        )
        for agreement in agreements
    ]
    columns = ("AGREEMENT", "CUSTOMER", "SKU", "REGION", "PURCHASE", "USD/UNIT-H", "IN FORCE")
    return table(columns, rows, right=("USD/UNIT-H",))


def state(agreement: PriceAgreementView, now: datetime) -> str:
    """When it is in force, in words."""
    until = agreement.valid_until
    if until is not None and until <= agreement.valid_from:
        return "withdrawn"
    if until is not None and until <= now:
        return f"until {until:%Y-%m-%d %H:%M}"
    if now < agreement.valid_from:
        return f"from {agreement.valid_from:%Y-%m-%d %H:%M}"
    return "now" if until is None else f"until {until:%Y-%m-%d %H:%M}"


def _kind(agreement: PriceAgreementView) -> str:
    return spaced(agreement.purchase)
