"""A word that is nearly right gets the right one: commands, options, values, SKUs and names."""

from pathlib import Path

import httpx

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import a_lease
from tests.unit.cli.stand import Answer, Stand

KNOWN: dict[str, Answer] = {
    "GET /v1/leases": {"items": [a_lease()], "next_cursor": None},
    "GET /v1/ssh-keys": answers.SSH_KEYS,
    "GET /v1/api-keys": answers.API_KEYS,
    "GET /v1/operator/organizations": answers.ORGANIZATIONS,
    "GET /v1/skus": answers.SKUS,
    "GET /v1/offers": answers.offers(cost=False),
    "POST /v1/leases": httpx.Response(
        422, json={"code": "sku_unknown", "detail": "We do not sell 'h100x9'."}
    ),
    "POST /v1/quotes": answers.QUOTE
    | {"verdict": {"admitted": False, "code": "sku_unknown", "why": "We do not sell 'h100x9'."}},
}
NEARLY = {
    "leese list": (2, "lease"),
    "lease lst": (2, "list"),
    "lease list --stat ready": (2, "--state"),
    "lease list --state redy": (2, "ready"),
    "lease create h100x8 --regoin eu": (2, "--region"),
    "skus --jsno": (2, "--json"),
    "lease show trian-1": (1, "train-1"),
    "lease create h100x9": (1, "h100x8"),
    "quote h100x9": (1, "h100x8"),
    "offers --sku h100-x8": (0, "h100x8"),
    "lease create h100x8 --ssh-key labtop": (1, "laptop"),
    "ssh-key delete labtop": (1, "laptop"),
    "api-key revoke first-key --yes": (1, "first key"),
    "organization show frehs": (1, "fresh"),
}


def test_the_nearest_word_is_named(tmp_path: Path) -> None:
    for command, (code, word) in NEARLY.items():
        with case(command):
            shown = Stand(tmp_path, KNOWN).run(*command.split())
            assert (shown.code, f"Did you mean '{word}'?" in shown.err) == (code, True), shown.err


def test_dashes_make_no_two_options_alike(tmp_path: Path) -> None:
    for command, remark in (
        ("--json lease list", "unrecognized arguments: --json. The options of a command follow it."),
        ("lease list --limit 3", "unrecognized arguments: --limit 3.\n"),
        ("repair return mc_1 --yes", "unrecognized arguments: --yes. This command does not ask.\n"),
    ):
        with case(command):
            assert remark in Stand(tmp_path, {}).run(*command.split()).err


def test_a_word_that_is_like_none_gets_the_choices(tmp_path: Path) -> None:
    shown = Stand(tmp_path, KNOWN).run("lease", "frobnicate")
    assert "Did you mean" not in shown.err
    assert "no such command: 'frobnicate'. Choose from: create, watch, list" in shown.err


def test_who_names_no_command_reads_which_there_are(tmp_path: Path) -> None:
    for words, command in (((), "    lease  "), (("lease",), "    release  ")):
        with case(words):
            shown = Stand(tmp_path, {}).run(*words)
            assert (shown.code, command in shown.err, shown.out) == (2, True, ""), shown.err
            assert "error: usage: a command is missing.\nSee: splitplane" in shown.err


def test_a_suggestion_of_the_api_is_not_repeated(tmp_path: Path) -> None:
    refused = httpx.Response(422, json={"code": "sku_unknown", "detail": "Did you mean `h100x8`?"})
    shown = Stand(tmp_path, KNOWN | {"POST /v1/leases": refused}).run("lease", "create", "h100x9")
    assert shown.err.count("Did you mean") == 1


def test_what_a_request_must_have_and_has_not_is_a_sentence_and_nothing_is_sent(tmp_path: Path) -> None:
    customers = {"GET /v1/operator/organizations": answers.ORGANIZATIONS}
    for command, sentence in (
        ("lease create h100x1 --auto-release-spend 0", "must have a `spend_usd` of more than zero."),
        ("finance credit fresh 0 --reason ticket --yes", "must have an `amount_usd` of more than zero."),
    ):
        stand = Stand(tmp_path, customers)
        shown = stand.run(*command.split())
        assert (shown.code, shown.err.splitlines()[0]) == (2, f"error: usage: The request {sentence}")
        assert not [request for request in stand.requests if request.method != "GET"]
