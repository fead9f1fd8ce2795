"""Nebius AI Cloud, gRPC API v1. Its traps (official protos and README of nebius/api @5101002, read 2026-11-23; what
dstack's adapter learnt is named):

- `Create` answers with an operation, and the machine is on record at once. Quota and capacity failures may come on
  the operation afterwards: then a machine is listed as STOPPED that never starts, and its disk costs money until it is
  deleted (dstack). Why is in the operation alone, so operations are read when a machine that boots is listed so. How
  long Nebius keeps them is not documented.
- A new machine is listed as STOPPED with `reconciling`, before STARTING: it is not stopped (dstack).
- `X-Idempotency-Key` makes a launch that arrives twice one machine. Ours is the launch key. For how long Nebius
  remembers a key is not documented, so a lost answer is still never sent again. A delete has none: an old answer
  would come back.
- A name is unique in its project. "Already exists" to a launch says that the machine may be ours, and not that it
  failed.
- A project lies in one region; an account is one project.
- There is no default user: the cloud-config that we send makes ours. It has at most 32,768 characters.
- The boot disk is a managed one, which is deleted with the machine. It is priced apart from the machine.
- A network's default security group is used where none is named, and what it opens is not documented. Ours opens SSH,
  WireGuard and everything outwards; what no rule allows is denied.
- A public address is listed as a network, such as `192.0.2.7/32`. It is dynamic, and freed when the machine stops.
- A machine costs its price until it is completely stopped, and its disk always. There is no reboot. A start may find no
  capacity, which comes on the operation afterwards: the machine is then listed as stopped.
- A failed host would be replaced by another one (RECOVER), whose GPUs nobody has proved. We ask for FAIL.
- Reserved capacity would be used first (AUTO), at another price. We ask for FORBID, which buys on demand.
- Prices come from the calculator: one call for all types (v1 has only `EstimateBatch`; `Estimate` was in v1alpha1).
- What is free comes from the capacity advisor. It speaks for the whole tenant, so that the service account needs to
  be allowed to read the tenant.
- Preemptible machines are not offered: no list says of a stopped one that it was preempted (docs/decisions/0062).
  GB200 and GB300 platforms neither, since their hosts are ARM.
- RESOURCE_EXHAUSTED alone does not say what is exhausted; the `ServiceError` in the status does. Without one it is
  unclear.
- No rate limit is published. The one here is ours.
- The official SDK retries bad credentials for ever and its waiting calls may hang (nebius/pysdk issue 74), so we make
  the calls ourselves: docs/decisions/0038.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from google.protobuf.any_pb2 import Any as AnyMessage

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    LateRefusal,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    OrderRefused,
    Page,
    PlannedWork,
    PowerAction,
    PriceSource,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.clock import utc_now
from providers.error_law import Meaning, error_for
from providers.listings import (
    LAUNCH_KEY_TAG,
    UNREADABLE_PRICE,
    UnreadableAnswer,
    offered_price,
    reference_of,
    whole_listing,
)
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api.access_token import AuthorizedKey, checked_pem
from providers.nebius_api.api import Api
from providers.nebius_api.errors import NOT_ENOUGH_RESOURCES, failure_code, raise_failure
from providers.nebius_api.machines import page_of
from providers.nebius_api.maintenance import planned_work
from providers.nebius_api.methods import (
    CREATE_INSTANCE,
    DELETE_INSTANCE,
    ESTIMATE,
    GET_PROJECT,
    LIST_ADVICE,
    LIST_INSTANCES,
    LIST_OPERATIONS,
    LIST_PLATFORMS,
    START_INSTANCE,
    STOP_INSTANCE,
)
from providers.nebius_api.network import STEPS_MAX, Network
from providers.rpc import Channels, Transport

NAME = "nebius"


@dataclass(frozen=True, slots=True)
class Settings:
    project_id: str
    """Where machines are made. Its region is the region of everything that this account buys."""
    service_account_id: str
    public_key_id: str = field(repr=False)
    """The id of the service account's authorized key."""
    private_key: str = field(repr=False)
    """Its private key: RSA, in PEM."""
    subnet_id: str = ""
    """Where machines get their addresses; empty takes the project's only subnet."""
    image_family: str = "ubuntu24.04-cuda12"
    """A family of images with an NVIDIA driver."""
    base_url: str = "https://api.nebius.cloud"

    def __post_init__(self) -> None:
        checked_pem(self.private_key)


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Not documented. It takes two or three minutes as a rule.
    user_data_bytes_max=32_768,
    rate_limits=(RateLimit("project", 300, 60.0, frozenset(Verb)),),  # Not published: ours.
    terminate_may_be_refused=True,
    billed_while_booting=True,
    firewall=ProviderFirewall.FIXED,
    power=frozenset({PowerAction.STOP, PowerAction.START}),
    planned_work=True,
)

