"""Text that came over the wire cannot drive the terminal: in every string of every answer, through every command."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from control_plane.cli import main, words
from control_plane.cli.terminal import CleanConsole
from tests.support.cases import check_every
from tests.unit.cli import answers
from tests.unit.cli import test_exports as exports
from tests.unit.cli.answers import LEASE_ID, a_lease
from tests.unit.cli.stand import Answer, Became, Screen, Stand, Typed
from tests.unit.cli.test_help import COMMANDS
from tests.unit.cli.test_screens import SCREENS

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b3J\x7f\x08\u202e\u2066\u200b\u2028\ufeff"
"""Sets the title, clears the screen, returns, rings, deletes, reverses, hides, and ends a line."""
ALLOWED_AT_A_TERMINAL = re.compile(
    r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K|\r(?=\x1b\[(?:2K|1A)|\n|$)"
)
"""What the console itself sends: colours, and the movements of bars."""
_BATCH = f"/v1/node-pools/{answers.NODE_POOLS['items'][1]['id']}"
SHOW = f"GET /v1/leases/{LEASE_ID}"
KEYS: dict[str, Answer] = {"GET /v1/ssh-keys": answers.SSH_KEYS}
STREAM = "event: status\ndata: {data}\nid: 1{evil}\n\nevent: end{evil}\ndata: {data}\n\n"


def _evil(value: Any) -> Any:
    """The same JSON with EVIL at the end of every string that is not a time."""
    if isinstance(value, str):
        return value if _is_time(value) else f"{value}{EVIL}"
    if isinstance(value, list):
        return [_evil(part) for part in value]
    if isinstance(value, dict):
        return {name: _evil(one) for name, one in value.items()}
    return value


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class Evil(dict[str, Answer]):
    """Answers by path. A path that an evil id is part of is the one of the id."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.replace(EVIL, ""), default)


def _stream(request: httpx.Request) -> httpx.Response:
    text = STREAM.format(data=json.dumps(_evil(answers.status("ready"))), evil="\x1b[2J\x07")
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


def _csv(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text=f"charge_id,lease_name\r\nch_1,{EVIL}\r\n")


FOLDER = "no-such\x1b[2J\u202efolder"
EXPORT: Any = exports.VIEW


def _broken_file(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text=f'{{"format": "{EVIL}"}}')


def _export_files(path: str) -> dict[str, Answer]:
    return {f"GET {path}/{EXPORT['id']}/files/{name}": _broken_file for name in exports.NAMES}


