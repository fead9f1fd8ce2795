"""What launches in a region need, read or made before them: subnets, a security group and an image.

All machines of an account share it. Whatever others do to it meanwhile, reading it again finds it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from providers.aws_client import AwsClient, Operation, filter_of
from providers.base import Verb
from providers.error_law import Meaning, error_for

GROUP = "splitplane"
_OPEN = (("tcp", 22), ("udp", 51_820))
"""SSH, and WireGuard's port of nodes and of private networks."""


@dataclass(frozen=True, slots=True)
class Ready:
    """All that a launch in a region needs."""

    subnets: Mapping[str, str]
    """The default subnet of each zone."""
    group: str
    image: str
    root_device: str
    other_volumes: tuple[str, ...]
    """Devices for which the image makes further volumes."""


@dataclass(frozen=True, slots=True)
class _Subnet:
    id: str
    vpc: str


@dataclass(frozen=True, slots=True)
class _Group:
    id: str | None
    """None where there is none yet."""
    open: frozenset[tuple[str, int]] = frozenset()
    """Ports that are open to everybody."""

    @property
    def closed(self) -> list[tuple[str, int]]:
        """Ports of ours that are not open yet."""
        return [each for each in _OPEN if each not in self.open]


@dataclass(frozen=True, slots=True)
class _Image:
    id: str
    root_device: str
    other_volumes: tuple[str, ...]


@dataclass(slots=True)
class _Region:
    """What launches in a region need, as far as it was read."""

    subnets: Mapping[str, _Subnet] | None = None
    """The default subnet of each zone."""
    group: _Group | None = None
    image: _Image | None = None


class Preparation:
    """`image` is a name, in which `*` and `?` stand for anything."""

    def __init__(self, aws: AwsClient, image: str) -> None:
        self._aws = aws
        self._image = image
        self._regions: defaultdict[str, _Region] = defaultdict(_Region)

    def ready(self, region: str) -> Ready | None:
        found = self._regions[region]
        if not found.subnets or found.group is None or found.group.id is None or found.image is None:
            return None
        if found.group.closed:
            return None
        subnets = {zone: subnet.id for zone, subnet in found.subnets.items()}
        image = found.image
        return Ready(subnets, found.group.id, image.id, image.root_device, image.other_volumes)

    def forget(self, region: str) -> None:
        """Have everything read again: somebody may have deleted something of it."""
        self._regions.pop(region, None)

    async def step(self, region: str) -> None:
        """Read the subnets, the security group or the image, or make or open the group."""
        found = self._regions[region]
        if not found.subnets:
            found.subnets = await self._subnets(region)
            return
        vpc = next(iter(found.subnets.values())).vpc
        group = found.group
        if group is None:
            found.group = await self._group(region, vpc)
        elif group.id is None:
            found.group = None  # Read again: a lost answer, or another replica, may have made it.
            found.group = await self._make_group(region, vpc)
        elif group.closed:
            found.group = None
            found.group = await self._open_group(region, group.id, group.closed)
        else:
            found.image = await self._newest_image(region)

    async def _subnets(self, region: str) -> Mapping[str, _Subnet]:
        found = await self._aws.call(
            Verb.PREPARE,
            region,
            Operation("ec2", "describe_subnets"),
            lambda answer: {
                each["AvailabilityZone"]: _Subnet(each["SubnetId"], each["VpcId"])
                for each in answer["Subnets"]
            },
            Filters=[filter_of("default-for-az", "true"), filter_of("state", "available")],
        )
        if not found:
            raise error_for(
                Verb.PREPARE, Meaning.REFUSED, f"{region} has no default VPC with subnets; make one"
            )
        return found

    async def _group(self, region: str, vpc: str) -> _Group:
        return await self._aws.call(
            Verb.PREPARE,
            region,
            Operation("ec2", "describe_security_groups"),
            _only_group,
            Filters=[filter_of("group-name", GROUP), filter_of("vpc-id", vpc)],
        )

    async def _make_group(self, region: str, vpc: str) -> _Group:
        return await self._aws.call(
            Verb.PREPARE,
            region,
            Operation("ec2", "create_security_group"),
            lambda answer: _Group(answer["GroupId"]),
            GroupName=GROUP,
            Description="SSH and WireGuard to machines of Splitplane",
            VpcId=vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": [{"Key": "Name", "Value": GROUP}]}],
        )

    async def _open_group(self, region: str, group: str, ports: Iterable[tuple[str, int]]) -> _Group:
        return await self._aws.call(
            Verb.PREPARE,
            region,
            Operation("ec2", "authorize_security_group_ingress"),
            lambda _: _Group(group, frozenset(_OPEN)),
            GroupId=group,
            IpPermissions=[_open_to_all(protocol, port) for protocol, port in ports],
        )

    async def _newest_image(self, region: str) -> _Image:
        found = await self._aws.call(
            Verb.PREPARE,
            region,
            Operation("ec2", "describe_images"),
            _newest,
            Owners=["amazon", "self"],
            Filters=[
                filter_of("name", self._image),
                filter_of("architecture", "x86_64"),
                filter_of("state", "available"),
            ],
        )
        if found is None:
            raise error_for(Verb.PREPARE, Meaning.REFUSED, f"{region} has no image named {self._image!r}")
        return found


def _only_group(answer: Mapping[str, Any]) -> _Group:
    groups = answer["SecurityGroups"]
    if not groups:
        return _Group(None)
    return _Group(groups[0]["GroupId"], frozenset(_open_ports(groups[0]["IpPermissions"])))


def _open_ports(permissions: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int]]:
    for each in permissions:
        if any(addresses["CidrIp"] == "0.0.0.0/0" for addresses in each.get("IpRanges", ())):
            for protocol, port in _OPEN:
                if each["IpProtocol"] == protocol and each["FromPort"] <= port <= each["ToPort"]:
                    yield protocol, port


def _open_to_all(protocol: str, port: int) -> dict[str, Any]:
    return {
        "IpProtocol": protocol,
        "FromPort": port,
        "ToPort": port,
        "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "customers"}],
    }


def _newest(answer: Mapping[str, Any]) -> _Image | None:
    found = max(answer["Images"], key=lambda image: image["CreationDate"], default=None)
    if found is None:
        return None
    root = found["RootDeviceName"]
    volumes = (each["DeviceName"] for each in found.get("BlockDeviceMappings", ()) if "Ebs" in each)
    return _Image(found["ImageId"], root, tuple(device for device in volumes if device != root))