REGIONS = {
    "eu-north1": "eu-north-1",  # Finland
    "eu-west1": "eu-west-1",  # France
    "us-central1": "us-central-1",  # Kansas City
    "me-west1": "il-west-1",  # Israel
    "uk-south1": "gb-south-1",
}
"""Nebius's region names to ours, whose first two letters are the jurisdiction. Others are left out."""

GPUS = {
    "gpu-h100-sxm": GpuModel.H100_SXM_80GB,
    "gpu-h200-sxm": GpuModel.H200_SXM_141GB,
    "gpu-b200-sxm": GpuModel.B200_SXM_180GB,
    "gpu-b200-sxm-a": GpuModel.B200_SXM_180GB,
    "gpu-l40s-a": GpuModel.L40S_48GB,
    "gpu-l40s-d": GpuModel.L40S_48GB,
}
"""The GPU of each platform."""

BOOT_DISK_GIB = 200
PAGE_SIZE = 500
_DISK = "disk"
_HOUR = pb.FilterAggregationUnit.FILTER_AGGREGATION_UNIT_HOUR


@dataclass(frozen=True, slots=True)
class _Project:
    region: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class _Type:
    platform: str
    preset: str
    shape: Shape

    @property
    def name(self) -> str:
        return f"{self.platform}/{self.preset}"


