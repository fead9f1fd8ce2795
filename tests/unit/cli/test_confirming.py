"""Which commands ask before they act, and how (docs/decisions/0064). A new command has to be put into one of the tables."""

import io
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from control_plane.cli.parsing import Parser
from tests.support.cases import check_every
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID
from tests.unit.cli.stand import Answer, Stand, Typed
from tests.unit.cli.test_help import COMMANDS

CLUSTER = answers.CLUSTERS["items"][0]
LIABILITIES = "/v1/operator/liabilities"
LIABILITY = answers.LIABILITIES["items"][2]
POOL = answers.NODE_POOLS["items"][0]
ORGANIZATIONS = {"GET /v1/operator/organizations": answers.ORGANIZATIONS}
CUSTOMER = answers.OTHER_ORGANIZATION["name"]
ROLE = answers.ROLE_BINDINGS["items"][1]["id"]
ACCOUNTS = {"GET /v1/operator/provider-accounts": answers.ACCOUNTS}
SERVING = f"GET /v1/leases/{LEASE_ID}"
MONEY = f"{CUSTOMER} 24.90 --reason ticket"

Reads = Mapping[str, Answer]
ASKS: dict[str, tuple[str, Reads]] = {
    # What cannot be had back: machines with their data, credentials that others use, and rights.
    "lease release": (LEASE_ID, {SERVING: answers.a_lease()}),
    "lease stop": (LEASE_ID, {SERVING: answers.a_lease()}),
    "lease replace": (f"{LEASE_ID} --reason broken", {SERVING: answers.a_lease()}),
    "repair take-out": (f"{answers.MACHINE_ID} --reason 'ticket 4711'", {}),
    "node-pool scale": (f"{POOL['id']} --nodes 1", {f"GET /v1/node-pools/{POOL['id']}": POOL}),
    "node-pool delete": (POOL["id"], {f"GET /v1/node-pools/{POOL['id']}": POOL}),
    "cluster delete": (CLUSTER["name"], {f"GET /v1/clusters/{CLUSTER['name']}": CLUSTER}),
    "orphan end": ("lambda_cloud i-2 --reason 'ticket 4711'", {}),
    "liability end": (
        f"{LIABILITY['id']} --reason ticket",
        {f"GET {LIABILITIES}/{LIABILITY['id']}": LIABILITY},
    ),
    "account arm": ("lambda_cloud --reason ticket", {}),
    "preemption arm": ("--reason ticket", {}),
    "account permit-terminations": ("lambda_cloud --reason ticket", ACCOUNTS),
    "account remove": ("lambda_cloud --reason ticket", {}),
    "api-key rotate": ("'first key' --overlap-hours 0", {"GET /v1/api-keys": answers.API_KEYS}),
    "api-key revoke": ("'first key'", {"GET /v1/api-keys": answers.API_KEYS}),
    "user remove": ("ada@example.com", answers.NAMES),
    "service-account remove": ("ci-runner", answers.NAMES),
    "role revoke": (ROLE, answers.NAMES | {"GET /v1/role-bindings": answers.ROLE_BINDINGS}),
    # Money that is posted, and books that are closed.
    "finance topup": (MONEY, ORGANIZATIONS),
    "finance credit": (MONEY, ORGANIZATIONS),
    "finance refund": (MONEY, ORGANIZATIONS),
    "finance payment": (MONEY, ORGANIZATIONS),
    "finance credit-note create": (
        f"inv_{'8' * 32} --line 1 --amount 24.90 --reason ticket",
        {},
    ),
    "finance credit-terms set": (f"{CUSTOMER} 5000 --days 30 --reason ticket", ORGANIZATIONS),
    "finance price agree": (f"{CUSTOMER} h100x1 2.19 --reason ticket", ORGANIZATIONS),
    "finance price end": ("pa_7777", {"GET /v1/finance/price-agreements": answers.PRICE_AGREEMENTS}),
    "finance period close": ("2026-10", {}),
    "enforcement arm": ("idle --reason looked", {}),
    "enforcement undo": ("ea_019aa1b2c3d57e5f8a9b0c1d2e3f4a5e --reason benchmark", {}),
    "organization end-lease": (f"{CUSTOMER} {LEASE_ID} --reason abuse", ORGANIZATIONS),
    # All that a customer has.
    "organization suspend": (f"{CUSTOMER} --reason unpaid --end-leases", ORGANIZATIONS),
    "organization close": (f"{CUSTOMER} --reason unpaid", ORGANIZATIONS),
    "organization delete": (f"{CUSTOMER} --reason unpaid", ORGANIZATIONS),
}
"""The commands that ask, each with arguments for which it does, and what it reads before."""

