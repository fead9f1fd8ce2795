"""Gives a process of a deployment another login of the database, with another password, and ends the one before.

The two logins of a process take turns: `api_login`, `api_login_2`. The secret names the new one once it is made, and
the old one is ended after the last task that used it, so no task is refused. The task that makes it gets what
PostgreSQL keeps of its password, and not the password. A tag of the secret holds the name of the login that is to be
ended, and is written first: a run that was interrupted is finished by the next one.
"""

import secrets
from collections.abc import Generator
from urllib.parse import urlsplit

import boto3

from infra.logins.cluster import Cluster, LoginsError
from infra.logins.first_user import FirstUser
from infra.logins.scram import verifier
from infra.services import LOGINS, SERVICES, Runs, Service

TAG = "splitplane:ends"
"""Of a secret: the login that is ended when everything works with the one in the secret."""
SECOND = "_2"


def processes() -> dict[str, Service]:
    """Those with a login of their own."""
    secret = {f"database-{name}" for name in LOGINS.files}
    return {one.name: one for one in SERVICES if secret & set(one.secrets.values())}


def rotate(session: boto3.Session, stack: str, process: str) -> Generator[str, None, None]:
    """Yields a line for each step. Raises LoginsError, and the errors of boto3."""
    vault = session.client("secretsmanager")
    secret = f"splitplane-{stack}/database-{process}"
    url = vault.get_secret_value(SecretId=secret)["SecretString"].strip()
    tags = {tag["Key"]: tag["Value"] for tag in vault.describe_secret(SecretId=secret).get("Tags", ())}
    login = urlsplit(url).username
    if not login:
        raise LoginsError(f"The secret {secret} holds no URL with a login.")
    old = tags.get(TAG, login)
    first_user, cluster = FirstUser(session, stack), Cluster(session, stack)
    if TAG in tags:
        yield f"{secret}: a rotation was interrupted, and goes on"
    else:
        vault.tag_resource(SecretId=secret, Tags=[{"Key": TAG, "Value": old}])
    if login == old:
        following = old.removesuffix(SECOND) if old.endswith(SECOND) else old + SECOND
        password = secrets.token_urlsafe(32)
        yield f"{LOGINS.name}: a task makes {following}, with another password"
        with first_user.lent():
            cluster.run_logins("--also", process, following, verifier(password))
        vault.put_secret_value(SecretId=secret, SecretString=_with_login(url, following, password))
        yield f"{secret}: {following} in the place of {old}"
    if processes()[process].runs is Runs.ALWAYS:
        yield f"{process}: new tasks start beside the old ones, which takes some minutes"
        cluster.restart(process)
    yield f"{LOGINS.name}: a task ends {old}"
    with first_user.lent():
        cluster.run_logins("--end", old)
    vault.untag_resource(SecretId=secret, TagKeys=[TAG])
    yield f"{old}: ended"


def _with_login(url: str, login: str, password: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{login}:{password}@{place}").geturl()
