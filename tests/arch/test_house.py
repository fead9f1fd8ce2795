"""Rules of the house that no linter knows. `pytest -s -k figures` prints how we measure."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

from control_plane.cli.main import FILES
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.organization import OrganizationState
from tests.arch.tree import AROUND, PRODUCT, Source, length, sources

FILE_LINES_MAX = 500
FUNCTION_LINES_P99_MAX = 100
DOORS = {
    "clusters": "control_plane/db/clusters.py",
    "device_authorizations": "control_plane/db/devices.py",
    "leases": "control_plane/db/leases.py",
    "machines": "control_plane/db/machines.py",
    "node_pools": "control_plane/db/node_pools.py",
    "nodes": "control_plane/db/nodes.py",
    "organizations": "control_plane/db/organizations.py",
    "pools": "control_plane/db/pools.py",
    "powers": "control_plane/db/powers.py",
    "service_accounts": "control_plane/db/service_accounts.py",
    "users": "control_plane/db/users.py",
    "preemptions": "control_plane/db/preemptions.py",
    "quota_requests": "control_plane/db/quota_requests.py",
    "ssh_authorities": "control_plane/db/ssh_authorities.py",
}
OUTERMOST_FRAMES = {
    "reconciler/runner.py": "a loop that fails is an entry in its report, and runs again at its next turn",
}
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".lock", ".mako", ".sql", ".sh", ""}


# States.


@cache
def _texts(source: Source) -> list[str]:
    """The strings of a file. An f-string is one of them, with its expressions in braces as they are written."""
    composed = [node for node in source.nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in composed for part in ast.walk(node)}
    plain = [
        node.value
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    ]
    return plain + [_composed(node) for node in composed]


def _composed(node: ast.JoinedStr) -> str:
    texts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            texts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            texts.append(f"{{{ast.unparse(part.value)}}}")
    return "".join(texts)


@cache
def _updates(source: Source) -> list[tuple[str, str]]:
    """(table, what is set) of every UPDATE in the strings of a file."""
    pattern = re.compile(r"UPDATE\s+([\w{}.]+).*?\bSET\b(.*?)(?:\bWHERE\b|\bRETURNING\b|\Z)", re.DOTALL)
    return [found for text in _texts(source) if "UPDATE" in text for found in pattern.findall(text)]


def _sets_state(values: str) -> bool:
    return re.search(r"(?:^|,)\s*state\s*=", values) is not None


def test_a_state_is_assigned_in_one_place() -> None:
    where = [
        (table, source.path)
        for source in sources(*PRODUCT)
        for table, values in _updates(source)
        if _sets_state(values)
    ]
    assert sorted(where) == sorted(DOORS.items())


def test_an_update_of_a_lease_a_machine_or_an_organization_is_written_in_the_database_layer() -> None:
    for source in sources(*PRODUCT):
        if not source.path.startswith("control_plane/db/"):
            assert not {table for table, _ in _updates(source)} & DOORS.keys(), source.path


def test_a_row_is_born_in_its_first_state() -> None:
    first = {
        "clusters": "{ClusterState.BUILDING}",
        "device_authorizations": "{DeviceState.PENDING}",
        "leases": "{LeaseState.PLACING}",
        "machines": "{MachineState.INTENDED}",
        "node_pools": "{NodePoolState.PENDING}",
        "nodes": "{NodeState.JOINING}",
        "organizations": "{OrganizationState.ACTIVE}",
        "powers": "{PowerState.ON}",
        "service_accounts": "{SubjectState.ACTIVE}",
        "users": "{SubjectState.INVITED}",
        "preemptions": "{PreemptionState.NOTIFIED}",
        "quota_requests": "{QuotaRequestState.PENDING}",
        "ssh_authorities": "{SshAuthorityState.NEXT}",
    }
    for table, path in DOORS.items():
        inserts = [
            (source.path, text)
            for source in sources(*PRODUCT)
            for text in _texts(source)
            if re.search(rf"INSERT INTO {table}\b", text)
        ]
        assert [where for where, _ in inserts] == [path]
        if table == "pools":
            continue  # Whoever creates a pool says whether it begins as a dry run.
        assert f"'{first[table]}'" in inserts[0][1]


STATES = {state.value for kind in (LeaseState, MachineState, OrganizationState) for state in kind}


def test_no_state_is_spelled_out_in_sql() -> None:
    """It is put in from the domain's enum, so that a state which is renamed there does not live on here."""
    compared = re.compile(r"\bstate\s*(?:=|<>|(?:NOT\s+)?IN)\s*(\(?'[^)]*)")
    spelled = [
        f"{source.path}: {found}"
        for source in sources("control_plane/db", "control_plane/outcomes", "control_plane/services")
        if not source.is_migration
        for text in _texts(source)
        for found in compared.findall(text)
        if set(re.findall(r"'(\w+)'", found)) & STATES
    ]
    assert not spelled


