"""The first logins are made with passwords that nobody has seen, and a process gets another one without a pause.

moto keeps the secrets. ECS is a stand-in: what matters is in which order it is asked, and what it answers.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from control_plane import __main__ as control_plane
from control_plane.db.logins import described
from infra.logins import first
from infra.logins.__main__ import main
from infra.logins.cluster import LoginsError
from infra.logins.first_user import NOT_LENT
from infra.logins.rotation import TAG, processes, rotate
from infra.services import LOGINS
from tests.support.cloud.graph import graphs
from tests.support.scram import opens

pytestmark = pytest.mark.xdist_group("infra")
REGION = "eu-central-1"
SECRET = "splitplane-prod/database-api"
ROOT = "splitplane-prod/database-root"
FIRST = "postgresql://api_login:first@db.example.com:5432/splitplane?sslmode=verify-full&sslrootcert=/etc/ssl/rds.pem"


MANAGED = "rds!db-0f1e"
PASSWORD = "made by RDS: #/@?"


class Ecs:
    """Runs a task and replaces tasks at once. `exit_codes` are those of the tasks that are started, one after the other;
    None for one that does not start.
    """

    def __init__(self, vault: Any) -> None:
        self.done: list[str] = []
        self.made: list[tuple[str, str]] = []
        """Logins that no secret named, with what PostgreSQL keeps of their passwords."""
        self.exit_codes: list[int | None] = [0] * 9
        self.goes_back = False
        self.signal: signal.Signals | None = None
        self._vault, self._deployment = vault, 1

    def _login(self) -> str:
        url = self._vault.get_secret_value(SecretId=SECRET)["SecretString"]
        return str(urlsplit(url).username)

    def run_task(self, **asked: Any) -> Mapping[str, Any]:
        (override,) = asked["overrides"]["containerOverrides"]
        parsed = control_plane._parser().parse_args(override["command"][3:])
        if parsed.also:
            process, login, kept = parsed.also
            described(process, login, kept)
            assert login != self._login(), "the secret names a login that is not there"
            self.made.append((login, kept))
        self.done.append(
            f"end {parsed.end}" if parsed.end else f"make {parsed.also[1] if parsed.also else self._login()}"
        )
        root = urlsplit(self._vault.get_secret_value(SecretId=ROOT)["SecretString"])
        assert (root.username, unquote(root.password or "")) == ("splitplane_root", PASSWORD), (
            "or it would fail"
        )
        if self.signal is not None:
            os.kill(os.getpid(), self.signal)
        graph = graphs()["prod"]
        assert asked["cluster"] == graph.one("Cluster", "cluster").inputs["name"]
        assert asked["taskDefinition"] == graph.one("TaskDefinition", "logins").inputs["family"]
        assert override["name"] == LOGINS.name
        assert asked["networkConfiguration"]["awsvpcConfiguration"]["securityGroups"] == ["sg-logins"]
        return {"tasks": [{"taskArn": "arn:task"}], "failures": []}

    def describe_tasks(self, **_: Any) -> Mapping[str, Any]:
        return {
            "tasks": [
                {
                    "stoppedReason": "ResourceInitializationError: no value",
                    "containers": [
                        {"name": "files", "exitCode": 0},
                        {"name": "logins", "exitCode": self.exit_codes.pop(0)},
                    ],
                }
            ]
        }

    def update_service(self, **asked: Any) -> Mapping[str, Any]:
        assert asked["forceNewDeployment"]
        self.done.append(f"restart {asked['service']} with {self._login()}")
        self._deployment += 1
        answer = self.describe_services()["services"][0]
        if self.goes_back:
            self._deployment -= 1
        return {"service": answer}

    def describe_services(self, **_: Any) -> Mapping[str, Any]:
        deployments = [{"status": "PRIMARY", "id": f"ecs-svc/{self._deployment}"}]
        network = {"awsvpcConfiguration": {"subnets": ["subnet-a"]}}
        return {"services": [{"networkConfiguration": network, "deployments": deployments}]}

    def get_waiter(self, _: str) -> Any:
        return type("Waiter", (), {"wait": lambda self, **_: None})()


class Ec2:
    def describe_security_groups(self, **asked: Any) -> Mapping[str, Any]:
        (name,) = asked["Filters"][0]["Values"]
        assert name == graphs()["prod"].one("SecurityGroup", "logins").inputs["name"]
        return {"SecurityGroups": [{"GroupId": "sg-logins"}]}


class Rds:
    def describe_db_instances(self, **asked: Any) -> Mapping[str, Any]:
        assert (
            asked["DBInstanceIdentifier"]
            == graphs()["prod"].one("rds.Instance", "database").inputs["identifier"]
        )
        return {
            "DBInstances": [
                {"Endpoint": {"Address": "db.example.com"}, "MasterUserSecret": {"SecretArn": MANAGED}}
            ]
        }


class Session:
    def __init__(self) -> None:
        self.vault = boto3.client("secretsmanager", region_name=REGION)
        self.ecs = Ecs(self.vault)
        self._clients = {"secretsmanager": self.vault, "ecs": self.ecs, "ec2": Ec2(), "rds": Rds()}

    def client(self, name: str) -> Any:
        return self._clients[name]

    def url(self) -> str:
        return str(self.vault.get_secret_value(SecretId=SECRET)["SecretString"])

    def root(self) -> str:
        return str(self.vault.get_secret_value(SecretId=ROOT)["SecretString"])

    def tags(self) -> list[Any]:
        return list(self.vault.describe_secret(SecretId=SECRET).get("Tags", []))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        made = Session()
        made.vault.create_secret(Name=SECRET, SecretString=FIRST)
        made.vault.create_secret(Name=ROOT, SecretString=NOT_LENT)
        managed = json.dumps({"username": "splitplane_root", "password": PASSWORD})
        made.vault.create_secret(Name=MANAGED, SecretString=managed)
        yield made


def test_the_new_login_is_made_then_used_and_then_the_old_one_is_ended(session: Any) -> None:
    said = list(rotate(session, "prod", "api"))
    assert session.ecs.done == ["make api_login_2", "restart api with api_login_2", "end api_login"]
    first, second = urlsplit(FIRST), urlsplit(session.url())
    assert second.username == "api_login_2"
    assert len(second.password or "") >= 40
    assert second._replace(netloc="") == first._replace(netloc="")
    assert (second.hostname, second.port) == (first.hostname, first.port)
    assert second.password not in "".join(said)
    ((name, kept),) = session.ecs.made
    assert name == "api_login_2"
    assert opens(kept, str(second.password))
    assert str(second.password) not in kept
    assert session.tags() == []

    list(rotate(session, "prod", "api"))
    assert session.ecs.done[3:] == ["make api_login", "restart api with api_login", "end api_login_2"]
    assert urlsplit(session.url()).password not in ("first", second.password)


@pytest.mark.parametrize("step", range(5))
def test_a_run_that_was_interrupted_is_finished_by_the_next_one(session: Any, step: int) -> None:
    running = rotate(session, "prod", "api")
    for _ in range(step):
        next(running)
    running.close()
    list(rotate(session, "prod", "api"))
    made = [each for each in session.ecs.done if each.startswith("make")]
    assert made in (["make api_login_2"], ["make api_login_2"] * 2)
    assert session.ecs.done[-2:] == ["restart api with api_login_2", "end api_login"]
    assert urlsplit(session.url()).username == "api_login_2"
    assert opens(session.ecs.made[-1][1], str(urlsplit(session.url()).password))
    assert session.tags() == []


def test_a_run_that_died_between_the_tag_and_the_secret_is_finished(session: Any) -> None:
    session.vault.tag_resource(SecretId=SECRET, Tags=[{"Key": TAG, "Value": "api_login"}])
    list(rotate(session, "prod", "api"))
    assert urlsplit(session.url()).username == "api_login_2"
    assert session.ecs.done[-1] == "end api_login"


def test_the_old_login_stays_while_tasks_use_it(session: Any) -> None:
    session.ecs.goes_back = True
    with pytest.raises(LoginsError, match="New tasks of api did not become healthy, and the old ones stay"):
        list(rotate(session, "prod", "api"))
    assert "end api_login" not in session.ecs.done


def test_a_task_that_does_not_start_says_why(session: Any) -> None:
    session.ecs.exit_codes = [None]
    with pytest.raises(LoginsError, match="did not start: ResourceInitializationError: no value"):
        list(rotate(session, "prod", "api"))
    assert session.ecs.done == ["make api_login_2"]


def test_nothing_is_restarted_when_the_login_was_not_made(session: Any) -> None:
    session.ecs.exit_codes = [1]
    with pytest.raises(LoginsError, match="aws logs tail splitplane-prod-logins"):
        list(rotate(session, "prod", "api"))
    assert session.ecs.done == ["make api_login_2"]


def test_every_process_with_a_login_can_be_given_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(processes()) == set(LOGINS.files)
    with pytest.raises(SystemExit):
        main(["rotate", "verifier", "--stack", "prod"])
    assert "invalid choice: 'verifier'" in capsys.readouterr().err


@pytest.fixture
def new(session: Any) -> Any:
    """A stack whose secrets are empty, but that of the API."""
    for name in LOGINS.files:
        if name != "api":
            session.vault.create_secret(Name=f"splitplane-prod/database-{name}")
    return session


def test_the_first_logins_are_made_from_secrets_that_are_filled_where_they_are_empty(new: Any) -> None:
    said = "\n".join(first.make(new, "prod"))
    assert new.url() == FIRST, "what was there is kept"
    passwords = set()
    for name in LOGINS.files:
        if name != "api":
            kept = new.vault.get_secret_value(SecretId=f"splitplane-prod/database-{name}")["SecretString"]
            url = urlsplit(kept)
            assert (url.username, url.hostname, url.path) == (
                f"{name}_login",
                "db.example.com",
                "/splitplane",
            )
            assert url.query == urlsplit(FIRST).query
            passwords.add(url.password)
    assert len(passwords) == len(LOGINS.files) - 1
    assert not any(password in said for password in passwords)
    assert new.ecs.done == ["make api_login"]


def test_the_password_of_the_first_user_is_taken_back_from_a_task_that_failed(new: Any) -> None:
    for step in (first.make(new, "prod"), rotate(new, "prod", "api")):
        new.ecs.exit_codes = [1]
        with pytest.raises(LoginsError, match="The task logins failed"):
            list(step)
        assert new.root() == NOT_LENT
    new.ecs.exit_codes = [0, 0, 0]
    assert list(first.make(new, "prod"))[-1] == "logins: done"
    assert list(rotate(new, "prod", "api"))[-1] == "api_login: ended"
    assert new.root() == NOT_LENT


def test_no_secret_is_changed_by_somebody_who_may_not_read_the_password_of_the_first_user(
    session: Any,
) -> None:
    session.vault.delete_secret(SecretId=MANAGED, ForceDeleteWithoutRecovery=True)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        list(rotate(session, "prod", "api"))
    assert session.url() == FIRST, "new tasks still find a login that works"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_password_of_the_first_user_is_taken_back_when_the_command_is_ended(
    session: Any,
    ending: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session.region_name, session.ecs.signal = REGION, ending
    monkeypatch.setattr(boto3, "Session", lambda **_: session)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert main(["rotate", "api", "--stack", "prod"]) == 130
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert session.root() == NOT_LENT
    assert "Run the command again" in capsys.readouterr().err


def test_a_stack_that_was_not_made_is_an_error_of_aws(session: Any) -> None:
    with pytest.raises(ClientError, match="ResourceNotFound"):
        list(first.make(session, "prod"))
