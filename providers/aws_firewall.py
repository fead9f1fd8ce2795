"""The firewall of a machine at AWS: a security group of its own beside the one that all machines share.

It is made when the machine first gets a rule, carries the machine's launch key as name and tag, and is a child that is
deleted once the machine is gone: AWS refuses to delete a group that a machine is in. Quotas, which AWS raises on
request: 60 entries of IPv4 in a group, five groups on an interface, 2,500 groups in a region
(docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html, read 2026-11-23).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import LaunchKey
from providers.aws_client import AwsClient, Operation, filter_of, tags
from providers.base import Child, Ingress, Needed, Page, Verb
from providers.error_law import Meaning, error_for
from providers.listings import LAUNCH_KEY_TAG, launch_key_among, whole_listing

INGRESS_MAX = 60
KIND = "security_group"
_PAGE_SIZE = 1_000

Permission = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Group:
    id: str
    entries: tuple[Permission, ...]
    """What it lets in, each from one source, as AWS takes it back."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A machine, as far as groups are concerned."""

    vpc: str
    groups: tuple[str, ...]


class MachineGroups:
    def __init__(self, aws: AwsClient) -> None:
        self._aws = aws

    async def apply(self, region: str, instance: str, key: LaunchKey, wanted: frozenset[Ingress]) -> bool:
        """Read a machine and its group, and make, open, close or attach the group."""
        machine = await self._machine(region, instance)
        group = await self._group(region, key)
        if group is None:
            if wanted:
                await self._make(region, machine.vpc, key)
            return not wanted
        missing = wanted - {_ingress(entry) for entry in group.entries}
        surplus = [entry for entry in group.entries if _ingress(entry) not in wanted]
        if surplus and (not missing or len(group.entries) + len(missing) > INGRESS_MAX):
            await self._change(region, "revoke_security_group_ingress", group, surplus)
        elif missing:
            opened = [_permission(each) for each in sorted(missing)]
            await self._change(region, "authorize_security_group_ingress", group, opened)
        elif group.id not in machine.groups:
            await self._attach(region, instance, (*machine.groups, group.id))
        else:
            return True
        return False

    async def children(self, region: str) -> tuple[Child, ...]:
        async def page(cursor: str | None) -> Page[Child]:
            return await self._aws.call(
                Verb.CHILDREN,
                region,
                Operation("ec2", "describe_security_groups"),
                lambda answer: Page(tuple(_children(region, answer)), answer.get("NextToken") or None),
                Filters=[filter_of("tag-key", LAUNCH_KEY_TAG)],
                MaxResults=_PAGE_SIZE,
                **({"NextToken": cursor} if cursor else {}),
            )

        return await whole_listing(Verb.CHILDREN, page)

    async def delete(self, region: str, group: str) -> None:
        await self._aws.call(
            Verb.CHILDREN, region, Operation("ec2", "delete_security_group"), lambda _: None, GroupId=group
        )

    async def _machine(self, region: str, instance: str) -> _Member:
        return await self._aws.call(
            Verb.FIREWALL, region, Operation("ec2", "describe_instances"), _member, InstanceIds=[instance]
        )

    async def _group(self, region: str, key: LaunchKey) -> _Group | None:
        return await self._aws.call(
            Verb.FIREWALL,
            region,
            Operation("ec2", "describe_security_groups"),
            _only_group,
            Filters=[filter_of(f"tag:{LAUNCH_KEY_TAG}", key), filter_of("group-name", key)],
        )

    async def _make(self, region: str, vpc: str, key: LaunchKey) -> None:
        marks = [{"Key": LAUNCH_KEY_TAG, "Value": key}, {"Key": "Name", "Value": key}]
        await self._aws.call(
            Verb.FIREWALL,
            region,
            Operation("ec2", "create_security_group"),
            lambda _: None,
            GroupName=key,
            Description="What the customer of this machine of Splitplane opened",
            VpcId=vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": marks}],
        )

    async def _change(self, region: str, name: str, group: _Group, entries: list[Permission]) -> None:
        await self._aws.call(
            Verb.FIREWALL,
            region,
            Operation("ec2", name),
            lambda _: None,
            GroupId=group.id,
            IpPermissions=entries,
        )

    async def _attach(self, region: str, instance: str, groups: tuple[str, ...]) -> None:
        await self._aws.call(
            Verb.FIREWALL,
            region,
            Operation("ec2", "modify_instance_attribute"),
            lambda _: None,
            InstanceId=instance,
            Groups=list(groups),
        )


def _member(answer: Mapping[str, Any]) -> _Member:
    machines = [each for reservation in answer["Reservations"] for each in reservation["Instances"]]
    if not machines or machines[0]["State"]["Name"] == "terminated":
        raise error_for(Verb.FIREWALL, Meaning.NOT_FOUND, "the machine was terminated")
    (interface,) = machines[0]["NetworkInterfaces"]  # Ours are launched with one.
    return _Member(machines[0]["VpcId"], tuple(group["GroupId"] for group in interface["Groups"]))


def _only_group(answer: Mapping[str, Any]) -> _Group | None:
    groups = answer["SecurityGroups"]
    if not groups:
        return None
    return _Group(groups[0]["GroupId"], tuple(_entries(groups[0]["IpPermissions"])))


def _entries(permissions: Iterable[Permission]) -> Iterator[Permission]:
    """Each permission, divided into those from one source."""
    for each in permissions:
        ports = {name: each[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in each}
        for sources in ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs"):
            yield from ({**ports, sources: [source]} for source in each.get(sources, ()))


def _ingress(entry: Permission) -> Ingress | None:
    """What an entry lets in; None for what is no entry of ours."""
    if entry["IpProtocol"] not in set(Protocol) or not entry.get("IpRanges"):
        return None
    source = entry["IpRanges"][0]["CidrIp"]
    return Ingress(Protocol(entry["IpProtocol"]), entry["FromPort"], entry["ToPort"], source)


def _permission(opened: Ingress) -> Permission:
    return {
        "IpProtocol": opened.protocol.value,
        "FromPort": opened.first_port,
        "ToPort": opened.last_port,
        "IpRanges": [{"CidrIp": opened.source}],
    }


def _children(region: str, answer: Mapping[str, Any]) -> Iterator[Child]:
    for group in answer["SecurityGroups"]:
        key = launch_key_among((tags(group.get("Tags", ())).get(LAUNCH_KEY_TAG),))
        if key is not None:
            yield Child(f"{region}/{group['GroupId']}", KIND, key, Needed.WHILE_IT_EXISTS)