SIGNED: dict[str, Answer] = {f"POST /v1/leases/{LEASE_ID}/ssh-certificates": answers.a_certificate()}
REQUEST = answers.an_account_request("add")
ADDED: dict[str, Answer] = {
    "POST /v1/operator/provider-accounts": REQUEST | {"outcome": None},
    "POST /v1/operator/provider-accounts/rotate": REQUEST | {"outcome": None},
    f"GET /v1/operator/provider-account-requests/{REQUEST['id']}": REQUEST,
}
ORGANIZATIONS = "GET /v1/operator/organizations"
OF_FRESH = f"/v1/operator/organizations/{answers.OTHER_ORGANIZATION['id']}"
_USER: Answer = answers.USERS["items"][0]
_ACCOUNT: Answer = answers.SERVICE_ACCOUNTS["items"][1]
SESSION_ID = answers.SESSIONS["items"][0]["id"]
MORE: dict[str, tuple[str, dict[str, Answer]]] = {
    "audit_export": ("audit export", {"GET /v1/audit-events/export": _csv}),
    "audit_verify": ("audit verify", {"GET /v1/audit-events/export": _csv}),
    "lease create": ("lease create h100x8", KEYS | {"POST /v1/leases": a_lease("placing"), f"{SHOW}/events": _stream, SHOW: a_lease()}),
    "lease create, failed": ("lease create h100x8", KEYS | {"POST /v1/leases": a_lease("ended", end_reason="no_capacity", end_why="none")}),
    "lease watch": (f"lease watch {LEASE_ID}", {f"{SHOW}/events": _stream, SHOW: a_lease("starting")}),
    "lease release": (f"lease release {LEASE_ID}", {SHOW: a_lease(), f"POST /v1/leases/{LEASE_ID}/release": a_lease("ending")}),
    **{
        f"lease {action}": (f"lease {action} {LEASE_ID}", {SHOW: a_lease(), f"POST /v1/leases/{LEASE_ID}/{action}": a_lease()})
        for action in ("reboot", "stop", "start")
    },
    "lease ssh": (f"lease ssh {LEASE_ID} --print", {SHOW: a_lease(), **SIGNED}),
    "lease ssh-config": (f"lease ssh-config {LEASE_ID}", {SHOW: a_lease(), **SIGNED}),
    "kubeconfig create": ("kubeconfig create --cluster eu-1", {"POST /v1/clusters/eu-1/kubeconfigs": answers.a_kubeconfig()}),
    "kubeconfig rotate": (f"kubeconfig rotate {answers.KUBECONFIG_ID}", {f"POST /v1/kubeconfigs/{answers.KUBECONFIG_ID}/rotations": answers.a_kubeconfig("refused")}),
    "kubeconfig revoke": (f"kubeconfig revoke {answers.KUBECONFIG_ID}", answers.NAMES | {f"POST /v1/kubeconfigs/{answers.KUBECONFIG_ID}/revoke": answers.a_kubeconfig("revoked")}),
    "lease metrics": (f"lease metrics {LEASE_ID}", {SHOW: a_lease(), f"{SHOW}/metrics": answers.some_metrics()}),
    "lease health": (f"lease health {LEASE_ID}", {SHOW: a_lease(), f"{SHOW}/health": answers.some_health("degraded")}),
    "lease health, counted": ("lease health", {"GET /v1/machine-health": answers.health_counts("a", "b")}),
    "lease console": (
        f"lease console {LEASE_ID}",
        {
            SHOW: a_lease(),
            f"POST /v1/leases/{LEASE_ID}/consoles": answers.a_console(),
            f"{SHOW}/consoles/{answers.CONSOLE_ID}": answers.a_console(),
        },
    ),
    "ssh-certificate get": (f"ssh-certificate get {LEASE_ID}", SIGNED),
    "firewall allow": (f"firewall allow {LEASE_ID} tcp/8080 --from anywhere", {SHOW: a_lease(), f"POST /v1/leases/{LEASE_ID}/firewall-rules": answers.FIREWALL_RULE, f"{SHOW}/firewall-rules": answers.a_firewall()}),
    "firewall remove": (f"firewall remove {LEASE_ID} {answers.FIREWALL_RULE['id']}", {SHOW: a_lease(), f"DELETE /v1/leases/{LEASE_ID}/firewall-rules/{answers.FIREWALL_RULE['id']}": {}}),
    "ssh-certificate revoke": (f"ssh-certificate revoke {LEASE_ID} {answers.CERTIFICATE_ID}", answers.NAMES | {SHOW: a_lease(), f"POST /v1/leases/{LEASE_ID}/ssh-certificates/{answers.CERTIFICATE_ID}/revoke": answers.a_certificate("revoked")}),
    "lease ssh, not ready": (f"lease ssh {LEASE_ID}", {SHOW: a_lease("starting")}),
    "lease, unknown": ("lease show train-2", {"GET /v1/leases": {"items": answers.leases(), "next_cursor": None}}),
    "ssh-key add": ("ssh-key add laptop -", {"POST /v1/ssh-keys": answers.SSH_KEYS["items"][0]}),
    "ssh-key delete": ("ssh-key delete laptop", KEYS),
    "ssh-key delete, known": ("ssh-key delete ssh_019aa000000070008000000000000001", KEYS),
    "api-key rotate": ("api-key rotate --yes", {"GET /v1/api-keys": answers.API_KEYS, f"POST /v1/api-keys/{answers.API_KEYS['items'][0]['id']}/rotations": answers.ISSUED}),
    "api-key revoke": ("api-key revoke ci", {"GET /v1/api-keys": answers.API_KEYS}),
    "account add": ("account add lambda_cloud", ADDED),
    "account rotate": ("account rotate lambda_cloud", ADDED),
    **{
        f"organization {command}": (
            f"organization {command} fresh --reason unpaid{flag}",
            {ORGANIZATIONS: answers.ORGANIZATIONS, f"POST {OF_FRESH}/{way}": answers.CLOSURE},
        )
        for command, way, flag in (
            ("suspend", "suspensions", ""),
            ("resume", "resumptions", ""),
            ("delete", "deletions", " --yes"),
        )
    },
    "organization end-lease": (f"organization end-lease fresh {LEASE_ID} --reason unpaid --yes", {ORGANIZATIONS: answers.ORGANIZATIONS, f"POST {OF_FRESH}/leases/{LEASE_ID}/end": answers.LEASE_END}),
    "login": ("login --key-stdin", {"GET /v1/me": answers.ME, "GET /v1/organization": answers.ORGANIZATION}),
    "user show": (f"user show {answers.USER}", {f"GET /v1/users/{answers.USER}": _USER}),
    "user suspend": (f"user suspend {answers.USER}", {f"POST /v1/users/{answers.USER}/suspend": _USER}),
    "user resume": (f"user resume {answers.USER}", {f"POST /v1/users/{answers.USER}/resume": _USER}),
    "user remove": ("user remove ada@example.com --yes", {"GET /v1/users": answers.USERS}),
    "service-account create": ("service-account create ci", {"POST /v1/service-accounts": _ACCOUNT}),
    "service-account show": (f"service-account show {answers.SUBJECT}", {f"GET /v1/service-accounts/{answers.SUBJECT}": _ACCOUNT}),
    "service-account suspend": (f"service-account suspend {answers.SUBJECT}", {f"POST /v1/service-accounts/{answers.SUBJECT}/suspend": _ACCOUNT}),
    "service-account resume": (f"service-account resume {answers.SUBJECT}", {f"POST /v1/service-accounts/{answers.SUBJECT}/resume": _ACCOUNT}),
    "service-account remove": ("service-account remove ci --yes", {"GET /v1/service-accounts": answers.SERVICE_ACCOUNTS}),
    "role revoke": ("role revoke rb_019aa10 --yes", answers.NAMES | {"GET /v1/role-bindings": answers.ROLE_BINDINGS}),
    "environment create": ("environment create prod --project research", {"POST /v1/projects/research/environments": answers.ENVIRONMENTS["items"][1]}),
    "cluster create": ("cluster create eu-1 --region eu --no-wait", {"POST /v1/operator/clusters": answers.CLUSTERS["items"][1]}),
    "cluster delete": (
        "cluster delete eu-1",
        {
            "GET /v1/clusters/eu-1": answers.CLUSTERS["items"][0],
            f"POST /v1/operator/clusters/{answers.CLUSTERS['items'][0]['id']}/deletion": answers.CLUSTERS["items"][0],
        },
    ),
    "cluster rotate-key": ("cluster rotate-key eu-1", {"POST /v1/operator/clusters/eu-1/key-rotations": answers.CLUSTERS["items"][0]}),
    "node rotate-key": (
        f"node rotate-key {answers.NODE_REPORTS['items'][0]['id']}",
        {f"POST /v1/operator/nodes/{answers.NODE_REPORTS['items'][0]['id']}/key-rotations": answers.NODE_REPORTS["items"][0]},
    ),
    "node-pool scale": (
        "node-pool scale batch --nodes 3",
        {"GET /v1/node-pools": answers.NODE_POOLS, f"GET {_BATCH}": answers.NODE_POOLS["items"][1], f"PATCH {_BATCH}": answers.NODE_POOLS["items"][1]},
    ),
    "node-pool delete": (
        "node-pool delete batch --yes",
        {"GET /v1/node-pools": answers.NODE_POOLS, f"GET {_BATCH}": answers.NODE_POOLS["items"][1], f"POST {_BATCH}/deletion": answers.NODE_POOLS["items"][1]},
    ),
    "pool create": (
        "pool create h100-eu --sku h100-sxm.1x --region eu --max 4 --budget 100",
        {"POST /v1/operator/pools": answers.POOLS["items"][0]},
    ),
    "pool change": ("pool change h100-eu --begin", {"PATCH /v1/operator/pools/h100-eu": answers.POOLS["items"][0]}),
    "pool delete": ("pool delete h100-eu", {"DELETE /v1/operator/pools/h100-eu": {}}),
    "server-host add": (
        "server-host add k8s-1 192.0.2.10 --region eu --host-key -",
        {"POST /v1/operator/server-hosts": answers.SERVER_HOSTS["items"][0]},
    ),
    "server-host remove": ("server-host remove k8s-1", {"DELETE /v1/operator/server-hosts/k8s-1": {}}),
    "network label": ("network label training team=vision", {"PUT /v1/projects/default/networks/training/labels": answers.NETWORKS["items"][1]}),
    "network delete": ("network delete training", {"GET /v1/projects/default/networks/training": answers.NETWORKS["items"][1], "DELETE /v1/projects/default/networks/training": {}}),
    "session revoke": (f"session revoke {SESSION_ID}", {f"DELETE /v1/sessions/{SESSION_ID}": {}}),
    "profile list": ("profile list", {}),
    "profile use": ("profile use nobody", {}),
    "logout": ("logout", {}),
    "completion": ("completion bash", {}),
    "export create": ("export create 2026-10 --to exports", {"POST /v1/exports": EXPORT, **_export_files("/v1/exports")}),
    "finance export create": ("finance export create 2026-10 --to exports", {"POST /v1/finance/exports": EXPORT, **_export_files("/v1/finance/exports")}),
    "finance export list": ("finance export list", {"GET /v1/finance/exports": {"items": [EXPORT], "next_cursor": None}}),
    "finance supplier-invoice import": (f"finance supplier-invoice import {FOLDER} --provider verda --month 2026-10", {}),
    "finance export verify": (f"finance export verify {FOLDER}", {}),
    "finance export diff": (f"finance export diff {FOLDER} {FOLDER}", {}),
    "export list": ("export list", {"GET /v1/exports": {"items": [EXPORT], "next_cursor": None}}),
    "export verify": (f"export verify {FOLDER}", {}),
    "export diff": (f"export diff {FOLDER} {FOLDER}", {}),
    "invoice show --html": (
        f"invoice show inv_{'8' * 32} --html",
        {f"GET /v1/invoices/inv_{'8' * 32}/page": httpx.Response(200, json={"page": "<!doctype html>"})},
    ),
    "usage --csv": ("usage --csv", {"GET /v1/usage.csv": _csv}),
}  # fmt: skip
Forms = Sequence[tuple[str, bool]]
ALL = SCREENS | MORE


