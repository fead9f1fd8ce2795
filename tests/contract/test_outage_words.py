"""What providers list machines as that do not run, and whose doing each word says that is (domain/outage.py)."""

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from control_plane.domain.listed_state import ListedState
from control_plane.domain.outage import CAUSES, CONSEQUENCES, Cause
from providers import aws_machines
from providers.listings import LAUNCH_KEY_TAG, state_of
from providers.registry import discovered

SHUT_DOWN_FROM_INSIDE: Mapping[str, tuple[str, ...]] = {
    "aws": ("stopping", "stopped"),
    "crusoe": ("STOPPED", "STATE_STOPPED", "SHUTOFF", "STATE_SHUTOFF"),
    "fake": (),
    "hyperstack": ("STOPPING", "SHUTOFF"),
    "lambda_cloud": ("unhealthy",),
    "local": ("failed",),
    "nebius": ("STOPPING", "STOPPED"),
    "shadeform": ("error",),
    "vast": ("stopped", "exited"),
    "verda": ("offline",),
}
"""What a provider may list a machine as on which somebody ran `poweroff`. Where no document tells, all of its words for
a machine that does not run."""
OF_THE_PROVIDER: Mapping[str, tuple[str, ...]] = {
    "hyperstack": ("ERROR",),
    "lambda_cloud": ("preempted",),
    "nebius": ("ERROR",),
    "vast": ("stopped/stopped", "exited/stopped"),
    "verda": ("error",),
}
"""Words that a shutdown from inside never leads to."""


def _states(name: str) -> Mapping[str, ListedState]:
    elsewhere = {"aws": "aws_machines", "nebius": "nebius_api.machines"}
    module = importlib.import_module(f"providers.{elsewhere.get(name, name)}")
    states: Mapping[str, ListedState] = module.STATES
    return states


def test_no_word_that_a_shutdown_from_inside_leads_to_counts_as_a_failure_of_the_providers() -> None:
    assert sorted(SHUT_DOWN_FROM_INSIDE) == sorted(discovered()), "each provider has its words here"
    for name, words in SHUT_DOWN_FROM_INSIDE.items():
        for word in words:
            cause = CAUSES[state_of(word, _states(name))]
            assert not CONSEQUENCES[cause].counts, f"{name}: {word}"


def test_what_only_the_provider_can_cause_costs_nothing_and_counts() -> None:
    for name, words in OF_THE_PROVIDER.items():
        for word in words:
            assert CAUSES[state_of(word, _states(name))] is Cause.PROVIDER, f"{name}: {word}"


def test_what_is_not_billed_is_never_the_customers_doing_and_what_counts_is_never_billed() -> None:
    for cause, consequence in CONSEQUENCES.items():
        assert not (consequence.billed and consequence.counts), cause
    assert CONSEQUENCES[Cause.CUSTOMER].billed


@pytest.mark.parametrize(
    ("reason", "state", "word"),
    [
        ("Client.InstanceInitiatedShutdown", ListedState.STOPPED, "stopped"),
        ("Client.UserInitiatedShutdown", ListedState.STOPPED, "stopped"),
        (None, ListedState.STOPPED, "stopped"),
        ("Server.ScheduledStop", ListedState.STOPPED_BY_PROVIDER, "stopped/Server.ScheduledStop"),
        ("Server.InternalError", ListedState.STOPPED_BY_PROVIDER, "stopped/Server.InternalError"),
    ],
)
def test_aws_says_who_stopped_a_machine(reason: str | None, state: ListedState, word: str) -> None:
    machine: dict[str, Any] = {
        "InstanceId": "i-1",
        "State": {"Name": "stopped"},
        "Tags": [{"Key": LAUNCH_KEY_TAG, "Value": "sp-0a1b2c3d-00000000000000000000000000000001"}],
    }
    if reason is not None:
        machine["StateReason"] = {"Code": reason, "Message": "..."}
    page, _ = aws_machines.machines("us-east-1", {"Reservations": [{"Instances": [machine]}]})
    (found,) = page.items
    assert (found.state, found.native_status) == (state, word)
    running, _ = aws_machines.machines(
        "us-east-1", {"Reservations": [{"Instances": [machine | {"State": {"Name": "running"}}]}]}
    )
    assert running.items[0].native_status == "running", "the reason of the last stop may still be there"
