"""Decisions of admission on the screen: every rule that was checked, with its figures."""

import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import exact_usd, spaced
from control_plane.wire.admissions import RuleView

_AMOUNT = re.compile(r"-?[0-9]+\.[0-9]{9}")
"""In US dollars: of all figures, these alone have nine decimal places."""
_MARKS = {"allowed": ("✓", "green"), "burst": ("!", "yellow"), "refused": ("✗", "red")}


def rule_table(rules: Sequence[RuleView]) -> Table:
    rows = [
        (
            Text(*_MARKS.get(rule.verdict, ("?", ""))),
            spaced(rule.rule) + (f" {rule.subject}" if rule.subject else ""),
            rule.level or rule.stage,
            _figure(rule.used),
            _figure(rule.wanted),
            _figure(rule.limit),
        )
        for rule in rules
    ]
    return table(("", "RULE", "FROM", "USED", "WANTED", "LIMIT"), rows)


def _figure(text: str | None) -> str:
    """A figure of a rule, with its unit where it is money."""
    if text is None or not _AMOUNT.fullmatch(text):
        return text or ""
    return f"{exact_usd(int(text.replace('.', '')))} USD"
