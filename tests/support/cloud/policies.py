"""What must hold for every deployment, as functions from its graph to the faults that are in it."""

import json
import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any

from infra.config import PRIVATE
from infra.services import SERVICES, Reach
from tests.support.cloud.graph import Graph, Resource
from tests.support.iam import permits

TAGS = {"project", "stack", "managed-by"}
PUBLIC = {
    ("load-balancer", "tcp", 443, 443),
    ("hub", "udp", 20_000, 28_191),
    ("servers", "udp", 51_820, 51_820),
}
"""What anybody may open connections to: the API, and the ends of tunnels."""
MANAGED = {
    "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
    "arn:aws:iam::aws:policy/service-role/AmazonRDSEnhancedMonitoringRole",
}
"""Policies of AWS's own that were read by a person; their documents are not in the graph."""
HOLDS_DATA = {"Bucket", "Instance", "Key", "NetworkInterface", "Repository", "Secret", "Eip", "Vpc"}
"""Kinds that hold data, or an address that others have on their lists, or networks that those cannot leave."""
ENCRYPTED = {
    "rds.Instance": (
        "storageEncrypted",
        "kmsKeyId",
        "masterUserSecretKmsKeyId",
        "performanceInsightsKmsKeyId",
    ),
    "LogGroup": ("kmsKeyId",),
    "Secret": ("kmsKeyId",),
    "Topic": ("kmsMasterKeyId",),
}


# Who can be reached.


def only_named_doors_are_public(graph: Graph) -> Iterator[str]:
    users = set(graph.settings["hosts"]["kubectl_from"])
    groups = {one.id: one.name for one in graph.of("SecurityGroup")}
    for rule in graph.of("SecurityGroupIngressRule"):
        network = rule.inputs.get("cidrIpv4") or rule.inputs.get("cidrIpv6")
        if network is None or network in users:
            continue
        door = (
            groups[rule.inputs["securityGroupId"]],
            rule.inputs["ipProtocol"],
            int(rule.inputs["fromPort"]),
            int(rule.inputs["toPort"]),
        )
        if door not in PUBLIC and not _is_private(network):
            yield f"{rule.name} opens {door} to {network}"
    for group in (*graph.of("SecurityGroup"), *graph.of("DefaultSecurityGroup")):
        if group.inputs.get("ingress") or group.inputs.get("egress"):
            yield f"{group.name} has rules that are not in the table of doors"


def _is_private(network: str) -> bool:
    return "." in network and any(IPv4Network(network).subnet_of(one) for one in PRIVATE)


def nothing_has_a_public_address_of_chance(graph: Graph) -> Iterator[str]:
    for subnet in graph.of("Subnet"):
        if subnet.inputs.get("mapPublicIpOnLaunch") is not False:
            yield f"{subnet.name} gives public addresses to whatever starts in it"
    for running in graph.of("ecs.Service"):
        if running.inputs.get("networkConfiguration", {}).get("assignPublicIp"):
            yield f"the tasks of {running.name} have public addresses"
    for instance in graph.of("Instance"):
        if instance.inputs.get("associatePublicIpAddress") or instance.inputs.get("publiclyAccessible"):
            yield f"{instance.name} has a public address"
    closed = {one.inputs["bucket"]: one.inputs for one in graph.of("BucketPublicAccessBlock")}
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    for bucket in graph.of("Bucket"):
        if not all(closed.get(bucket.id, {}).get(switch) for switch in switches):
            yield f"the bucket {bucket.name} may become public"
    public = [one.name for one in graph.of("lb.LoadBalancer") if one.inputs.get("internal") is not True]
    if public != ["public"]:
        yield f"public load balancers: {public}"


