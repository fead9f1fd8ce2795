"""AWS EC2, on demand and spot. Its traps (EC2's model in botocore 1.44, docs.aws.amazon.com, read 2026-11-23; some from
Karpenter's and dstack's adapters, which are named; nothing was tried against AWS itself):

- A launch with the launch key as `ClientToken` makes one machine, however often it is sent. The same token with other
  parameters is `IdempotentParameterMismatch`: a machine may exist under it, so the outcome is unknown. The list shows
  the token of each machine, and nobody can change it, as people can change tags.
- The list lags: a machine may be missing for some time after its launch, and a request about it is
  `InvalidInstanceID.NotFound`. A page of the list may be short or empty although more pages follow.
- A terminated machine stays listed for about an hour, and to terminate it again succeeds: the answer says what it was.
- There is no sign of stock for on-demand machines. A sold-out launch is HTTP 500 `InsufficientInstanceCapacity`. Stock
  and types differ by availability zone, and a type that a zone does not have is `Unsupported` (Karpenter treats both as
  sold out), so an offer and a launch are for one zone. Each account has its own zone that is called `us-east-1a`.
- A request over the limits is HTTP 503 `RequestLimitExceeded` without Retry-After. Each operation has a bucket of its
  own in each region, and launches draw from a second one.
- Regions are installations of EC2 of their own, with machines, limits, quotas and outages of their own. So an account
  of ours is one region (docs/decisions/0054), and a region that is down leaves the others alone. While a machine of
  ours may be in a region that the settings had before, the list counts as failed.
- The names of regions do not show the jurisdiction: `eu-west-2` is in London and `eu-central-2` in Zurich.
- Prices are in another service (`GetProducts`), which names a type once for each operating system, tenancy and kind of
  capacity. A type with two prices after all filters is left out. Root volume and public address cost extra, and are
  part of the price of an offer. Types that are sold in capacity blocks only are left out, as are shared GPUs (g6f) and
  ARM types.
- Anybody can publish an image under any name: images are taken from Amazon and from the account itself only.
- A machine that shuts itself down is stopped and keeps its disk, as its customer may start it again; a spot machine
  cannot be, and ends. The volumes of a machine that ends, also those that its image adds, and its network interface go
  with it. Its user data can be read from inside, for which
  a token is demanded (IMDSv2).
- A stop keeps the root volume, takes the address back and empties local disks. A start may find no capacity, which is
  `InsufficientInstanceCapacity` again; the machine stays stopped. Each start is billed for a minute at least. A spot
  machine of a one-time request cannot be stopped.
- A type with several network cards gets no public address by itself (dstack), unless it is launched with one interface.
- No port is open unless a security group opens it. Ours is called `splitplane`, in the default VPC of each region, and
  lets in SSH and WireGuard. A machine whose customer opened more has a second one of its own (`aws_firewall.py`).
- A spot machine has a request of its own, which is tagged like the machine, and outlives it for a while. It alone says
  that AWS takes the machine back, and why it ended. It is one-time: a persistent one buys another machine by itself.
  Spot machines have quotas of their own. The first of an account makes a role, for which the right may be missing.
- The price of a spot machine moves while it runs, up to `MaxPrice`. `DescribeSpotPriceHistory` says what it is now.
- The console's last 64 KB are those of now only with `Latest`, on Nitro types, as all of ours are.
- Permissions that are missing are HTTP 403 `UnauthorizedOperation`; docs/providers.md has the policy that is needed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers import aws_firewall, aws_volumes
from providers.aws_catalogue import (
    FAMILIES,
    REGIONS,
    VOLUME_TYPE,
    ZONE,
    Product,
    is_sold,
    offer,
    on_demand_in,
    products,
    region_of,
    single_prices,
    usd_per_gib_hour,
    usd_per_hour_beside,
    volumes_in,
    with_what_is_beside,
)
from providers.aws_client import AwsClient, Credentials, Operation, Send, filter_of
from providers.aws_errors import RULES
from providers.aws_events import planned_work
from providers.aws_firewall import INGRESS_MAX, MachineGroups
from providers.aws_machines import ended, machines, only_id
from providers.aws_preparation import Preparation, Ready
from providers.aws_spot import (
    EVICTED,
    OPEN,
    PRODUCTS,
    REQUEST,
    as_spot,
    child,
    evictions,
    has_spot,
    latest_prices,
    market_options,
)
from providers.aws_volumes import Volumes
from providers.base import (
    Capabilities,
    Child,
    Eviction,
    Ingress,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    OrderRefused,
    Page,
    PlannedWork,
    PowerAction,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.clock import utc_now
from providers.error_law import Meaning, error_for
from providers.listings import (
    LAUNCH_KEY_TAG,
    reference_of,
    whole_listing,
)

NAME = "aws"


@dataclass(frozen=True, slots=True)
class Settings:
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    region: str
    """Where machines are bought and looked for: AWS's name of one region, such as us-east-1. Each further region is an
    account of its own, with the same key."""
    image: str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) ????????"
    """The name of an image with Ubuntu and an NVIDIA driver; `*` and `?` stand for anything, and the newest is used."""
    disk_gib: int = 500
    """The size of a machine's root volume."""
    base_url: str = ""
    """Instead of the addresses of all of AWS's services; for tests."""

    def __post_init__(self) -> None:
        if self.region not in REGIONS:
            raise ValueError(f"region must be one of {', '.join(REGIONS)}")


