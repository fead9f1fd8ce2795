"""The table of docs/operating.md that says how long what is kept, against the constants that loops use."""

from datetime import timedelta
from pathlib import Path

from control_plane.api.sign_in import SIGN_IN_SECONDS
from control_plane.db.migrations.audit_triggers import KEPT_DAYS_MIN
from control_plane.domain.session import LASTS
from reconciler.loops.housekeeping import prune_records
from reconciler.loops.secrets import rotate_keys
from reconciler.worlds.audit import AUDIT_KEPT

PAGE = Path("docs/operating.md")
HEADING = "### What is kept for how long"
LIVES = {
    "answers stored for an Idempotency-Key": prune_records.ANSWERS_KEPT,
    "sessions": prune_records.SESSIONS_KEPT,
    "refresh tokens that were replaced": prune_records.REPLACED_TOKENS_KEPT,
    "terminals that waited to be signed in": prune_records.DEVICES_KEPT,
    "budgets of requests": prune_records.BUDGETS_KEPT,
    "the last report of a replica of a loop": prune_records.REPORTS_KEPT,
    "files of suppliers' invoices that were not imported": prune_records.UPLOADS_KEPT,
    "orphans that are gone": prune_records.ORPHANS_KEPT,
    "SSH certificates": prune_records.CERTIFICATES_KEPT,
    "kubeconfigs": prune_records.KUBECONFIGS_KEPT,
    "what machines printed (`lease console`)": prune_records.CONSOLES_KEPT,
    "quotes whose price was kept (`quote --keep`)": prune_records.QUOTES_KEPT,
    "lines of the audit log": AUDIT_KEPT,
    "data keys that no secret uses": rotate_keys.UNUSED_KEPT,
}


def _words(life: timedelta) -> str:
    minutes = int(life.total_seconds()) // 60
    count, unit = (
        (life.days, "day") if life.days else (minutes // 60, "hour") if minutes >= 60 else (minutes, "minute")
    )
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _rows() -> dict[str, tuple[str, str]]:
    """What is kept: for how long, and which loop deletes it."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n\n### ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {
        what.strip(): (life.strip(), loop.strip(" `")) for what, life, loop in rows[1:] if "---" not in what
    }


def test_the_page_on_operating_says_how_long_everything_is_kept_that_a_loop_deletes() -> None:
    rows = _rows()
    for what, life in LIVES.items():
        assert rows[what][0].startswith(_words(life)), f"{what}: {rows[what][0]} instead of {_words(life)}"
    assert f"never less than {KEPT_DAYS_MIN} days" in rows["lines of the audit log"][0]
    answers = rows["answers stored for an Idempotency-Key"][0]
    assert f"{prune_records.ANSWERS_MAX:,} of them or {prune_records.ANSWER_BYTES_MAX >> 20} MiB" in answers
    assert f"{SIGN_IN_SECONDS // 60} minutes" in rows["a sign-in that is under way in a browser"][0]
    assert f"{prune_records.DROPPED_PER_ACTIVATION_MAX:,} rows of a kind" in PAGE.read_text()


def test_a_replaced_token_is_known_for_as_long_as_its_session_lasts() -> None:
    assert prune_records.REPLACED_TOKENS_KEPT >= LASTS


def test_every_life_that_the_loop_has_is_on_the_page() -> None:
    kept = {value for name, value in vars(prune_records).items() if name.endswith("_KEPT")}
    assert kept <= set(LIVES.values())
    deleted = [what for what, (_, loop) in _rows().items() if loop == prune_records.NAME]
    assert set(deleted) == LIVES.keys() - {"lines of the audit log", "data keys that no secret uses"}