def what_leaves_has_a_fixed_address(graph: Graph) -> Iterator[str]:
    """Private subnets lead to NAT gateways alone, each with an Elastic IP that is kept."""
    addresses = {one.id: one for one in graph.of("Eip")}
    for gateway in graph.of("NatGateway"):
        address = addresses.get(gateway.inputs.get("allocationId", ""))
        if address is None or address.protect is not graph.settings["protect_data"]:
            yield f"{gateway.name} has no address that is kept"
    tables = {one.inputs["subnetId"]: one.inputs["routeTableId"] for one in graph.of("RouteTableAssociation")}
    ways: dict[str, list[Resource]] = {}
    for route in graph.of("Route"):
        ways.setdefault(route.inputs["routeTableId"], []).append(route)
    inside = [subnet for group in _inhabited(graph) for subnet in group]
    for subnet in {*inside}:
        for route in ways.get(tables.get(subnet, ""), []):
            if route.inputs["destinationCidrBlock"] == "0.0.0.0/0" and not route.inputs.get("natGatewayId"):
                yield f"{subnet} leads to the internet by {route.name}"
        if subnet not in tables:
            yield f"{subnet} has no table of routes of its own"


def _inhabited(graph: Graph) -> Iterator[list[str]]:
    """The subnets of tasks and of the database."""
    for service in graph.of("ecs.Service"):
        yield service.inputs.get("networkConfiguration", {}).get("subnets", [])
    for group in graph.of("SubnetGroup"):
        yield group.inputs["subnetIds"]


def only_who_must_reaches_the_internet(graph: Graph) -> Iterator[str]:
    may = {service.name for service in SERVICES if Reach.INTERNET in service.reaches} | {"hub", "servers"}
    groups = {one.id: one.name for one in graph.of("SecurityGroup")}
    for rule in graph.of("SecurityGroupEgressRule"):
        network = rule.inputs.get("cidrIpv4") or rule.inputs.get("cidrIpv6")
        source, ports = (
            groups[rule.inputs["securityGroupId"]],
            (rule.inputs["fromPort"], rule.inputs["toPort"]),
        )
        to_issuer = source == "api" and "sign_in" in graph.settings and ports == (443, 443)
        if network and source not in may and not to_issuer:
            yield f"{rule.name} leads to {network}"


# What is allowed.


def no_wildcard_twice(graph: Graph) -> Iterator[str]:
    for resource in graph.resources:
        for statement in resource.statements():
            if statement["Effect"] != "Allow":
                continue
            if _wild(statement.get("Action")) and _wild(statement.get("Resource")):
                yield f"{resource.urn}: {statement}"
            if (
                (statement.get("Principal") in ("*", {"AWS": "*"}) and resource.kind != "VpcEndpoint")
                or "NotAction" in statement
                or "NotResource" in statement
            ):
                yield f"{resource.urn}: anybody, or all but some: {statement}"
    for attached in graph.of("RolePolicyAttachment"):
        if attached.inputs["policyArn"] not in MANAGED:
            yield f"{attached.name} attaches {attached.inputs['policyArn']}, which nobody read"


def _wild(value: str | list[str] | None) -> bool:
    return "*" in "".join([value] if isinstance(value, str) else value or [])


def private_ways_to_aws_are_this_accounts(graph: Graph) -> Iterator[str]:
    """Else a process without a way to the internet reaches a bucket of anybody's. Layers of images are AWS's own."""
    account, region = graph.settings["account"], graph.settings["region"]
    layers = f"arn:aws:s3:::prod-{region}-starport-layer-bucket/*"
    for endpoint in graph.of("VpcEndpoint"):
        if not endpoint.statements():
            yield f"{endpoint.name} takes the credentials of anybody"
        for statement in endpoint.statements():
            if (statement["Action"], statement["Resource"]) == (["s3:GetObject"], layers):
                continue
            equal = statement.get("Condition", {}).get("StringEquals", {})
            to_s3 = endpoint.inputs["vpcEndpointType"] == "Gateway"
            if equal.get("aws:PrincipalAccount") != account:
                yield f"{endpoint.name} takes the credentials of others: {statement}"
            if to_s3 and equal.get("aws:ResourceAccount") != account:
                yield f"{endpoint.name} leads to buckets of others: {statement}"