def _shown(stand: Stand, command: str) -> str:
    """Everything that the command prints."""
    try:
        shown = stand.run(*command.split())
    except Became as became:
        return " ".join(became.command)
    return shown.out + shown.err


def _is_clean(text: str) -> bool:
    return all(character in "\n\t" or words.printable(character) == character for character in set(text))


FORMS = (("", False), ("", True), (" --json", False), (" --quiet", False))
"""What is added to a command, and whether it runs at a terminal."""


def _stands(
    folder: Path, known: dict[str, Answer], spoil: Callable[[Answer], Answer], forms: Forms
) -> Iterator[tuple[str, Stand]]:
    spoiled = Evil({path: spoil(answer) for path, answer in known.items()})
    for form, at_a_terminal in forms:
        stdin = Typed("y\n") if at_a_terminal else Typed("spk_abc\n")
        yield form, Stand(folder, spoiled, stdin=stdin, at_a_terminal=at_a_terminal)


def _hold(
    folder: Path,
    name: str,
    spoil: Callable[[Answer], Answer],
    forms: Forms = (("", True), (" --json", False)),
) -> None:
    command, known = ALL[name]
    for form, stand in _stands(folder, known, spoil, forms):
        text = _shown(stand, command + form)
        if stand.at_a_terminal:
            text = ALLOWED_AT_A_TERMINAL.sub("", text)
        assert _is_clean(text.replace("\r\n", "\n")), f"{form} {stand.at_a_terminal}: {text!r}"