ASKS_FOR_THE_NAME = {"organization suspend", "organization close", "organization delete"}

ACTS_AT_ONCE = {
    "login": "logout",
    "logout": "login",
    "profile use": "profile use",
    "session revoke": "login",
    "api-key create": "api-key revoke",
    "ssh-key add": "ssh-key delete",
    "ssh-key delete": "ssh-key add",
    "ssh-certificate get": "ssh-certificate revoke",
    "ssh-certificate revoke": "ssh-certificate get",
    "firewall allow": "firewall remove",
    "firewall remove": "firewall allow",
    "project create": "it costs nothing",
    "project rename": "project rename",
    "environment create": "it costs nothing",
    "network create": "network delete",
    "network label": "network label",
    "network delete": "network create; it is refused while a lease uses the network",
    "cluster create": "cluster delete",
    "cluster rotate-key": "nothing is lost",
    "kubeconfig create": "kubeconfig revoke",
    "kubeconfig rotate": "kubeconfig create",
    "kubeconfig revoke": "kubeconfig create",
    "node-pool create": "node-pool delete",
    "node rotate-key": "nothing is lost",
    "envelope set": "envelope set",
    "balance alert set": "balance alert set",
    "quota request": "quota decline",
    "quota approve": "envelope set",
    "quota decline": "quota request",
    "user invite": "user remove",
    "user suspend": "user resume",
    "user resume": "user suspend",
    "service-account create": "service-account remove",
    "service-account suspend": "service-account resume",
    "service-account resume": "service-account suspend",
    "role grant": "role revoke",
    "lease create": "lease release",
    "lease reboot": "its disks stay",
    "lease start": "lease stop",
    "lease update": "lease update",
    "lease extend": "lease update",
    "export create": "it adds files and changes none",
    "finance export create": "it adds files and changes none",
    "finance invoice issue": "it is repeated until it is done, and an invoice can be checked before by --draft",
    "finance billing-details set": "it is set again",
    "finance supplier-invoice import": "the next import counts in its place",
    "finance supplier-invoice post": "finance supplier-invoice void",
    "finance supplier-invoice void": "finance supplier-invoice import, and post",
    "finance reconcile": "it compares what there is, and keeps what it found",
    "finance period reopen": "a second person has to agree",
    "organization create": "organization close",
    "organization resume": "organization suspend",
    "orphan leave": "orphan revoke",
    "repair return": "repair take-out",
    "orphan adopt": "lease release",
    "orphan revoke": "orphan leave",
    "account add": "account remove",
    "enforcement disarm": "enforcement arm",
    "lease idle-stop": "lease idle-stop",
    "account rotate": "account rotate; the old credentials stay in force until the provider accepts the new ones",
    "account drain": "account resume",
    "account resume": "account drain",
    "account disarm": "account arm",
    "preemption disarm": "preemption arm",
    "pool create": "pool delete",
    "pool change": "pool change",
    "pool delete": "pool create; leases keep the machines that they have claimed",
    "server-host add": "server-host remove",
    "sla approve": "it posts what is owed; late evidence corrects it by itself",
    "sla refuse": "it takes nothing from a balance, and a credit by hand gives what was refused",
    "server-host remove": "server-host add; it is refused while a cluster uses the host",
}
"""The commands that change something and do not ask, each with what takes it back."""

