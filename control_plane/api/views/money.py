"""Amounts of money on the wire."""

from control_plane.domain.money import NANO_PER_CENT, Nano, usd
from control_plane.wire.common import Money


def money(amount: Nano) -> Money:
    return Money(usd(amount), amount)


def in_cents(cents: int) -> Money:
    return money(Nano(cents * NANO_PER_CENT))


def money_or_none(amount: int | None) -> Money | None:
    return None if amount is None else money(Nano(amount))