_READS = frozenset({Verb.INVENTORY, Verb.OFFERS, Verb.PREPARE, Verb.FIREWALL, Verb.CHILDREN, Verb.CONSOLE})
_MUTATIONS = frozenset({Verb.PREPARE, Verb.TERMINATE, Verb.FIREWALL, Verb.CHILDREN})
CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # "Eventual consistency" has no documented bound; Karpenter waits 30 s.
    boot_seconds_max=1_200.0,  # Not documented. Machines with eight GPUs were seen to take more than five minutes.
    user_data_bytes_max=16_384,
    rate_limits=(
        RateLimit(
            "reads", 20, 1.0, _READS, burst=50, requests={Verb.FIREWALL: 2, Verb.OFFERS: 5, Verb.CHILDREN: 3}
        ),
        RateLimit("mutations", 5, 1.0, _MUTATIONS, burst=50),
        RateLimit("run_instances", 2, 1.0, frozenset({Verb.LAUNCH}), burst=5),
        RateLimit(
            "start_instances", 2, 1.0, frozenset({Verb.POWER}), burst=5
        ),  # Stops and reboots may be more.
    ),
    terminate_may_be_refused=True,  # Where somebody protected the machine.
    # Each run is billed by the second, and for a minute at least: aws.amazon.com/ec2/pricing/on-demand, 2026-11-20.
    billed_seconds_min=60,
    power=frozenset(PowerAction),
    firewall=ProviderFirewall.FOLLOWS,
    ingress_max=INGRESS_MAX,
    console=True,
    planned_work=True,
    sells_spot=True,
    answer_seconds={Verb.OFFERS: 60.0},  # Five requests, and more where there are pages.
)

PAGE_SIZE = 1_000
PRICING_REGION = "us-east-1"
_PREPARE_CALLS_MAX = 6
"""Subnets, security group, its creation, its rules, and the image; one more where another replica was faster."""