READS = {
    "preemption status",
    "lease notices",
    "lease enforcement",
    "enforcement detectors",
    *("whoami", "skus", "offers", "quote", "why", "usage", "bill", "reconciliation", "loops", "completion"),
    "balance entries",
    "pool simulate",
    *("sla tiers", "sla report", "sla waiting"),
    *(
        "lease watch",
        "lease ssh",
        "lease ssh-config",
        "lease console",
        "lease metrics",
        "lease health",
        "network members",
        "proof record",
    ),
    *(
        "finance accounts",
        "finance entries",
        "finance wallets",
        "finance usage",
        "finance export diff",
        "finance export verify",
        "finance explain",
        "finance margin",
        "finance match",
        "fleet totals",
        "account limits",
        "account test",
        "account requests",
    ),
    *(
        "balance alert history",
        "organization history",
        "export verify",
        "export diff",
        "audit export",
        "audit verify",
    ),
}
"""The commands that change nothing and are not called `list` or `show`."""

NAMES = {name.removeprefix("splitplane "): parser for name, parser in COMMANDS.items()}
GONE = httpx.Response(409, json={"code": "conflict", "detail": "The test ends here."})


class Answers(dict[str, Answer]):
    """What a command reads; whatever it writes is refused, which ends it."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default) if key.startswith("GET ") else GONE


def _question(name: str) -> str:
    return "Type its name to confirm:" if name in ASKS_FOR_THE_NAME else "[y/N]"


def _agreeing(name: str) -> str:
    return f"{CUSTOMER}\n" if name in ASKS_FOR_THE_NAME else "y\n"


def _run(home: Path, name: str, stdin: io.StringIO, *more: str) -> tuple[int, str, bool]:
    """The exit code, standard error, and whether the command asked the API for anything but to read."""
    words, reads = ASKS[name]
    stand = Stand(home, Answers(reads), stdin=stdin)
    shown = stand.run(*name.split(), *shlex.split(words), *more)
    return shown.code, shown.err, {request.method for request in stand.requests} - {"GET"} != set()


def _has_yes(parser: Parser) -> bool:
    return "--yes" in parser._option_string_actions


def test_every_command_is_on_one_side() -> None:
    listed = {name for name in NAMES if name.split()[-1] in ("list", "show")}
    assert sorted([*ASKS, *ACTS_AT_ONCE, *READS, *listed]) == sorted(NAMES)


def test_the_commands_that_ask_are_those_that_take_yes() -> None:
    assert {name for name, parser in NAMES.items() if _has_yes(parser)} == set(ASKS)
    for name in ASKS:
        assert NAMES[name]._option_string_actions["--yes"].help == "do not ask for confirmation", name


def test_without_a_terminal_nothing_is_done_and_the_error_has_the_command_that_does_it(
    tmp_path: Path,
) -> None:
    def check(name: str) -> None:
        code, err, wrote = _run(tmp_path, name, io.StringIO())
        assert (code, wrote) == (2, False)
        _, _, exact = err.strip().partition("run: splitplane ")
        assert shlex.split(exact) == [*name.split(), *shlex.split(ASKS[name][0]), "--yes"]

    check_every(ASKS, check)


def test_with_yes_nobody_is_asked(tmp_path: Path) -> None:
    def check(name: str) -> None:
        for stdin in (io.StringIO(), Typed()):
            _, err, wrote = _run(tmp_path, name, stdin, "--yes")
            assert wrote
            assert _question(name) not in err

    check_every(ASKS, check)


def test_a_person_is_asked_once_and_a_no_changes_nothing(tmp_path: Path) -> None:
    def check(name: str) -> None:
        _, err, wrote = _run(tmp_path, name, Typed(_agreeing(name)))
        assert wrote
        assert err.count(_question(name)) == 1
        code, err, wrote = _run(tmp_path, name, Typed("no\n"))
        assert (code, wrote) == (1, False)
        assert "Nothing was done" in err

    check_every(ASKS, check)
