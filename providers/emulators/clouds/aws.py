"""The HTTP contract of AWS's EC2 and of its price list, over emulated machines.

One address serves every region and both services, as with `endpoint_url` in botocore: the signature names the region
and the service. moto answers for what EC2 keeps (`aws_account.py`); here is what EC2 refuses and moto does not: wrong
signatures, too many requests, sold-out zones, quotas, other parameters for the same token, user data that is too long.
Error codes and limits are those of "Error codes for the Amazon EC2 API" and of its page on request throttling
(docs.aws.amazon.com, read 2026-11-23). Where they say nothing, we chose: the texts, the limits of the price list
(none), and how old a signature may be (any age).
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from litestar import Litestar, Request, Response, post
from litestar.datastructures import State
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.aws_account import (
    Account,
    Machine,
    gpus_of,
    stock_name,
    vcpus_of,
    zones_of,
)
from providers.emulators.clouds.aws_documents import (
    REQUEST_ID,
    console_output,
    ended_before,
    instance_statuses,
)
from providers.emulators.clouds.aws_limits import Limiter
from providers.emulators.clouds.aws_products import matching
from providers.emulators.clouds.aws_signatures import Scope, Signed, is_signed_by, signed_parts
from providers.emulators.clouds.aws_spot import SPOT_ACTIONS, SpotRequests, spot_price, tags_of
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

ACCESS_KEY_ID = "EMULATED-ACCESS-KEY-ID"
SECRET_ACCESS_KEY = "emulated-secret-access-key"  # noqa: S105 - it gives access to nothing but the emulator
USER_DATA_BYTES_MAX = 16_384
CLIENT_TOKEN_CHARACTERS_MAX = 64
VERBS = {
    "DescribeInstanceTypes": "offers",
    "DescribeSubnets": "prepare",
    "DescribeSecurityGroups": "prepare",
    "CreateSecurityGroup": "prepare",
    "AuthorizeSecurityGroupIngress": "prepare",
    "DescribeImages": "prepare",
    "DescribeInstances": "inventory",
    "DescribeInstanceStatus": "inventory",
    "RunInstances": "launch",
    "TerminateInstances": "terminate",
    "RebootInstances": "power",
    "StopInstances": "power",
    "StartInstances": "power",
    "RevokeSecurityGroupIngress": "firewall",
    "ModifyInstanceAttribute": "firewall",
    "DeleteSecurityGroup": "children",
    "DescribeVolumes": "children",
    "DeleteVolume": "children",
    "DescribeSpotInstanceRequests": "children",
    "CancelSpotInstanceRequests": "children",
    "GetConsoleOutput": "console",
}
"""The port's verb of each operation, for the scenario. An operation that is missing meets no faults."""

_WITHOUT_FAULTS = frozenset({"DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory"})

