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


def test_what_invoices_left_to_pay_is_named_where_there_is_any() -> None:
    assert "0.70 USD, which invoices left to pay" in _shown(Money("0.700000000", 700_000_000))
    assert "Due" not in _shown(NOTHING)
