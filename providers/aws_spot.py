"""Spot capacity of AWS: its prices, the requests behind its machines, and which of their status words are evictions.

See the traps in `aws.py`. Status words are those of "Get the status of a Spot Instance request"
(docs.aws.amazon.com, read 2026-11-23).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any

from control_plane.domain.ids import ProviderRef
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.aws_client import filter_of, tags
from providers.base import Child, Confidence, Eviction, EvictionState, ListedOffer, Needed
from providers.listings import LAUNCH_KEY_TAG, launch_key_among, reference_of

NOTICE_SECONDS = 120
REQUEST = "spot-instances-request"
"""AWS's name for the kind of resource."""
PRODUCTS = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
"""AWS names the prices of one machine in both ways."""

ANNOUNCED = "marked-for-termination"
TAKEN = (
    "instance-terminated-by-price",
    "instance-terminated-no-capacity",
    "instance-terminated-capacity-oversubscribed",
    "instance-terminated-launch-group-constraint",
    "instance-terminated-by-experiment",
)
"""AWS took the machine back. An experiment is an interruption that the account's owner had AWS make. Not among them is
`instance-terminated-by-user`: we ended the machine, or somebody in AWS's console did."""
EVICTED = [filter_of("tag-key", LAUNCH_KEY_TAG), filter_of("status-code", ANNOUNCED, *TAKEN)]
"""The filters that leave the requests of machines that AWS takes back."""
OPEN = [filter_of("tag-key", LAUNCH_KEY_TAG), filter_of("state", "open", "active")]
"""The filters that leave the requests that may still buy a machine, or have one. AWS forgets the others by itself."""


def market_options(cost_nano_per_hour_max: Nano | None) -> dict[str, Any]:
    """What makes RunInstances buy spot. Without `MaxPrice`, AWS takes the price on demand for the limit."""
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if cost_nano_per_hour_max is not None:
        limit = (Decimal(cost_nano_per_hour_max) / NANO_PER_USD).quantize(Decimal("0.0001"), ROUND_DOWN)
        options["MaxPrice"] = str(limit)
    return {"MarketType": "spot", "SpotOptions": options}


def has_spot(kind: Mapping[str, Any]) -> bool:
    return "spot" in kind["SupportedUsageClasses"]


def as_spot(offer: ListedOffer) -> ListedOffer:
    """An offer at a spot price. A zone may have no capacity at its price, and AWS says so only to an order."""
    return replace(offer, spot=True, eviction_notice_seconds=NOTICE_SECONDS, confidence=Confidence.ADVISORY)


def latest_prices(history: Iterable[Mapping[str, Any]]) -> Mapping[tuple[str, str], Decimal]:
    """USD for an hour of each type in each zone, of which a history has several."""
    newest = sorted(history, key=lambda each: each["Timestamp"])
    return {(each["InstanceType"], each["AvailabilityZone"]): Decimal(each["SpotPrice"]) for each in newest}


def evictions(requests: Iterable[Mapping[str, Any]]) -> Mapping[str, Eviction]:
    """What the requests say about taking machines back, by the ids of the machines."""
    return {
        request["InstanceId"]: Eviction(state, _utc(status["UpdateTime"]), status["Code"])
        for request in requests
        for status in (request["Status"],)
        for state in (eviction_state(status["Code"]),)
        if state is not None and "InstanceId" in request
    }


def eviction_state(status: str) -> EvictionState | None:
    """What a request's status says; None for every other word, also for one that we do not know."""
    if status == ANNOUNCED:
        return EvictionState.ANNOUNCED
    return EvictionState.TAKEN if status in TAKEN else None


def child(region: str, request: Mapping[str, Any]) -> Child | None:
    """A request as a child of its machine; None without a launch key of ours."""
    key = launch_key_among([tags(request.get("Tags", ())).get(LAUNCH_KEY_TAG)])
    if key is None:
        return None
    return Child(_reference(region, request["SpotInstanceRequestId"]), REQUEST, key, Needed.WHILE_IT_EXISTS)


def _reference(region: str, request: str) -> ProviderRef:
    return reference_of(f"{region}/{request}")


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
