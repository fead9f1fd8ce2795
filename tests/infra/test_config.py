"""A stack that makes no sense is refused with one sentence, before anything is built."""

from dataclasses import replace
from typing import Any

import pytest

from infra.config import ConfigError, read
from infra.services import SERVICES
from tests.support.cloud.graph import SIGN_IN, STACKS, settings_of


def _changed(path: str, value: object) -> dict[str, Any]:
    """The settings of prod with one that is otherwise; a value of `...` leaves it out."""
    settings = settings_of("prod")
    *above, last = path.split(".")
    place: dict[str, Any] = settings
    for step in above:
        place = place[step]
    place[last] = value
    if value is ...:
        del place[last]
    return settings


REFUSED: list[tuple[str, object, str]] = [
    ("account", "1234", "account must have 12 digits, not '1234'"),
    ("account", 333333333333, "account must be a text, in quotation marks, not 333333333333"),
    ("acount", "333333333333", "the stack has no setting acount; did you mean account?"),
    ("region", ..., "the stack lacks region"),
    ("region", "europe", "region must be one of AWS"),
    ("zones", ["eu-central-1a", "eu-central-1a", "eu-central-1b"], "zones must be 3 different ones of eu-central-1"),
    ("zones", ["us-east-1a", "us-east-1b", "us-east-1c"], "zones must be 3 different ones of eu-central-1"),
    ("domain", "example", "domain must be the API's name"),
    ("hosted_zone", "example.com", "hosted_zone must be the id of a Route 53 zone"),
    ("alarm_email", "nobody", "alarm_email must be an email address"),
    ("monthly_budget_usd", 0, "monthly_budget_usd must be more than 0"),
    ("monthly_budget_usd", True, "monthly_budget_usd must be a whole number, not True"),
    ("image", "latest", "a tag can be moved"),
    ("network", "10.24.0.0/33", "network must be a network such as 10.20.0.0/16, not 10.24.0.0/33"),
    ("network", "203.0.0.0/16", "must be in a private range"),
    ("network", "10.24.0.0/24", "must be between a /16 and a /20"),
    ("network", "10.64.0.0/16", "overlaps 10.64.0.0/10, the range of the overlays of clusters"),
    ("cluster_network", "10.43.0.0/16", "overlaps 10.43.0.0/16, the range of the services of clusters"),
    ("cluster_network", "10.24.0.0/16", "overlap, so they cannot be peered"),
    ("nat_gateways", 2, "nat_gateways must be 1 (one address, in one zone) or 3"),
    ("database.instance_class", "db.t2.micro", "instance_class must be one of db.t4g.medium"),
    ("database.instance_class", "db.t4g.medium", "takes about 400 connections, and all tasks of a roll-out want"),
    ("database.storage_max_gib", 10, "storage_max_gib at least storage_gib"),
    ("database.backup_days", 0, "without backups there is no way back"),
    ("database.backup_days", 7, "backup_days must be at least 14 in prod"),
    ("database.multi_az", False, "a lost zone would stop everything"),
    ("database.multi_az", "yes", "database: multi_az must be true or false, not 'yes'"),
    ("protect_data", False, "prod holds data that nobody can make again"),
    ("hosts.image", "ubuntu", "image must be the id of an AMI"),
    ("hosts.hub_type", "t4g.small", "t4g.small has an ARM processor"),
    ("hosts.hub_type", "small", "hub_type must be a type of EC2"),
    ("hosts.servers", -1, "servers must be from 0 to 20"),
    ("hosts.kubectl_from", ["0.0.0.0/0"], "would open the Kubernetes API to the whole internet"),
    ("hosts.kubectl_from", ["office"], "kubectl_from must be a network"),
    ("hosts.kubectl_from", "203.0.113.0/24", "kubectl_from must be a list of texts"),
    ("services.console", {"cpu": 256, "memory_mib": 512, "tasks_min": 1, "tasks_max": 1}, "there is no such service; there are admin, api"),
    ("services.verifier", ..., "services lacks a section verifier"),
    ("services.verifier.tasks", 3, "services.verifier has no setting tasks; did you mean tasks_min?"),
    ("services.verifier.cpu", 300, "cpu must be one of [256, 512, 1024, 2048, 4096], not 300"),
    ("services.verifier.memory_mib", 1024, "memory_mib for cpu 4096 must be from 8192 to 30720"),
    ("services.verifier.tasks_max", 1, "tasks_max at least tasks_min"),
    ("services.api.tasks_min", 1, "services.api: tasks_min must be at least 2 in prod"),
    ("services.reconciler.tasks_min", 1, "services.reconciler: tasks_min must be at least 2 in prod"),
    ("services.migrate.tasks_max", 2, "services.migrate runs once at a time"),
    ("services.api.tasks_max", 9, "a private name answers no more tasks"),
    ("sign_in", {"issuer": "https://login.example.com"}, "sign_in lacks client_id, client_secret, email_domains"),
    ("sign_in", SIGN_IN | {"issuer": "http://login.example.com"}, "issuer must be the https address"),
    ("sign_in", SIGN_IN | {"client_id": "{account}"}, "client_id must be our client id"),
    ("sign_in", SIGN_IN | {"email_domains": ["@example.com"]}, "domains such as example.com, not '@example.com'"),
    ("services", [], "services must be a table"),
    ("database", "large", "database must be a table"),
]  # fmt: skip


def test_a_setting_that_makes_no_sense_is_refused_with_a_sentence() -> None:
    for path, value, words in REFUSED:
        with pytest.raises(ConfigError) as refused:
            read("prod", _changed(path, value))
        assert words in str(refused.value), (path, value)
        assert "\n" not in str(refused.value)


def test_no_database_takes_more_connections_than_rds_gives() -> None:
    greedy = tuple(replace(service, connections=300) if service.public else service for service in SERVICES)
    with pytest.raises(ConfigError, match=r"db\.r7g\.2xlarge takes about 5000 connections"):
        read("prod", _changed("database.instance_class", "db.r7g.2xlarge"), greedy)


def test_the_stacks_as_they_are_make_sense() -> None:
    for name in STACKS:
        stack = read(name, settings_of(name))
        assert {service.name for service in SERVICES} == set(stack.services)
        assert stack.name == name


def test_no_two_stacks_share_an_account_a_network_or_a_name() -> None:
    stacks = [read(name, settings_of(name)) for name in STACKS]
    assert len({stack.account for stack in stacks}) == len({stack.domain for stack in stacks}) == len(stacks)
    networks = [network for stack in stacks for network in (stack.network, stack.cluster_network)]
    assert not any(one.overlaps(other) for one in networks for other in networks if one is not other)


def test_networks_of_users_may_reach_the_kubernetes_api() -> None:
    stack = read("prod", _changed("hosts.kubectl_from", ["203.0.113.0/24"]))
    assert stack.hosts.kubectl_from == ("203.0.113.0/24",)
