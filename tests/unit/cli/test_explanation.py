"""How `splitplane why` tells attempts by their outcome, and who did what."""

from pathlib import Path

from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, Json, at
from tests.unit.cli.stand import Stand

SHOW = f"GET /v1/leases/{LEASE_ID}"


def _why(tmp_path: Path, **changes: object) -> str:
    known = {SHOW: answers.a_lease(), f"{SHOW}/explanation": answers.EXPLANATION | changes}
    return Stand(tmp_path, known).run("why", LEASE_ID).out


def _attempt(tmp_path: Path, **changes: object) -> list[str]:
    """The lines of an attempt's facts below its machine, without the space between."""
    attempt: Json = answers.EXPLANATION["attempts"][1] | changes
    text = _why(tmp_path, attempts=[attempt], reports=[], proofs=[])
    facts = text.partition("Attempt 2  ")[2].partition("\n\n")[0].splitlines()
    return [" ".join(line.split()) for line in facts[1:]]


def test_an_attempt_that_is_under_way_says_so(tmp_path: Path) -> None:
    under_way = {"outcome": None, "ended_at": None, "asked_at": None, "sighted_at": None, "step": "placed"}
    facts = _attempt(tmp_path, state="intended", **under_way)
    assert facts[0].endswith(", intended")
    assert facts[2:] == [
        "Ordered not yet",
        "Last step placed",
        "Outcome none yet; the attempt is under way",
    ]


def test_an_attempt_that_was_given_up_before_anything_was_ordered(tmp_path: Path) -> None:
    never = {"asked_at": None, "sighted_at": None, "step": "placed", "state": "gone"}
    facts = _attempt(tmp_path, outcome="abandoned", ended_at=at(seconds=20), **never)
    assert facts[2:] == [
        "Ordered never",
        "Last step placed",
        "Abandoned 2026-11-20 15:19:40 UTC (20 s ago)",
    ]


def test_a_machine_that_was_lost_after_its_customer_was_admitted_keeps_both(tmp_path: Path) -> None:
    facts = _attempt(tmp_path, fail_reason="vanished", fail_why="two complete lists miss it", state="gone")
    assert facts[-2:] == [
        "Admitted 2026-11-20 12:03:48 UTC (3 h 16 min ago)",
        "Lost later vanished: two complete lists miss it.",
    ]


def test_an_outcome_that_this_version_does_not_know_is_shown_as_it_is(tmp_path: Path) -> None:
    facts = _attempt(tmp_path, outcome="moved_away", ended_at=at(seconds=20))
    assert facts[-1].startswith("Moved away 2026-11-20")


def test_the_journal_says_who_did_it_in_which_role(tmp_path: Path) -> None:
    journal = [
        answers.a_line(1, 0, "released", "ready", "ending", **answers.BY_A_CUSTOMER),
        answers.a_line(2, 1, "released", "ready", "ending", **answers.BY_A_CUSTOMER | {"actor_kind": "operator"}),
        answers.a_line(3, 2, "released", "ready", "ending", actor_kind="operator", actor="administrator"),
        answers.a_line(4, 3, "machines_gone", "ending", "ended", actor="close_leases"),
    ]  # fmt: skip
    lines = " ".join(_why(tmp_path, journal=journal).partition("Journal")[2].split())
    for actor in (
        "(customer key_019aa0000000)",
        "(operator key_019aa0000000)",
        "(operator administrator)",
        "(close_leases)",
    ):
        assert actor in lines
