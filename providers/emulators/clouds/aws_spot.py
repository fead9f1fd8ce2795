"""Spot capacity of the emulated AWS: its requests and prices, which moto has not for machines of RunInstances.

Status words and states are those of "Get the status of a Spot Instance request" (docs.aws.amazon.com, read 2026-11-23).
Nothing is taken back by itself: a test calls `announce`, `withdraw` and `take`. Prices are 30 % of those on demand in
every zone, and stay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from xml.sax.saxutils import escape

from providers.emulators.clouds.aws_account import PRICES, Machine, zones_of

SHARE_OF_ON_DEMAND = Decimal("0.3")
_NAMESPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
_REQUEST_ID = "<requestId>9c0ab5f1-0000-4000-8000-000000000000</requestId>"
_NO_SUCH_REQUEST = (
    b"<Response><Errors><Error><Code>InvalidSpotInstanceRequestID.NotFound</Code>"
    b"<Message>The spot instance request ID does not exist</Message></Error></Errors></Response>"
)
SPOT_ACTIONS = frozenset(
    {"DescribeSpotPriceHistory", "DescribeSpotInstanceRequests", "CancelSpotInstanceRequests"}
)


def spot_price(native_type: str) -> Decimal:
    """USD for an hour."""
    return Decimal(PRICES[native_type]) * SHARE_OF_ON_DEMAND


@dataclass
class SpotRequest:
    id: str
    region: str
    machine: Machine
    limit: str
    tags: Mapping[str, str]
    created_at: datetime
    state: str = "active"
    status: str = "fulfilled"
    updated_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.updated_at = self.created_at


@dataclass
class SpotRequests:
    """The requests of an account, by their ids."""

    now: Callable[[], datetime]
    every: dict[str, SpotRequest] = field(default_factory=dict[str, SpotRequest])
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def made(self, region: str, machine: Machine, limit: str, tags: Mapping[str, str]) -> SpotRequest:
        request = SpotRequest(f"sir-{next(self._numbers):08x}", region, machine, limit, tags, self.now())
        self.every[request.id] = request
        return request

    def of(self, machine_id: str) -> SpotRequest | None:
        return next((each for each in self.every.values() if each.machine.id == machine_id), None)

    def change(self, request: SpotRequest, status: str, *, state: str | None = None) -> None:
        request.status, request.updated_at = status, self.now()
        request.state = state or request.state

    def ended_by_user(self, machine_id: str) -> None:
        """The machine was terminated by whoever has the account."""
        request = self.of(machine_id)
        if request is not None and request.state in ("active", "cancelled"):
            self.change(request, "instance-terminated-by-user", state="closed")

    def answer(self, action: str, region: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and document for one of SPOT_ACTIONS."""
        if action == "DescribeSpotPriceHistory":
            return 200, prices_described(region, parameters)
        if action == "DescribeSpotInstanceRequests":
            return 200, self.described(region, parameters)
        return self.cancelled(region, parameters)

    def described(self, region: str, parameters: Mapping[str, str]) -> bytes:
        wanted = filters(parameters)
        found = [each for each in self.every.values() if each.region == region and _fits(each, wanted)]
        start, size = int(parameters.get("NextToken", "0")), int(parameters.get("MaxResults", "1000"))
        items = "".join(_item(each) for each in found[start : start + size])
        token = f"<nextToken>{start + size}</nextToken>" if start + size < len(found) else ""
        return _answer(
            "DescribeSpotInstanceRequests", f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>{token}"
        )

    def cancelled(self, region: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """The machine of a cancelled request runs on."""
        request = self.every.get(parameters.get("SpotInstanceRequestId.1", ""))
        if request is None or request.region != region:
            return 400, _NO_SUCH_REQUEST
        if request.state in ("open", "active"):
            self.change(request, "request-canceled-and-instance-running", state="cancelled")
        item = f"<item><spotInstanceRequestId>{request.id}</spotInstanceRequestId><state>{request.state}</state></item>"
        content = f"<spotInstanceRequestSet>{item}</spotInstanceRequestSet>"
        return 200, _answer("CancelSpotInstanceRequests", content)


def prices_described(region: str, parameters: Mapping[str, str]) -> bytes:
    """The price of now, under both names that AWS has for it, and an older one that is not to be used."""
    types = _numbered(parameters, "InstanceType")
    start = parameters.get("StartTime", "")
    items = "".join(
        f"<item><instanceType>{name}</instanceType><productDescription>{product}</productDescription>"
        f"<spotPrice>{spot_price(name) * share:.6f}</spotPrice><timestamp>{at}</timestamp>"
        f"<availabilityZone>{zone}</availabilityZone></item>"
        for name in types
        if name in PRICES
        for zone in sorted(zones_of(name, region))
        for product in _numbered(parameters, "ProductDescription")
        for share, at in ((1, start), (9, "2026-01-01T00:00:00.000Z"))
    )
    history = f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken></nextToken>"
    return _answer("DescribeSpotPriceHistory", history)


def filters(parameters: Mapping[str, str]) -> dict[str, list[str]]:
    """The filters of a request: the values of each name."""
    found: dict[str, list[str]] = {}
    for number in range(1, 201):
        name = parameters.get(f"Filter.{number}.Name")
        if name is None:
            break
        found[name] = _numbered(parameters, f"Filter.{number}.Value")
    return found


def tags_of(parameters: Mapping[str, str], kind: str) -> dict[str, str]:
    """The tags that a launch gives to a kind of resource."""
    found: dict[str, str] = {}
    for spec in range(1, 20):
        if parameters.get(f"TagSpecification.{spec}.ResourceType") != kind:
            continue
        for tag in range(1, 51):
            key = parameters.get(f"TagSpecification.{spec}.Tag.{tag}.Key")
            if key is not None:
                found[key] = parameters.get(f"TagSpecification.{spec}.Tag.{tag}.Value", "")
    return found


def _fits(request: SpotRequest, wanted: Mapping[str, list[str]]) -> bool:
    values: dict[str, Iterable[str]] = {
        "tag-key": request.tags,
        "status-code": [request.status],
        "state": [request.state],
        "spot-instance-request-id": [request.id],
    }
    return all(set(values[name]) & set(allowed) for name, allowed in wanted.items())


def _item(request: SpotRequest) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in request.tags.items()
    )
    return (
        f"<item><spotInstanceRequestId>{request.id}</spotInstanceRequestId><spotPrice>{request.limit}</spotPrice>"
        f"<type>one-time</type><state>{request.state}</state><status><code>{request.status}</code>"
        f"<updateTime>{_time(request.updated_at)}</updateTime><message></message></status>"
        f"<instanceId>{request.machine.id}</instanceId><createTime>{_time(request.created_at)}</createTime>"
        f"<productDescription>Linux/UNIX</productDescription><tagSet>{tags}</tagSet>"
        f"<launchedAvailabilityZone>{request.machine.native_region}</launchedAvailabilityZone>"
        "<instanceInterruptionBehavior>terminate</instanceInterruptionBehavior></item>"
    )


def _numbered(parameters: Mapping[str, str], name: str) -> list[str]:
    values = (parameters.get(f"{name}.{number}") for number in range(1, 1_001))
    return [value for value in values if value is not None]


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _answer(action: str, content: str) -> bytes:
    return f"<{action}Response {_NAMESPACE}>{_REQUEST_ID}{content}</{action}Response>".encode()