class Nebius:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, transport: Transport, now: Callable[[], datetime]) -> None:
        self._settings = settings
        key = AuthorizedKey(settings.service_account_id, settings.public_key_id, settings.private_key)
        self._api = Api(key, transport, capabilities=CAPABILITIES, now=now)
        self._network = Network(self._api, settings.project_id, settings.subnet_id)
        self._project: _Project | None = None

    async def offers(self) -> tuple[Listed, ...]:
        """Three listings: types, prices, what is free. The project is read once, since it never moves."""
        project = await self._place(Verb.OFFERS)
        if project.region not in REGIONS:
            return (LeftOut(LeftOutFor.UNKNOWN_REGION, project.region),)
        listed = await self._types()
        types = [each for each in listed if isinstance(each, _Type)]
        prices = await self._prices(types) if types else {}
        free = await self._free(project)
        unknown = (each for each in listed if isinstance(each, LeftOut))
        return (*(_offer(each, project.region, prices, free) for each in types), *unknown)

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    async def refused_later(self) -> tuple[LateRefusal, ...]:
        """The launches whose operations failed afterwards."""

        async def page(cursor: str | None) -> Page[pb.Operation]:
            request = pb.ListOperationsByParentRequest(
                parent_id=self._settings.project_id, page_size=PAGE_SIZE, page_token=cursor or ""
            )
            return await self._api.call(
                Verb.INVENTORY,
                LIST_OPERATIONS,
                request,
                lambda listed: Page(tuple(listed.operations), listed.next_page_token or None),
            )

        failed = (_refusal(each) for each in await whole_listing(Verb.INVENTORY, page))
        return tuple(each for each in failed if each is not None)

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        request = pb.ListInstancesRequest(
            parent_id=self._settings.project_id, page_size=PAGE_SIZE, page_token=cursor or ""
        )
        return await self._api.call(Verb.INVENTORY, LIST_INSTANCES, request, page_of)

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        return await planned_work(self._api, self._settings.project_id)

    def prepared(self, order: LaunchOrder) -> bool:  # noqa: ARG002 - all launches need the same
        return self._project is not None and self._network.ready

    async def prepare(self, order: LaunchOrder) -> None:  # noqa: ARG002 - all launches need the same
        """Take one step towards a security group of ours in the project's network."""
        if self._project is None:
            await self._place(Verb.PREPARE)
        else:
            await self._network.step()

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(1 + STEPS_MAX):
            if not self.prepared(order):
                await self.prepare(order)
        region = (await self._place(Verb.LAUNCH)).region
        if order.native_region != region:
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, f"the project is in {region}")
        labels = {LAUNCH_KEY_TAG: order.launch_key}
        request = pb.CreateInstanceRequest(
            metadata=self._metadata(order.launch_key, labels=labels), spec=self._spec(order, labels)
        )
        try:
            return await self._api.call(
                Verb.LAUNCH,
                CREATE_INSTANCE,
                request,
                _launched,
                metadata=(("x-idempotency-key", order.launch_key),),
                private=(order.user_data,),
            )
        except OrderRefused:
            self._network.forget()
            raise

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        match action:
            case PowerAction.STOP:
                stop = pb.StopInstanceRequest(id=provider_ref)
                await self._api.call(Verb.POWER, STOP_INSTANCE, stop, _switched)
            case PowerAction.START:
                start = pb.StartInstanceRequest(id=provider_ref)
                await self._api.call(Verb.POWER, START_INSTANCE, start, _switched)
            case _:
                raise error_for(Verb.POWER, Meaning.REFUSED, f"Nebius cannot {action} machines")

    async def terminate(self, provider_ref: ProviderRef) -> None:
        request = pb.DeleteInstanceRequest(id=provider_ref)
        await self._api.call(
            Verb.TERMINATE, DELETE_INSTANCE, request, lambda done: raise_failure(Verb.TERMINATE, done)
        )

    async def close(self) -> None:
        await self._api.close()

    async def _place(self, verb: Verb) -> _Project:
        if self._project is None:
            request = pb.GetProjectRequest(id=self._settings.project_id)
            self._project = await self._api.call(verb, GET_PROJECT, request, _project)
        return self._project

    async def _types(self) -> list[_Type | LeftOut]:
        async def page(cursor: str | None) -> Page[pb.Platform]:
            request = pb.ListPlatformsRequest(
                parent_id=self._settings.project_id, page_size=PAGE_SIZE, page_token=cursor or ""
            )
            return await self._api.call(
                Verb.OFFERS,
                LIST_PLATFORMS,
                request,
                lambda listed: Page(tuple(listed.items), listed.next_page_token or None),
            )

        platforms = await whole_listing(Verb.OFFERS, page)
        return [each for platform in platforms for each in _types_of(platform)]

    async def _prices(self, types: Sequence[_Type]) -> Mapping[str, Nano]:
        """What an hour costs, by the type's name, and that of a boot disk."""
        machines = (
            pb.CreateInstanceRequest(
                metadata=self._metadata(each.name),
                spec=pb.InstanceSpec(resources=pb.ResourcesSpec(platform=each.platform, preset=each.preset)),
            )
            for each in types
        )
        disk = pb.CreateDiskRequest(metadata=self._metadata(_DISK), spec=self._disk())
        request = pb.EstimateBatchRequest(
            resource_specs=[*map(_priced, machines), _priced(disk)],
            currency="usd",
            filter_aggregation_unit=pb.FilterAggregationUnit(filter_aggregation_unit_values=[_HOUR]),
        )
        return await self._api.call(Verb.OFFERS, ESTIMATE, request, _hourly)

    async def _free(self, project: _Project) -> Mapping[str, bool]:
        """Whether the advisor sees room for a machine of each type, by its name."""

        async def page(cursor: str | None) -> Page[pb.ResourceAdvice]:
            request = pb.ListResourceAdviceRequest(
                parent_id=project.tenant_id, page_size=PAGE_SIZE, page_token=cursor or ""
            )
            return await self._api.call(
                Verb.OFFERS,
                LIST_ADVICE,
                request,
                lambda listed: Page(tuple(listed.items), listed.next_page_token or None),
            )

        free: dict[str, bool] = {}
        for each in await whole_listing(Verb.OFFERS, page):
            if each.spec.region == project.region:
                details = each.spec.compute_instance
                name = f"{details.platform}/{details.preset.name}"
                free[name] = free.get(name, False) or _room(each.status.on_demand)
        return free

    def _metadata(self, name: str, *, labels: Mapping[str, str] | None = None) -> pb.ResourceMetadata:
        return pb.ResourceMetadata(parent_id=self._settings.project_id, name=name, labels=labels)

    def _disk(self) -> pb.DiskSpec:
        return pb.DiskSpec(
            size_gibibytes=BOOT_DISK_GIB,
            type=pb.DiskSpec.NETWORK_SSD,
            source_image_family=pb.SourceImageFamily(image_family=self._settings.image_family),
        )

    def _spec(self, order: LaunchOrder, labels: Mapping[str, str]) -> pb.InstanceSpec:
        subnet, group = self._network.subnet, self._network.group
        if subnet is None or not group or not self._network.ready:
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "the security group could not be made")
        platform, _, preset = order.native_type.partition("/")
        interface = pb.NetworkInterfaceSpec(
            name="eth0",
            subnet_id=subnet.metadata.id,
            ip_address=pb.IPAddress(),
            public_ip_address=pb.PublicIPAddress(),
            security_groups=[pb.InterfaceSecurityGroup(id=group)],
        )
        disk = pb.ManagedDisk(name=order.launch_key, labels=labels, spec=self._disk())
        return pb.InstanceSpec(
            resources=pb.ResourcesSpec(platform=platform, preset=preset),
            boot_disk=pb.AttachedDiskSpec(attach_mode=pb.AttachedDiskSpec.READ_WRITE, managed_disk=disk),
            network_interfaces=[interface],
            cloud_init_user_data=order.user_data,
            recovery_policy=pb.FAIL,
            reservation_policy=pb.ReservationPolicy(policy=pb.ReservationPolicy.FORBID),
        )


