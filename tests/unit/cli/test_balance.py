"""What the screen of a balance says."""

import io

from rich.console import Console

from control_plane.cli.render.balance import balance_page
from control_plane.wire.balance import BalanceView
from control_plane.wire.common import Money

NOTHING = Money("0.000000000", 0)


def _shown(due: Money) -> str:
    balance = BalanceView(NOTHING, NOTHING, NOTHING, due, 0, NOTHING, None, NOTHING)
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(balance_page(balance))
    return console.export_text()


def test_what_was_paid_too_much_is_not_said_to_be_due() -> None:
    overpaid = _shown(Money("-0.700000000", -700_000_000))
    assert "Overpaid" in overpaid
    assert "  0.70 USD on invoices" in overpaid
    assert "Due" not in overpaid
    assert "0.70 USD, which invoices left to pay" in _shown(Money("0.700000000", 700_000_000))
    assert "Due" not in _shown(NOTHING)
