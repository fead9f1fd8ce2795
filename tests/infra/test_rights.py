"""The rights of a deployment's roles, tried: what each may do works, and what another may do does not.

moto stands in for AWS, with a user for every role that has exactly its policies; `tests/support/iam.py` decides as IAM
does where moto cannot. The key policies of `sealing` are tried in tests/integration/test_kms.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from infra.services import SERVICES
from tests.support import iam
from tests.support.cloud.graph import Graph, graphs

pytestmark = pytest.mark.xdist_group("infra")
REGION = "eu-central-1"
NO = ("AccessDenied", "AccessDeniedException")


@dataclass(frozen=True)
class Cloud:
    graph: Graph
    users: Mapping[str, Mapping[str, str]]
    """What boto3 signs with as each role."""
    policies: Mapping[str, list[Mapping[str, Any]]]
    secrets: Mapping[str, str]
    """The ARN of each secret."""
    keys: Mapping[str, str]
    finance: Mapping[str, str]
    """What boto3 signs with as a person who has the policy of finance."""

    def as_role(self, role: str, service: str) -> Any:
        return boto3.client(service, region_name=REGION, **self.users[role])

    def bucket(self, name: str) -> str:
        return str(self.graph.one("Bucket", name).inputs["bucket"])


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    graph = graphs()["prod"]
    with pytest.MonkeyPatch.context() as patched, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patched.setenv(name, "testing")
        kms, secrets_manager = (
            boto3.client("kms", region_name=REGION),
            boto3.client("secretsmanager", region_name=REGION),
        )
        keys = {one.name: kms.create_key()["KeyMetadata"]["Arn"] for one in graph.of("Key")}
        secrets = {
            one.name: secrets_manager.create_secret(
                Name=one.inputs["name"], SecretString=f"value of {one.name}", KmsKeyId=keys["credentials"]
            )["ARN"]
            for one in graph.of("Secret")
        }
        s3 = boto3.client("s3", region_name=REGION)
        for one in graph.of("Bucket"):
            s3.create_bucket(
                Bucket=one.inputs["bucket"], CreateBucketConfiguration={"LocationConstraint": REGION}
            )
            s3.put_object(Bucket=one.inputs["bucket"], Key="there", Body=b"x")
        made = {
            **{graph.one("Key", name).arn: arn for name, arn in keys.items()},
            **{graph.one("Secret", name).arn: arn for name, arn in secrets.items()},
            **{one.arn: f"arn:aws:s3:::{one.inputs['bucket']}" for one in graph.of("Bucket")},
        }
        policies = {
            role.name: [
                _with_arns(json.loads(right.inputs["policy"]), made)
                for right in graph.of("RolePolicy")
                if right.inputs["role"] == role.id
            ]
            for role in graph.of("Role")
        }
        users = {role: _user(role, documents) for role, documents in policies.items()}
        own = _with_arns(json.loads(graph.one("iam.Policy", "finance").inputs["policy"]), made)
        finance = _user("finance", [own])
        with iam.enforced():
            yield Cloud(graph, users, policies, secrets, keys, finance)


def _with_arns(part: Any, made: Mapping[str, str]) -> Any:
    """A document with the ARNs that AWS gave instead of those of the plan."""
    match part:
        case str():
            for planned, arn in made.items():
                if part == planned or part.startswith((f"{planned}/", f"{planned}:")):
                    return arn + part.removeprefix(planned)
            return part
        case list():
            return [_with_arns(one, made) for one in part]
        case dict():
            return {name: _with_arns(one, made) for name, one in part.items()}
    return part


def _user(name: str, documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    client = boto3.client("iam", region_name=REGION)
    client.create_user(UserName=name)
    for number, document in enumerate(documents):
        client.put_user_policy(
            UserName=name, PolicyName=f"policy-{number}", PolicyDocument=json.dumps(document)
        )
    key = client.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


def _refused(call: Any, **arguments: Any) -> bool:
    """Whether the call is refused for a missing right. Any other error is a fault of the test."""
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] not in NO:
            raise
        return True
    return False


def test_what_starts_a_service_reads_its_secrets_and_no_other_one(cloud: Cloud) -> None:
    for service in SERVICES:
        client = cloud.as_role(f"{service.name}-start", "secretsmanager")
        readable = {
            name for name, arn in cloud.secrets.items() if not _refused(client.get_secret_value, SecretId=arn)
        }
        assert readable == {*service.secrets.values(), *service.files.values()}, service.name


def test_no_process_reads_a_secret_by_itself(cloud: Cloud) -> None:
    for role in (*(service.name for service in SERVICES), "hub", "servers"):
        if role in cloud.users:
            client = cloud.as_role(role, "secretsmanager")
            assert all(_refused(client.get_secret_value, SecretId=arn) for arn in cloud.secrets.values()), (
                role
            )


def test_the_hub_writes_its_host_key_and_nothing_else(cloud: Cloud) -> None:
    client = cloud.as_role("hub", "secretsmanager")
    written = {
        name
        for name, arn in cloud.secrets.items()
        if not _refused(client.put_secret_value, SecretId=arn, SecretString="ssh-ed25519 AAAA")
    }
    assert written == {"hub-host-key"}


def test_only_the_reconciler_puts_objects_into_the_audit_bucket_and_nobody_reads_or_deletes_any(
    cloud: Cloud,
) -> None:
    may = set()
    for role in cloud.users:
        client = cloud.as_role(role, "s3")
        for name in ("audit", "exports", "artifacts"):
            bucket = cloud.bucket(name)
            if not _refused(client.put_object, Bucket=bucket, Key=f"of {role}", Body=b"x"):
                may.add((role, name))
            assert _refused(client.get_object, Bucket=bucket, Key="there"), (role, name)
            assert _refused(client.delete_object, Bucket=bucket, Key="there"), (role, name)
            assert _refused(client.list_objects_v2, Bucket=bucket), (role, name)
    assert may == {("reconciler", "audit")}


def test_only_the_reconciler_keeps_samples_and_finds_that_one_is_not_there(cloud: Cloud) -> None:
    bucket = cloud.bucket("samples")
    for role in cloud.users:
        client, may = cloud.as_role(role, "s3"), role == "reconciler"
        assert _refused(client.put_object, Bucket=bucket, Key=f"of {role}", Body=b"x") is not may, role
        assert _refused(client.get_object, Bucket=bucket, Key="there") is not may, role
        assert _refused(client.list_objects_v2, Bucket=bucket) is not may, role
        assert _refused(client.delete_object, Bucket=bucket, Key=f"of {role}") is not may, role
        assert _refused(client.delete_bucket, Bucket=bucket), role
    assert (
        cloud.graph.one("BucketLifecycleConfiguration", "samples").inputs["rules"][0]["status"] == "Enabled"
    )


def test_finance_writes_and_reads_exports_and_deletes_none(cloud: Cloud) -> None:
    client = boto3.client("s3", region_name=REGION, **cloud.finance)
    for name in ("exports", "audit", "artifacts"):
        bucket, may = cloud.bucket(name), name == "exports"
        assert _refused(client.put_object, Bucket=bucket, Key="2026-10/focus.csv", Body=b"x") is not may, name
        assert _refused(client.get_object, Bucket=bucket, Key="there") is not may, name
        assert _refused(client.list_objects_v2, Bucket=bucket) is not may, name
        assert _refused(client.delete_object, Bucket=bucket, Key="there"), name
    assert _refused(client.get_object, Bucket=cloud.bucket("samples"), Key="there")
    secrets = boto3.client("secretsmanager", region_name=REGION, **cloud.finance)
    assert all(_refused(secrets.get_secret_value, SecretId=arn) for arn in cloud.secrets.values())


def test_the_reconciler_uses_the_key_of_that_bucket_through_s3_alone(cloud: Cloud) -> None:
    def may(via: str | None) -> bool:
        key = cloud.keys["exports"]
        return iam.permits(cloud.policies["reconciler"], "kms:GenerateDataKey", key, {}, via=via)

    assert may(f"s3.{REGION}.amazonaws.com")
    assert not may(None)
    assert not may(f"ec2.{REGION}.amazonaws.com")