def _spoiled(answer: Answer) -> Answer:
    if isinstance(answer, dict):
        return httpx.Response(200, content=json.dumps(_evil(answer)))
    if isinstance(answer, httpx.Response):
        return httpx.Response(answer.status_code, content=json.dumps(_evil(answer.json())))
    return answer


def test_no_control_character_of_an_answer_is_printed(tmp_path: Path) -> None:
    check_every(ALL, lambda name: _hold(tmp_path, name, _spoiled, FORMS))


def test_no_control_character_of_an_error_is_printed(tmp_path: Path) -> None:
    fault = {"field": f"regions[0]{EVIL}", "detail": f"no{EVIL}"}
    problem = dict.fromkeys(
        ("type", "title", "detail", "code", "request_id", "permission", "new"), f"x{EVIL}"
    ) | {"status": 422, "errors": [fault]}
    refused = httpx.Response(422, content=json.dumps(problem))
    half = httpx.Response(200, content=b'{"items": [{"id": "\\ud800"}]}')
    visible = {"location": "https://a.example/\x1b[2J"}
    for answer in (refused, httpx.Response(302, headers=visible), half, httpx.Response(200, text=EVIL)):

        def check(name: str, answer: httpx.Response = answer) -> None:
            _hold(tmp_path, name, lambda _: answer)

        check_every(ALL, check)


