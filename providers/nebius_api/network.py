"""The network of our machines: which subnet they are in, and the security group that opens them.

Each step is one call. What was read or made is kept until `forget`.
"""

from providers.base import OrderRefused, Verb
from providers.error_law import Meaning, error_for
from providers.listings import UnreadableAnswer
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api.api import Api
from providers.nebius_api.errors import raise_failure
from providers.nebius_api.methods import CREATE_GROUP, CREATE_RULE, GET_GROUP, LIST_RULES, LIST_SUBNETS

PAGE_SIZE = 500
STEPS_MAX = 7
"""The subnet, the group looked for and made, its rules read, and three rules."""
OPENED = {
    "splitplane-ssh": pb.SecurityRuleSpec(
        access=pb.ALLOW, protocol=pb.TCP, ingress=pb.RuleIngress(destination_ports=[22])
    ),
    "splitplane-wireguard": pb.SecurityRuleSpec(
        access=pb.ALLOW, protocol=pb.UDP, ingress=pb.RuleIngress(destination_ports=[51_820])
    ),
    "splitplane-outwards": pb.SecurityRuleSpec(access=pb.ALLOW, protocol=pb.ANY, egress=pb.RuleEgress()),
}
"""The rules of our security group, by name. A rule cannot be changed once it is made."""


class Network:
    def __init__(self, api: Api, project_id: str, subnet_id: str) -> None:
        self._api = api
        self._project_id = project_id
        self._wanted_subnet = subnet_id
        self.subnet: pb.Subnet | None = None
        self.group: str | None = None
        """The id of our security group; empty when there is none, None before it was looked for."""
        self._rules: frozenset[str] | None = None
        """The names of its rules; None before they were read."""

    @property
    def ready(self) -> bool:
        return self._rules is not None and OPENED.keys() <= self._rules

    def forget(self) -> None:
        """Somebody may have deleted a part of it."""
        self.subnet = self.group = self._rules = None

    async def step(self) -> None:
        """Read or make one part of it. Raises Rejected, Throttled, Unavailable."""
        if self.subnet is None:
            self.subnet = await self._find_subnet()
        elif self.group is None:
            self.group = await self._find_group(self.subnet)
        elif not self.group:
            self.group = await self._make_group(self.subnet)
        elif self._rules is None:
            self._rules = await self._find_rules(self.group)
        else:
            await self._make_rule(self.group, self._rules)

    async def _find_subnet(self) -> pb.Subnet:
        request = pb.ListSubnetsRequest(parent_id=self._project_id, page_size=PAGE_SIZE)
        return await self._api.call(Verb.PREPARE, LIST_SUBNETS, request, self._subnet_among)

    def _subnet_among(self, listed: pb.ListSubnetsResponse) -> pb.Subnet:
        wanted = self._wanted_subnet
        found = [each for each in listed.items if wanted in ("", each.metadata.id)]
        if len(found) == 1:
            return found[0]
        why = "there is no subnet with that id" if wanted else "the project has no subnet, or several"
        raise error_for(Verb.PREPARE, Meaning.REFUSED, f"set subnet_id: {why}")

    async def _find_group(self, subnet: pb.Subnet) -> str:
        request = pb.GetSecurityGroupByNameRequest(parent_id=self._project_id, name=_group_name(subnet))
        try:
            return await self._api.call(Verb.PREPARE, GET_GROUP, request, lambda found: found.metadata.id)
        except OrderRefused as refusal:
            if refusal.code.startswith("NOT_FOUND/"):
                return ""
            raise

    async def _make_group(self, subnet: pb.Subnet) -> str:
        metadata = pb.ResourceMetadata(parent_id=self._project_id, name=_group_name(subnet))
        spec = pb.SecurityGroupSpec(network_id=subnet.spec.network_id)
        self.group = None  # Looked for again: a lost answer, or another replica, may have made it.
        request = pb.CreateSecurityGroupRequest(metadata=metadata, spec=spec)
        return await self._api.call(Verb.PREPARE, CREATE_GROUP, request, _made)

    async def _find_rules(self, group: str) -> frozenset[str]:
        request = pb.ListSecurityRulesRequest(parent_id=group, page_size=PAGE_SIZE)
        return await self._api.call(Verb.PREPARE, LIST_RULES, request, _names)

    async def _make_rule(self, group: str, known: frozenset[str]) -> None:
        name = min(OPENED.keys() - known)
        self._rules = None  # Read again, for the same reason.
        metadata = pb.ResourceMetadata(parent_id=group, name=name)
        request = pb.CreateSecurityRuleRequest(metadata=metadata, spec=OPENED[name])
        await self._api.call(Verb.PREPARE, CREATE_RULE, request, _made)
        self._rules = known | {name}


def _group_name(subnet: pb.Subnet) -> str:
    return f"splitplane-{subnet.spec.network_id}"


def _names(listed: pb.ListSecurityRulesResponse) -> frozenset[str]:
    return frozenset(each.metadata.name for each in listed.items)


def _made(operation: pb.Operation) -> str:
    raise_failure(Verb.PREPARE, operation)
    if not operation.resource_id:
        raise UnreadableAnswer("an operation without a resource")
    return operation.resource_id
