"""What is connected to what in every deployment, and with which values, as functions from its graph to its faults.

Rules about who may reach, read and change what are in `policies.py`.
"""

import json
from collections.abc import Iterator
from typing import Any

from infra.services import SERVICES, Runs
from tests.support.cloud.graph import Graph, Resource

KEYS = {
    "Secret": ("kmsKeyId", "credentials"),
    "rds.Instance": ("kmsKeyId", "database"),
    "LogGroup": ("kmsKeyId", "operations"),
    "Topic": ("kmsMasterKeyId", "operations"),
}
"""Which key encrypts which kind of data."""
USED_BY_SERVICES = ("credentials", "database", "exports", "hosts")
"""Keys that are used through services of AWS alone."""
LOW_IS_WRONG = {"RunningTaskCount", "FreeStorageSpace", "FreeableMemory", "DatabaseConnections"}
LOG_DAYS_MIN = 30
LOCKED_DAYS_MIN = 365
STAR = {"ecr:GetAuthorizationToken"}
"""What AWS permits for all resources only."""


# Tasks.


def a_task_has_its_own_roles_and_group(graph: Graph) -> Iterator[str]:
    """The rights of roles and the rules of groups say nothing while a task has those of another service."""
    for task in graph.of("TaskDefinition"):
        for field, role in (("taskRoleArn", task.name), ("executionRoleArn", f"{task.name}-start")):
            if task.inputs[field] != graph.one("Role", role).arn:
                yield f"the {field} of {task.name} is {task.inputs[field]}"
    names = {one.name: one for one in graph.of("servicediscovery.Service")}
    for running in graph.of("ecs.Service"):
        own = [graph.one("SecurityGroup", running.name).id]
        if running.inputs["networkConfiguration"]["securityGroups"] != own:
            yield f"the tasks of {running.name} have other groups than their own"
        if running.inputs["taskDefinition"] != graph.one("TaskDefinition", running.name).arn:
            yield f"{running.name} runs another task"
        if running.inputs.get("serviceRegistries", {}).get("registryArn") != names[running.name].arn:
            yield f"the tasks of {running.name} are not registered under its private name"


def no_role_takes_another(graph: Graph) -> Iterator[str]:
    """Rights are policies that the other rules read, and none of them leads to other rights."""
    for role in graph.of("Role"):
        if role.inputs.get("inlinePolicies") or role.inputs.get("managedPolicyArns"):
            yield f"{role.name} has rights outside of its policies"
    for right in graph.of("RolePolicy"):
        for statement in right.statements():
            actions = _listed(statement["Action"])
            if statement["Effect"] == "Allow" and any(
                one.startswith(("iam:", "sts:", "kms:*")) for one in actions
            ):
                yield f"{right.name} allows {actions}"
            if (
                statement["Effect"] == "Allow"
                and "*" in _listed(statement["Resource"])
                and set(actions) - STAR
            ):
                yield f"{right.name} allows {actions} on everything"
    (key,) = (one for one in graph.of("Key") if one.name == "sealing")
    for statement in key.statements():
        if statement["Principal"].get("AWS") == graph.one("Role", "api").arn:
            more = set(_listed(statement["Action"])) - {"kms:GenerateDataKey", "kms:Decrypt"}
            if more:
                yield f"the sealing key lets the API {sorted(more)}"


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def services_grow_and_shrink_with_their_load(graph: Graph) -> Iterator[str]:
    targets = {one.name: one.inputs for one in graph.of("appautoscaling.Target")}
    for service in SERVICES:
        if service.runs is not Runs.ALWAYS:
            continue
        size, target = graph.settings["services"][service.name], targets[service.name]
        if (target["minCapacity"], target["maxCapacity"]) != (size["tasks_min"], size["tasks_max"]):
            yield f"{service.name} scales from {target['minCapacity']} to {target['maxCapacity']}"
        signals = {}
        for policy in graph.of("appautoscaling.Policy"):
            if policy.inputs["resourceId"] == target["resourceId"]:
                given = policy.inputs["targetTrackingScalingPolicyConfiguration"]
                kind = given.get("predefinedMetricSpecification", {}).get("predefinedMetricType")
                signals[kind] = given["targetValue"]
        if not 20 <= signals.get("ECSServiceAverageCPUUtilization", 0) <= 80:
            yield f"{service.name} does not follow its CPU: {signals}"
        if service.requests_per_task and signals.get("ALBRequestCountPerTarget") != service.requests_per_task:
            yield f"{service.name} does not follow its requests: {signals}"


