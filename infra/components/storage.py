"""Buckets, and the registry of images."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, document
from infra.config import Stack

ENCRYPTION = aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs


@dataclass(frozen=True, slots=True)
class BucketKind:
    name: str
    locked_days: int | None
    """So long nobody may change or delete an object, in the mode GOVERNANCE; None where objects may be replaced."""
    forgotten_days: int | None = None
    """So long what was deleted or replaced can be brought back; None where that is for ever."""


BUCKETS = (
    BucketKind("exports", 365),
    BucketKind("audit", 400),
    BucketKind("artifacts", None),
    BucketKind("samples", None, forgotten_days=7),
)


class Storage(Component):
    def __init__(
        self, stack: Stack, parent: pulumi.Resource, *, data_key: aws.kms.Key, image_key: aws.kms.Key
    ) -> None:
        super().__init__(stack, "storage", parent)
        self.buckets = {kind.name: self._bucket(kind, data_key) for kind in BUCKETS}
        self.finance = self._for_finance(self.buckets["exports"], data_key)
        self.images = aws.ecr.Repository(
            "images",
            name=self.name("images"),
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[
                aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=image_key.arn)
            ],
            force_delete=False,
            opts=self.guarded(),
        )
        self.register_outputs({"images": self.images.repository_url, "finance": self.finance.arn})

    def _for_finance(self, exports: aws.s3.Bucket, key: aws.kms.Key) -> aws.iam.Policy:
        """No process writes exports: a person does, whose role gets this (`splitplane finance export create --to`)."""
        return aws.iam.Policy(
            "finance",
            name=self.name("finance"),
            description="Write exports, and read them.",
            policy=document(
                {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": exports.arn},
                {
                    "Effect": "Allow",
                    "Action": ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
                    "Resource": pulumi.Output.concat(exports.arn, "/*"),
                },
                {
                    "Effect": "Allow",
                    "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                    "Resource": key.arn,
                    "Condition": {
                        "StringEquals": {"kms:ViaService": f"s3.{self.stack.region}.amazonaws.com"}
                    },
                },
            ),
            opts=self.below(),
        )

    def _bucket(self, kind: BucketKind, key: aws.kms.Key) -> aws.s3.Bucket:
        bucket = aws.s3.Bucket(
            kind.name,
            bucket=self.name(f"{kind.name}-{self.stack.account}"),
            object_lock_enabled=kind.locked_days is not None,
            force_destroy=False,
            opts=self.guarded(),
        )
        versioning = aws.s3.BucketVersioning(
            kind.name,
            bucket=bucket.id,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self.below(),
        )
        if kind.forgotten_days is not None:
            aws.s3.BucketLifecycleConfiguration(
                kind.name,
                bucket=bucket.id,
                rules=[_forgetting(kind.forgotten_days)],
                opts=self.below(depends_on=[versioning]),
            )
        aws.s3.BucketServerSideEncryptionConfiguration(
            kind.name,
            bucket=bucket.id,
            rules=[
                aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    apply_server_side_encryption_by_default=ENCRYPTION(
                        sse_algorithm="aws:kms", kms_master_key_id=key.arn
                    ),
                    bucket_key_enabled=True,
                )
            ],
            opts=self.below(),
        )
        closed = aws.s3.BucketPublicAccessBlock(
            kind.name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self.below(),
        )
        aws.s3.BucketPolicy(
            kind.name,
            bucket=bucket.id,
            policy=document(_tls_only(bucket)),
            opts=self.below(depends_on=[closed]),
        )
        if kind.locked_days is not None:
            aws.s3.BucketObjectLockConfiguration(
                kind.name,
                bucket=bucket.id,
                rule=aws.s3.BucketObjectLockConfigurationRuleArgs(
                    default_retention=aws.s3.BucketObjectLockConfigurationRuleDefaultRetentionArgs(
                        mode="GOVERNANCE", days=kind.locked_days
                    )
                ),
                opts=self.below(),
            )
        return bucket


def _forgetting(days: int) -> aws.s3.BucketLifecycleConfigurationRuleArgs:
    """What was deleted or replaced is gone after so many days."""
    return aws.s3.BucketLifecycleConfigurationRuleArgs(
        id="forget",
        status="Enabled",
        filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
            noncurrent_days=days
        ),
        expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
    )


def _tls_only(bucket: aws.s3.Bucket) -> dict[str, object]:
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket.arn, pulumi.Output.concat(bucket.arn, "/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
