"""Spot machines of AWS: what is ordered, what a refusal means, and which words are evictions."""

from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import httpx
import pytest

from control_plane.domain.ids import LaunchKey
from control_plane.domain.money import Nano
from providers.aws_spot import eviction_state, latest_prices, market_options
from providers.base import (
    EvictionState,
    ListedState,
    NoCapacity,
    OrderRefused,
    QuotaReached,
    Rejected,
    Unauthorized,
    Unavailable,
)
from tests.contract.clouds.aws import EmulatedAws
from tests.unit.providers.test_aws import Requests, failure, refusal

WORDS = {
    EvictionState.ANNOUNCED: {"marked-for-termination"},
    EvictionState.TAKEN: {
        "instance-terminated-by-price",
        "instance-terminated-no-capacity",
        "instance-terminated-capacity-oversubscribed",
        "instance-terminated-launch-group-constraint",
        "instance-terminated-by-experiment",
    },
    None: {
        *("fulfilled", "pending-evaluation", "capacity-not-available", "price-too-low", "marked-for-stop"),
        *("instance-terminated-by-user", "instance-terminated-by-schedule", "instance-terminated-by-service"),
        *(
            "request-canceled-and-instance-running",
            "canceled-before-fulfillment",
            "system-error",
            "daydreaming",
        ),
    },
}


def _answered(answer: httpx.Response, _: dict[str, str]) -> httpx.Response:
    return answer


@pytest.fixture
async def cloud() -> Any:
    made = EmulatedAws()
    yield made
    await made.provider.close()


def test_a_word_is_an_eviction_only_when_aws_takes_the_machine_back() -> None:
    for state, words in WORDS.items():
        for word in words:
            assert eviction_state(word) is state, word


def test_a_request_is_for_one_machine_that_ends_and_its_limit_is_rounded_down() -> None:
    once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    assert market_options(None) == {"MarketType": "spot", "SpotOptions": once}
    assert market_options(Nano(9_123_456_789))["SpotOptions"] == {**once, "MaxPrice": "9.1234"}


def test_the_latest_price_of_a_zone_counts_in_whatever_order_they_come() -> None:
    def price(at: str, usd: str, zone: str = "us-east-1a") -> dict[str, Any]:
        return {"InstanceType": "p5.48xlarge", "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": at}

    history = [
        price("2026-11-02", "20.5"),
        price("2026-11-01", "9.9"),
        price("2026-10-01", "7", "us-east-1b"),
    ]
    expected = {("p5.48xlarge", "us-east-1a"): Decimal("20.5"), ("p5.48xlarge", "us-east-1b"): Decimal(7)}
    assert latest_prices(history) == latest_prices(history[::-1]) == expected


async def test_only_an_order_of_spot_asks_for_it_and_tags_its_request(cloud: EmulatedAws) -> None:
    requests = Requests(cloud)
    await cloud.provider.launch(
        replace(cloud.order(1), spot=True, cost_nano_per_hour_max=Nano(20_000_000_000))
    )
    await cloud.provider.launch(cloud.order(2))
    spot, on_demand = requests.of("RunInstances")
    assert spot["InstanceMarketOptions.SpotOptions.MaxPrice"] == "20.0000"
    assert not [name for name in on_demand if name.startswith("InstanceMarketOptions")]
    tagged = [
        {value for name, value in form.items() if name.endswith("ResourceType")} for form in (spot, on_demand)
    ]
    assert tagged[0] - tagged[1] == {"spot-instances-request"}


async def test_a_refused_spot_order_says_what_it_is_about(cloud: EmulatedAws) -> None:
    order = replace(cloud.order(), spot=True)
    for status, code, expected in (
        (400, "SpotMaxPriceTooLow", NoCapacity),
        (500, "InsufficientInstanceCapacity", NoCapacity),
        (400, "MaxSpotInstanceCountExceeded", QuotaReached),
        # No right to make the role: the account goes on buying on demand.
        (403, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", OrderRefused),
        (403, "UnauthorizedOperation", Unauthorized),
    ):
        Requests(cloud, RunInstances=partial(_answered, refusal(status, code)))
        error = await failure(cloud.provider.launch(order))
        assert type(error) is expected, code
        await cloud.provider.close()


async def test_the_quota_of_spot_is_not_that_of_machines_on_demand(cloud: EmulatedAws) -> None:
    cloud.account.vcpus_max = 192
    await cloud.provider.launch(replace(cloud.order(1), spot=True))
    with pytest.raises(QuotaReached):
        await cloud.provider.launch(replace(cloud.order(2), spot=True))
    await cloud.provider.launch(cloud.order(3))


async def test_requests_are_read_where_there_are_spot_machines_and_a_failure_fails_the_whole_list(
    cloud: EmulatedAws,
) -> None:
    requests = Requests(cloud)
    await cloud.provider.launch(cloud.order(1))
    await cloud.provider.inventory()
    assert requests.of("DescribeSpotInstanceRequests") == []
    await cloud.provider.launch(replace(cloud.order(2), spot=True))
    await cloud.provider.inventory()
    (asked,) = requests.of("DescribeSpotInstanceRequests")
    assert asked["Filter.1.Value.1"] == "sp-launch-key"
    failing = Requests(cloud, DescribeSpotInstanceRequests=lambda _: refusal(500, "InternalError"))
    with pytest.raises(Unavailable):
        await cloud.provider.inventory()
    assert len(failing.of("DescribeInstances")) == 1


async def test_an_eviction_is_told_of_its_own_machine_alone(cloud: EmulatedAws) -> None:
    refs = [await cloud.provider.launch(replace(cloud.order(n), spot=True)) for n in (1, 2)]
    cloud.announce_eviction(refs[1])
    seen = {each.provider_ref: each.eviction for each in await cloud.provider.inventory()}
    assert seen[refs[0]] is None
    told = seen[refs[1]]
    assert told is not None
    assert (told.state, told.native_status) == (EvictionState.ANNOUNCED, "marked-for-termination")
    assert told.at.utcoffset() is not None


async def test_a_request_is_a_child_until_it_is_closed_and_cancelling_it_ends_no_machine(
    cloud: EmulatedAws,
) -> None:
    ref = await cloud.provider.launch(replace(cloud.order(), spot=True))
    (child,) = await cloud.provider.children()
    assert child.launch_key == cloud.order().launch_key
    foreign = replace(cloud.order(98), launch_key=LaunchKey("research-box"), spot=True)
    await cloud.provider.launch(foreign)
    assert await cloud.provider.children() == (child,), "one is not ours"
    await cloud.provider.delete_child(child)
    with pytest.raises(Rejected):
        await cloud.provider.delete_child(child)
    assert await cloud.provider.children() == ()
    cloud.advance(cloud.seconds_to_run)
    (machine,) = await cloud.provider.inventory()
    assert (machine.state, machine.eviction) == (ListedState.RUNNING, None)
    other = await cloud.provider.launch(replace(cloud.order(2), spot=True))
    await cloud.provider.terminate(other)
    assert await cloud.provider.children() == ()
    assert ref != other
