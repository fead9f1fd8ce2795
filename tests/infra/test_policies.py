"""What must hold for every deployment, over the whole graph of each stack; and each rule refuses a graph with its fault."""

import json

import pytest

from tests.support.cloud import policies
from tests.support.cloud.faults import Fault, Rule, container, drop, put, registered, statement, unbroken
from tests.support.cloud.graph import Graph, graphs

pytestmark = pytest.mark.xdist_group("infra")


@pytest.mark.parametrize("policy", policies.POLICIES, ids=lambda policy: policy.__name__)
def test_a_rule_holds_in_every_stack(policy: Rule) -> None:
    for name, graph in graphs().items():
        assert list(policy(graph)) == [], name


def _private_route_to_the_internet(graph: Graph) -> None:
    route = graph.one("Route", "private-eu-central-1a-internet")
    del route.inputs["natGatewayId"]
    route.inputs["gatewayId"] = graph.one("InternetGateway", "control").id


def _tasks_in_public_subnets(graph: Graph) -> None:
    public = [one.id for one in graph.of("Subnet") if one.name.startswith("public-")]
    graph.one("ecs.Service", "reconciler").inputs["networkConfiguration"]["subnets"] = public


def _gateway_without_its_address(graph: Graph) -> None:
    del graph.one("NatGateway", "egress-eu-central-1a").inputs["allocationId"]


def _api_reads_the_reconcilers_database(graph: Graph) -> None:
    secret = graph.one("Secret", "database-reconciler").arn
    statement(
        "RolePolicy",
        "api-start",
        {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret},
    )(graph)


def _output_of_a_password(graph: Graph) -> None:
    graph.outputs["database"] = "postgresql://api_login:hunter2@database.example.com/splitplane"


