"""What a migration may do while code of the version before works on the same schema: add, and nothing else.

A step that takes something away, or refuses what old code writes, belongs to a migration of its own. It comes a release
later, when no process uses the old shape any more, and says so: `contract = "0.4 stopped reading leases.note"`.
"""

import ast
import re
from collections.abc import Iterator

DESTRUCTIVE = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|VIEW|TYPE|SCHEMA|FUNCTION|ROLE)\b|\bRENAME\b|^\s*TRUNCATE\b|^\s*DELETE\s+FROM\b|^\s*REVOKE\b"
    r"|\bSET\s+NOT\s+NULL\b|\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b",
    re.IGNORECASE,
)
TAKES_AWAY = {"drop_table", "drop_column", "rename_table", "drop_table_comment", "batch_alter_table"}
REFUSES_OLD_WRITES = {
    "create_check_constraint",
    "create_unique_constraint",
    "create_foreign_key",
    "create_exclude_constraint",
}


def faults(source: str) -> list[str]:
    """What old code would trip over, a line each.

    Empty for a contract step, which says why nobody uses the old shape, and for the first schema, before which there
    is no code.
    """
    tree = ast.parse(source)
    if _says(tree, "contract") or not _says(tree, "down_revision"):
        return []
    return [f"line {line}: {what}" for line, what in _found(tree)]


def _says(tree: ast.Module, name: str) -> bool:
    """Whether the migration gives this name a value that is not empty."""
    return any(
        isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == [name]
        and isinstance(node.value, ast.Constant)
        and bool(node.value.value)
        for node in tree.body
    )


def _found(tree: ast.Module) -> Iterator[tuple[int, str]]:
    new = {
        _name(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "op.create_table"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            what = _of_call(node, new)
            if what:
                yield node.lineno, what
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_docstring(tree, node):
            matched = DESTRUCTIVE.search(node.value)
            if matched:
                yield node.lineno, f"{matched[0].upper()} in SQL"


def _of_call(call: ast.Call, new: set[str]) -> str | None:
    name = ast.unparse(call.func).removeprefix("op.")
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if name in TAKES_AWAY:
        return f"{name} takes away what old code uses"
    if name in REFUSES_OLD_WRITES and not new & _strings(call):
        return f"{name} may refuse what old code writes"
    if name == "create_index" and given.get("unique") == "True" and not new & _strings(call):
        return "a unique index may refuse what old code writes"
    if name == "alter_column":
        for argument in ("new_column_name", "type_"):
            if argument in given:
                return f"alter_column with {argument} changes what old code uses"
        if given.get("nullable") == "False":
            return "alter_column with nullable=False refuses what old code writes"
    if name == "add_column" and _refuses_old_inserts(call):
        return "add_column that is not null and has no server_default refuses what old code inserts"
    return None


def _refuses_old_inserts(call: ast.Call) -> bool:
    columns = [
        node
        for node in ast.walk(call)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sa.Column"
    ]
    for column in columns:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in column.keywords}
        if given.get("nullable") == "False" and "server_default" not in given:
            return True
    return False


def _name(call: ast.Call) -> str:
    return ast.literal_eval(call.args[0]) if call.args and isinstance(call.args[0], ast.Constant) else ""


def _strings(call: ast.Call) -> set[str]:
    return {
        node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _is_docstring(tree: ast.Module, constant: ast.Constant) -> bool:
    return bool(tree.body) and isinstance(tree.body[0], ast.Expr) and tree.body[0].value is constant
