"""The gRPC contract of Nebius's API v1, over emulated machines.

Methods, messages and kinds of errors are those of the official protos (nebius/api @5101002): tests/contract holds the
messages against them. Where they say nothing, we chose: that a new machine is STOPPED and reconciling for 20 seconds,
how long a deletion takes, that a second deletion is accepted, that a launch of a known idempotency key gives its
operation again, how many entries a page has, the words of messages, and that groups and rules are ready at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.protobuf.message import DecodeError, Message

from providers.emulators.clouds.minute_limit import MinuteLimit
from providers.emulators.clouds.nebius_account import (
    FABRICS,
    IMAGE_FAMILIES,
    NETWORK_ID,
    PRESETS,
    PROJECT_ID,
    PUBLIC_KEY_ID,
    REGION,
    SERVICE_ACCOUNT_ID,
    SUBNET_ID,
    TENANT_ID,
    TOKEN_SECONDS,
    Account,
    PresetOnSale,
    disk_usd_per_hour,
)
from providers.emulators.grpc_server import GrpcServer, Refusal
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life
from providers.emulators.scenario import ConnectionCut, FaultKind, Scenario, ScriptedFailure
from providers.nebius_api import messages_pb2 as pb
from providers.rpc import Metadata

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1_000
USER_DATA_CHARACTERS_MAX = 32_768
NAME_BYTES_MAX = 1_024
STATUS_NUMBERS = {
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "INTERNAL": 13,
    "UNAUTHENTICATED": 16,
}
"""gRPC's."""

Request = TypeVar("Request", bound=Message)
Item = TypeVar("Item")
REQUESTS_PER_MINUTE = 600
"""Not published: twice what our adapter keeps to, whose minutes begin at other moments."""
Handler = tuple[type[Any], Callable[[Any], Awaitable[Message]]]