AnyRequest = Request[Any, Any, Any]


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True)
class Call:
    """A request as EC2 reads it."""

    region: str
    action: str
    parameters: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    body: bytes


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    access_key_id: str = ACCESS_KEY_ID,
    secret_access_key: str = SECRET_ACCESS_KEY,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated account at `app.state.account`."""
    account = Account(host, scenario, now)
    limiter = Limiter(now)
    spot = SpotRequests(now)
    emulated = Ec2(account, scenario, limiter, spot)

    @post("/", status_code=HTTP_200_OK)
    async def serve(request: AnyRequest) -> Response[bytes]:
        signed = signed_parts(request.headers.get("Authorization", ""))
        in_json = signed is not None and signed.scope.service == "pricing"
        try:
            body = await request.body()
            scope = _authenticated(request, body, signed, access_key_id, secret_access_key)
            if scope.service == "pricing":
                return await _priced(request, body)
            return await emulated.serve(scope.region, str(request.url), dict(request.headers), body)
        except ScriptedFailure as failure:
            scripted = failure.kind is FaultKind.THROTTLE
            return _refused(_throttled() if scripted else _internal_error(), in_json=in_json)
        except Refusal as refusal:
            return _refused(refusal, in_json=in_json)

    def on_wire() -> list[dict[str, Any]]:
        standing = account.machines.standing()
        return [
            {"id": each.id, "client_token": each.client_token, "zone": each.native_region}
            for each in standing
        ]

    return Litestar(
        route_handlers=[serve, *control_routes(scenario, on_wire)],
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter, "spot": spot}),
    )


@dataclass
class Ec2:
    """What EC2 decides before and after moto answers."""

    account: Account
    scenario: Scenario
    limiter: Limiter
    spot: SpotRequests

    async def serve(self, region: str, url: str, headers: Mapping[str, str], body: bytes) -> Response[bytes]:
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        call = Call(region, parameters.get("Action", ""), parameters, url, headers, body)
        if call.action not in VERBS.keys() | _WITHOUT_FAULTS:
            raise Refusal(
                400, "InvalidAction", f"The action {call.action} is not valid for this web service."
            )
        if not self.limiter.draw(region, call.action, parameters):
            raise _throttled()
        verb = self._verb(call)
        if verb is None:
            return _document(*await self._answer(call))
        await self.scenario.arrive(verb)
        status, document = await self._answer(call)
        self.scenario.depart(verb)
        if verb == "inventory" and self.scenario.take(verb, FaultKind.PARTIAL_LIST):
            document = document[: len(document) // 2]
        return _document(status, document)

    def _verb(self, call: Call) -> str | None:
        """Operations that belong to several verbs are told apart by what they are about."""
        about = call.parameters
        if call.action == "DescribeInstances" and "InstanceId.1" in about:
            return "firewall"
        if call.action == "DescribeSecurityGroups" and about.get("Filter.1.Name", "").startswith("tag"):
            return "firewall" if about["Filter.1.Name"].startswith("tag:") else "children"
        if call.action == "CreateSecurityGroup" and "TagSpecification.1.ResourceType" in about:
            return "firewall"
        if call.action == "AuthorizeSecurityGroupIngress":
            group = self.account.backend(call.region).get_security_group_from_id(about.get("GroupId", ""))
            return "firewall" if group is not None and group.get_tags() else "prepare"
        return VERBS.get(call.action)

    async def _answer(self, call: Call) -> tuple[int, bytes]:  # noqa: PLR0911 - one for each action
        match call.action:
            case "RunInstances":
                return 200, await self._launch(call)
            case "TerminateInstances":
                return await self._terminate(call)
            case "RebootInstances" | "StopInstances" | "StartInstances":
                return await self._switch(call)
            case "DescribeInstances" if "InstanceId.1" in call.parameters:
                return self._found(call, "InstanceId.1")
            case "ModifyInstanceAttribute":
                return self._regroup(call)
            case "DeleteSecurityGroup":
                return self._delete_group(call)
            case action if action in SPOT_ACTIONS:
                return self.spot.answer(action, call.region, call.parameters)
            case "DescribeInstanceStatus":
                return 200, self._statuses(call)
            case "GetConsoleOutput":
                return 200, self._console(call)
            case _:
                return self._moto(call)

    def _moto(self, call: Call) -> tuple[int, bytes]:
        return self.account.ask(call.region, call.url, call.headers, call.body)

    async def _launch(self, call: Call) -> bytes:
        """The answer to a launch. The same launch again changes nothing."""
        token = call.parameters.get("ClientToken", "")
        before = self.account.launches.get((call.region, token)) if token else None
        if before is not None:
            return _same_launch(call, *before)
        zone = self._checked(call)
        self._sell(call, zone)
        status, document = self._moto(call)
        if status != HTTP_200_OK:
            self.scenario.put_back(stock_name(call.parameters["InstanceType"], spot=_is_spot(call)), zone)
            error = next(each for each in ET.fromstring(document).iter("Error"))  # noqa: S314 - moto wrote it
            raise Refusal(status, error.findtext("Code", ""), error.findtext("Message", ""))
        machine = await self._boot(call, zone, document)
        if token:
            self.account.launches[call.region, token] = call.parameters, machine, document
        return document

    def _checked(self, call: Call) -> str:
        """The zone of a sound request."""
        wanted = call.parameters
        if (wanted.get("MinCount"), wanted.get("MaxCount")) != ("1", "1"):
            raise Refusal(400, "InvalidParameterValue", "This emulator launches one instance at a time.")
        if len(wanted.get("ClientToken", "")) > CLIENT_TOKEN_CHARACTERS_MAX:
            raise Refusal(
                400, "InvalidParameterValue", "The client token may have at most 64 ASCII characters."
            )
        if len(_user_data(call)) > USER_DATA_BYTES_MAX:
            raise Refusal(400, "InvalidParameterValue", "User data is limited to 16384 bytes")
        backend = self.account.backend(call.region)
        if wanted.get("ImageId") not in backend.amis:
            raise Refusal(
                400, "InvalidAMIID.NotFound", f"The image id '[{wanted.get('ImageId')}]' does not exist"
            )
        subnet = wanted.get("NetworkInterface.1.SubnetId", "")
        zones = [zone for zone, found in backend.subnets.items() if subnet in found]
        if not zones:
            raise Refusal(400, "InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
        return str(zones[0])

    def _sell(self, call: Call, zone: str) -> None:
        native_type = call.parameters.get("InstanceType", "")
        try:
            vcpus = vcpus_of(native_type)
        except KeyError:
            why = f"Invalid value '{native_type}' for InstanceType."
            raise Refusal(400, "InvalidParameterValue", why) from None
        if zone not in zones_of(native_type, call.region):
            why = f"Your requested instance type ({native_type}) is not supported in {zone}."
            raise Refusal(400, "Unsupported", why)
        spot = _is_spot(call)
        if self.account.vcpus(call.region, spot=spot) + vcpus > self.account.vcpus_max:
            if spot:
                raise Refusal(400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            why = f"You have requested more than your current vCPU limit of {self.account.vcpus_max} allows."
            raise Refusal(400, "VcpuLimitExceeded", why)
        limit = call.parameters.get(_LIMIT)
        if spot and limit is not None and Decimal(limit) < spot_price(native_type):
            why = f"Your Spot request price of {limit} is lower than the minimum required price."
            raise Refusal(400, "SpotMaxPriceTooLow", why)
        if not self.scenario.sell(stock_name(native_type, spot=spot), zone):
            why = f"We currently do not have sufficient {native_type} capacity in {zone}."
            raise Refusal(500, "InsufficientInstanceCapacity", why)

    async def _boot(self, call: Call, zone: str, document: bytes) -> Machine:
        native_type = call.parameters["InstanceType"]
        machine = Machine(
            id=_instance_id(document),
            native_type=native_type,
            native_region=zone,
            region=call.region,
            client_token=call.parameters.get("ClientToken", ""),
            spot=_is_spot(call),
        )
        if machine.spot:
            marks = tags_of(call.parameters, "spot-instances-request")
            self.spot.made(call.region, machine, call.parameters.get(_LIMIT, ""), marks)
        user_data = _user_data(call).decode(errors="replace")
        return await self.account.machines.launch(machine, *gpus_of(native_type), user_data=user_data)

    async def _terminate(self, call: Call) -> tuple[int, bytes]:
        instance = call.parameters.get("InstanceId.1", "")
        machine = self.account.machines.known(instance)
        missing = machine is None or machine.region != call.region
        if machine is None or missing or machine.listed_from > self.account.now():
            raise Refusal(400, "InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
        if instance in self.account.protected or self.scenario.take("terminate", FaultKind.REFUSE_TERMINATE):
            why = (
                f"The instance '{instance}' may not be terminated."
                " Modify its 'disableApiTermination' instance attribute and try again."
            )
            raise Refusal(400, "OperationNotPermitted", why)
        if machine.ended_at is not None:
            return 200, ended_before(instance, *self.account.status(machine))
        answer = self._moto(call)
        await self.account.machines.end(machine)
        self.spot.ended_by_user(instance)
        return answer

    def _found(self, call: Call, parameter: str) -> tuple[int, bytes]:
        """What moto answers about a machine, if it is listed in this region."""
        instance = call.parameters.get(parameter, "")
        machine = self.account.machines.known(instance)
        if machine is None or machine.region != call.region or machine.listed_from > self.account.now():
            raise Refusal(400, "InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
        return self._moto(call)

    def _regroup(self, call: Call) -> tuple[int, bytes]:
        """A machine gets other groups. moto adds them to those of its interface, and keeps these as well."""
        answer = self._found(call, "InstanceId")
        instance = self.account.backend(call.region).get_instance(call.parameters["InstanceId"])
        for interface in instance.nics.values():
            interface._group_set = list(instance.security_groups)  # noqa: SLF001 - moto has no other way to take one away
        return answer

    def _delete_group(self, call: Call) -> tuple[int, bytes]:
        """Moto deletes groups that machines are in."""
        group, backend = call.parameters.get("GroupId", ""), self.account.backend(call.region)
        standing = [each.id for each in self.account.machines.standing() if each.region == call.region]
        interfaces = (nic for instance in standing for nic in backend.get_instance(instance).nics.values())
        if any(group == each.id for interface in interfaces for each in interface.group_set):
            raise Refusal(400, "DependencyViolation", f"resource {group} has a dependent object")
        return self._moto(call)

    async def _switch(self, call: Call) -> tuple[int, bytes]:
        """What moto does in vain: its machines are not those of the host.

        A stop of a stopped machine and a start of one that runs change nothing.
        """
        instance = call.parameters.get("InstanceId.1", "")
        machine = self._known(call, instance)
        if machine.spot and call.action == "StopInstances":
            why = f"You can't stop the Spot Instance '{instance}' because it is associated with a one-time request."
            raise Refusal(400, "UnsupportedOperation", why)
        before = self.account.machines.life(machine)
        if (call.action, before) in _CHANGES_NOTHING:
            return self._moto(call)
        if call.action == "StartInstances" and self.scenario.take("power", FaultKind.NO_CAPACITY):
            why = f"We currently do not have sufficient {machine.native_type} capacity in {machine.native_region}."
            raise Refusal(500, "InsufficientInstanceCapacity", why)
        off_already = call.action == "RebootInstances" and before is Life.STOPPED
        off = call.action == "StopInstances"
        if off_already or not await self.account.machines.switch(machine, off=off):
            why = f"The instance '{instance}' is not in a state from which it can be changed."
            raise Refusal(400, "IncorrectInstanceState", why)
        return self._moto(call)

    def _console(self, call: Call) -> bytes:
        """Moto prints the same for every machine; this is what the host has."""
        instance = call.parameters.get("InstanceId", "")
        printed = self.account.machines.host.console(self._known(call, instance).id)
        return console_output(instance, printed, self.account.now())

    def _statuses(self, call: Call) -> bytes:
        """Machines with scheduled events of the codes that are asked for."""
        wanted = call.parameters
        if wanted.get("Filter.1.Name") != "event.code" or wanted.get("IncludeAllInstances") != "true":
            why = "This emulator lists the machines, stopped ones too, that have events of some codes."
            raise Refusal(400, "InvalidParameterCombination", why)
        codes = {value for name, value in wanted.items() if name.startswith("Filter.1.Value")}
        found = {
            machine.id: [event for event in self.account.events.get(machine.id, ()) if event.code in codes]
            for machine in self.account.machines.standing()
            if machine.region == call.region
        }
        with_events = [(instance, events) for instance, events in found.items() if events]
        begin, size = int(wanted.get("NextToken") or 0), int(wanted.get("MaxResults", "1000"))
        left = begin + size < len(with_events)
        return instance_statuses(dict(with_events[begin : begin + size]), str(begin + size) if left else None)

    def _known(self, call: Call, instance: str) -> Machine:
        machine = self.account.machines.known(instance)
        if machine is None or machine.region != call.region or machine.listed_from > self.account.now():
            raise Refusal(400, "InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
        return machine


_CHANGES_NOTHING = {("StopInstances", Life.STOPPED), ("StartInstances", Life.RUNNING)}


def _is_spot(call: Call) -> bool:
    """Whether a launch is for spot. Of a kind that would buy again or keep its disk, this emulator has none."""
    wanted = call.parameters
    if wanted.get("InstanceMarketOptions.MarketType") != "spot":
        return False
    options = "InstanceMarketOptions.SpotOptions"
    kind = (wanted.get(f"{options}.SpotInstanceType"), wanted.get(f"{options}.InstanceInterruptionBehavior"))
    if kind != ("one-time", "terminate"):
        raise Refusal(
            400, "InvalidParameterCombination", "This emulator has one-time requests that terminate."
        )
    return True


_LIMIT = "InstanceMarketOptions.SpotOptions.MaxPrice"


def _same_launch(call: Call, parameters: Mapping[str, str], machine: Machine, document: bytes) -> bytes:
    if dict(parameters) != dict(call.parameters):
        why = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
        raise Refusal(400, "IdempotentParameterMismatch", why)
    if machine.ended_at is not None:
        why = "The instance of this idempotent request was terminated."
        raise Refusal(400, "IdempotentInstanceTerminated", why)
    return document


def _user_data(call: Call) -> bytes:
    try:
        return base64.b64decode(call.parameters.get("UserData", ""), validate=True)
    except binascii.Error:
        raise Refusal(400, "InvalidParameterValue", "Invalid BASE64 encoding of user data.") from None


def _instance_id(document: bytes) -> str:
    found = (each.text for each in ET.fromstring(document).iter() if each.tag.endswith("instanceId"))  # noqa: S314 - moto wrote it
    return str(next(found))


def _authenticated(
    request: AnyRequest, body: bytes, signed: Signed | None, access_key_id: str, secret_access_key: str
) -> Scope:
    """What the signature is for. Raises Refusal."""
    if signed is None:
        raise Refusal(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
    known = signed.access_key_id == access_key_id
    if known and is_signed_by(secret_access_key, signed, str(request.url), dict(request.headers), body):
        return signed.scope
    if signed.scope.service == "pricing":
        raise Refusal(
            400, "UnrecognizedClientException", "The security token included in the request is invalid."
        )
    raise Refusal(401, "AuthFailure", "AWS was not able to validate the provided access credentials")


async def _priced(request: AnyRequest, body: bytes) -> Response[bytes]:
    if request.headers.get("X-Amz-Target") != "AWSPriceListService.GetProducts":
        raise Refusal(400, "UnknownOperationException", "")
    asked = json.loads(body)
    found = matching(asked.get("Filters", []))
    start, size = int(asked.get("NextToken", "0")), int(asked.get("MaxResults", 100))
    answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": found[start : start + size]}
    if start + size < len(found):
        answer["NextToken"] = str(start + size)
    return Response(json.dumps(answer).encode(), media_type="application/x-amz-json-1.1")


def _throttled() -> Refusal:
    return Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")


def _internal_error() -> Refusal:
    return Refusal(500, "InternalError", "An internal error has occurred")


def _document(status: int, document: bytes) -> Response[bytes]:
    return Response(document, status_code=status, media_type="text/xml;charset=UTF-8")


def _refused(refusal: Refusal, *, in_json: bool) -> Response[bytes]:
    if in_json:
        failure = {"__type": f"com.amazonaws.pricing#{refusal.code}", "message": refusal.message}
        document = json.dumps(failure).encode()
        return Response(document, status_code=refusal.status, media_type="application/x-amz-json-1.1")
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error></Errors>"
        f"<RequestID>{REQUEST_ID}</RequestID></Response>"
    )
    return _document(refusal.status, text.encode())
