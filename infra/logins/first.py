"""Makes the first logins of a new deployment, with passwords that nobody has seen."""

import json
import secrets
from collections.abc import Generator
from typing import Any
from urllib.parse import quote

import boto3

from infra.logins.cluster import Cluster
from infra.services import LOGINS

USED = "used: python -m infra.logins first"
"""What the secret of the task `logins` holds when nothing has to be made."""


def make(session: boto3.Session, stack: str) -> Generator[str, None, None]:
    """Fill the secrets of the logins that are empty, and have the task make all of them. Yields a line for each step.

    The task gets the password of the first user of RDS for as long as it runs. Raises LoginsError, and the errors of
    boto3.
    """
    vault, rds = session.client("secretsmanager"), session.client("rds")
    identifier = f"splitplane-{stack}-database"
    (database,) = rds.describe_db_instances(DBInstanceIdentifier=identifier)["DBInstances"]
    address = database["Endpoint"]["Address"]
    for name in LOGINS.files:
        secret = f"splitplane-{stack}/database-{name}"
        if _is_empty(vault, secret):
            url = _url(f"{name}_login", secrets.token_urlsafe(32), address)
            vault.put_secret_value(SecretId=secret, SecretString=url)
            yield f"{secret}: filled, for the login {name}_login"
        else:
            yield f"{secret}: has a URL, and keeps it"
    (root,) = LOGINS.secrets.values()
    managed = vault.get_secret_value(SecretId=database["MasterUserSecret"]["SecretArn"])
    first = json.loads(managed["SecretString"])
    root = f"splitplane-{stack}/{root}"
    vault.put_secret_value(SecretId=root, SecretString=_url(first["username"], first["password"], address))
    try:
        yield f"{LOGINS.name}: a task makes the logins"
        Cluster(session, stack).run_logins()
    finally:
        vault.put_secret_value(SecretId=root, SecretString=USED)
    yield f"{LOGINS.name}: done"


def _is_empty(vault: Any, secret: str) -> bool:
    try:
        vault.get_secret_value(SecretId=secret)
    except vault.exceptions.ResourceNotFoundException:
        # So says Secrets Manager of a secret without a value. One that is not there at all cannot be described.
        vault.describe_secret(SecretId=secret)
        return True
    return False


def _url(login: str, password: str, address: str) -> str:
    place = f"{quote(login, safe='')}:{quote(password, safe='')}@{address}"
    return f"postgresql://{place}/splitplane?sslmode=verify-full&sslrootcert=/etc/ssl/rds.pem"
