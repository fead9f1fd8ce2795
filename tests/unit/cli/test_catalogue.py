"""Quotes on the command line."""

from pathlib import Path

import pytest

from tests.unit.cli.stand import Stand


@pytest.mark.parametrize("amount", ["cheap", "1.0000000001", "-", "1e3"])
def test_a_ceiling_that_is_no_amount_is_wrong_usage(amount: str, tmp_path: Path) -> None:
    shown = Stand(tmp_path, {}).run("quote", "h100x8", f"--max-price={amount}")
    assert (shown.code, "--max-price" in shown.err) == (2, True)
