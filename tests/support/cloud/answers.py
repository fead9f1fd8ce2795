"""What AWS adds to a resource, as far as another one needs it: ARNs, ids and addresses that name their resource."""

from collections.abc import Mapping
from typing import Any

PASSWORD = "made-by-aws-4f1c"
"""What AWS would make for the first user of a database, and its provider tells Pulumi as a secret."""


def answer(kind: str, name: str, inputs: Mapping[str, Any], account: str) -> tuple[str, dict[str, Any]]:
    """The id and the state of a resource of a type such as `aws:rds/instance:Instance`."""
    short = kind.rsplit(":", maxsplit=1)[-1]
    short = "key" if short == "Key" else short  # As the product knows the ARNs of keys.
    module = kind.split(":")[1].split("/", maxsplit=1)[0]
    label = f"{short}/{inputs.get('name', name)}"
    return label, {
        "arn": f"arn:aws:{module}:eu-central-1:{account}:{label}",
        "arnSuffix": f"{label}/suffix",
        "address": f"{name}.rds.example.com",
        "certificateArn": inputs.get("certificateArn"),
        "dnsName": f"{name}.elb.example.com",
        "domainValidationOptions": [
            {
                "domainName": "api.example.com",
                "resourceRecordName": "_proof.example.com",
                "resourceRecordType": "CNAME",
                "resourceRecordValue": "proof.aws",
            }
        ],
        "fqdn": "_proof.example.com",
        "hostedZone": "Z2",
        "prefixListId": "pl-s3",
        "privateIp": "10.21.0.10",
        "publicIp": "203.0.113.10",
        "repositoryUrl": "registry.example.com/images",
        "zoneId": "Z1",
    } | dict(inputs)