def test_rows_are_not_locked_in_a_subquery_that_may_run_again() -> None:
    """`IN (SELECT ... SKIP LOCKED)` is a join, which may run the SELECT for each row; an array or a CTE runs once."""
    locked = re.compile(r"\bIN\s*\(\s*SELECT\b(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?SKIP LOCKED")
    found = [
        source.path
        for source in sources("control_plane/db", "control_plane/outcomes", "reconciler")
        for text in _texts(source)
        if "UPDATE" in text and locked.search(text)
    ]
    assert not found


# Types.


UNTYPED_ROWS = {
    "control_plane/db/connection.py": "the protocol of drivers, whose rows get their types in rows.py",
    "control_plane/db/fast.py": "a driver",
}

# What tasks share.


def test_no_sum_that_tasks_share_is_read_before_a_wait_and_written_after_it() -> None:
    """`report.acted_on += await act()` reads the sum first, so what other tasks count meanwhile is lost."""
    found = [
        f"{source.path}:{node.lineno} {ast.unparse(node.target)}"
        for source in sources(*PRODUCT)
        for node in source.nodes
        if isinstance(node, ast.AugAssign)
        and not isinstance(node.target, ast.Name)
        and any(isinstance(part, ast.Await) for part in ast.walk(node.value))
    ]
    assert not found


# Who may reach what.


def test_a_reach_is_always_given_by_whoever_calls() -> None:
    """A default would reach the whole organization where somebody forgets it; without one, mypy finds the call."""
    found = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources(*PRODUCT)
        for function in source.functions()
        for name, default in _defaults(function)
        if name == "reach" and default is not None
    ]
    assert not found


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, ast.expr | None]]:
    """The parameters of a function with their defaults."""
    placed = [*function.args.posonlyargs, *function.args.args]
    given: list[ast.expr | None] = [
        *[None] * (len(placed) - len(function.args.defaults)),
        *function.args.defaults,
    ]
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [
        *((argument.arg, default) for argument, default in zip(placed, given, strict=True)),
        *((argument.arg, default) for argument, default in named),
    ]


def _hints(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    arguments = function.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    hints = [argument.annotation for argument in named if argument is not None]
    return [hint for hint in (*hints, function.returns) if hint is not None]


def test_no_public_function_of_the_database_layer_or_above_it_mentions_any() -> None:
    untyped = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources("control_plane/db", "control_plane/outcomes", "control_plane/services")
        if source.path not in UNTYPED_ROWS and not source.is_migration
        for function in source.functions()
        if not function.name.startswith("_") or function.name == "__init__"
        if re.search(r"\bAny\b", " ".join(map(ast.unparse, _hints(function))))
    ]
    assert not untyped


# Errors.


def _broad(node: ast.ExceptHandler) -> bool:
    named = node.type.id if isinstance(node.type, ast.Name) else None
    return node.type is None or named in ("Exception", "BaseException")


def test_whoever_catches_everything_raises_again_or_says_why_not() -> None:
    silent = []
    for source in sources(*PRODUCT):
        lines = source.text.splitlines()
        for node in source.nodes:
            if not isinstance(node, ast.ExceptHandler) or not _broad(node):
                continue
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            reason = re.search(r"# noqa: BLE001 - \w+ \w+", lines[node.lineno - 1])
            if not raises and not reason and source.path not in OUTERMOST_FRAMES:
                silent.append(f"{source.path}:{node.lineno}")
    assert not silent


