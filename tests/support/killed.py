"""Real processes that are killed with SIGKILL in the middle of what they do.

A nursery is a process that has loaded the product. It forks a child for each task, so that hundreds are killed in the
time in which a few would start. A child dies by its own hand, at a numbered point:

- of an API process, before or after it sends a message to the database. What was sent last may still be carried out,
  as it is where a machine is lost;
- of the command line, before it runs a line of the files that are named.

    with nursery() as born:
        whole = born.run("close", url=url, ...)         # undisturbed: how many points there are
        born.run("close", url=url, ..., at=7)           # killed before message 7; `after=True` for after it
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio import selector_events
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import httpx
from litestar import Litestar

from control_plane.api import app as api_app
from control_plane.api.app import create_app
from control_plane.api.observe import Metrics
from control_plane.cli import main as command_line
from control_plane.cli.commands import exports
from control_plane.db.engine import Database, Role
from control_plane.world import World, uuid7
from tests.integration.api.conftest import SETTINGS, Ticking, litestar_once
from tests.support.clock import START
from tests.support.keys import SEALING

PERIOD = "2026-11"
CSV = "machine,from,to,quantity,unit,amount,currency\n" + "".join(
    f"i-{number},2026-11-{day:02d}T00:00:00Z,2026-11-{day:02d}T01:00:00Z,1,hour,2.49,USD\n"
    for number in range(3)
    for day in (2, 3, 4)
)
"""A supplier's invoice."""
CSV_LINES_PER_PART = 4


@dataclass(frozen=True, slots=True)
class Life:
    """What became of a child."""

    killed: bool
    points: int
    """How many it reached; 0 where it was killed."""
    answer: Any
    """What it was answered last; None where it was killed."""


@dataclass(frozen=True, slots=True)
class Nursery:
    process: "subprocess.Popen[str]"

    def run(self, task: str, *, at: int | None = None, after: bool = False, **options: object) -> Life:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"task": task, "at": at, "after": after, **options}) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        assert said["killed"] or said["error"] is None, said["error"]
        return Life(said["killed"], said["points"], said["answer"])


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.support.killed"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


class _Death:
    """Counts points, and kills this process at one of them."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.points = 0
        self.armed = False

    def reach(self, *, due: bool = True) -> None:
        if self.armed and due and self.points == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def _child(task: Mapping[str, Any], answer: int) -> None:
    death = _Death(task["at"])
    said: dict[str, Any] = {"answer": None, "error": None}
    try:
        run = _command if task["task"] == "command" else _api
        said["answer"] = run(task, death)
    except Exception as error:  # noqa: BLE001 - whatever failed is told to the test
        said["error"] = repr(error)
    with os.fdopen(answer, "wb") as to:
        to.write(json.dumps(said | {"points": death.points}).encode())


# The API


def _api(task: Mapping[str, Any], death: _Death) -> Any:
    write: Callable[..., None] = selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def counted(transport: Any, data: bytes) -> None:
        if not death.armed:
            write(transport, data)
            return
        death.points += 1
        death.reach(due=not task["after"])
        write(transport, data)
        death.reach()

    selector_events._SelectorSocketTransport.write = counted  # type: ignore[attr-defined]
    return asyncio.run(_served(task, death))


def _app(db: Database, seconds: float = 0) -> Litestar:
    clock = Ticking(START + timedelta(seconds=seconds))
    world = World(db, now=clock.now, new_id=uuid7, sealing=SEALING)
    return create_app(world, SETTINGS, metrics=Metrics(), sleep=clock.sleep)


async def _served(task: Mapping[str, Any], death: _Death) -> Any:
    db = Database(task["url"], role=Role.API, pool_size=2, readers=1)
    app = _app(db, task["seconds"])
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
    headers = {"Authorization": f"Bearer {task['key']}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as http:
        (await http.get("/v1/finance/periods")).raise_for_status()
        death.armed = True
        found = await _TASKS[task["task"]](http, task)
        death.armed = False
    await db.close()
    return found


async def _post(http: httpx.AsyncClient, path: str, body: object, key: str | None = None) -> Any:
    answer = await http.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})
    return answer.json()


async def _close(http: httpx.AsyncClient, task: Mapping[str, Any]) -> Any:
    return await _post(http, f"/v1/finance/periods/{PERIOD}/close", None, task["once"])


async def _issue(http: httpx.AsyncClient, task: Mapping[str, Any]) -> Any:
    return await _post(http, "/v1/finance/invoices", {"period": PERIOD}, task["once"])


async def _export(http: httpx.AsyncClient, _task: Mapping[str, Any]) -> Any:
    path = "/v1/finance/exports"
    made = (await _post(http, path, {"period": PERIOD, "final": True}))["id"]
    return [
        (await http.get(f"{path}/{made}/files/{name}")).text if name.endswith((".csv", ".json")) else
        (await http.get(f"{path}/{made}/files/{name}")).content.hex()
        for name in ("focus-1.2.csv", "focus-1.2.parquet", "manifest.json")
    ]  # fmt: skip


async def _import(http: httpx.AsyncClient, _task: Mapping[str, Any]) -> Any:
    """As the command does it."""
    path = "/v1/finance/supplier-uploads"
    sent = await _post(http, path, {"provider": "fake", "period": PERIOD})
    upload, lines = sent["id"], CSV.splitlines(keepends=True)
    parts = [lines[start : start + CSV_LINES_PER_PART] for start in range(0, len(lines), CSV_LINES_PER_PART)]
    for number, part in enumerate(parts, start=1):
        body = {"number": number, "first_line": sent["lines"] + 1, "csv": "".join(part)}
        sent = await _post(http, f"{path}/{upload}/parts", body)
    return await _post(http, "/v1/finance/supplier-invoices", {"upload_id": upload, "parts": len(parts)})


_TASKS: Mapping[str, Callable[[httpx.AsyncClient, Mapping[str, Any]], Awaitable[Any]]] = {
    "close": _close,
    "issue": _issue,
    "export": _export,
    "import": _import,
}


# The command line


def _command(task: Mapping[str, Any], death: _Death) -> int:
    """`splitplane export create`."""
    os.environ.update(task["environ"])
    files = {str(Path(name).resolve()) for name in task["files"]}

    def trace(frame: Any, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            death.points += 1
            death.reach()
        return trace

    create = exports.create

    def traced(*given: Any) -> None:
        """Nothing before it leaves anything behind, and to trace all that loads takes seconds."""
        sys.settrace(trace)
        try:
            create(*given)
        finally:
            sys.settrace(None)

    death.armed = True
    sys.argv = ["splitplane", *task["words"]]
    with patch.object(exports, "create", traced):
        try:
            command_line.run()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def _serve() -> None:
    """Fork a child for each line of the input, and say what became of it."""
    with patch.object(api_app, "Litestar", litestar_once()):  # Its routes take a second.
        _app(Database("postgresql://nobody@/nothing", role=Role.API, pool_size=1, readers=1))
        command_line.parser().parse_args(["export", "list"])  # These two load what every child would load.
        boto3.client("s3", region_name="us-east-1")
        for line in sys.stdin:
            _bear(line)


def _bear(line: str) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Its log is nobody's answer.
        _child(json.loads(line), writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        content = said.read()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    found = json.loads(content) if content else {"points": 0, "answer": None, "error": None}
    sys.stdout.write(json.dumps(found | {"killed": killed}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
