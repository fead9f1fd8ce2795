"""SQL for rows that a worker takes, holds for a while, and gives back. Every such table uses these statements.

A row is due at `due_at`. The worker that takes it stores a token of its own and the time until which it holds the
row. When a worker dies, its hold expires. A worker that is too late finds another token, or none, and discards its
result. Any number of replicas take work side by side, without a leader (docs/decisions/0001).

The query modules run the statements, with parameters such as `:now` and `:token`. The columns come from
`tables.marks.work`.
"""

from sqlalchemy import TextClause, text

FREE = "(work_until IS NULL OR work_until <= :now)"
"""No worker holds the row."""
HELD = "work_token = :token"
"""The row is still held by the worker with this token."""
GIVE_BACK = "work_token = NULL, work_until = NULL"
UNTRIED = "(deadline_at > :now OR tried_at IS NULL OR tried_at < deadline_at)"
"""The row was not tried since its deadline. What was, is no longer taken: see `domain/deadline.py`."""


def take(table: str, where: str, *, order: str, until: str = ":until") -> TextClause:
    """Hold up to `:limit` free rows until `until`; returns their ids, in their order. Rows locked by others are
    skipped.

    The rows are chosen in an array, which PostgreSQL computes once. A subquery of IN is a join, and some plans run it
    again for each row of the table: each time it skips what is updated already, and in the end all rows are taken.
    """
    return text(f"""
    WITH taken AS (
      UPDATE {table} SET work_token = :token, work_until = {until}
      WHERE id = ANY(ARRAY(
        SELECT id FROM {table} WHERE {where} AND {FREE} ORDER BY {order} LIMIT :limit FOR UPDATE SKIP LOCKED))
      RETURNING id
    ) SELECT id FROM taken ORDER BY id
    """)


def retry(table: str) -> TextClause:
    """Give a row back after a try that failed `:now`, due again at `:due_at`. Has no effect when the hold was lost."""
    return text(f"""
    UPDATE {table} SET tries = tries + 1, tried_at = :now, due_at = :due_at, {GIVE_BACK} WHERE id = :id AND {HELD}
    """)


def still_held(table: str) -> TextClause:
    """Lock a row if this worker still holds it; returns its id."""
    return text(f"SELECT id FROM {table} WHERE id = :id AND {HELD} FOR UPDATE")
