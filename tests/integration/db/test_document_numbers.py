"""Numbers of documents have no gap and no double, whoever issues at once and whatever is rolled back."""

import asyncio

import pytest

from control_plane.db import document_numbers
from control_plane.db.engine import Database
from control_plane.domain.invoice import DocumentSeries
from control_plane.domain.period import MAIN_ISSUER
from tests.integration.db.sample import A, a_row, insert

pytestmark = pytest.mark.database
SERIES = (MAIN_ISSUER, DocumentSeries.INVOICE, 2026)


class _FailedError(Exception):
    pass


async def test_twenty_issues_at_once_with_failures_among_them_leave_no_gap(
    db: Database, api_db: Database
) -> None:
    async with db.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", platform=True))
    given: list[int] = []

    async def issue(turn: int) -> None:
        async with api_db.transaction(A) as connection:
            number = await document_numbers.take(connection, *SERIES) + 1
            await document_numbers.save(connection, *SERIES, number)
            if turn % 4 == 0:
                raise _FailedError
        given.append(number)

    outcomes = await asyncio.gather(*map(issue, range(20)), return_exceptions=True)
    assert sum(isinstance(outcome, _FailedError) for outcome in outcomes) == 5, outcomes
    assert sum(outcome is None for outcome in outcomes) == 15, outcomes
    assert sorted(given) == list(range(1, 16))