def test_a_lint_is_switched_off_with_its_reason() -> None:
    bare = [
        f"{source.path}:{number}"
        for source in sources(*PRODUCT)
        for number, line in enumerate(source.text.splitlines(), 1)
        if re.search(r"#\s*(noqa|type: ignore)\s*$", line)
    ]
    assert not bare, "name the rule, as in `# noqa: S101 - why`"


# Words.


def test_every_module_of_ours_says_what_it_is_for() -> None:
    for source in sources(*PRODUCT):
        if source.text.strip() and not source.is_migration:
            assert ast.get_docstring(source.tree), source.path


def test_a_loop_and_a_provider_tell_their_failure_story() -> None:
    providers = [one for one in sources("providers") if "connect" in {f.name for f in one.functions()}]
    loops = [one for one in sources("reconciler/loops") if not one.path.endswith("__init__.py")]
    for source in [*loops, *providers]:
        docstring = ast.get_docstring(source.tree) or ""
        name = Path(source.path).stem.replace("_", " ")
        words = [word for word in re.findall(r"\w+", docstring.lower()) if word not in name]
        assert len(words) >= 12, f"{source.path}: {docstring!r}"


def test_init_files_hold_no_code() -> None:
    for source in sources(*PRODUCT):
        if source.path.endswith("__init__.py"):
            assert len(source.tree.body) <= bool(ast.get_docstring(source.tree)), source.path


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"#.*\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    left = [
        f"{source.path}:{number}"
        for source in sources()
        for number, line in enumerate(source.text.splitlines(), 1)
        if marks.search(line)
    ]
    assert not left


# Sizes.


def _percentile(values: list[int], share: float) -> int:
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def test_no_file_is_longer_than_a_person_reads_at_once() -> None:
    long = {
        source.path: source.lines
        for source in sources()
        if source.lines > FILE_LINES_MAX and not source.is_migration
    }
    assert not {path: lines for path, lines in long.items() if not path.startswith("tests/")}


def test_functions_are_short_and_the_figures_are_these() -> None:
    product = [source for source in sources(*PRODUCT) if not source.is_migration]
    files = [source.lines for source in product]
    functions = {
        f"{source.path}:{function.name}": length(function)
        for source in product
        for function in source.functions()
    }
    lengths = list(functions.values())
    domain = sum(source.lines for source in product if source.path.startswith("control_plane/domain/"))
    code = [line.strip() for source in product for line in source.text.splitlines() if line.strip()]
    comments = sum(line.startswith("#") for line in code)
    print(  # noqa: T201 - asked for with -s
        f"\nfiles {len(files)}: p50 {_percentile(files, 0.5)} p90 {_percentile(files, 0.9)} max {max(files)}"
        f" | functions {len(lengths)}: p50 {_percentile(lengths, 0.5)} p90 {_percentile(lengths, 0.9)}"
        f" p99 {_percentile(lengths, 0.99)} max {max(lengths)}"
        f" | lines {sum(files)}, domain {100 * domain // sum(files)} % | comment lines {100 * comments // len(code)} %"
    )
    assert _percentile(lengths, 0.99) < FUNCTION_LINES_P99_MAX
    assert not {name: lines for name, lines in functions.items() if lines > FUNCTION_LINES_P99_MAX}


# What must not be in the tree.


