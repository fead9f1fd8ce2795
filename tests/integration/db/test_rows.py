"""Rows that say mostly what an earlier one said are read with what they have in common, made once."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.db.rows import Alike

pytestmark = pytest.mark.database
_STATEMENT = text("""
SELECT number, key, CASE WHEN row_number() OVER (PARTITION BY key) = 1 THEN alike END AS alike
FROM (
  SELECT number, record_send(alike) AS key, alike
  FROM (
    SELECT number, ROW(CAST(NULLIF(number % 2, 1) AS bigint), CAST(NULLIF(name, '-') AS text)) AS alike
    FROM unnest(CAST(:numbers AS bigint[]), CAST(:names AS text[])) AS given(number, name)
    OFFSET 0
  ) given
) given
ORDER BY number
""")


@dataclass(frozen=True, slots=True)
class Own:
    number: int


async def test_each_row_gets_what_was_made_of_its_own_columns_and_equal_rows_share_it(own: Database) -> None:
    made: list[tuple[object, ...]] = []

    def make(values: tuple[object, ...]) -> tuple[object, ...]:
        made.append(values)
        return values

    reader = Alike(Own, make, kept=100)

    async def read(numbers: Sequence[int], names: Sequence[str]) -> list[tuple[tuple[object, ...], Own]]:
        async with own.reading() as connection:
            return await reader.read(connection, _STATEMENT, numbers=list(numbers), names=list(names))

    first = [((None, "a"), Own(1)), ((0, "a"), Own(2)), ((None, "a"), Own(3)), ((0, None), Own(4))]
    assert await read((1, 2, 3, 4), "aaa-") == first
    assert sorted(made, key=str) == [(0, "a"), (0, None), (None, "a")]
    assert await read((5, 6, 8), "ab-") == [((None, "a"), Own(5)), ((0, "b"), Own(6)), ((0, None), Own(8))]
    assert made[3:] == [(0, "b")], "only what no earlier statement had"


async def test_what_was_made_is_forgotten_when_it_is_too_much(own: Database) -> None:
    made: list[tuple[object, ...]] = []
    reader = Alike(Own, made.append, kept=1)
    async with own.reading() as connection:
        for _ in range(2):
            await reader.read(connection, _STATEMENT, numbers=[1, 2], names=["a", "a"])
    assert len(made) == 4