class Nebius:
    """Every method of the emulated API, by its path."""

    def __init__(self, account: Account, scenario: Scenario, now: Callable[[], datetime]) -> None:
        self.account = account
        self.limiter = MinuteLimit(REQUESTS_PER_MINUTE, now)
        self._scenario = scenario
        self._key: str | None = None
        self._handlers: dict[str, Handler] = {
            "/nebius.iam.v1.TokenExchangeService/Exchange": (pb.ExchangeTokenRequest, self._exchange),
            "/nebius.iam.v2.ProjectService/Get": (pb.GetProjectRequest, self._project),
            "/nebius.compute.v1.PlatformService/List": (pb.ListPlatformsRequest, self._platforms),
            "/nebius.capacity.v1.ResourceAdviceService/List": (pb.ListResourceAdviceRequest, self._advice),
            "/nebius.billing.v1.CalculatorService/EstimateBatch": (pb.EstimateBatchRequest, self._estimate),
            "/nebius.compute.v1.InstanceService/List": (pb.ListInstancesRequest, self._list),
            "/nebius.compute.v1.InstanceService/ListOperationsByParent": (
                pb.ListOperationsByParentRequest,
                self._operations,
            ),
            "/nebius.compute.v1.MaintenanceService/ListActive": (
                pb.ListMaintenanceEventsRequest,
                self._maintenance,
            ),
            "/nebius.compute.v1.InstanceService/Create": (pb.CreateInstanceRequest, self._create),
            "/nebius.compute.v1.InstanceService/Delete": (pb.DeleteInstanceRequest, self._delete),
            "/nebius.compute.v1.InstanceService/Start": (pb.StartInstanceRequest, self._start),
            "/nebius.compute.v1.InstanceService/Stop": (pb.StopInstanceRequest, self._stop),
            "/nebius.vpc.v1.SubnetService/List": (pb.ListSubnetsRequest, self._subnets),
            "/nebius.vpc.v1.SecurityGroupService/GetByName": (pb.GetSecurityGroupByNameRequest, self._group),
            "/nebius.vpc.v1.SecurityGroupService/Create": (pb.CreateSecurityGroupRequest, self._make_group),
            "/nebius.vpc.v1.SecurityRuleService/List": (pb.ListSecurityRulesRequest, self._rules),
            "/nebius.vpc.v1.SecurityRuleService/Create": (pb.CreateSecurityRuleRequest, self._make_rule),
        }

    async def answer(self, path: str, body: bytes, metadata: Metadata) -> bytes:
        """The answer to one call. Raises Refusal, ConnectionCut."""
        given = dict(metadata)
        if path not in self._handlers:
            raise refusal("UNIMPLEMENTED", "Method not found!")
        if path != "/nebius.iam.v1.TokenExchangeService/Exchange":
            scheme, _, token = given.get("authorization", "").partition(" ")
            if scheme != "Bearer" or not self.account.knows(token):
                raise refusal("UNAUTHENTICATED", "The token is invalid")
            if not self.limiter.allows():
                raise refusal("RESOURCE_EXHAUSTED", "Too many requests", "too_many_requests")
        kind, handler = self._handlers[path]
        try:
            request = kind.FromString(body)
        except DecodeError:
            raise refusal("INTERNAL", "The request cannot be read") from None
        self._key = given.get("x-idempotency-key")
        try:
            return (await handler(request)).SerializeToString()
        except ScriptedFailure as failure:
            raise _scripted(failure) from None

    async def _exchange(self, request: pb.ExchangeTokenRequest) -> Message:
        token = self.account.token_for(request.subject_token)
        if token is None:
            raise refusal("UNAUTHENTICATED", "The assertion is invalid", "permission_denied")
        return pb.CreateTokenResponse(access_token=token, token_type="Bearer", expires_in=TOKEN_SECONDS)  # noqa: S106 - the name of a kind

    async def _project(self, request: pb.GetProjectRequest) -> Message:
        self._own(request.id)
        metadata = pb.ResourceMetadata(id=PROJECT_ID, parent_id=TENANT_ID, name="default-project-eu-north1")
        return pb.Project(metadata=metadata, spec=pb.ProjectSpec(region=REGION))

    async def _platforms(self, request: pb.ListPlatformsRequest) -> Message:
        await self._scenario.arrive("offers")
        self._own(request.parent_id)
        self._scenario.depart("offers")
        names = list(dict.fromkeys(each.platform for each in PRESETS.values()))
        page, token = _paged(names, request.page_size, request.page_token)
        return pb.ListPlatformsResponse(items=[_platform(name) for name in page], next_page_token=token)

    async def _advice(self, request: pb.ListResourceAdviceRequest) -> Message:
        if request.parent_id != TENANT_ID:
            raise refusal("PERMISSION_DENIED", "No access to this tenant", "permission_denied")
        places = [(preset, fabric) for preset in PRESETS.values() for fabric in FABRICS if preset.gpus]
        page, token = _paged(places, request.page_size, request.page_token)
        items = [self._advised(preset, fabric) for preset, fabric in page]
        return pb.ListResourceAdviceResponse(items=items, next_page_token=token)

    def _advised(self, preset: PresetOnSale, fabric: str) -> pb.ResourceAdvice:
        left = self._scenario.stock.get((preset.native_type, REGION))
        level = pb.ResourceAdviceStatus.Availability
        seen = level(
            data_state=level.DATA_STATE_FRESH,
            available=(16 if left is None else left) if fabric == FABRICS[0] else 0,
            availability_level=level.AVAILABILITY_LEVEL_LOW if left == 0 else level.AVAILABILITY_LEVEL_HIGH,
        )
        details = pb.ComputeInstanceDetails(
            platform=preset.platform, preset=pb.ComputeInstanceDetails.Preset(name=preset.name)
        )
        spec = pb.ResourceAdviceSpec(region=REGION, compute_instance=details)
        return pb.ResourceAdvice(spec=spec, status=pb.ResourceAdviceStatus(on_demand=seen))

    async def _estimate(self, request: pb.EstimateBatchRequest) -> Message:
        units = request.filter_aggregation_unit.filter_aggregation_unit_values
        wanted = (
            ("hour",)
            if list(units) == [pb.FilterAggregationUnit.FILTER_AGGREGATION_UNIT_HOUR]
            else ("month", "hour")
        )
        costs = [_cost(each, unit) for each in request.resource_specs for unit in wanted]
        return pb.EstimateBatchResponse(resource_costs=costs, currency=request.currency or "usd")

    async def _list(self, request: pb.ListInstancesRequest) -> Message:
        await self._scenario.arrive("inventory")
        self._own(request.parent_id)
        account = self.account
        page, token = _paged(account.instances.listed(), request.page_size, request.page_token)
        items = [
            pb.Instance(metadata=i.metadata, spec=_shown(i.spec), status=account.status(i)) for i in page
        ]
        if self._scenario.take("inventory", FaultKind.PARTIAL_LIST):
            raise ConnectionCut
        self._scenario.depart("inventory")
        return pb.ListInstancesResponse(items=items, next_page_token=token)

    async def _maintenance(self, request: pb.ListMaintenanceEventsRequest) -> Message:
        await self._scenario.arrive("inventory")
        self._own(request.parent_id)
        self._scenario.depart("inventory")
        events = list(self.account.maintenance.values())
        page, token = _paged(events, request.page_size, request.page_token)
        return pb.ListMaintenanceEventsResponse(items=page, next_page_token=token)

    async def _operations(self, request: pb.ListOperationsByParentRequest) -> Message:
        await self._scenario.arrive("inventory")
        self._own(request.parent_id)
        self._scenario.depart("inventory")
        page, token = _paged(self.account.failed, request.page_size, request.page_token)
        return pb.ListOperationsResponse(operations=page, next_page_token=token)

    async def _create(self, request: pb.CreateInstanceRequest) -> Message:
        await self._scenario.arrive("launch")
        key = self._key or ""
        operation = self.account.answered.get(key)
        if operation is None:
            operation = await self._created(request)
            if key:
                self.account.answered[key] = operation
        self._scenario.depart("launch")
        return operation

    async def _created(self, request: pb.CreateInstanceRequest) -> pb.Operation:
        preset = self._checked(request)
        account = self.account
        if account.gpus_held() + preset.gpus > account.gpus_max:
            raise refusal("RESOURCE_EXHAUSTED", "Quota limit exceeded: compute.instance.gpu", "quota_failure")
        if not self._scenario.sell(preset.native_type, REGION):
            raise refusal("RESOURCE_EXHAUSTED", "Not enough resources", "not_enough_resources")
        made = await account.launch(request, preset)
        accepted = account.operation(made.id)
        if made.sold_out:
            account.failed.append(_failed(accepted, "RESOURCE_EXHAUSTED", "not_enough_resources"))
        return accepted

    def _checked(self, request: pb.CreateInstanceRequest) -> PresetOnSale:
        """The preset of a sound request."""
        metadata, spec = request.metadata, request.spec
        self._own(metadata.parent_id)
        preset = PRESETS.get(f"{spec.resources.platform}/{spec.resources.preset}")
        if preset is None:
            raise _bad("spec.resources.preset: not found")
        if not 0 < len(metadata.name.encode()) <= NAME_BYTES_MAX:
            raise _bad("metadata.name: invalid length")
        if self.account.named(metadata.name) is not None:
            raise refusal("ALREADY_EXISTS", "An instance has this name", "resource_already_exists")
        if len(spec.cloud_init_user_data) > USER_DATA_CHARACTERS_MAX:
            raise _bad("spec.cloud_init_user_data: value length must be at most 32768 characters")
        if len(spec.network_interfaces) != 1 or spec.network_interfaces[0].subnet_id != SUBNET_ID:
            raise _bad("spec.network_interfaces: a subnet is required")
        if any(group.id not in self.account.groups for group in spec.network_interfaces[0].security_groups):
            raise refusal("NOT_FOUND", "Security group not found", "resource_not_found")
        disk = spec.boot_disk.managed_disk
        if not disk.name or disk.spec.source_image_family.image_family not in IMAGE_FAMILIES:
            raise _bad("spec.boot_disk: an image is required")
        return preset

    async def _delete(self, request: pb.DeleteInstanceRequest) -> Message:
        await self._scenario.arrive("terminate")
        found = self.account.instances.known(request.id)
        if found is None:
            raise refusal("NOT_FOUND", "Instance not found", "resource_not_found")
        if self._scenario.take("terminate", FaultKind.REFUSE_TERMINATE):
            raise refusal("ABORTED", "Another operation is running", "operation_conflict")
        await self.account.instances.end(found)
        self._scenario.depart("terminate")
        return self.account.operation(found.id)

    async def _start(self, request: pb.StartInstanceRequest) -> Message:
        return await self._switch(request.id, off=False)

    async def _stop(self, request: pb.StopInstanceRequest) -> Message:
        return await self._switch(request.id, off=True)

    async def _switch(self, instance_id: str, *, off: bool) -> Message:
        """What is as it is to be is done; a start without a place for it fails after the answer."""
        await self._scenario.arrive("power")
        found = self.account.instances.known(instance_id)
        if found is None:
            raise refusal("NOT_FOUND", "Instance not found", "resource_not_found")
        if self.account.instances.life(found) is not (Life.STOPPED if off else Life.RUNNING):
            lacks = not off and self._scenario.take("power", FaultKind.NO_CAPACITY)
            if not lacks and not await self.account.instances.switch(found, off=off):
                raise refusal("ABORTED", "Another operation is running", "operation_conflict")
        self._scenario.depart("power")
        return self.account.operation(found.id)

    async def _subnets(self, request: pb.ListSubnetsRequest) -> Message:
        self._own(request.parent_id)
        metadata = pb.ResourceMetadata(id=SUBNET_ID, parent_id=PROJECT_ID, name="default-subnet")
        return pb.ListSubnetsResponse(
            items=[pb.Subnet(metadata=metadata, spec=pb.SubnetSpec(network_id=NETWORK_ID))]
        )

    async def _group(self, request: pb.GetSecurityGroupByNameRequest) -> Message:
        self._own(request.parent_id)
        named = (each for each in self.account.groups.values() if each.metadata.name == request.name)
        found = next(named, None)
        if found is None:
            raise refusal("NOT_FOUND", "Security group not found", "resource_not_found")
        return found

    async def _make_group(self, request: pb.CreateSecurityGroupRequest) -> Message:
        await self._scenario.arrive("prepare")
        self._own(request.metadata.parent_id)
        if request.spec.network_id != NETWORK_ID:
            raise refusal("NOT_FOUND", "Network not found", "resource_not_found")
        if any(each.metadata.name == request.metadata.name for each in self.account.groups.values()):
            raise refusal("ALREADY_EXISTS", "A security group has this name", "resource_already_exists")
        request.metadata.id = self.account.new_id("vpcsecuritygroup")
        made = pb.SecurityGroup(metadata=request.metadata, spec=request.spec)
        self.account.groups[made.metadata.id] = made
        self._scenario.depart("prepare")
        return self.account.finished(made.metadata.id)

    async def _rules(self, request: pb.ListSecurityRulesRequest) -> Message:
        if request.parent_id not in self.account.groups:
            raise refusal("NOT_FOUND", "Security group not found", "resource_not_found")
        return pb.ListSecurityRulesResponse(items=self.account.rules.get(request.parent_id, {}).values())

    async def _make_rule(self, request: pb.CreateSecurityRuleRequest) -> Message:
        await self._scenario.arrive("prepare")
        group, spec = request.metadata.parent_id, request.spec
        if group not in self.account.groups:
            raise refusal("NOT_FOUND", "Security group not found", "resource_not_found")
        if not (spec.access and spec.protocol and spec.WhichOneof("match")):
            raise _bad("spec: access, protocol and match are required")
        rules = self.account.rules.setdefault(group, {})
        if request.metadata.name in rules:
            raise refusal("ALREADY_EXISTS", "A rule has this name", "resource_already_exists")
        request.metadata.id = self.account.new_id("vpcsecurityrule")
        rules[request.metadata.name] = pb.SecurityRule(metadata=request.metadata, spec=spec)
        self._scenario.depart("prepare")
        return self.account.finished(request.metadata.id)

    def _own(self, project_id: str) -> None:
        if project_id != PROJECT_ID:
            raise refusal("PERMISSION_DENIED", "No access to this project", "permission_denied")