def _project(found: pb.Project) -> _Project:
    if not found.spec.region or not found.metadata.parent_id:
        raise UnreadableAnswer("a project without a region or a tenant")
    return _Project(found.spec.region, found.metadata.parent_id)


def _types_of(platform: pb.Platform) -> list[_Type | LeftOut]:
    name = platform.metadata.name
    presets = [preset for preset in platform.spec.presets if preset.resources.gpu_count > 0]
    if presets and name not in GPUS:
        return [LeftOut(LeftOutFor.UNKNOWN_GPU, name)]
    return [_Type(name, preset.name, _shape(GPUS[name], preset.resources)) for preset in presets]


def _shape(model: GpuModel, resources: pb.PresetResources) -> Shape:
    return Shape(
        model, resources.gpu_count, resources.vcpu_count, resources.memory_gibibytes, disk_gib=BOOT_DISK_GIB
    )


def _offer(each: _Type, region: str, prices: Mapping[str, Nano], free: Mapping[str, bool]) -> Listed:
    """A type that the advisor does not mention is offered: that this means sold out is not documented."""
    machine, disk = (prices.get(name, UNREADABLE_PRICE) for name in (each.name, _DISK))
    if UNREADABLE_PRICE in (machine, disk):
        return LeftOut(LeftOutFor.NO_PRICE, each.name)
    return ListedOffer(
        native_type=each.name,
        region=REGIONS[region],
        native_region=region,
        shape=each.shape,
        capacity=CapacityShape.VM,
        cost_nano_per_hour=Nano(machine + disk),
        stopped_cost_nano_per_hour=disk,
        available=free.get(each.name, True),
        confidence=Confidence.ADVISORY,
        price_source=PriceSource.ESTIMATE,
    )


def _priced(request: pb.CreateInstanceRequest | pb.CreateDiskRequest) -> pb.ResourceSpec:
    official = f"type.googleapis.com/nebius.compute.v1.{type(request).__name__}"
    return pb.ResourceSpec(spec=AnyMessage(type_url=official, value=request.SerializeToString()))


def _hourly(answer: pb.EstimateBatchResponse) -> Mapping[str, Nano]:
    if answer.currency.lower() != "usd":
        raise UnreadableAnswer("an estimate in another currency than was asked for")
    return {
        each.metadata.name: offered_price(each.general.total.cost)
        for each in answer.resource_costs
        if each.aggregation_unit.unit.lower() == "hour" and each.HasField("general")
    }


def _switched(done: pb.Operation) -> None:
    raise_failure(Verb.POWER, done)


def _room(seen: pb.ResourceAdviceStatus.Availability) -> bool:
    """False only where the advisor says so: our limit is reached, or fresh figures show that nothing is left."""
    if seen.availability_level == pb.ResourceAdviceStatus.Availability.AVAILABILITY_LEVEL_LIMIT_REACHED:
        return False
    fresh = seen.data_state == pb.ResourceAdviceStatus.Availability.DATA_STATE_FRESH
    return not fresh or seen.available > 0


def _refusal(operation: pb.Operation) -> LateRefusal | None:
    """What a failed operation says about its machine. It may be another one than the launch: a refusal is only looked
    for when the machine has never run.
    """
    code = failure_code(operation)
    if code is None or not operation.resource_id:
        return None
    state = ListedState.SOLD_OUT if code == NOT_ENOUGH_RESOURCES else ListedState.FAILED
    return LateRefusal(reference_of(operation.resource_id), state, code)


def _launched(operation: pb.Operation) -> ProviderRef:
    """The machine's id, also where the operation failed at once: what it leaves is listed, and has to be deleted."""
    if not operation.resource_id:
        raise_failure(Verb.LAUNCH, operation)
    return reference_of(operation.resource_id)


def connect(
    settings: Settings, *, transport: Transport | None = None, now: Callable[[], datetime] = utc_now
) -> Nebius:
    return Nebius(settings, transport or Channels(settings.base_url), now)
