"""What a new operator does first: credentials by the command line, offers, and what would be terminated, before it is.

Real processes: the command line, the API, the reconciler, and an emulated Lambda Cloud that checks its key and its rates.
"""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from providers.emulators.clouds.lambda_cloud import Terms
from tests.integration.cli.conftest import City, wait_until

pytestmark = pytest.mark.database
ACCOUNT = "lambda_cloud"
KEY = Terms().api_key
OFFERS_WITHIN_SECONDS = 60


def _patiently(send: Callable[[], httpx.Response]) -> Any:
    """The answer, asked for again while the provider throttles: the reconciler shares its limit."""
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(send())
        return answers[-1].status_code != httpx.codes.TOO_MANY_REQUESTS

    wait_until("the provider answers", answered)
    assert answers[-1].is_success, answers[-1].text
    return answers[-1].json()["data"]


def _left_behind(cloud: httpx.Client, installation: str) -> str:
    """A machine under a launch key of this installation that no record of it claims. Returns the provider's id."""
    key = {"name": "a", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7YdJh0mV7mQ1v7S1vJ0lQ8kqz5 a"}
    _patiently(lambda: cloud.post("/ssh-keys", json=key))
    order = {
        "region_name": "us-west-3",
        "instance_type_name": "gpu_1x_h100_pcie",
        "ssh_key_names": ["a"],
        "name": f"sp-{installation}-{7:032x}",
    }
    (ref,) = _patiently(lambda: cloud.post("/instance-operations/launch", json=order))["instance_ids"]
    return str(ref)


def test_a_new_account_has_offers_within_a_minute_and_shows_what_it_would_terminate_before_it_does(
    city: City,
) -> None:
    operator = city.operator
    with httpx.Client(base_url=city.lambda_cloud, headers={"Authorization": f"Bearer {KEY}"}) as cloud:

        def status() -> str:
            listed = _patiently(lambda: cloud.get("/instances"))
            return next((each["status"] for each in listed if each["id"] == ref), "gone")

        def orphan() -> dict[str, Any]:
            listed = city.answer("orphan", "list", **operator)["items"]
            return next((each for each in listed if each["provider_ref"] == ref), {})

        add = ("account", "add", ACCOUNT, "--setting", f"base_url={city.lambda_cloud}")
        assert "credentials_refused" in city.run(*add, stdin='api_key = "another"', code=1, **operator)
        ref = _left_behind(cloud, city.installation)
        begun = time.monotonic()
        assert KEY not in city.run(*add, stdin=f'api_key = "{KEY}"', **operator)

        def offered() -> bool:
            return any(each["provider"] == ACCOUNT for each in city.answer("offers", "--all")["items"])

        wait_until("there are offers", offered)
        assert time.monotonic() - begun < OFFERS_WITHIN_SECONDS
        wait_until("it is known what would be terminated", orphan)
        assert orphan()["terminate_asked_at"] is None
        assert "not armed" in city.run("account", "show", ACCOUNT, **operator)
        reason = ("--reason", "ticket 4711")
        city.run("account", "arm", ACCOUNT, *reason, "--yes", **operator)
        assert "armed since" in city.run("account", "show", ACCOUNT, **operator)
        assert status() in ("booting", "active"), "nothing is terminated that nobody has watched"
        city.run("orphan", "end", ACCOUNT, ref, *reason, "--yes", **operator)
        # Asked of us and not of the provider, which counts our calls as the account's.
        wait_until("it is terminated", lambda: not orphan())
        assert status() in ("terminating", "terminated", "gone")
        city.run("account", "drain", ACCOUNT, *reason, **operator)