def refusal(status: str, message: str, kind: str = "") -> Refusal:
    """A status with a `ServiceError` of that kind in its details."""
    if not kind:
        return Refusal(status, message)
    return Refusal(status, message, _status_of(status, message, kind).SerializeToString())


def _status_of(status: str, message: str, kind: str) -> pb.Status:
    error = pb.ServiceError(service="compute", code=kind.title().replace("_", ""))
    getattr(error, kind).SetInParent()
    details = pb.Status(code=STATUS_NUMBERS[status], message=message)
    details.details.add(
        type_url="type.googleapis.com/nebius.common.v1.ServiceError", value=error.SerializeToString()
    )
    return details


def _failed(accepted: pb.Operation, status: str, kind: str) -> pb.Operation:
    """The same operation after it failed."""
    failed = pb.Operation()
    failed.CopyFrom(accepted)
    failed.finished_at.CopyFrom(accepted.created_at)
    failed.status.CopyFrom(_status_of(status, "Not enough resources", kind))
    return failed


def _platform(name: str) -> pb.Platform:
    presets = [
        pb.Preset(
            name=each.name,
            resources=pb.PresetResources(
                vcpu_count=each.vcpus, memory_gibibytes=each.memory_gib, gpu_count=each.gpus
            ),
        )
        for each in PRESETS.values()
        if each.platform == name
    ]
    return pb.Platform(
        metadata=pb.ResourceMetadata(id=f"computeplatform-{name}", parent_id=PROJECT_ID, name=name),
        spec=pb.PlatformSpec(presets=presets),
    )


