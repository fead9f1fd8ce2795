"""The tasks and services of a stack, under the names that the program of infra/ gives them."""

from collections.abc import Sequence
from typing import Any

import boto3

from infra.services import LOGINS, SERVICES


class LoginsError(Exception):
    """Why the logins are not what was asked for, as sentences."""


class Cluster:
    def __init__(self, session: boto3.Session, stack: str) -> None:
        self._ecs = session.client("ecs")
        self._ec2 = session.client("ec2")
        self._prefix = f"splitplane-{stack}"
        self._name = f"{self._prefix}-services"

    def run_logins(self, *options: str) -> None:
        """Run the task that makes the logins, to its end. Raises LoginsError."""
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
            raise LoginsError(f"The task {LOGINS.name} does not start: {started['failures']}")
        task = started["tasks"][0]["taskArn"]
        self._ecs.get_waiter("tasks_stopped").wait(cluster=self._name, tasks=[task])
        (ended,) = self._ecs.describe_tasks(cluster=self._name, tasks=[task])["tasks"]
        codes = [one.get("exitCode") for one in ended["containers"] if one["name"] == LOGINS.name]
        if codes == [None]:
            raise LoginsError(f"The task {LOGINS.name} did not start: {ended.get('stoppedReason')}")
        if codes != [0]:
            raise LoginsError(
                f"The task {LOGINS.name} failed. Its log says why:"
                f" aws logs tail {self._prefix}-{LOGINS.name} --since 15m"
            )

    def restart(self, service: str) -> None:
        """Replace every task. Raises LoginsError when old ones stay."""
        asked = self._ecs.update_service(cluster=self._name, service=service, forceNewDeployment=True)
        wanted = _primary(asked["service"])["id"]
        self._ecs.get_waiter("services_stable").wait(cluster=self._name, services=[service])
        now = self._service(service)
        # ECS goes back to the old tasks when new ones do not become healthy, and is stable then, too.
        if len(now["deployments"]) != 1 or _primary(now)["id"] != wanted:
            raise LoginsError(
                f"New tasks of {service} did not become healthy, and the old ones stay. Their log says why:"
                f" aws logs tail {self._prefix}-{service} --since 15m"
            )

    def _service(self, name: str) -> dict[str, Any]:
        found: Sequence[dict[str, Any]]
        found = self._ecs.describe_services(cluster=self._name, services=[name])["services"]
        if not found:
            raise LoginsError(f"The cluster {self._name} has no service {name}.")
        return found[0]

    def _group(self) -> list[str]:
        name = f"{self._prefix}-{LOGINS.name}"
        filters = [{"Name": "group-name", "Values": [name]}]
        found = self._ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
        if len(found) != 1:
            raise LoginsError(f"There are {len(found)} security groups with the name {name}, and not one.")
        return [found[0]["GroupId"]]


def _primary(service: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in service["deployments"] if one["status"] == "PRIMARY"]
    return dict(found)
