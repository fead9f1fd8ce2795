"""Nested arguments of resources are values of Pulumi's classes, which refuse a misspelt name; a dict would take it."""

import ast
from collections.abc import Iterator
from pathlib import Path

# Their keys are chosen by us.
FREE = {"tags", "volume_tags", "default_tags", "dimensions"}


def _dicts(tree: ast.AST) -> Iterator[ast.Dict]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith(("aws.", "waf.")):
            for argument in call.keywords:
                if argument.arg not in FREE:
                    yield from _within(argument.value)


def _within(value: ast.AST) -> Iterator[ast.Dict]:
    """Those in a value itself. What a call in it gets is looked at with that call, or is no argument of a resource."""
    if isinstance(value, ast.Dict):
        yield value
    elif not isinstance(value, ast.Call):
        for part in ast.iter_child_nodes(value):
            yield from _within(part)


def test_no_resource_takes_a_dict_whose_names_nobody_checks() -> None:
    found = [
        f"{path}:{part.lineno}"
        for path in sorted(Path("infra").rglob("*.py"))
        for part in _dicts(ast.parse(path.read_text()))
    ]
    assert found == []
    (planted,) = _dicts(ast.parse("aws.lb.TargetGroup('x', health_check={'path': '/'}, tags={'Name': 'x'})"))
    assert ast.unparse(planted) == "{'path': '/'}"