def test_no_control_character_of_a_broken_connection_is_printed(tmp_path: Path) -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError(f"illegal header line: {EVIL}")

    check_every(("whoami", "lease_list", "lease watch"), lambda name: _hold(tmp_path, name, lambda _: broken))


def test_every_command_is_among_them() -> None:
    run = {command for command, _ in ALL.values()}
    missing = [
        name
        for name in COMMANDS
        if not any(f"splitplane {command} ".startswith(f"{name} ") for command in run)
    ]
    assert missing == []


def test_whatever_is_drawn_passes_the_console_clean() -> None:
    """Also what a later command draws without a thought for where its text is from."""
    screen = Screen()
    console = CleanConsole(file=screen, force_terminal=True, color_system=None, width=200)
    console.print(f"name {EVIL}", markup=False)
    assert _is_clean(screen.getvalue())
    assert "name" in screen.getvalue()


def test_a_delete_character_is_escaped_in_json_and_replaced_elsewhere(tmp_path: Path) -> None:
    stand = Stand(
        tmp_path, {SHOW: a_lease(id="le_\x7f"), "GET /v1/skus": httpx.Response(403, json={"code": "\x7f"})}
    )
    assert "\x7f" not in stand.run("lease", "show", LEASE_ID, "--quiet").out
    out = stand.run("lease", "show", LEASE_ID, "--json").out
    assert ("\x7f" in out, json.loads(out)["id"]) == (False, "le_\x7f")
    err = stand.run("skus", "--json").err
    assert ("\x7f" in err, json.loads(err)["code"]) == (False, "\x7f")


def test_the_installed_command_prints_through_the_same_terminal() -> None:
    source = Path(main.__file__).parent
    writes = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\b(print\(|stdout\.write|stderr\.write|Console\()", line) and "out.print" not in line
        and "err.print" not in line and "_screen.print" not in line
    ]  # fmt: skip
    assert sorted({write.partition(":")[0] for write in writes}) == ["main.py", "terminal.py"], writes
