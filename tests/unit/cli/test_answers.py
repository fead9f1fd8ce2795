"""Answers of an older API: fields that were added later have a default."""

from typing import Any

import pytest

from control_plane.cli.answers import read
from control_plane.wire.catalogue import RejectedView, SkuView
from control_plane.wire.explanations import ExplanationView
from control_plane.wire.leases import LeaseView
from tests.unit.cli import answers


@pytest.mark.parametrize(
    ("kind", "answer", "added_later", "default"),
    [
        (SkuView, answers.SKUS["items"][1], "proof", "listed"),
        (RejectedView, answers.REJECTED[0] | {"proofs": ["pf_1"]}, "proofs", ()),
        (ExplanationView, answers.EXPLANATION, "proofs", ()),
    ],
)
def test_a_field_that_was_added_later_may_be_missing(
    kind: type[Any], answer: dict[str, Any], added_later: str, default: object
) -> None:
    older = {name: value for name, value in answer.items() if name != added_later}
    assert getattr(read(answer, kind).value, added_later) != default
    assert getattr(read(older, kind).value, added_later) == default


def test_a_lease_of_an_api_that_knows_no_proofs_demands_none() -> None:
    older = {name: value for name, value in answers.a_lease().items() if name != "proof"}
    proof = read(older, LeaseView).value.proof
    assert (proof.demanded, proof.tier, proof.id) == ("listed", "listed", None)


def test_a_cleaned_answer_has_no_control_characters_and_the_content_stays_as_it_came() -> None:
    answer = read(answers.a_lease(name="\x1b[2Jx"), LeaseView)
    assert answer.cleaned().name == "\N{REPLACEMENT CHARACTER}[2Jx"
    assert (answer.value.name, answer.content["name"]) == ("\x1b[2Jx", "\x1b[2Jx")
