"""The first user of the database, whose password RDS makes and rotates. Only the task `logins` needs it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import boto3

from infra.services import LOGINS

NOT_LENT = "filled only while python -m infra.logins runs"
"""What the secret of the task `logins` holds while no login is made or ended."""


class FirstUser:
    def __init__(self, session: boto3.Session, stack: str) -> None:
        """Raises the errors of boto3, when there is no such database."""
        (database,) = session.client("rds").describe_db_instances(
            DBInstanceIdentifier=f"splitplane-{stack}-database"
        )["DBInstances"]
        self.address: str = database["Endpoint"]["Address"]
        self._managed = database["MasterUserSecret"]["SecretArn"]
        (name,) = LOGINS.secrets.values()
        self._secret = f"splitplane-{stack}/{name}"
        self._vault = session.client("secretsmanager")

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The task has the password of this moment for as long as the block runs. Raises the errors of boto3."""
        managed = self._vault.get_secret_value(SecretId=self._managed)
        user = json.loads(managed["SecretString"])
        url = url_of(user["username"], user["password"], self.address)
        try:
            self._vault.put_secret_value(SecretId=self._secret, SecretString=url)
            yield
        finally:
            self._vault.put_secret_value(SecretId=self._secret, SecretString=NOT_LENT)


def url_of(login: str, password: str, address: str) -> str:
    place = f"{quote(login, safe='')}:{quote(password, safe='')}@{address}"
    return f"postgresql://{place}/splitplane?sslmode=verify-full&sslrootcert=/etc/ssl/rds.pem"