def roles_are_taken_by_services_of_this_account(graph: Graph) -> Iterator[str]:
    for role in graph.of("Role"):
        for statement in role.statements():
            service = statement["Principal"].get("Service")
            confused = service != "ec2.amazonaws.com" and graph.settings["account"] not in json.dumps(
                statement.get("Condition")
            )
            if not service or confused:
                yield f"{role.name} can be taken by {statement['Principal']} for others"


def the_api_opens_no_secret_of_providers(graph: Graph) -> Iterator[str]:
    """Held by both sides: the rights of its roles, and the policy of the key."""
    key = graph.one("Key", "sealing")
    role = graph.one("Role", "api")
    rights = [
        json.loads(one.inputs["policy"]) for one in graph.of("RolePolicy") if one.inputs["role"] == role.id
    ]
    own = [one for one in key.statements() if one["Principal"].get("AWS") == role.arn]
    on_key: list[Any] = [{"Statement": [one | {"Resource": key.arn} for one in own]}]
    for side, policies in (("its role", rights), ("the key", on_key)):
        for action in ("kms:Decrypt", "kms:ReEncryptFrom"):
            for context in ({}, {"organization": "org_1", "purpose": "provider_credentials"}):
                if permits(policies, action, key.arn, context):
                    yield f"{side} lets the API {action} with {context}"
        if not permits(
            policies, "kms:Decrypt", key.arn, {"organization": "org_1", "purpose": "token_signing"}
        ):
            yield f"{side} does not let the API open what signs tokens"
    allowed = {"database-api", "oidc-client-secret"}
    for name in ("api", "api-start"):
        for secret in _secrets_of(graph, name) - allowed:
            yield f"{name} reads the secret {secret}"


def a_task_reads_its_own_secrets(graph: Graph) -> Iterator[str]:
    """What a service's roles may read is what its containers are given, and nothing more."""
    for task in graph.of("TaskDefinition"):
        given = {
            secret["valueFrom"].rpartition("/")[2]
            for name, container in graph.containers()
            if name == task.name
            for secret in container.get("secrets", [])
        }
        readable = _secrets_of(graph, task.name) | _secrets_of(graph, f"{task.name}-start")
        if readable != given:
            yield f"{task.name} is given {sorted(given)} and may read {sorted(readable)}"


def _secrets_of(graph: Graph, role_name: str) -> set[str]:
    role = graph.one("Role", role_name)
    found = set()
    for right in graph.of("RolePolicy"):
        if right.inputs["role"] != role.id:
            continue
        for statement in right.statements():
            if statement["Effect"] == "Allow" and "secretsmanager:" in json.dumps(statement["Action"]):
                listed = statement["Resource"]
                found |= {arn.rpartition("/")[2] for arn in ([listed] if isinstance(listed, str) else listed)}
    return found


def only_the_named_use_the_sealing_key(graph: Graph) -> Iterator[str]:
    key = graph.one("Key", "sealing")
    roles = {graph.one("Role", name).arn for name in ("api", "reconciler")}
    for statement in key.statements():
        uses = re.search(
            r"kms:(\*|Decrypt|Encrypt|GenerateDataKey|ReEncrypt|CreateGrant)", json.dumps(statement["Action"])
        )
        if uses and statement["Principal"].get("AWS") not in roles:
            yield f"the sealing key is used by {statement['Principal']}"


# What is kept, and how.


def everything_is_encrypted(graph: Graph) -> Iterator[str]:
    for kind, wanted in ENCRYPTED.items():
        for resource in graph.of(kind):
            yield from (f"{resource.urn} lacks {name}" for name in wanted if not resource.inputs.get(name))
    for host in graph.of("ec2.Instance"):
        disk = host.inputs.get("rootBlockDevice", {})
        if not (disk.get("encrypted") and disk.get("kmsKeyId")):
            yield f"the disk of {host.name} is not encrypted"
    for registry in graph.of("Repository"):
        if registry.inputs.get("encryptionConfigurations", [{}])[0].get("encryptionType") != "KMS":
            yield f"the registry {registry.name} is not encrypted with a key of ours"