def _cost(asked: pb.ResourceSpec, unit: str) -> pb.ResourceCost:
    prefix, _, kind = asked.spec.type_url.rpartition(".")
    if prefix != "type.googleapis.com/nebius.compute.v1":
        raise _bad("resource_specs: not a request that can be priced")
    if kind == "CreateDiskRequest":
        disk = pb.CreateDiskRequest.FromString(asked.spec.value)
        metadata, usd = disk.metadata, disk_usd_per_hour(disk.spec)
    else:
        machine = pb.CreateInstanceRequest.FromString(asked.spec.value)
        resources = machine.spec.resources
        preset = PRESETS.get(f"{resources.platform}/{resources.preset}")
        if preset is None:
            raise _bad("resource_specs: no such preset")
        metadata, usd = machine.metadata, preset.usd_per_hour
    cost = pb.CostBreakdown(cost=str(usd if unit == "hour" else usd * 730))
    return pb.ResourceCost(
        metadata=metadata,
        aggregation_unit=pb.AggregationUnit(unit=unit, unit_type=pb.AggregationUnit.UNIT_TYPE_TIME_BASED),
        general=pb.GeneralResourceCost(total=cost),
    )


def _shown(spec: pb.InstanceSpec) -> pb.InstanceSpec:
    """Without the user data, which is marked as sensitive."""
    shown = pb.InstanceSpec()
    shown.CopyFrom(spec)
    shown.ClearField("cloud_init_user_data")
    return shown


