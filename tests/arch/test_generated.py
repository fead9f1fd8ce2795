"""docs/generated is drawn from the code: a page that differs fails here, and GOLDEN=write draws it again."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Mapping
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from control_plane.api.app import create_app
from control_plane.api.requests import permission_of
from control_plane.domain import lease, machine, organization
from control_plane.domain.failure import FailReason
from control_plane.domain.lease import EndReason, LeaseEvent, LeaseState
from control_plane.domain.machine import MachineEvent, MachineState
from control_plane.domain.organization import OrganizationEvent, OrganizationState
from control_plane.domain.permission import EVERYBODYS, NARROWEST, Permission
from control_plane.domain.placement import RejectCode
from control_plane.domain.pool_claim import PoolRejectCode
from control_plane.domain.proof import OWN_CODES, OwnCode
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.role_permissions import AT_PLATFORM, IN_ORGANIZATIONS
from control_plane.domain.verification import MismatchCode
from control_plane.ingest import settings as ingest_settings
from control_plane.services import process
from control_plane.settings import Settings
from data_plane.proof.challenger import judgement
from data_plane.proof.verifier.service import settings as verifier_settings
from environment.names import KNOWN, PREFIX
from environment.reading import Variable, variables
from providers import registry as providers
from providers.base import Capabilities
from providers.emulators import settings as emulator_settings
from reconciler import registry as loops
from reconciler import settings as reconciler_settings
from reconciler.loop import AccountLoop
from tests.support import golden
from tracing import settings as trace_settings

GENERATED = Path("docs/generated")
NOTE = "<!-- Drawn from the code by tests/arch/test_generated.py: run `make golden`. -->\n"


def _member_docs(path: str, name: str) -> dict[str, str]:
    """The docstring below each member of an enum, by the member's name."""
    (body,) = [
        node.body
        for node in ast.parse(Path(path).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    found: dict[str, str] = {}
    member = ""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            member = node.targets[0].id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and member:
            found[member] = " ".join(str(node.value.value).split())
            member = ""
    return found


def _words(title: str, path: str, kind: type[StrEnum]) -> list[str]:
    docs = _member_docs(path, kind.__name__)
    return [
        f"## {title}",
        "",
        *(
            f"- `{member.value}`: {docs[member.name]}" if member.name in docs else f"- `{member.value}`"
            for member in kind
        ),
        "",
    ]


def _state_machine(
    title: str, module: ModuleType, path: str, first: StrEnum, states: type[StrEnum], events: type[StrEnum]
) -> str:
    table: Mapping[tuple[Any, Any], Any] = module.NEXT
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in table.items():
        arrows.setdefault((before.value, after.value), []).append(event.value)
    drawn = [f"    [*] --> {first.value}"]
    drawn += [f"    {before} --> {after}: {', '.join(named)}" for (before, after), named in arrows.items()]
    drawn += [f"    {state.value} --> [*]" for state in states if state in module.TERMINAL]
    story = (module.__doc__ or "").split("\n\n")[0].strip()
    lines = [NOTE, f"# {title}", "", story, "", "```mermaid", "stateDiagram-v2", *drawn, "```", ""]
    lines += _words("States", path, states) + _words("Events", path, events)
    return "\n".join(lines)


def test_the_codes_of_a_proof_are_listed_as_they_are() -> None:
    kinds = (
        ("Findings that fail a proof", judgement.FAILURES),
        ("Silences, after which nothing is known", judgement.SILENCES),
        ("Hints, which bring the next challenge forward", judgement.HINTS),
        ("What we find ourselves, around the conversation", {code: OWN_CODES[code] for code in OwnCode}),
    )
    lines = [NOTE, "# What a GPU proof may say", ""]
    for title, codes in kinds:
        lines += [f"## {title}", "", *(f"- `{code}`: {docs}" for code, docs in codes.items()), ""]
    golden.check(GENERATED / "proof-codes.md", "\n".join(lines))


def test_the_state_machine_of_a_lease_is_drawn_as_it_is() -> None:
    text = _state_machine(
        "Lease", lease, "control_plane/domain/lease.py", LeaseState.PLACING, LeaseState, LeaseEvent
    )
    golden.check(GENERATED / "lease.md", text)


def test_the_state_machine_of_a_machine_is_drawn_as_it_is() -> None:
    path = "control_plane/domain/machine.py"
    text = _state_machine("Machine", machine, path, MachineState.INTENDED, MachineState, MachineEvent)
    golden.check(GENERATED / "machine.md", text)


def test_the_state_machine_of_an_organization_is_drawn_with_what_its_states_mean() -> None:
    path = "control_plane/domain/organization.py"
    first, states, events = OrganizationState.ACTIVE, OrganizationState, OrganizationEvent
    lines = [
        _state_machine("Organization", organization, path, first, states, events),
        "## What a state means",
        "",
    ]
    topics = ("new_leases", "running_leases", "keys", "data", "money")
    for state in OrganizationState:
        effects = organization.EFFECTS[state]
        lines += [f"### `{state.value}`", ""]
        lines += [f"- {topic.replace('_', ' ').capitalize()}: {getattr(effects, topic)}" for topic in topics]
        lines.append("")
    golden.check(GENERATED / "organization.md", "\n".join(lines))


def _first_sentence(module: ModuleType) -> str:
    docs = " ".join((module.__doc__ or "").split())
    return re.split(r"(?<=\.) ", docs)[0]


def test_the_table_of_loops_names_every_loop() -> None:
    lines = [
        NOTE,
        "# Loops",
        "",
        "What the reconciler does, again and again, each loop by itself. *Runs*: once for the installation, or per provider account.",
        "*Wakes*: the loops that run at once after it did something. `splitplane loops` shows the last report of each.",
        "",
        "| Wing | Loop | Runs | Every | Wakes | What for |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for wing in loops.wings():
        for name, loop in loops.of_wing(wing).items():
            module = importlib.import_module(f"reconciler.loops.{wing}.{name}")
            runs = "per account" if isinstance(loop, AccountLoop) else "once"
            wakes = ", ".join(f"`{other}`" for other in loop.wakes) or "-"
            every = f"{loop.every.total_seconds():g} s"
            lines.append(f"| {wing} | `{name}` | {runs} | {every} | {wakes} | {_first_sentence(module)} |")
    golden.check(GENERATED / "loops.md", "\n".join(lines) + "\n")


def _settings(module: ModuleType) -> str:
    """The settings of an account; those without a default are required."""
    return ", ".join(
        f"`{field.name}`" + ("" if field.default is MISSING else " (optional)")
        for field in dataclasses.fields(module.Settings)
    )


def _limits(capabilities: Capabilities) -> str:
    limits = [
        f"{limit.calls} per {limit.seconds:g} s ({', '.join(sorted(limit.verbs))})"
        for limit in capabilities.rate_limits
    ]
    return "; ".join(limits) or "none known"


def test_the_table_of_providers_names_every_provider() -> None:
    lines = [
        NOTE,
        "# Providers",
        "",
        "`splitplane account add PROVIDER` asks for `api_key`; give other settings with `--ask`, `--setting` or `--file`. Where",
        "they come from is in [providers.md](../providers.md). *List lags*: how long a new machine may be missing from",
        "the provider's list. *Boot at most*: a machine that does not run by then is given up. *User data*: the largest script that the",
        "provider takes for a machine. *Calls*: its published rate limits, which all reconciler processes share.",
        "",
        "| Provider | What it is | Settings | List lags | Boot at most | User data | Calls |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, module in providers.discovered().items():
        facts: Capabilities = module.CAPABILITIES
        lines.append(
            f"| `{name}` | {_first_sentence(module)} | {_settings(module)} | {facts.list_lag_seconds:g} s | {facts.boot_seconds_max:g} s"
            f" | {facts.user_data_bytes_max:,} bytes | {_limits(facts)} |"
        )
    golden.check(GENERATED / "providers.md", "\n".join(lines) + "\n")


def test_the_page_of_codes_names_every_reason() -> None:
    domain = "control_plane/domain"
    lines = [
        NOTE,
        "# Codes",
        "",
        'Every "no" is data: a code that never changes its meaning, and a sentence beside it.',
        "",
        *_words("A request is refused", f"{domain}/refusal.py", RefusalCode),
        *_words("An offer is rejected", f"{domain}/placement.py", RejectCode),
        *_words("A machine of a warm pool is not claimed", f"{domain}/pool_claim.py", PoolRejectCode),
        *_words("An attempt failed", f"{domain}/failure.py", FailReason),
        *_words("A machine is not what was sold", f"{domain}/verification.py", MismatchCode),
        *_words("A lease ended", f"{domain}/lease.py", EndReason),
    ]
    golden.check(GENERATED / "codes.md", "\n".join(lines))


def _routes_by_permission() -> dict[Permission, list[str]]:
    app = create_app(
        process.api_process("postgresql://nowhere/none", connections=1).world, Settings("unused")
    )
    found: dict[Permission, list[str]] = {}
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if "permission" in handler.opt:
                methods = handler.http_methods - {"OPTIONS"}
                routes = [f"`{method} {route.path_format}`" for method in methods]
                found.setdefault(permission_of(handler), []).extend(routes)
    return found


def test_the_page_of_permissions_names_every_permission_its_roles_and_its_endpoints() -> None:
    docs = _member_docs("control_plane/domain/permission.py", "Permission")
    routes = _routes_by_permission()
    roles = {role.value: held for role, held in IN_ORGANIZATIONS.items()}
    roles |= {f"platform {role}": held for role, held in AT_PLATFORM.items()}
    lines = [
        NOTE,
        "# Permissions",
        "",
        "Every endpoint below `/v1` needs one permission, which comes from the roles of the caller: see",
        "[tenancy](../tenancy.md). A request without it is refused with `permission_denied` (403), and `permission`",
        "names what is missing. A permission without an endpoint of its own allows more in the requests of other",
        "endpoints, or shows more in their answers. *Narrowest scope* is the narrowest kind of scope at which a role",
        "gives the permission.",
        "",
        f"| Permission | Narrowest scope | {' | '.join(roles)} | Endpoints | |",
        f"| --- | --- | {' | '.join('---' for _ in roles)} | --- | --- |",
    ]
    for permission in Permission:
        having = " | ".join(
            "yes" if permission in held or permission in EVERYBODYS else "" for held in roles.values()
        )
        scope = NARROWEST.get(permission, "")
        endpoints = ", ".join(sorted(routes.get(permission, []), key=lambda route: route.strip("`")))
        lines.append(
            f"| `{permission}` | {scope} | {having} | {endpoints} | {docs.get(permission.name, '')} |"
        )
    golden.check(GENERATED / "permissions.md", "\n".join(lines) + "\n")


SETTINGS: Mapping[str, tuple[type[object], ...]] = {
    "API and admin commands: `python -m control_plane`": (Settings,),
    "Reconciler: `python -m reconciler`": (
        reconciler_settings.Settings,
        reconciler_settings.ReachSettings,
        reconciler_settings.HubSettings,
        reconciler_settings.KeySettings,
        reconciler_settings.AuditSettings,
        reconciler_settings.MoneySettings,
        reconciler_settings.SlaSettings,
        reconciler_settings.TelemetrySettings,
        reconciler_settings.EnforcementSettings,
        verifier_settings.ClientVariables,
    ),
    "Ingest process: `python -m control_plane.ingest`": (ingest_settings.Settings,),
    "Verifier: `python -m data_plane.proof.verifier.service`": (verifier_settings.ServerVariables,),
    "Emulated clouds: `python -m providers.emulators`": (emulator_settings.Settings,),
    "Traces, of the API and the reconciler": (trace_settings.Settings,),
}
"""The settings of each process. A setting of two processes is in the table of each."""


def _default(kind: type[Any], field: str, variable: Variable) -> str:
    """What holds when the variable is not set."""
    if variable.default is not None:
        return variable.default
    default = kind.__dataclass_fields__[field].default
    if default is MISSING:
        return "required"
    if isinstance(default, bool):
        return "`yes`" if default else "`no`"
    if default is None:
        return "not set"
    text = ":".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f"`{text}`" if text else "not set"


def test_the_table_of_settings_names_every_variable_of_every_process() -> None:
    lines = [
        NOTE,
        "# Settings",
        "",
        "Each process reads these variables of its environment once, when it starts. An empty one counts as not set. A",
        "variable that begins with `SPLITPLANE_` and is in no table is refused. A provider account has its own variables:",
        "[providers.md](../providers.md). The command line reads `SPLITPLANE_URL`, `SPLITPLANE_API_KEY`,",
        "`SPLITPLANE_PROFILE` and `SPLITPLANE_ALLOW_HTTP`: [cli.md](../cli.md). Traces are turned on by OpenTelemetry's own variables, of which its",
        "SDK also reads those that are not listed here.",
        "",
    ]
    drawn = {"SPLITPLANE_URL", "SPLITPLANE_API_KEY", "SPLITPLANE_PROFILE", "SPLITPLANE_ALLOW_HTTP"}
    for process_name, kinds in SETTINGS.items():
        lines += [f"## {process_name}", "", "| Variable | Meaning | Default |", "| --- | --- | --- |"]
        rows = [
            f"| `{variable.name}` | {variable.meaning} | {_default(kind, field, variable)} |"
            for kind in kinds
            for field, variable in variables(kind)
        ]
        lines += [*dict.fromkeys(rows), ""]  # Two kinds of a process may read the same variable.
        drawn |= {
            variable.name
            for kind in kinds
            for _, variable in variables(kind)
            if variable.name.startswith(PREFIX)
        }
    assert drawn == KNOWN
    golden.check(GENERATED / "settings.md", "\n".join(lines))


def test_every_generated_page_is_still_drawn() -> None:
    drawn = {
        "lease.md",
        "machine.md",
        "organization.md",
        "loops.md",
        "providers.md",
        "codes.md",
        "proof-codes.md",
        "permissions.md",
        "openapi.json",
        "settings.md",
        "deployment.md",  # By tests/infra/test_page.py.
    }
    assert {path.name for path in GENERATED.iterdir()} <= drawn