class Aws:
    capabilities = CAPABILITIES

    def __init__(
        self, settings: Settings, *, send: Send | None = None, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._aws = AwsClient(
            Credentials(settings.access_key_id, settings.secret_access_key),
            rules=RULES,
            capabilities=CAPABILITIES,
            base_url=settings.base_url,
            send=send,
        )
        self._region = settings.region
        self._disk_gib = settings.disk_gib
        self._preparation = Preparation(self._aws, settings.image)
        self._groups = MachineGroups(self._aws)
        self._volumes = Volumes(self._aws)
        self._now = now

    async def offers(self) -> tuple[Listed, ...]:
        types = await self._types(self._region)
        return tuple(await self._offers(self._region, types)) if types else ()

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    def lists(self, native_region: str) -> bool:
        zone = ZONE.fullmatch(native_region)
        return zone is not None and zone.group(1) == self._region

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        """One page. Where it has spot machines, a second request tells which of them AWS takes back."""
        region = self._region
        page, any_spot = await self._aws.call(
            Verb.INVENTORY,
            region,
            Operation("ec2", "describe_instances"),
            lambda answer: machines(region, answer),
            MaxResults=PAGE_SIZE,
            **_after(cursor),
        )
        found = await self._evictions(region) if any_spot else {}
        return Page(
            [replace(each, eviction=found.get(each.provider_ref)) for each in page.items],
            page.next_cursor or None,
            listed=page.listed,
        )

    async def children(self) -> tuple[Child, ...]:
        """Requests of spot machines that are not closed, security groups of single machines, volumes that were left."""
        region = self._region
        requests = await self._requests(Verb.CHILDREN, region, OPEN)
        of_spot = (child(region, request) for request in requests)
        return (
            *await self._groups.children(region),
            *await self._volumes.children(region),
            *(each for each in of_spot if each is not None),
        )

    async def delete_child(self, child: Child) -> None:
        region, _, native = child.ref.partition("/")
        match child.kind:
            case aws_volumes.KIND:
                await self._volumes.delete(region, native)
            case aws_firewall.KIND:
                await self._groups.delete(region, native)
            case _:
                await self._cancel(region, native)

    async def _cancel(self, region: str, request: str) -> None:
        """Cancel a request, so that it buys nothing later. A machine that it has runs on."""
        if region not in REGIONS:
            raise error_for(Verb.CHILDREN, Meaning.NOT_FOUND, "not a reference to a request of AWS")
        only = [*OPEN, filter_of("spot-instance-request-id", request)]
        if not await self._requests(Verb.CHILDREN, region, only):
            raise error_for(Verb.CHILDREN, Meaning.NOT_FOUND, "it is closed or cancelled")
        await self._aws.call(
            Verb.CHILDREN,
            region,
            Operation("ec2", "cancel_spot_instance_requests"),
            lambda _: None,
            SpotInstanceRequestIds=[request],
        )

    def prepared(self, order: LaunchOrder) -> bool:
        return self._preparation.ready(region_of(order.native_region)) is not None

    async def prepare(self, order: LaunchOrder) -> None:
        await self._preparation.step(region_of(order.native_region))

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        if not self.lists(order.native_region):
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, f"this account buys in {self._region} alone")
        for _ in range(_PREPARE_CALLS_MAX):
            if not self.prepared(order):
                await self.prepare(order)
        region = region_of(order.native_region)
        body = self._body(order, self._preparation.ready(region))
        try:
            return await self._aws.call(
                Verb.LAUNCH,
                region,
                Operation("ec2", "run_instances"),
                lambda answer: only_id(region, answer),
                private=order.user_data,
                **body,
            )
        except OrderRefused:
            self._preparation.forget(region)  # Somebody may have deleted something of it.
            raise

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        region, _, instance = provider_ref.partition("/")
        if region not in REGIONS:
            raise error_for(Verb.POWER, Meaning.NOT_FOUND, "not a reference to a machine of AWS")
        await self._aws.call(
            Verb.POWER,
            region,
            Operation("ec2", f"{action}_instances"),
            lambda _: None,
            InstanceIds=[instance],
        )

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        region, _, instance = provider_ref.partition("/")
        if region not in REGIONS:
            raise error_for(Verb.FIREWALL, Meaning.NOT_FOUND, "not a reference to a machine of AWS")
        return await self._groups.apply(region, instance, launch_key, wanted)

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str:  # noqa: ARG002 - AWS has it at once
        region, _, instance = provider_ref.partition("/")
        if region not in REGIONS:
            raise error_for(Verb.CONSOLE, Meaning.NOT_FOUND, "not a reference to a machine of AWS")
        read = Operation("ec2", "get_console_output")
        return await self._aws.call(
            Verb.CONSOLE, region, read, lambda got: got.get("Output", ""), InstanceId=instance, Latest=True
        )

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        return await planned_work(self._aws, self._region)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        region, _, instance = provider_ref.partition("/")
        if region not in REGIONS:
            raise error_for(Verb.TERMINATE, Meaning.NOT_FOUND, "not a reference to a machine of AWS")
        await self._aws.call(
            Verb.TERMINATE,
            region,
            Operation("ec2", "terminate_instances"),
            lambda answer: ended(instance, answer),
            InstanceIds=[instance],
        )

    async def close(self) -> None:
        await self._aws.close()

    async def _offers(self, region: str, types: Mapping[str, Mapping[str, Any]]) -> Iterable[Listed]:
        zones = await self._zones(region, types)
        prices = single_prices(await self._products(on_demand_in(region)))
        self._volumes.usd_per_gib_hour = usd_per_gib_hour(await self._products(volumes_in(region)))
        beside = usd_per_hour_beside(self._volumes.usd_per_gib_hour, self._disk_gib)
        spot = {} if beside is None else await self._spot_prices(region, types)
        listed: list[Listed] = [LeftOut(LeftOutFor.NO_PRICE, name) for name in types if name not in prices]
        for name, zone in zones:
            if name in prices:
                whole = with_what_is_beside(prices[name], beside)
                listed.append(offer(types[name], zone, self._disk_gib, whole, beside))
            if (name, zone) in spot:
                whole = with_what_is_beside(spot[name, zone], beside)
                listed.append(as_spot(offer(types[name], zone, self._disk_gib, whole, None)))
        return listed

    async def _spot_prices(
        self, region: str, types: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[tuple[str, str], Decimal]:
        """USD for an hour of each type in each zone that has it as spot."""

        async def page(cursor: str | None) -> Page[Mapping[str, Any]]:
            return await self._page(
                region,
                "describe_spot_price_history",
                "SpotPriceHistory",
                cursor,
                InstanceTypes=[name for name in types if has_spot(types[name])],
                ProductDescriptions=PRODUCTS,
                StartTime=self._now(),  # The price of this moment, and none from before.
            )

        return latest_prices(await whole_listing(Verb.OFFERS, page))

    async def _evictions(self, region: str) -> Mapping[ProviderRef, Eviction]:
        found = evictions(await self._requests(Verb.INVENTORY, region, EVICTED))
        return {reference_of(f"{region}/{instance}"): eviction for instance, eviction in found.items()}

    async def _requests(
        self, verb: Verb, region: str, filters: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        async def page(cursor: str | None) -> Page[Mapping[str, Any]]:
            return await self._aws.call(
                verb,
                region,
                Operation("ec2", "describe_spot_instance_requests"),
                lambda answer: Page(answer["SpotInstanceRequests"], answer.get("NextToken") or None),
                Filters=filters,
                MaxResults=PAGE_SIZE,
                **_after(cursor),
            )

        return await whole_listing(verb, page)

    async def _types(self, region: str) -> Mapping[str, Mapping[str, Any]]:
        """The types of a region that we can sell, by their names."""

        async def page(cursor: str | None) -> Page[Mapping[str, Any]]:
            return await self._page(
                region,
                "describe_instance_types",
                "InstanceTypes",
                cursor,
                Filters=[filter_of("instance-type", *(f"{family}.*" for family in FAMILIES))],
            )

        found = await whole_listing(Verb.OFFERS, page)
        return {each["InstanceType"]: each for each in found if is_sold(each)}

    async def _zones(self, region: str, types: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The types and the zones that have them."""
        names = list(types)

        async def page(cursor: str | None) -> Page[Mapping[str, Any]]:
            return await self._page(
                region,
                "describe_instance_type_offerings",
                "InstanceTypeOfferings",
                cursor,
                LocationType="availability-zone",
                Filters=[filter_of("instance-type", *names)],
            )

        found = await whole_listing(Verb.OFFERS, page)
        places = ((each["InstanceType"], each["Location"]) for each in found)
        return tuple((name, zone) for name, zone in places if ZONE.fullmatch(zone))

    async def _page(
        self, region: str, operation: str, key: str, cursor: str | None, **arguments: Any
    ) -> Page[Mapping[str, Any]]:
        return await self._aws.call(
            Verb.OFFERS,
            region,
            Operation("ec2", operation),
            lambda answer: Page(answer[key], answer.get("NextToken") or None),
            **{**arguments, **_after(cursor)},
        )

    async def _products(self, filters: list[dict[str, str]]) -> Iterable[Product]:
        async def page(cursor: str | None) -> Page[Product]:
            return await self._aws.call(
                Verb.OFFERS,
                PRICING_REGION,
                Operation("pricing", "get_products"),
                lambda answer: Page(products(answer["PriceList"]), answer.get("NextToken") or None),
                ServiceCode="AmazonEC2",
                Filters=filters,
                MaxResults=100,
                **_after(cursor),
            )

        return await whole_listing(Verb.OFFERS, page)

    def _body(self, order: LaunchOrder, found: Ready | None) -> dict[str, Any]:
        """What RunInstances takes."""
        subnet = None if found is None else found.subnets.get(order.native_region)
        if found is None or subnet is None:
            why = f"there is no default subnet in {order.native_region}, or something could not be made there"
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, why)
        marks = [
            {"Key": LAUNCH_KEY_TAG, "Value": order.launch_key},
            {"Key": "Name", "Value": order.launch_key},
        ]
        kinds = ("instance", "volume", "network-interface", *((REQUEST,) if order.spot else ()))
        market = {"InstanceMarketOptions": market_options(order.cost_nano_per_hour_max)} if order.spot else {}
        return {
            **market,
            "ClientToken": order.launch_key,
            "MinCount": 1,
            "MaxCount": 1,
            "ImageId": found.image,
            "InstanceType": order.native_type,
            "UserData": order.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate" if order.spot else "stop",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "SubnetId": subnet,
                    "Groups": [found.group],
                    "AssociatePublicIpAddress": True,
                    "DeleteOnTermination": True,
                }
            ],
            "BlockDeviceMappings": [
                {
                    "DeviceName": found.root_device,
                    "Ebs": {
                        "VolumeSize": self._disk_gib,
                        "VolumeType": VOLUME_TYPE,
                        "DeleteOnTermination": True,
                    },
                },
                *(
                    {"DeviceName": device, "Ebs": {"DeleteOnTermination": True}}
                    for device in found.other_volumes
                ),
            ],
            "TagSpecifications": [{"ResourceType": kind, "Tags": marks} for kind in kinds],
        }


def _after(token: str | None) -> dict[str, Any]:
    """What asks for the page of a token, and not for the first one."""
    return {"NextToken": token} if token else {}


def connect(settings: Settings, *, send: Send | None = None, now: Callable[[], datetime] = utc_now) -> Aws:
    return Aws(settings, send=send, now=now)
