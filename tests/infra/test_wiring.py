"""What must be connected to what, with which values, in every deployment; and each rule refuses a graph with its fault."""

import pytest

from tests.support.cloud import wiring
from tests.support.cloud.faults import Fault, Rule, drop, put, registered, replaced, statement, unbroken
from tests.support.cloud.graph import graphs

pytestmark = pytest.mark.xdist_group("infra")
ALLOW = {"Effect": "Allow"}
ROLE = "arn:aws:iam:eu-central-1:333333333333:Role/splitplane-prod-reconciler"
GROUPS = ("networkConfiguration", "securityGroups")
SCALING = "targetTrackingScalingPolicyConfiguration"


def _rule(number: int, *path: str | int, to: object) -> Fault:
    return put("WebAcl", "public", "rules", number, *path, to=to)


def _health(path: str) -> Fault:
    return put("TargetGroup", "api", "healthCheck", "path", to=path)


FAULTS: list[tuple[Rule, Fault]] = [
    (wiring.a_task_has_its_own_roles_and_group, put("TaskDefinition", "api", "taskRoleArn", to=ROLE)),
    (wiring.a_task_has_its_own_roles_and_group, put("TaskDefinition", "api", "executionRoleArn", to=f"{ROLE}-start")),
    (wiring.a_task_has_its_own_roles_and_group, put("ecs.Service", "api", *GROUPS, to=["SecurityGroup/splitplane-prod-reconciler"])),
    (wiring.a_task_has_its_own_roles_and_group, put("ecs.Service", "verifier", "serviceRegistries", to={})),
    (wiring.a_task_has_its_own_roles_and_group, put("ecs.Service", "api", "taskDefinition", to="another")),
    (wiring.no_role_takes_another, statement("RolePolicy", "api-sealing", ALLOW | {"Action": "sts:AssumeRole", "Resource": ROLE})),
    (wiring.no_role_takes_another, statement("RolePolicy", "api-sealing", ALLOW | {"Action": ["iam:PassRole"], "Resource": ROLE})),
    (wiring.no_role_takes_another, statement("Key", "sealing", ALLOW | {"Action": "kms:CreateGrant", "Resource": "*"}, to_api=True)),
    (wiring.no_role_takes_another, statement("Key", "sealing", ALLOW | {"Action": "kms:PutKeyPolicy", "Resource": "*"}, to_api=True)),
    (wiring.no_role_takes_another, statement("RolePolicy", "hub", ALLOW | {"Action": "secretsmanager:PutSecretValue", "Resource": "*"})),
    (wiring.no_role_takes_another, put("Role", "api", "managedPolicyArns", to=["arn:aws:iam::aws:policy/AdministratorAccess"])),
    (wiring.services_grow_and_shrink_with_their_load, put("appautoscaling.Policy", "api-cpu", SCALING, "targetValue", to=6000)),
    (wiring.services_grow_and_shrink_with_their_load, put("appautoscaling.Policy", "api-requests", SCALING, "predefinedMetricSpecification", to={})),
    (wiring.services_grow_and_shrink_with_their_load, put("appautoscaling.Target", "verifier", "maxCapacity", to=2)),
    (wiring.nothing_starts_without_its_way_out, registered("Instance", "hub", dependencies=[])),
    (wiring.nothing_starts_without_its_way_out, registered("InstanceProfile", "hub", dependencies=[])),
    (wiring.nothing_starts_without_its_way_out, registered("ecs.Service", "api", dependencies=[])),
    (wiring.what_a_stack_says_is_what_is_made, put("rds.Instance", "database", "multiAz", to=False)),
    (wiring.what_a_stack_says_is_what_is_made, put("rds.Instance", "database", "backupRetentionPeriod", to=1)),
    (wiring.what_a_stack_says_is_what_is_made, put("TaskDefinition", "api", "memory", to="512")),
    (wiring.what_a_stack_says_is_what_is_made, put("LoadBalancer", "public", "enableDeletionProtection", to=False)),
    (wiring.requests_are_filtered_and_reach_what_is_ready, _rule(0, "action", to={"count": {}})),
    (wiring.requests_are_filtered_and_reach_what_is_ready, _rule(1, "overrideAction", to={"count": {}})),
    (wiring.requests_are_filtered_and_reach_what_is_ready, _rule(0, to=None)),
    (wiring.requests_are_filtered_and_reach_what_is_ready, drop("WebAclAssociation", "public")),
    (wiring.requests_are_filtered_and_reach_what_is_ready, put("LoadBalancer", "public", "dropInvalidHeaderFields", to=False)),
    (wiring.requests_are_filtered_and_reach_what_is_ready, _health("/healthz")),
    (wiring.networks_are_joined_as_drawn, put("Route", "eu-central-1a-to-hosts", "destinationCidrBlock", to="10.99.0.0/16")),
    (wiring.networks_are_joined_as_drawn, drop("SecurityGroupIngressRule", "ingest-from-hub-tcp-8441")),
    (wiring.networks_are_joined_as_drawn, drop("ZoneAssociation", "clusters")),
    (wiring.networks_are_joined_as_drawn, put("VpcEndpoint", "kms", "privateDnsEnabled", to=False)),
    (wiring.networks_are_joined_as_drawn, drop("FlowLog", "clusters")),
    (wiring.each_kind_of_data_has_its_key, put("rds.Instance", "database", "kmsKeyId", to="arn:aws:kms:eu-central-1:333333333333:key/exports")),
    (wiring.each_kind_of_data_has_its_key, put("BucketServerSideEncryptionConfiguration", "audit", "rules", 0, "applyServerSideEncryptionByDefault", "kmsMasterKeyId", to="alias/aws/s3")),
    (wiring.each_kind_of_data_has_its_key, put("ec2.Instance", "hub", "rootBlockDevice", "kmsKeyId", to="alias/aws/ebs")),
    (wiring.each_kind_of_data_has_its_key, put("ec2.Instance", "hub", "metadataOptions", "httpTokens", to="optional")),
    (wiring.keys_are_used_through_their_services, replaced("Key", "exports", "kms:ViaService", "kms:KeyOrigin")),
    (wiring.buckets_are_closed_to_what_is_not_encrypted_on_the_way, replaced("BucketPolicy", "audit", '"false"', '"true"')),
    (wiring.buckets_are_closed_to_what_is_not_encrypted_on_the_way, put("BucketObjectLockConfiguration", "exports", "rule", "defaultRetention", "days", to=1)),
    (wiring.buckets_are_closed_to_what_is_not_encrypted_on_the_way, put("Repository", "images", "imageTagMutability", to="MUTABLE")),
    (wiring.logs_are_kept_without_the_values_of_statements, put("LogGroup", "api", "retentionInDays", to=1)),
    (wiring.logs_are_kept_without_the_values_of_statements, drop("LogGroup", "database")),
    (wiring.logs_are_kept_without_the_values_of_statements, put("ParameterGroup", "database", "parameters", to=[])),
    (wiring.alarms_fire_for_what_is_wrong, put("MetricAlarm", "api-tasks", "comparisonOperator", to="GreaterThanThreshold")),
    (wiring.alarms_fire_for_what_is_wrong, put("MetricAlarm", "database-disk", "threshold", to=0)),
    (wiring.alarms_fire_for_what_is_wrong, put("Budget", "monthly", "notifications", to=[])),
    (wiring.alarms_fire_for_what_is_wrong, put("Budget", "monthly", "limitAmount", to="1")),
    (wiring.alarms_fire_for_what_is_wrong, put("Budget", "monthly", "costFilters", to=[{"name": "TagKeyValue"}])),
]  # fmt: skip


@pytest.mark.parametrize("rule", wiring.WIRING, ids=lambda rule: rule.__name__)
def test_a_rule_holds_in_every_stack(rule: Rule) -> None:
    for name, graph in graphs().items():
        assert list(rule(graph)) == [], name


def test_each_refusal_of_each_rule_is_met_with_a_fault() -> None:
    assert unbroken(wiring, graphs()["prod"], FAULTS) == []
    assert {rule for rule, _ in FAULTS} == set(wiring.WIRING), "a rule without a fault"
