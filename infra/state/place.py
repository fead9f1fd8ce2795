"""Makes the place where Pulumi keeps the state of the stacks of an AWS account.

A bucket that keeps every version, takes nothing without TLS and is never public, and a KMS key for what Pulumi encrypts
in it. It is made before there is a stack, so no stack has it. What is there already is left as it is, or mended.
Pulumi locks the state by itself with a file in the bucket:
https://www.pulumi.com/docs/iac/concepts/state-and-backends/ (2026-11-24).
"""

import json
from collections.abc import Generator, Iterator
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

ALIAS = "alias/splitplane-state"
TAG: Final = {"TagKey": "splitplane", "TagValue": "state of Pulumi"}
"""By which a key is found that has no alias yet."""
PRIVATE = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
WITHOUT_A_PLACE = "us-east-1"
"""The region in which S3 wants no `LocationConstraint`."""


class StateError(Exception):
    """Why there is no such place, as a sentence."""


def make(session: boto3.Session) -> Iterator[str]:
    """Make what is missing in the account and the region of the session. Yields a line for each part.

    Raises StateError, and the errors of boto3.
    """
    account = session.client("sts").get_caller_identity()["Account"]
    key = yield from _key(session.client("kms"))
    # S3 wants a bucket and its key in one region, and a bucket's name is taken in all regions at once.
    bucket = f"splitplane-state-{account}-{session.region_name}"
    yield from _bucket(session.client("s3"), bucket, str(session.region_name), account, key)
    yield "\nNow, and on every other computer that is to run Pulumi:\n"
    yield f'    pulumi login "s3://{bucket}?region={session.region_name}"'
    yield f'    pulumi stack init dev --secrets-provider "awskms://{ALIAS}?region={session.region_name}"'


def _key(kms: Any) -> Generator[str, None, str]:
    """Returns the key's ARN."""
    try:
        found = kms.describe_key(KeyId=ALIAS)["KeyMetadata"]
    except kms.exceptions.NotFoundException:
        left = _without_alias(kms)
        made = left or kms.create_key(Description="Splitplane: state of Pulumi", Tags=[TAG])["KeyMetadata"]
        kms.create_alias(AliasName=ALIAS, TargetKeyId=made["KeyId"])
        kms.enable_key_rotation(KeyId=made["KeyId"])
        yield f"{ALIAS}: " + ("made for the key of a run that was interrupted" if left else "made")
        return str(made["Arn"])
    if found["KeyState"] != "Enabled":
        raise StateError(
            f"The key {ALIAS} is {found['KeyState']}: enable it, or nobody reads the stacks' secrets."
        )
    if not kms.get_key_rotation_status(KeyId=found["KeyId"])["KeyRotationEnabled"]:
        kms.enable_key_rotation(KeyId=found["KeyId"])
        yield f"{ALIAS}: it is rotated once a year from now on"
    else:
        yield f"{ALIAS}: there"
    return str(found["Arn"])


def _without_alias(kms: Any) -> dict[str, Any] | None:
    """The key that a run made before it was interrupted, if there is one that can be used."""
    for page in kms.get_paginator("list_keys").paginate():
        for listed in page["Keys"]:
            try:
                tags = kms.list_resource_tags(KeyId=listed["KeyId"])["Tags"]
            except ClientError as error:
                if error.response["Error"]["Code"] != "AccessDeniedException":
                    raise
                continue  # The policy of ours lets the account read its tags, so this is another one.
            if TAG in tags:
                found: dict[str, Any] = kms.describe_key(KeyId=listed["KeyId"])["KeyMetadata"]
                if found["KeyState"] == "Enabled":
                    return found
    return None


def _bucket(s3: Any, name: str, region: str, account: str, key: str) -> Iterator[str]:
    # An account's bucket could be somebody else's: names are taken by whoever comes first.
    ours = {"Bucket": name, "ExpectedBucketOwner": account}
    try:
        s3.head_bucket(**ours)
    except ClientError as error:
        if error.response["Error"]["Code"] != "404":
            raise StateError(
                f"The bucket {name} exists, and account {account} may not use it: somebody else has the name, or your"
                " credentials lack s3:ListBucket."
            ) from error
        place = {} if region == WITHOUT_A_PLACE else {"LocationConstraint": region}
        s3.create_bucket(Bucket=name, **({"CreateBucketConfiguration": place} if place else {}))
        yield f"{name}: made"
    else:
        found = s3.get_bucket_location(**ours)["LocationConstraint"] or WITHOUT_A_PLACE
        if found != region:
            raise StateError(
                f"The bucket {name} is in {found}, where a key in {region} cannot be used. Move what is in it to"
                " another bucket, delete it, and run the command again."
            )
        yield f"{name}: there"
    s3.put_bucket_versioning(**ours, VersioningConfiguration={"Status": "Enabled"})
    s3.put_public_access_block(**ours, PublicAccessBlockConfiguration=PRIVATE)
    sealed = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = [{"ApplyServerSideEncryptionByDefault": sealed, "BucketKeyEnabled": True}]
    s3.put_bucket_encryption(**ours, ServerSideEncryptionConfiguration={"Rules": rules})
    s3.put_bucket_policy(**ours, Policy=json.dumps(_only_with_tls(name)))
    yield f"{name}: keeps every version, is encrypted under {ALIAS}, is not public, and is reached over TLS only"


def _only_with_tls(bucket: str) -> dict[str, Any]:
    refused = {
        "Sid": "OnlyWithTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [refused]}