def keys_are_rotated(graph: Graph) -> Iterator[str]:
    yield from (
        f"{key.name} is never rotated" for key in graph.of("Key") if not key.inputs.get("enableKeyRotation")
    )


def buckets_keep_what_is_in_them(graph: Graph) -> Iterator[str]:
    """Encrypted with a key of ours, by TLS alone, and in versions; what others rely on cannot be deleted for a time."""

    def with_rule(kind: str, words: str) -> set[str]:
        return {one.inputs["bucket"] for one in graph.of(kind) if words in json.dumps(one.inputs)}

    for kind, words, buckets in (
        ("BucketServerSideEncryptionConfiguration", "aws:kms", graph.of("Bucket")),
        ("BucketVersioning", '"Enabled"', graph.of("Bucket")),
        ("BucketPolicy", "aws:SecureTransport", graph.of("Bucket")),
        (
            "BucketObjectLockConfiguration",
            '"days"',
            [graph.one("Bucket", name) for name in ("exports", "audit")],
        ),
    ):
        ruled = with_rule(kind, words)
        yield from (f"the bucket {bucket.name} lacks {kind}" for bucket in buckets if bucket.id not in ruled)


def every_way_in_is_encrypted(graph: Graph) -> Iterator[str]:
    for listener in graph.of("Listener"):
        if listener.inputs["protocol"] != "HTTPS" or not listener.inputs.get("sslPolicy", "").startswith(
            "ELBSecurityPolicy-TLS13-1-2-"
        ):
            yield f"{listener.name} speaks {listener.inputs['protocol']}"
    for group in graph.of("ParameterGroup"):
        if ("rds.force_ssl", "1") not in {(one["name"], one["value"]) for one in group.inputs["parameters"]}:
            yield f"{group.name} permits connections without TLS"


def what_holds_data_is_protected(graph: Graph) -> Iterator[str]:
    if not graph.settings["protect_data"]:
        return
    for resource in graph.resources:
        if resource.kind in HOLDS_DATA and not resource.protect:
            yield f"{resource.urn} can be deleted by a change of the program"
        if resource.inputs.get("forceDestroy") or resource.inputs.get("forceDelete"):
            yield f"{resource.urn} can be deleted with what is in it"
    for database in graph.of("rds.Instance"):
        if not database.inputs.get("deletionProtection") or database.inputs.get("skipFinalSnapshot"):
            yield f"{database.name} can be deleted without a snapshot"
        if database.inputs.get("backupRetentionPeriod", 0) < 1 or database.inputs.get(
            "deleteAutomatedBackups"
        ):
            yield f"{database.name} has no backups that last"


def hosts_keep_their_disks(graph: Graph) -> Iterator[str]:
    if not graph.settings["protect_data"]:
        return
    for host in graph.of("ec2.Instance"):
        kept = (
            host.inputs.get("disableApiTermination")
            and not host.inputs["rootBlockDevice"]["deleteOnTermination"]
        )
        if not kept or "ami" not in host.ignore_changes:
            yield f"{host.name} loses its disk"


# How it is told apart.


def everything_is_tagged_and_has_its_place(graph: Graph) -> Iterator[str]:
    """The provider tags what it makes, so nothing may come from another one."""
    (provider,) = [one for one in graph.resources if one.type == "pulumi:providers:aws"]
    tags = json.loads(provider.inputs["defaultTags"])["tags"]
    if set(tags) != TAGS or tags["stack"] != graph.stack:
        yield f"the provider sets the tags {tags}"
    if json.loads(provider.inputs["allowedAccountIds"]) != [graph.settings["account"]]:
        yield "the provider accepts other accounts"
    for resource in graph.resources:
        if resource.type.startswith("aws:"):
            if not resource.provider.startswith(f"{provider.urn}::"):
                yield f"{resource.urn} has another provider, and so none of the tags"
            if "splitplane:infra:" not in resource.parent.rpartition("$")[2]:
                yield f"{resource.urn} is below no component"
    for service in graph.of("ecs.Service"):
        if service.inputs.get("propagateTags") != "SERVICE":
            yield f"the tasks of {service.name} have no tags"
    yield from (
        f"the disk of {one.name} has no tags"
        for one in graph.of("ec2.Instance")
        if not one.inputs.get("volumeTags")
    )


