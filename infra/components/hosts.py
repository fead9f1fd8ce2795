"""What a new host of the cluster network is told at its first start, as cloud-init reads it."""

import json

PRINCIPALS = {"hub": "splitplane-hub", "servers": "splitplane-server"}
SSHD = """\
PasswordAuthentication no
PermitRootLogin no
Match User splitplane
 TrustedUserCAKeys /etc/ssh/splitplane/authorities
 AuthorizedPrincipalsFile /etc/ssh/splitplane/principals/%u
 AuthorizedKeysFile none
"""
PUBLISH = """\
import boto3
key = " ".join(open("/etc/ssh/ssh_host_ed25519_key.pub").read().split()[:2])
boto3.client("secretsmanager", region_name={region!r}).put_secret_value(SecretId={secret!r}, SecretString=key)
"""
"""The reconciler pins the hub's host key. The hub tells it the public half; the private one never leaves the host."""


def cloud_config(group: str, region: str, host_key_secret: str) -> str:
    """User data for a host. `host_key_secret` is the ARN of the secret that takes its public host key; empty for none.

    It contains no secret. The authorities that sshd trusts are copied by hand once (docs/deploying.md), and are then
    the reconciler's to change.
    """
    config: dict[str, object] = {
        "package_update": True,
        "package_upgrade": True,
        "packages": ["wireguard-tools", "python3", "python3-boto3", "unattended-upgrades"],
        "users": [
            "default",
            {
                "name": "splitplane",
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
            },
        ],
        "write_files": [
            {"path": "/etc/ssh/splitplane/authorities", "content": ""},
            {"path": "/etc/ssh/splitplane/principals/splitplane", "content": f"{PRINCIPALS[group]}\n"},
            {"path": "/etc/ssh/sshd_config.d/00-splitplane.conf", "content": SSHD},
        ],
        "runcmd": [["systemctl", "try-reload-or-restart", "ssh"]]
        + (
            [["python3", "-c", PUBLISH.format(region=region, secret=host_key_secret)]]
            if host_key_secret
            else []
        ),
    }
    return "#cloud-config\n" + json.dumps(config, indent=1)