ALLOW = {"Effect": "Allow"}
OPEN = {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": "*"}
FAULTS: list[tuple[Rule, Fault]] = [
    (policies.only_named_doors_are_public, put("SecurityGroupIngressRule", "load-balancer-from-internet-tcp-443", "toPort", to=8080)),
    (policies.only_named_doors_are_public, put("SecurityGroupIngressRule", "hub-from-reconciler-tcp-22", "cidrIpv4", to="0.0.0.0/0")),
    (policies.only_named_doors_are_public, put("SecurityGroupIngressRule", "hub-from-reconciler-tcp-22", "cidrIpv6", to="::/0")),
    (policies.only_named_doors_are_public, put("SecurityGroup", "database", "ingress", to=[{"cidrBlocks": ["0.0.0.0/0"]}])),
    (policies.nothing_has_a_public_address_of_chance, put("Subnet", "private-eu-central-1a", "mapPublicIpOnLaunch", to=True)),
    (policies.nothing_has_a_public_address_of_chance, put("ecs.Service", "reconciler", "networkConfiguration", "assignPublicIp", to=True)),
    (policies.nothing_has_a_public_address_of_chance, put("Instance", "database", "publiclyAccessible", to=True)),
    (policies.nothing_has_a_public_address_of_chance, put("BucketPublicAccessBlock", "exports", "blockPublicPolicy", to=False)),
    (policies.nothing_has_a_public_address_of_chance, drop("BucketPublicAccessBlock", "audit")),
    (policies.nothing_has_a_public_address_of_chance, put("LoadBalancer", "public", "internal", to=True)),
    (policies.what_leaves_has_a_fixed_address, _private_route_to_the_internet),
    (policies.what_leaves_has_a_fixed_address, _tasks_in_public_subnets),
    (policies.what_leaves_has_a_fixed_address, _gateway_without_its_address),
    (policies.what_leaves_has_a_fixed_address, registered("Eip", "egress-eu-central-1a", protect=False)),
    (policies.what_leaves_has_a_fixed_address, drop("RouteTableAssociation", "private-eu-central-1b")),
    (policies.only_who_must_reaches_the_internet, put("SecurityGroupEgressRule", "api-to-database-tcp-5432", "cidrIpv4", to="0.0.0.0/0")),
    (policies.no_wildcard_twice, statement("RolePolicy", "reconciler-buckets", ALLOW | {"Action": "s3:*", "Resource": "*"})),
    (policies.no_wildcard_twice, statement("Key", "database", ALLOW | {"Action": ["kms:Get*"], "Resource": "*", "Principal": {"AWS": "x"}})),
    (policies.no_wildcard_twice, statement("BucketPolicy", "exports", ALLOW | {"Action": "s3:GetObject", "Resource": "x", "Principal": "*"})),
    (policies.no_wildcard_twice, statement("RolePolicy", "api-start", ALLOW | {"NotAction": "iam:PassRole", "Resource": "x"})),
    (policies.no_wildcard_twice, put("RolePolicyAttachment", "hub-sessions", "policyArn", to="arn:aws:iam::aws:policy/AdministratorAccess")),
    (policies.private_ways_to_aws_are_this_accounts, put("VpcEndpoint", "kms", "policy", to=None)),
    (policies.private_ways_to_aws_are_this_accounts, statement("VpcEndpoint", "logs", ALLOW | {"Action": ["logs:PutLogEvents"], "Resource": "*"})),
    (policies.private_ways_to_aws_are_this_accounts, statement("VpcEndpoint", "s3", ALLOW | {"Action": ["s3:GetObject"], "Resource": "*"})),
    (policies.roles_are_taken_by_services_of_this_account, put("Role", "api", "assumeRolePolicy",
        to=json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"Service": "ecs-tasks.amazonaws.com"}}]}))),
    (policies.the_api_opens_no_secret_of_providers, statement("Key", "sealing", OPEN, to_api=True)),
    (policies.the_api_opens_no_secret_of_providers, put("RolePolicy", "api-sealing", "policy",
        to=json.dumps({"Statement": [OPEN]}))),
    (policies.the_api_opens_no_secret_of_providers, put("RolePolicy", "api-sealing", "policy", to=json.dumps({"Statement": []}))),
    (policies.the_api_opens_no_secret_of_providers, _api_reads_the_reconcilers_database),
    (policies.a_task_reads_its_own_secrets, _api_reads_the_reconcilers_database),
    (policies.only_the_named_use_the_sealing_key, statement("Key", "sealing", OPEN | {"Principal": {"AWS": "arn:aws:iam::1:root"}})),
    (policies.everything_is_encrypted, put("Instance", "database", "storageEncrypted", to=False)),
    (policies.everything_is_encrypted, put("Instance", "hub", "rootBlockDevice", "encrypted", to=False)),
    (policies.everything_is_encrypted, put("LogGroup", "api", "kmsKeyId", to=None)),
    (policies.everything_is_encrypted, put("Secret", "database-api", "kmsKeyId", to=None)),
    (policies.everything_is_encrypted, put("Topic", "alarms", "kmsMasterKeyId", to=None)),
    (policies.buckets_keep_what_is_in_them, drop("BucketServerSideEncryptionConfiguration", "artifacts")),
    (policies.everything_is_encrypted, put("Repository", "images", "encryptionConfigurations", 0, "encryptionType", to="AES256")),
    (policies.keys_are_rotated, put("Key", "sealing", "enableKeyRotation", to=False)),
    (policies.every_way_in_is_encrypted, put("Listener", "https", "protocol", to="HTTP")),
    (policies.every_way_in_is_encrypted, put("ParameterGroup", "database", "parameters", 0, "value", to="0")),
    (policies.buckets_keep_what_is_in_them, drop("BucketPolicy", "exports")),
    (policies.what_holds_data_is_protected, put("Instance", "database", "deletionProtection", to=False)),
    (policies.what_holds_data_is_protected, put("Instance", "database", "backupRetentionPeriod", to=0)),
    (policies.hosts_keep_their_disks, put("Instance", "server-1", "rootBlockDevice", "deleteOnTermination", to=True)),
    (policies.hosts_keep_their_disks, registered("Instance", "server-1", ignore_changes=[])),
    (policies.what_holds_data_is_protected, registered("Key", "sealing", protect=False)),
    (policies.what_holds_data_is_protected, put("Bucket", "exports", "forceDestroy", to=True)),
    (policies.buckets_keep_what_is_in_them, put("BucketVersioning", "audit", "versioningConfiguration", "status", to="Suspended")),
    (policies.buckets_keep_what_is_in_them, drop("BucketObjectLockConfiguration", "exports")),
    (policies.everything_is_tagged_and_has_its_place, registered("Bucket", "exports", provider="")),
    (policies.everything_is_tagged_and_has_its_place, registered("Bucket", "exports", parent="urn:pulumi:prod::splitplane::pulumi:pulumi:Stack::x")),
    (policies.everything_is_tagged_and_has_its_place, put("aws", "aws", "defaultTags", to=json.dumps({"tags": {"project": "splitplane"}}))),
    (policies.everything_is_tagged_and_has_its_place, put("aws", "aws", "allowedAccountIds", to="[]")),
    (policies.everything_is_tagged_and_has_its_place, put("ecs.Service", "reconciler", "propagateTags", to=None)),
    (policies.everything_is_tagged_and_has_its_place, put("Instance", "hub", "volumeTags", to=None)),
    (policies.no_secret_is_in_the_state, put("Instance", "database", "password", to="hunter2")),
    (policies.no_secret_is_in_the_state, put("Instance", "hub", "userData", to="-----BEGIN PRIVATE " + "KEY-----")),
    (policies.no_secret_is_in_the_state, registered("Secret", "database-api", type="aws:secretsmanager/secretVersion:SecretVersion")),
    (policies.no_secret_is_in_the_state, container("api", environment=[{"name": "SPLITPLANE_DATABASE_URL", "value": "x"}])),
    (policies.no_secret_is_in_the_state, _output_of_a_password),
    (policies.tasks_can_change_nothing_of_themselves, container("api", user="0")),
    (policies.tasks_can_change_nothing_of_themselves, container("reconciler", readonlyRootFilesystem=False)),
    (policies.tasks_can_change_nothing_of_themselves, container("reconciler", linuxParameters={})),
    (policies.every_way_in_is_encrypted, put("Listener", "https", "sslPolicy", to="ELBSecurityPolicy-TLS13-1-0-2021-06")),
    (policies.tasks_can_change_nothing_of_themselves, container("verifier", image="registry.example.com/images:latest")),
    (policies.tasks_can_change_nothing_of_themselves, put("ecs.Service", "reconciler", "deploymentCircuitBreaker", "rollback", to=False)),
    (policies.tasks_can_change_nothing_of_themselves, put("ecs.Service", "reconciler", "enableExecuteCommand", to=True)),
    (policies.the_api_outlasts_idle_connections_of_the_load_balancer, put("LoadBalancer", "public", "idleTimeout", to=75)),
    (policies.the_api_outlasts_idle_connections_of_the_load_balancer, container("api", environment=[])),
]  # fmt: skip


def test_each_refusal_of_each_rule_is_met_with_a_fault() -> None:
    assert unbroken(policies, graphs()["prod"], FAULTS) == []
    assert {policy for policy, _ in FAULTS} == set(policies.POLICIES), "a rule without a fault"