def nothing_starts_without_its_way_out(graph: Graph) -> Iterator[str]:
    """A host installs packages when it first starts, and does not try again; a task gets its image and its secrets."""
    ways = {"hosts-internet", *(f"private-{zone}-internet" for zone in graph.settings["zones"])}
    routes = {one.urn: one.name for one in graph.of("Route") if one.name in ways}
    groups = {one.id: one.name for one in graph.of("SecurityGroup")}
    rules: dict[str, set[str]] = {}
    for rule in graph.of("SecurityGroupEgressRule"):
        rules.setdefault(groups[rule.inputs["securityGroupId"]], set()).add(rule.urn)
    for host in graph.of("ec2.Instance"):
        group = "hub" if host.name == "hub" else "servers"
        yield from _started_early(host, {*rules[group], *(urn for urn in routes if "::hosts-" in urn)})
        yield from _started_early(host, {graph.one("Eip", host.name).urn})
        role = graph.one("Role", group)
        attached = {
            one.urn for one in graph.of("RolePolicyAttachment") if one.inputs["role"] == role.inputs["name"]
        }
        own = {one.urn for one in graph.of("RolePolicy") if one.inputs["role"] == role.id}
        yield from _started_early(graph.one("InstanceProfile", group), attached | own)
    for running in graph.of("ecs.Service"):
        role_ids = {graph.one("Role", name).id for name in (running.name, f"{running.name}-start")}
        rights = {one.urn for one in graph.of("RolePolicy") if one.inputs["role"] in role_ids}
        ways_out = {urn for urn in routes if "::private-" in urn} | {
            one.urn for one in graph.of("VpcEndpoint")
        }
        yield from _started_early(running, rights | ways_out | rules[running.name])


def _started_early(resource: Resource, needed: set[str]) -> Iterator[str]:
    early = needed - set(resource.dependencies)
    yield from (
        f"{resource.name} may start before {urn.rpartition('::')[2]} is there" for urn in sorted(early)
    )


# Settings.


def what_a_stack_says_is_what_is_made(graph: Graph) -> Iterator[str]:
    wanted, made = graph.settings["database"], graph.one("rds.Instance", "database").inputs
    for name, field in (
        ("instance_class", "instanceClass"),
        ("storage_gib", "allocatedStorage"),
        ("storage_max_gib", "maxAllocatedStorage"),
        ("multi_az", "multiAz"),
        ("backup_days", "backupRetentionPeriod"),
    ):
        if made[field] != wanted[name]:
            yield f"database: {name} is {wanted[name]}, and {made[field]} is made"
    for task in graph.of("TaskDefinition"):
        size = graph.settings["services"][task.name]
        if (task.inputs["cpu"], task.inputs["memory"]) != (str(size["cpu"]), str(size["memory_mib"])):
            yield f"a task of {task.name} has {task.inputs['cpu']} and {task.inputs['memory']}"
    if (
        graph.one("LoadBalancer", "public").inputs["enableDeletionProtection"]
        is not graph.settings["protect_data"]
    ):
        yield "the load balancer is not protected as the stack says"


# The way in.


def requests_are_filtered_and_reach_what_is_ready(graph: Graph) -> Iterator[str]:
    firewall = graph.one("WebAcl", "public")
    for rule in firewall.inputs["rules"]:
        blocks = "block" in rule.get("action", {}) or "none" in rule.get("overrideAction", {})
        if not blocks:
            yield f"the firewall only counts what {rule['name']} finds"
    if not any("rateBasedStatement" in rule["statement"] for rule in firewall.inputs["rules"]):
        yield "nobody is slowed down"
    balancer = graph.one("LoadBalancer", "public")
    held = {(one.inputs["webAclArn"], one.inputs["resourceArn"]) for one in graph.of("WebAclAssociation")}
    if (firewall.arn, balancer.arn) not in held:
        yield "the firewall stands in front of nothing"
    if not balancer.inputs.get("dropInvalidHeaderFields"):
        yield "malformed headers are passed on"
    if graph.one("TargetGroup", "api").inputs["healthCheck"].get("path") != "/readyz":
        yield "an API whose database is away gets requests"


def networks_are_joined_as_drawn(graph: Graph) -> Iterator[str]:
    clusters = graph.settings["cluster_network"]
    tables = {one.id: one.name for one in graph.of("RouteTable")}
    peered = {
        (tables[route.inputs["routeTableId"]], route.inputs["destinationCidrBlock"])
        for route in graph.of("Route")
        if route.inputs.get("vpcPeeringConnectionId")
    }
    wanted = {(f"private-{zone}", clusters) for zone in graph.settings["zones"]}
    if peered != wanted | {("hosts", graph.settings["network"])}:
        yield f"the peering is used by {sorted(peered)}"
    groups = {one.id: one.name for one in graph.of("SecurityGroup")}
    inward = {
        (groups[source], groups[rule.inputs["securityGroupId"]])
        for rule in graph.of("SecurityGroupIngressRule")
        if groups.get(source := rule.inputs.get("referencedSecurityGroupId", "")) in ("hub", "servers")
    }
    if inward != {("hub", "ingest"), ("servers", "ingest")}:
        yield f"what attackers see most reaches {sorted(inward)}"
    zones = {one.inputs["vpcId"] for one in graph.of("ZoneAssociation")}
    if zones != {graph.one("Vpc", "clusters").id}:
        yield "the hub does not find the services that it calls"
    for endpoint in graph.of("VpcEndpoint"):
        if endpoint.inputs["vpcEndpointType"] == "Interface" and not endpoint.inputs.get("privateDnsEnabled"):
            yield f"nobody finds the endpoint {endpoint.name}"
    logged = {one.inputs["vpcId"] for one in graph.of("FlowLog") if one.inputs["trafficType"] == "ALL"}
    yield from (
        f"nothing records who connects in {one.name}" for one in graph.of("Vpc") if one.id not in logged
    )