def _paged(found: Sequence[Item], size: int, token: str) -> tuple[Sequence[Item], str]:
    """One page, and the token of the next one; empty after the last."""
    begin = int(token) if token.isdecimal() else 0
    end = begin + (min(size, PAGE_SIZE_MAX) or PAGE_SIZE)
    return found[begin:end], str(end) if end < len(found) else ""


def _bad(message: str) -> Refusal:
    return refusal("INVALID_ARGUMENT", message, "bad_request")


def _scripted(failure: ScriptedFailure) -> Refusal:
    if failure.kind is FaultKind.THROTTLE:
        return refusal("RESOURCE_EXHAUSTED", "Too many requests", "too_many_requests")
    return refusal("INTERNAL", "Internal error", "internal_error")


def create_server(
    host: MachineHost, scenario: Scenario, *, now: Callable[[], datetime], public_key: str | None = None
) -> GrpcServer:
    """The emulator; tests find the emulated account at `server.cloud.account`.

    Without a public key for its service account it makes a pair, and its note says where the private key lies.
    """
    note = ""
    if public_key is None:
        public_key, path = _new_key()
        note = (
            f"project_id {PROJECT_ID}, service_account_id {SERVICE_ACCOUNT_ID}, public_key_id {PUBLIC_KEY_ID}, "
            f"private_key in {path}"
        )
    account = Account(host, scenario, now, {PUBLIC_KEY_ID: public_key})
    return GrpcServer(Nebius(account, scenario, now), note)


def _new_key() -> tuple[str, str]:
    """A public key in PEM, and the path of its private key, which only this user can read."""
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    written = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with NamedTemporaryFile(prefix="emulated-nebius-", suffix=".pem", delete=False) as file:
        file.write(written)
    return public_pem(private), file.name


def public_pem(private: rsa.RSAPrivateKey) -> str:
    encoded = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return encoded.decode()
