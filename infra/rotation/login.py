"""Gives a process of a deployment another login of the database, with another password, and ends the one before.

The two logins of a process take turns: `api_login`, `api_login_2`. The new one works before any task uses it, and the
old one is ended after the last task that used it, so no request is refused. A tag of the secret holds the name of the
login that is to be ended, and is written first: a run that was interrupted is finished by the next one.
"""

import secrets
from collections.abc import Generator, Sequence
from typing import Any
from urllib.parse import urlsplit

import boto3

from infra.services import LOGINS, SERVICES, Runs, Service

TAG = "splitplane:ends"
"""Of a secret: the login that is ended when everything works with the one in the secret."""
SECOND = "_2"


class RotationError(Exception):
    """Why a rotation does not go on, as sentences."""


def processes() -> dict[str, Service]:
    """Those with a login of their own."""
    secret = {f"database-{name}" for name in LOGINS.files}
    return {one.name: one for one in SERVICES if secret & set(one.secrets.values())}


def rotate(session: boto3.Session, stack: str, process: str) -> Generator[str, None, None]:
    """Yields a line for each step. Raises RotationError, and the errors of boto3."""
    vault = session.client("secretsmanager")
    secret = f"splitplane-{stack}/database-{process}"
    url = vault.get_secret_value(SecretId=secret)["SecretString"].strip()
    tags = {tag["Key"]: tag["Value"] for tag in vault.describe_secret(SecretId=secret).get("Tags", ())}
    login = urlsplit(url).username
    if not login:
        raise RotationError(f"The secret {secret} holds no URL with a login.")
    old = tags.get(TAG, login)
    if TAG in tags:
        yield f"{secret}: a rotation was interrupted, and goes on"
    else:
        vault.tag_resource(SecretId=secret, Tags=[{"Key": TAG, "Value": old}])
    if login == old:
        following = old.removesuffix(SECOND) if old.endswith(SECOND) else old + SECOND
        vault.put_secret_value(SecretId=secret, SecretString=_with_login(url, following))
        yield f"{secret}: {following} in the place of {old}, with another password"
    cluster = _Cluster(session, stack)
    yield f"{LOGINS.name}: a task makes the login"
    cluster.run_logins()
    if processes()[process].runs is Runs.ALWAYS:
        yield f"{process}: new tasks start beside the old ones, which takes some minutes"
        cluster.restart(process)
    yield f"{LOGINS.name}: a task ends {old}"
    cluster.run_logins("--end", old)
    vault.untag_resource(SecretId=secret, TagKeys=[TAG])
    yield f"{old}: ended"


def _with_login(url: str, login: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{login}:{secrets.token_urlsafe(32)}@{place}").geturl()


class _Cluster:
    """The tasks and services of a stack, under the names that the program of infra/ gives them."""

    def __init__(self, session: boto3.Session, stack: str) -> None:
        self._ecs = session.client("ecs")
        self._ec2 = session.client("ec2")
        self._prefix = f"splitplane-{stack}"
        self._name = f"{self._prefix}-services"

    def run_logins(self, *options: str) -> None:
        """Run the task that makes the logins, to its end. Raises RotationError."""
        command = [{"name": LOGINS.name, "command": [*LOGINS.command, *options]}]
        (public,) = [one.name for one in SERVICES if one.public]
        network = self._service(public)["networkConfiguration"]["awsvpcConfiguration"]
        started = self._ecs.run_task(
            cluster=self._name,
            taskDefinition=f"{self._prefix}-{LOGINS.name}",
            launchType="FARGATE",
            networkConfiguration={
                "awsvpcConfiguration": {
                    "subnets": network["subnets"],
                    "securityGroups": self._group(),
                    "assignPublicIp": "DISABLED",
                }
            },
            overrides={"containerOverrides": command},
        )
        if not started["tasks"]:
            raise RotationError(f"The task {LOGINS.name} does not start: {started['failures']}")
        task = started["tasks"][0]["taskArn"]
        self._ecs.get_waiter("tasks_stopped").wait(cluster=self._name, tasks=[task])
        (ended,) = self._ecs.describe_tasks(cluster=self._name, tasks=[task])["tasks"]
        codes = [one.get("exitCode") for one in ended["containers"] if one["name"] == LOGINS.name]
        if codes != [0]:
            raise RotationError(
                f"The task {LOGINS.name} failed. Its log says why:"
                f" aws logs tail {self._prefix}-{LOGINS.name} --since 15m"
            )

    def restart(self, service: str) -> None:
        """Replace every task. Raises RotationError when old ones stay."""
        asked = self._ecs.update_service(cluster=self._name, service=service, forceNewDeployment=True)
        wanted = _primary(asked["service"])["id"]
        self._ecs.get_waiter("services_stable").wait(cluster=self._name, services=[service])
        now = self._service(service)
        # ECS goes back to the old tasks when new ones do not become healthy, and is stable then, too.
        if len(now["deployments"]) != 1 or _primary(now)["id"] != wanted:
            raise RotationError(
                f"New tasks of {service} did not become healthy, and the old ones stay. Their log says why:"
                f" aws logs tail {self._prefix}-{service} --since 15m"
            )

    def _service(self, name: str) -> dict[str, Any]:
        found: Sequence[dict[str, Any]]
        found = self._ecs.describe_services(cluster=self._name, services=[name])["services"]
        if not found:
            raise RotationError(f"The cluster {self._name} has no service {name}.")
        return found[0]

    def _group(self) -> list[str]:
        name = f"{self._prefix}-{LOGINS.name}"
        filters = [{"Name": "group-name", "Values": [name]}]
        found = self._ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
        if len(found) != 1:
            raise RotationError(f"There are {len(found)} security groups with the name {name}, and not one.")
        return [found[0]["GroupId"]]


def _primary(service: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in service["deployments"] if one["status"] == "PRIMARY"]
    return dict(found)