def no_secret_is_in_the_state(graph: Graph) -> Iterator[str]:
    """Pulumi keeps inputs and outputs. None is a secret, so nothing depends on how its state is kept."""
    for resource in graph.resources:
        if resource.kind in ("SecretVersion", "AccessKey", "KeyPair", "Password"):
            yield f"{resource.urn} has a secret as an input or output"
        for name in resource.inputs:
            if (
                re.search(r"password$|passwordWo|secretString|privateKey", name)
                and name != "manageMasterUserPassword"
            ):
                yield f"{resource.urn} has {name}"
        if re.search(r"PRIVATE KEY|postgres(ql)?://[^\s\"]*:[^\s\"]*@", json.dumps(resource.inputs)):
            yield f"{resource.urn} contains a credential"
    for service, container in graph.containers():
        for variable in container.get("environment", []):
            if re.search(r"DATABASE_URL|PASSWORD|_SECRET$|API_KEY|TOKEN$", variable["name"]):
                yield f"{service} has {variable['name']} in clear"
    if re.search(r"PRIVATE KEY|://[^/\s]*:[^/\s]*@|password", json.dumps(graph.outputs)):
        yield "the outputs contain a credential"


def tasks_can_change_nothing_of_themselves(graph: Graph) -> Iterator[str]:
    for service, container in graph.containers():
        if container.get("user", "0").split(":")[0] in ("0", "root"):
            yield f"{service} runs as root"
        if container.get("readonlyRootFilesystem") is not True or container.get("privileged"):
            yield f"{service} can change its own files"
        if container.get("linuxParameters", {}).get("capabilities") != {"drop": ["ALL"]}:
            yield f"{service} keeps capabilities"
        if not re.search(r"@sha256:[0-9a-f]{64}$", container["image"]):
            yield f"{service} runs an image that a tag names"
    for running in graph.of("ecs.Service"):
        if running.inputs.get("deploymentCircuitBreaker") != {"enable": True, "rollback": True}:
            yield f"a bad version of {running.name} is not rolled back"
        if running.inputs.get("enableExecuteCommand"):
            yield f"people get a shell in {running.name}"


def the_api_outlasts_idle_connections_of_the_load_balancer(graph: Graph) -> Iterator[str]:
    """Otherwise a request that is sent while the API closes its connection is answered 502.

    https://docs.aws.amazon.com/elasticloadbalancing/latest/application/edit-load-balancer-attributes.html
    (2026-11-23): set the idle timeout of the application above the load balancer's.
    """
    balancer = graph.one("LoadBalancer", "public").inputs["idleTimeout"]
    for service, container in graph.containers():
        if service != "api" or container["name"] != "api":
            continue
        variables = {one["name"]: one["value"] for one in container["environment"]}
        api = int(variables.get("SPLITPLANE_IDLE_SECONDS", "10"))
        if api <= balancer:
            yield f"the API closes idle connections after {api} s, and the load balancer after {balancer:.0f} s"


POLICIES = (
    only_named_doors_are_public,
    nothing_has_a_public_address_of_chance,
    what_leaves_has_a_fixed_address,
    only_who_must_reaches_the_internet,
    no_wildcard_twice,
    private_ways_to_aws_are_this_accounts,
    roles_are_taken_by_services_of_this_account,
    the_api_opens_no_secret_of_providers,
    a_task_reads_its_own_secrets,
    only_the_named_use_the_sealing_key,
    everything_is_encrypted,
    keys_are_rotated,
    buckets_keep_what_is_in_them,
    every_way_in_is_encrypted,
    what_holds_data_is_protected,
    hosts_keep_their_disks,
    everything_is_tagged_and_has_its_place,
    no_secret_is_in_the_state,
    tasks_can_change_nothing_of_themselves,
    the_api_outlasts_idle_connections_of_the_load_balancer,
)
