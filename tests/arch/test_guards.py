"""docs/guards.md against the tree: every test and every file that the page names exists."""

import re
from pathlib import Path

from tests.arch.tree import sources

PAGE = Path("docs/guards.md")
TEST_COLUMN = 2


def _words(sentence: str) -> str:
    """A sentence as the name of a test spells it: the case in brackets and apostrophes left out."""
    bare = re.sub(r"\[.*?\]", "", sentence).replace("'", "").lower()
    return "_".join(re.findall(r"[a-z0-9]+", bare))


def _rows() -> list[list[str]]:
    """The cells of every row, without headings and rulers."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [row for row in cells if row[TEST_COLUMN] not in ("Test that failed", "Test", "---")]


def _names_of_tests() -> set[str]:
    found = {name.name for source in sources("tests") for name in source.functions()}
    return {name.removeprefix("test_") for name in found if name.startswith("test_")}


def test_every_test_that_the_page_of_guards_names_exists() -> None:
    rows, known = _rows(), _names_of_tests()
    assert len(rows) > 100
    named = [sentence for row in rows for sentence in row[TEST_COLUMN].split(";")]
    assert [sentence.strip() for sentence in named if _words(sentence) not in known] == []


def test_every_file_that_the_page_of_guards_names_exists() -> None:
    named = re.findall(r"`([\w/]+/(?:\w+\.py)?)`", PAGE.read_text())
    assert len(named) > 100
    assert [path for path in named if not Path(path).exists()] == []


def test_every_row_of_the_page_of_guards_has_the_cells_of_its_heading() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    assert len(tables) > 10
    cells = [[row.count("|") - row.count("\\|") for row in table.splitlines()] for table in tables]
    assert [table for table, counts in zip(tables, cells, strict=True) if len(set(counts)) != 1] == []
