"""Rows that a worker takes, keeps for a while, and gives back: the one place where that is written.

A row is due at `due_at`. Whoever takes it writes a token of its own and until when it holds the row. A worker
that dies gives nothing back: its hold runs out. One that comes too late finds another token, or none, and drops
its result. Any number of replicas take work side by side, without a leader (docs/decisions/0001).

These are statements for the query modules, with `:now`, `:token` and the like as parameters; the table's columns
come from `tables.marks.work`.
"""

from sqlalchemy import TextClause, text

FREE = "(work_until IS NULL OR work_until <= :now)"
"""Nobody holds the row."""
HELD = "work_token = :token"
"""The row is still held by the worker with this token."""
GIVE_BACK = "work_token = NULL, work_until = NULL"


def take(table: str, where: str, *, order: str, until: str = ":until") -> TextClause:
    """Hold up to `:limit` free rows until `until`; answers their ids. Rows in other hands are skipped."""
    return text(f"""
    UPDATE {table} SET work_token = :token, work_until = {until}
    WHERE id IN (
      SELECT id FROM {table} WHERE {where} AND {FREE} ORDER BY {order} LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING id
    """)


def retry(table: str) -> TextClause:
    """Give a row back after a failed try, due again at `:due_at`. Writes nothing when the hold was lost."""
    return text(f"""
    UPDATE {table} SET tries = tries + 1, due_at = :due_at, {GIVE_BACK} WHERE id = :id AND {HELD}
    """)


def postpone(table: str) -> TextClause:
    """Give a row back, due again at `:due_at`, without counting a failed try."""
    return text(f"UPDATE {table} SET due_at = :due_at, {GIVE_BACK} WHERE id = :id AND {HELD}")


def still_held(table: str) -> TextClause:
    """Lock a row if this worker still holds it; answers its id."""
    return text(f"SELECT id FROM {table} WHERE id = :id AND {HELD} FOR UPDATE")
