"""Decisions of admission on the screen: every rule that was checked, with its figures."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import spaced
from control_plane.wire.admissions import RuleView

_MARKS = {"allowed": ("✓", "green"), "burst": ("!", "yellow"), "refused": ("✗", "red")}


def rule_table(rules: Sequence[RuleView]) -> Table:
    rows = [
        (
            Text(*_MARKS.get(rule.verdict, ("?", ""))),
            spaced(rule.rule) + (f" {rule.subject}" if rule.subject else ""),
            rule.level or rule.stage,
            rule.used or "",
            rule.wanted or "",
            rule.limit or "",
        )
        for rule in rules
    ]
    return table(("", "RULE", "FROM", "USED", "WANTED", "LIMIT"), rows)
