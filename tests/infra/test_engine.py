"""The program under Pulumi's own engine: what it plans, makes, keeps and refuses, for the stacks as they are shipped."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.cloud.answers import PASSWORD
from tests.support.cloud.engine import ENGINE, Done, Engine
from tests.support.cloud.graph import Graph, graphs, settings_of
from tests.support.cloud.page_commands import commands_of_pages
from tests.support.cloud.policies import HOLDS_DATA

pytestmark = [
    pytest.mark.xdist_group("infra"),
    pytest.mark.timeout(900),  # All steps take a minute of CPU time, and the machine may be busy.
    ENGINE,
]


def _resources(graph: Graph) -> set[str]:
    return {f"{resource.kind} {resource.name}" for resource in graph.resources}


def _grown() -> Mapping[str, Any]:
    """Prod with everything changed that an operator changes from day to day."""
    settings = settings_of("prod")
    settings |= {
        "image": "sha256:" + "1" * 64,
        "alarm_email": "oncall@example.com",
        "monthly_budget_usd": 9000,
    }
    database = settings["database"]
    database |= {
        "instance_class": "db.r7g.2xlarge",
        "storage_gib": database["storage_gib"] + 100,
        "storage_max_gib": database["storage_max_gib"] + 1000,
        "backup_days": 30,
    }
    settings["hosts"] |= {
        "image": "ami-0123456789abcdef0",
        "hub_type": "t3.large",
        "server_type": "m7i.large",
        "servers": settings["hosts"]["servers"] + 1,
        "kubectl_from": ["198.51.100.0/24"],
    }
    for size in settings["services"].values():
        size |= {"cpu": 2048, "memory_mib": 8192}
    return settings


def _moved() -> Mapping[str, Any]:
    return settings_of("prod") | {"network": "10.30.0.0/16"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def done(engine: Engine) -> Mapping[str, Done]:
    """One run over all stacks: most of what a step costs is to load Pulumi's classes for AWS."""
    prod = settings_of("prod")
    asked = {
        "dev": ("dev", "preview", settings_of("dev")),
        "staging": ("staging", "preview", settings_of("staging")),
        "prod": ("prod", "up", prod),
        "again": ("prod", "up", prod),
        "migrating": ("prod", "preview --target **::migrate", prod | {"image": "sha256:" + "1" * 64}),
        "grown": ("prod", "preview", _grown()),
        "moved": ("prod", "preview", _moved()),
    }
    return dict(zip(asked, engine.run(list(asked.values())), strict=True))


def test_every_stack_is_planned_and_made_with_the_resources_that_the_rules_look_at(
    done: Mapping[str, Done],
) -> None:
    for stack in ("dev", "staging", "prod"):
        assert done[stack].refused is None, stack
        assert done[stack].operations() == {"create": _resources(graphs()[stack])}, stack
    assert done["prod"].outputs["api"] == f"https://{settings_of('prod')['domain']}"
    assert done["prod"].outputs["hub"]["instance"]


def test_a_second_up_changes_nothing(done: Mapping[str, Done]) -> None:
    assert done["again"].operations() == {"same": done["prod"].operations()["create"]}


def test_before_a_new_version_only_the_task_that_migrates_changes(done: Mapping[str, Done]) -> None:
    """With what the page about deploying says, which ends with a target."""
    assert done["migrating"].refused is None
    operations = done["migrating"].operations()
    assert operations.pop("replace") == {"TaskDefinition migrate"}
    assert set(operations) <= {"same", "create-replacement", "delete-replaced", "read", "refresh"}


def test_every_pulumi_command_of_the_pages_is_one(engine: Engine) -> None:
    commands = {command.words[1:] for command in commands_of_pages() if command.words[0] == "pulumi"}
    assert ("up", "--target", "**::migrate") in commands, "as it is rehearsed above"
    for words in sorted(commands):
        said = engine.command(*words, "--help")
        assert said.returncode == 0, (words, said.stderr)
        assert "for more information about a command" not in said.stdout, f"there is no pulumi {words}"


def test_growing_a_stack_replaces_nothing_that_holds_data(done: Mapping[str, Done]) -> None:
    assert done["grown"].refused is None
    operations = done["grown"].operations()
    replaced = operations["replace"]
    assert "TaskDefinition api" in replaced, "the plan sees replacements"
    assert not [one for one in replaced if one.split()[0] in HOLDS_DATA]
    assert operations.get("delete", set()) == set()
    assert {"Instance database", "Instance hub", "Instance server-1"} <= operations["update"]
    assert any(one.startswith("Instance server-") for one in operations["create"])


def test_a_change_that_would_replace_what_is_protected_is_refused_in_the_plan(
    done: Mapping[str, Done],
) -> None:
    refused = done["moved"].refused
    assert refused is not None
    assert "unable to replace resource" in refused
    assert "Vpc::control" in refused


def test_destroy_of_protected_data_is_refused_before_anything_is_deleted(
    engine: Engine, done: Mapping[str, Done]
) -> None:
    assert done["prod"].refused is None
    before = engine.state("prod")
    said = engine.command("destroy", "--yes", "--stack", "prod")
    assert said.returncode != 0
    for name in ("Instance::database", "Bucket::exports", "Key::sealing"):
        assert f"{name}" in said.stdout, name
    assert "cannot be deleted" in said.stdout
    assert engine.state("prod") == before


def test_no_secret_stands_in_clear_in_the_state(engine: Engine, done: Mapping[str, Done]) -> None:
    assert done["prod"].refused is None
    state = engine.state("prod")
    assert PASSWORD not in state
    resources = json.loads(state)["checkpoint"]["latest"]["resources"]
    (database,) = [one for one in resources if one["type"] == "aws:rds/instance:Instance"]
    assert "ciphertext" in database["outputs"]["password"], "the provider told one"
