"""The command line: `k3s server`, `k3s agent`, `k3s token`, `k3s kubectl`, `k3s ctr`, `k3s --version`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support.kubernetes.k3s import agent, bootstrap_tokens, options, server
from tests.support.kubernetes.k3s.api import ApiError, Client
from tests.support.kubernetes.k3s.bootstrap_tokens import DurationError
from tests.support.kubernetes.k3s.layout import ADMIN_KUBECONFIG, API_PORT, PARTS, VERSION, Layout
from tests.support.kubernetes.k3s.network import NetworkError
from tests.support.kubernetes.k3s.options import UsageError
from tests.support.kubernetes.k3s.processes import PartEndedError, say
from tests.support.kubernetes.k3s.tokens import TokenError

FAULTS = (PartEndedError, TokenError, UsageError, ApiError, DurationError, NetworkError, OSError)


def main(arguments: Sequence[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command in ("--version", "-v"):
        sys.stdout.write(f"k3s version {VERSION} (stand-in)\ngo version go1.26\n")
        return 0
    run = COMMANDS.get(command)
    if run is None:
        sys.stderr.write(f"Incorrect Usage: no such command: {command!r}; known: {', '.join(COMMANDS)}\n")
        return 1
    try:
        return run(rest)
    except FAULTS as error:
        say(f"level=fatal msg={str(error)!r}")
        return 1


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - it is a program of its own, and has the machine's clock


def _server(arguments: Sequence[str]) -> int:
    given = options.read("server", arguments)
    asyncio.run(server.run(given, Layout(Path(given.one("data-dir", str(Layout().data)))), _now))
    return 0


def _agent(arguments: Sequence[str]) -> int:
    given = options.read("agent", arguments)
    asyncio.run(agent.run(given, Layout(Path(given.one("data-dir", str(Layout().data))))))
    return 0


def _token(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="k3s token")
    verbs = parser.add_subparsers(dest="verb", required=True)
    creating = verbs.add_parser("create")
    creating.add_argument("--ttl", default=bootstrap_tokens.LASTS)
    creating.add_argument("--description", default="")
    listing = verbs.add_parser("list")
    listing.add_argument("--output", "-o", choices=("text", "json"), default="text")
    verbs.add_parser("delete").add_argument("tokens", nargs="+")
    for verb in verbs.choices.values():
        verb.add_argument("--data-dir", "-d", default=str(Layout().data))
    given = parser.parse_args(list(arguments))
    files = Layout(Path(given.data_dir)).tls
    authority = files.pair("server-ca")[0].read_bytes()
    admin = Client(f"https://127.0.0.1:{API_PORT}", authority, files.pair("client-admin"))
    if given.verb == "create":
        made = bootstrap_tokens.create(admin, authority, _now(), ttl=given.ttl, description=given.description)
        sys.stdout.write(f"{made}\n")
    elif given.verb == "list":
        sys.stdout.write(_listed(admin, given.output))
    else:
        for token in given.tokens:
            sys.stdout.write(f'bootstrap token "{bootstrap_tokens.delete(admin, token)}" deleted\n')
    return 0


def _listed(admin: Client, output: str) -> str:
    found = list(bootstrap_tokens.every(admin))
    if output == "json":
        return bootstrap_tokens.as_json(found) + "\n"
    lines = ["TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS"]
    for token in found:
        ends = token.expires.isoformat() if token.expires else "<never>"
        usages = "authentication,signing"
        lines.append("\t".join((token.text, "", ends, usages, token.description, ",".join(token.groups))))
    return "\n".join(lines) + "\n"


def _kubectl(arguments: Sequence[str]) -> int:
    os.environ.setdefault("KUBECONFIG", str(ADMIN_KUBECONFIG))
    os.execv(PARTS / "kubectl", ["kubectl", *arguments])


def _ctr(arguments: Sequence[str]) -> int:
    os.execv(PARTS / "ctr", ["ctr", "--address", str(Layout().socket), "--namespace", "k8s.io", *arguments])


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "server": _server,
    "agent": _agent,
    "token": _token,
    "kubectl": _kubectl,
    "ctr": _ctr,
}
