"""Offers and quotes on the command line."""

import json
from pathlib import Path

import pytest

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand


@pytest.mark.parametrize("amount", ["cheap", "1.0000000001", "-", "1e3"])
def test_a_ceiling_that_is_no_amount_is_wrong_usage(amount: str, tmp_path: Path) -> None:
    shown = Stand(tmp_path, {}).run("quote", "h100x8", f"--max-price={amount}")
    assert (shown.code, "--max-price" in shown.err) == (2, True)


def test_a_kept_quote_is_shown_by_its_id_alone(tmp_path: Path) -> None:
    kept = answers.KEPT_QUOTE
    path = f"GET /v1/quotes/{kept['id']}"
    shown = Stand(tmp_path, {path: kept}).run("quote", kept["id"])
    assert (shown.code, f"--quote {kept['id']}" in shown.out) == (0, True)
    expired = Stand(tmp_path, {path: kept | {"expired": True}}).run("quote", kept["id"])
    assert "Expired" in expired.out
    assert "--quote" not in expired.out
    for option in (
        ["--region", "eu"],
        ["--keep"],
        ["--spot"],
        ["--max-price", "3"],
        ["--min-network", "400"],
    ):
        with case(option):
            refused = Stand(tmp_path, {}).run("quote", kept["id"], *option)
            assert (refused.code, "never changes" in refused.err) == (2, True)


def test_the_network_of_a_quote_and_of_a_lease_is_in_the_request(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"POST /v1/quotes": answers.QUOTE})
    stand.run("quote", "h100x8", "--min-network", "400")
    assert json.loads(stand.requests[-1].content)["network_gbps_min"] == 400


def _keys(folder: Path, *options: str) -> list[str]:
    known: dict[str, Answer] = {"GET /v1/offers": answers.offers(cost=False)}
    shown = Stand(folder, known).run("offers", *options, "--json")
    assert shown.code == 0
    return [
        offer["key"].partition("/")[0] + " " + offer["region"] for offer in json.loads(shown.out)["items"]
    ]


def test_offers_are_those_that_can_be_had_and_fit(tmp_path: Path) -> None:
    in_stock = ["lambda_cloud us-east-1", "local eu-north-1", "aws us-east-1"]
    for options, expected in (
        ("", in_stock),
        ("--available", in_stock),
        ("--all", [in_stock[0], "lambda_cloud eu-central-1", *in_stock[1:], "hyperstack us-west-1"]),
        ("--region eu", [in_stock[1]]),
        ("--region eu --all", ["lambda_cloud eu-central-1", in_stock[1]]),
        ("--region us-east-1 --region eu", in_stock),
        ("--region e", []),
        ("--provider local", [in_stock[1]]),
        ("--provider local --provider lambda_cloud", in_stock[:2]),
        ("--sku h100x8", in_stock),
        ("--sku h100x1", []),
        ("--max-price 23.92", in_stock),
        ("--price-max 23.919999999", [in_stock[2]]),
        ("--max-price 30 --all", [in_stock[0], "lambda_cloud eu-central-1", *in_stock[1:]]),
    ):
        with case(options):
            assert _keys(tmp_path, *options.split()) == expected


def test_a_filter_that_no_offer_fits_is_named(tmp_path: Path) -> None:
    known: dict[str, Answer] = {"GET /v1/offers": answers.offers(cost=False)}
    for options, remark in (
        (
            "--region mars",
            "No offer is in 'mars'. There are: eu-central-1, eu-north-1, us-east-1, us-west-1.",
        ),
        ("--region us-east-2", "No offer is in 'us-east-2'. Did you mean 'us-east-1'?"),
        ("--provider lamda_cloud", "No offer is of 'lamda_cloud'. Did you mean 'lambda_cloud'?"),
        ("--sku nothing", "No provider offers 'nothing'. There are: h100x8"),
    ):
        with case(options):
            assert remark in Stand(tmp_path, known).run("offers", *options.split()).err
    assert Stand(tmp_path, known).run("offers", "--region", "eu", "--provider", "local").err == ""


def test_a_gpu_and_a_network_are_asked_of_the_api(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/offers": answers.offers(cost=False)})
    stand.run("offers", "--gpu", "h100-sxm-80gb", "--min-network", "100")
    assert dict(stand.requests[0].url.params) | {"limit": ""} == {
        "gpu_model": "h100-sxm-80gb",
        "network_gbps_min": "100",
        "limit": "",
    }


def test_available_and_all_exclude_each_other_and_a_price_is_an_amount(tmp_path: Path) -> None:
    for options in ("--available --all", "--max-price cheap"):
        stand = Stand(tmp_path, {})
        assert (stand.run("offers", *options.split()).code, stand.requests) == (2, [])
