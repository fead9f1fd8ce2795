"""The AWS policy of docs/providers.md permits what the adapter calls, and writes to nothing but what is ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POLICY = json.loads(re.findall(r"```json\n(.*?)```", Path("docs/providers.md").read_text(), re.DOTALL)[0])
_CALLED = re.compile(r'Operation\(\s*"(\w+)",\s*"(\w+)"')
_BY_NAME = re.compile(r'"((?:describe|authorize|revoke)_\w+)"')
"""Operations that a function of the adapter's gets by their names."""
_POWER = {"reboot_instances", "stop_instances", "start_instances"}
_UNBOUND = {"RunInstances", "CreateSecurityGroup", "ModifyInstanceAttribute"}
"""Writes with a statement without a condition: for what a launch uses, or a new group, which has no tag before."""


def _statements() -> Iterator[tuple[set[str], dict[str, Any]]]:
    for statement in POLICY["Statement"]:
        action = statement["Action"]
        yield set([action] if isinstance(action, str) else action), statement


def _called() -> set[str]:
    found = set[tuple[str, str]]()
    for path in Path("providers").glob("aws*.py"):
        text = path.read_text()
        found |= set(_CALLED.findall(text)) | {("ec2", name) for name in _BY_NAME.findall(text)}
    assert found
    names = {(service, name) for service, name in found} | {("ec2", name) for name in _POWER}
    return {f"{service}:{''.join(word.capitalize() for word in name.split('_'))}" for service, name in names}


def test_the_policy_permits_what_the_adapter_calls_and_nothing_else() -> None:
    permitted = {action for actions, _ in _statements() for action in actions}
    assert permitted - {"ec2:CreateTags"} == _called(), "tags are made with what they are on"


def test_whatever_ends_changes_or_deletes_needs_a_tag_of_ours() -> None:
    for actions, statement in _statements():
        verbs = {action.split(":")[1] for action in actions}
        if all(verb.startswith(("Describe", "GetProducts")) for verb in verbs):
            continue
        if "Condition" not in statement:
            assert verbs <= _UNBOUND, verbs
            assert not any("instance/" in resource for resource in _resources(statement)), (
                "no machine is bought or changed without a launch key"
            )
            continue
        (keys,) = statement["Condition"].values()
        assert all("sp-launch-key" in key or key.endswith(("/Name", ":CreateAction")) for key in keys), verbs


def _resources(statement: dict[str, Any]) -> list[str]:
    resource = statement["Resource"]
    return [resource] if isinstance(resource, str) else resource