# What is kept, and with which key.


def each_kind_of_data_has_its_key(graph: Graph) -> Iterator[str]:
    def wrong(resource: Resource, used: object, name: str) -> Iterator[str]:
        if used != graph.one("Key", name).arn:
            yield f"{resource.urn} is encrypted with {used}"

    for kind, (field, name) in KEYS.items():
        for resource in graph.of(kind):
            yield from wrong(resource, resource.inputs.get(field), name)
    for bucket in graph.of("BucketServerSideEncryptionConfiguration"):
        used = bucket.inputs["rules"][0]["applyServerSideEncryptionByDefault"]["kmsMasterKeyId"]
        yield from wrong(bucket, used, "exports")
    for host in graph.of("ec2.Instance"):
        yield from wrong(host, host.inputs["rootBlockDevice"]["kmsKeyId"], "hosts")
        if host.inputs["metadataOptions"]["httpTokens"] != "required":
            yield f"whoever makes {host.name} send a request gets its credentials"


def keys_are_used_through_their_services(graph: Graph) -> Iterator[str]:
    for name in USED_BY_SERVICES:
        for statement in graph.one("Key", name).statements():
            uses = {"kms:Decrypt", "kms:GenerateDataKey"} & set(_listed(statement["Action"]))
            via = statement.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService")
            if uses and not via:
                yield f"the key {name} can be used without the service that it is for"


def buckets_are_closed_to_what_is_not_encrypted_on_the_way(graph: Graph) -> Iterator[str]:
    for policy in graph.of("BucketPolicy"):
        denied: list[Any] = [
            one
            for one in policy.statements()
            if (one["Effect"], one["Action"]) == ("Deny", "s3:*")
            and one.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        if len(denied) != 1 or len(policy.statements()) != 1:
            yield f"the bucket policy {policy.name} says {policy.statements()}"
    for lock in graph.of("BucketObjectLockConfiguration"):
        if lock.inputs["rule"]["defaultRetention"]["days"] < LOCKED_DAYS_MIN:
            yield f"{lock.name} is locked for {lock.inputs['rule']['defaultRetention']['days']} days"
    if graph.one("Repository", "images").inputs["imageTagMutability"] != "IMMUTABLE":
        yield "a tag of an image can be moved"


def logs_are_kept_without_the_values_of_statements(graph: Graph) -> Iterator[str]:
    for group in graph.of("LogGroup"):
        if not LOG_DAYS_MIN <= group.inputs.get("retentionInDays", 0) <= 400:
            yield f"the log {group.name} is kept for {group.inputs.get('retentionInDays')} days"
    database = graph.one("rds.Instance", "database").inputs
    known = {group.inputs["name"] for group in graph.of("LogGroup")}
    for name in database["enabledCloudwatchLogsExports"]:
        if f"/aws/rds/instance/{database['identifier']}/{name}" not in known:
            yield f"RDS makes the log {name} by itself, without a key and for ever"
    parameters = {
        one["name"]: one["value"] for one in graph.one("ParameterGroup", "database").inputs["parameters"]
    }
    for name in ("log_parameter_max_length", "log_parameter_max_length_on_error"):
        if parameters.get(name) != "0":
            yield f"the database logs values of customers: {name}"


# What wakes somebody.


def alarms_fire_for_what_is_wrong(graph: Graph) -> Iterator[str]:
    for alarm in graph.of("MetricAlarm"):
        below = alarm.inputs["metricName"] in LOW_IS_WRONG
        wanted = "LessThanThreshold" if below else "GreaterThanThreshold"
        if alarm.inputs["comparisonOperator"] != wanted:
            yield f"{alarm.name} fires when all is well"
        if below and alarm.inputs["threshold"] <= 0:
            yield f"{alarm.name} never fires"
    budget = graph.one("Budget", "monthly").inputs
    if float(budget["limitAmount"]) != graph.settings["monthly_budget_usd"]:
        yield f"the budget is {budget['limitAmount']} USD"
    if budget.get("costFilters"):
        yield "the budget counts only what a tag shows, and tags are not activated for billing"
    told = {
        (one["notificationType"], *one["subscriberEmailAddresses"]) for one in budget.get("notifications", [])
    }
    if told != {(kind, graph.settings["alarm_email"]) for kind in ("ACTUAL", "FORECASTED")}:
        yield f"the budget tells {json.dumps(sorted(told))}"


WIRING = (
    a_task_has_its_own_roles_and_group,
    no_role_takes_another,
    services_grow_and_shrink_with_their_load,
    nothing_starts_without_its_way_out,
    what_a_stack_says_is_what_is_made,
    requests_are_filtered_and_reach_what_is_ready,
    networks_are_joined_as_drawn,
    each_kind_of_data_has_its_key,
    keys_are_used_through_their_services,
    buckets_are_closed_to_what_is_not_encrypted_on_the_way,
    logs_are_kept_without_the_values_of_statements,
    alarms_fire_for_what_is_wrong,
)
