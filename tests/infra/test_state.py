"""The place of Pulumi's state is made once, and made again without a change."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID

from infra.state import place
from infra.state.__main__ import main
from infra.state.place import ALIAS, PRIVATE, StateError

REGION = "eu-central-1"
BUCKET = f"splitplane-state-{DEFAULT_ACCOUNT_ID}-{REGION}"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.Session(region_name=REGION)


def _as_it_is(session: boto3.Session) -> dict[str, Any]:
    s3, kms = session.client("s3"), session.client("kms")
    key = kms.describe_key(KeyId=ALIAS)["KeyMetadata"]
    policy = json.loads(s3.get_bucket_policy(Bucket=BUCKET)["Policy"])
    rules = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    return {
        "keys": [each["KeyArn"] for each in kms.list_keys()["Keys"]],
        "rotated": kms.get_key_rotation_status(KeyId=key["KeyId"])["KeyRotationEnabled"],
        "region": s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"],
        "versioning": s3.get_bucket_versioning(Bucket=BUCKET)["Status"],
        "access": s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"],
        "sealed": rules[0]["ApplyServerSideEncryptionByDefault"],
        "denied": [(one["Effect"], one["Condition"]) for one in policy["Statement"]],
        "arn": key["Arn"],
    }


def test_the_bucket_and_the_key_are_made_and_the_next_commands_are_printed(session: boto3.Session) -> None:
    said = list(place.make(session))
    found = _as_it_is(session)
    assert found["keys"] == [found["arn"]]
    assert found["sealed"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": found["arn"]}
    assert (found["rotated"], found["region"], found["versioning"]) == (True, REGION, "Enabled")
    assert found["access"] == PRIVATE
    assert found["denied"] == [("Deny", {"Bool": {"aws:SecureTransport": "false"}})]
    assert [line for line in said if line.endswith(": made")] == [f"{ALIAS}: made", f"{BUCKET}: made"]
    assert said[-2:] == [
        f'    pulumi login "s3://{BUCKET}?region={REGION}"',
        f'    pulumi stack init dev --secrets-provider "awskms://{ALIAS}?region={REGION}"',
    ]


def test_what_is_there_stays_and_what_was_changed_is_mended(session: boto3.Session) -> None:
    list(place.make(session))
    before = _as_it_is(session)
    s3, kms = session.client("s3"), session.client("kms")
    s3.delete_bucket_policy(Bucket=BUCKET)  # Moto, which has no TLS, would refuse what follows.
    s3.put_object(Bucket=BUCKET, Key=".pulumi/stacks/dev.json", Body=b"state")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    s3.delete_public_access_block(Bucket=BUCKET)
    kms.disable_key_rotation(KeyId=kms.describe_key(KeyId=ALIAS)["KeyMetadata"]["KeyId"])
    said = list(place.make(session))
    assert _as_it_is(session) == before
    s3.delete_bucket_policy(Bucket=BUCKET)
    assert s3.get_object(Bucket=BUCKET, Key=".pulumi/stacks/dev.json")["Body"].read() == b"state"
    assert not [line for line in said if line.endswith(": made")]


def test_each_region_has_a_place_of_its_own(session: boto3.Session) -> None:
    list(place.make(session))
    before = _as_it_is(session)
    said = list(place.make(boto3.Session(region_name="us-east-1")))
    assert f"splitplane-state-{DEFAULT_ACCOUNT_ID}-us-east-1: made" in said
    assert _as_it_is(session) == before


def test_a_bucket_in_another_region_than_its_key_is_refused(session: boto3.Session) -> None:
    elsewhere = session.client("s3", region_name="eu-west-1")
    elsewhere.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    with pytest.raises(StateError, match=f"The bucket {BUCKET} is in eu-west-1, where a key in {REGION}"):
        list(place.make(session))


def test_the_key_of_an_interrupted_run_is_used_and_no_other(session: boto3.Session) -> None:
    kms = session.client("kms")
    gone, other, untagged, left = (
        kms.create_key(Tags=tags)["KeyMetadata"]["KeyId"]
        for tags in ([place.TAG], [{"TagKey": "splitplane", "TagValue": "exports"}], [], [place.TAG])
    )
    kms.schedule_key_deletion(KeyId=gone)
    made = next(place.make(session))  # As if it were killed here.
    assert made == f"{ALIAS}: made for the key of a run that was interrupted"
    kms.delete_alias(AliasName=ALIAS)  # ... or a moment earlier.
    list(place.make(session))
    assert kms.describe_key(KeyId=ALIAS)["KeyMetadata"]["KeyId"] == left
    assert {each["KeyId"] for each in kms.list_keys()["Keys"]} == {gone, other, untagged, left}


def test_a_key_is_tagged_when_it_is_made(session: boto3.Session) -> None:
    list(place.make(session))
    kms = session.client("kms")
    (key,) = kms.list_keys()["Keys"]
    assert kms.list_resource_tags(KeyId=key["KeyId"])["Tags"] == [place.TAG]


def test_a_bucket_of_somebody_else_is_not_used(session: boto3.Session) -> None:
    s3 = session.client("s3")
    asked = {"Bucket": BUCKET, "ExpectedBucketOwner": "111111111111"}
    answers = Stubber(s3)
    answers.add_client_error("head_bucket", "403", http_status_code=403, expected_params=asked)
    told = f"The bucket {BUCKET} exists, and account 111111111111 may not use it"
    with answers, pytest.raises(StateError, match=told):
        list(place._bucket(s3, BUCKET, REGION, "111111111111", "key"))


def test_a_key_that_is_disabled_is_told_before_anything_is_made(session: boto3.Session) -> None:
    kms = session.client("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.create_alias(AliasName=ALIAS, TargetKeyId=key)
    kms.disable_key(KeyId=key)
    with pytest.raises(StateError, match=f"The key {ALIAS} is Disabled"):
        list(place.make(session))
    assert session.client("s3").list_buckets()["Buckets"] == []


def test_without_a_region_or_credentials_the_command_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert main([]) == 64
    assert capsys.readouterr().err == "No region is known. Name one: --region eu-central-1\n"
    assert main(["--region", REGION]) == 1
    told = capsys.readouterr().err
    assert "AWS did not do that: Unable to locate credentials" in told
    assert "run the command again" in told
