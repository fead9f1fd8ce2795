"""The few forms that every screen is made of: a table, labelled facts, a heading, an indent."""

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Cell = str | Text


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = (),
    varying: Iterable[str] = (),
) -> Table:
    """A table without lines. The columns in `right` are aligned to the right, as numbers are.

    Where the screen is too narrow, text continues in the next line, and nothing is cut off. The columns in
    `right` and `whole` are never broken, because half an amount is a wrong amount. A column in `varying` is
    left out when it says the same in every row.
    """
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    drawn = [index for index, name in enumerate(columns) if name not in varying or _varies(cells, index)]
    made = _bare(header_style="dim")
    for index in drawn:
        name = columns[index]
        kept = name in right or name in whole
        made.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=kept,
            overflow="fold",
            min_width=max((_width(row[index]) for row in cells), default=0) if kept else None,
        )
    for row in cells:
        made.add_row(*(row[index] for index in drawn))
    return made


def _width(cell: Text) -> int:
    return max((line.cell_len for line in cell.split(allow_blank=True)), default=0)


def _varies(rows: Sequence[Sequence[Text]], column: int) -> bool:
    """Whether the rows differ in a column. A row of totals has nothing in it."""
    return len({row[column].plain for row in rows} - {""}) > 1


def facts(*pairs: tuple[str, str | Text | None]) -> RenderableType:
    """Lines with a label each; a line whose value is None is left out."""
    made = _bare(show_header=False)
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None:
            made.add_row(label, value)
    return indented(made)


def pairs(rows: Iterable[tuple[Cell, RenderableType]]) -> Table:
    """Rows of a mark and what belongs to it."""
    made = _bare(show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for mark, what in rows:
        made.add_row(mark, what)
    return made


def _bare(*, header_style: str = "none", show_header: bool = True) -> Table:
    return Table(
        box=None,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style=header_style,
        show_header=show_header,
    )


def indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2))


def heading(text: str, beside: str = "") -> Text:
    made = Text(text, style="bold")
    return made.append(f"  {beside}", style="not bold dim") if beside else made