def _tracked() -> list[Path]:
    """What git tracks; in a tree without git, everything that is not built."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [Path(line) for line in listed.stdout.splitlines()]
    else:
        paths = [path for root in (*PRODUCT, *AROUND, "docs") for path in Path(root).rglob("*")]
    return [path for path in paths if path.is_file() and path.suffix in TEXT]


# Put together from pieces, so that this page does not find itself.
SECRETS = re.compile(
    "|".join(
        [
            # A header alone is a test of what we refuse; with a body it is a key.
            "-----BEGIN [A-Z ]*PRIVATE " + r"KEY-----[\s\\n\"',]*[A-Za-z0-9+/=]{40}",
            "AKIA" + "[0-9A-Z]{16}",
            "gh[pousr]_" + "[A-Za-z0-9]{36}",
            "xox[abp]-" + "[A-Za-z0-9-]{20}",
            "spk_" + "[A-Za-z0-9_-]{43}",
        ]
    )
)
MACHINE_PATHS = re.compile(
    r"(?<![\w.}~])/(?:" + "|".join(["ro" + "ot", "wo" + "rk", "ho" + "me"]) + r")/(?!ubuntu|splitplane)\w"
)
REGISTRIES = re.compile(
    "|".join(
        [
            "py" + r"pi\.",
            "python" + r"hosted\.",
            r"registry\." + "npm",
            "artifact" + "ory",
            "proxy." + r"golang\.",
        ]
    )
)


def _found(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in _tracked():
        text = path.read_text(errors="replace")
        found += [f"{path}:{text.count(chr(10), 0, hit.start()) + 1}" for hit in pattern.finditer(text)]
    return found


def test_no_secret_is_in_the_tree() -> None:
    assert not _found(SECRETS)


def test_no_path_of_somebodys_machine_is_in_the_tree() -> None:
    assert not _found(MACHINE_PATHS)


def test_no_package_registry_is_named_in_the_tree() -> None:
    assert not _found(REGISTRIES)


# Tests.


@cache
def _called(node: ast.AST) -> frozenset[str]:
    """Last names of everything that is called below `node`."""
    called = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return frozenset(
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in called
        if isinstance(one, ast.Attribute | ast.Name)
    )


def _holders() -> set[str]:
    """Names of the helpers of tests that assert something, themselves or through another one."""
    helpers = [f for source in sources("tests") for f in source.functions() if not f.name.startswith("test_")]
    holders: set[str] = set()
    while more := {f.name for f in helpers if _asserts(f) or _called(f) & holders} - holders:
        holders |= more
    return holders


@cache
def _asserts(node: ast.AST) -> bool:
    if any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
        return True
    words = ("check", "expect", "assert", "raises", "warns", "fail")
    return any(name.lstrip("_").startswith(words) for name in _called(node))


HOLDS_BY_NOT_RAISING = {"test_a_delete_whose_answer_was_lost_and_that_finds_nothing_then_has_succeeded"}


def test_every_test_holds_something() -> None:
    holders = _holders()
    empty = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources("tests")
        for function in source.functions()
        if function.name.startswith("test_")
        and function.name not in HOLDS_BY_NOT_RAISING
        and not _asserts(function)
        and not _called(function) & holders
    ]
    assert not empty


def test_the_names_of_tests_are_sentences() -> None:
    short = [
        f"{source.path}: {function.name}"
        for source in sources("tests")
        for function in source.functions()
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]
    assert not short


IN_REAL_TIME = {
    "tests/scenario/test_database_restart.py": "a real server goes away and comes back",
    "tests/scenario/test_runner.py": "the runner itself waits, and that nobody waits with it is the test",
}


def _sleeps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"


def test_no_test_waits_for_the_clock() -> None:
    """A test of rules that sleeps will fail at random one day: their clock stands still until a test advances it."""
    for source in sources("tests/unit/domain", "tests/scenario"):
        calls = [ast.unparse(node) for node in source.nodes if _sleeps(node)]
        waits = [call for call in calls if re.match(r"(time|asyncio)\.sleep\((?!0\))", call)]
        assert not waits or source.path in IN_REAL_TIME, source.path


def test_every_module_of_the_product_is_used_or_run() -> None:
    imported = {name for source in sources() for name in source.imports()}
    unused = []
    for source in sources(*PRODUCT):
        name = source.path.removesuffix(".py").replace("/", ".")
        discovered = source.path.startswith("reconciler/loops/") or source.is_migration
        command = source.path in {f"control_plane/cli/commands/{file}.py" for file in FILES}
        provider = source.path.startswith("providers/") and "connect" in {f.name for f in source.functions()}
        run = source.path.endswith(("__init__.py", "__main__.py"))
        if name not in imported and not (discovered or command or provider or run):
            unused.append(source.path)
    assert not unused


def test_no_two_decisions_have_the_same_number() -> None:
    numbers = [path.name.partition("-")[0] for path in sorted(Path("docs/decisions").glob("*.md"))]
    assert numbers
    assert len(numbers) == len(set(numbers)), numbers
