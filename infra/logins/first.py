"""Makes the first logins of a new deployment, with passwords that nobody has seen."""

import secrets
from collections.abc import Generator
from typing import Any

import boto3

from infra.logins.cluster import Cluster
from infra.logins.first_user import FirstUser, url_of
from infra.services import LOGINS


def make(session: boto3.Session, stack: str) -> Generator[str, None, None]:
    """Fill the secrets of the logins that are empty, and have the task make all of them. Yields a line for each step.

    Raises LoginsError, and the errors of boto3.
    """
    vault, first_user = session.client("secretsmanager"), FirstUser(session, stack)
    for name in LOGINS.files:
        secret = f"splitplane-{stack}/database-{name}"
        if _is_empty(vault, secret):
            url = url_of(f"{name}_login", secrets.token_urlsafe(32), first_user.address)
            vault.put_secret_value(SecretId=secret, SecretString=url)
            yield f"{secret}: filled, for the login {name}_login"
        else:
            yield f"{secret}: has a URL, and keeps it"
    yield f"{LOGINS.name}: a task makes the logins"
    with first_user.lent():
        Cluster(session, stack).run_logins()
    yield f"{LOGINS.name}: done"


def _is_empty(vault: Any, secret: str) -> bool:
    try:
        vault.get_secret_value(SecretId=secret)
    except vault.exceptions.ResourceNotFoundException:
        # So says Secrets Manager of a secret without a value. One that is not there at all cannot be described.
        vault.describe_secret(SecretId=secret)
        return True
    return False
