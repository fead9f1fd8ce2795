"""Credentials that operators give by the command line and the API are found nowhere afterwards, but sealed.

Real processes: the API, the reconciler, an emulated cloud that checks its token, and the installed command. The secrets
are searched for in logs, answers, error messages, every column of the database, and the list of processes.
"""

import base64
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from control_plane.db.engine import Role
from providers.emulators.clouds.local import TOKEN
from tests.support.database import fresh_database, login_url
from tests.support.keys import NEW

pytestmark = pytest.mark.database
SPLITPLANE = str(Path(sys.executable).with_name("splitplane"))
WRONG = "planted-7d1c0a94e2b8"
"""A token that the cloud refuses. TOKEN is the one that it accepts."""
SECONDS_MAX = 60
ACCOUNTS, REQUESTS = "/v1/operator/provider-accounts", "/v1/operator/provider-account-requests"


def _spellings(secret: str) -> Sequence[bytes]:
    """The secret as text, hexadecimal and base64, at each of the three offsets that it may have there."""
    plain = secret.encode()
    in_base64 = [base64.b64encode(b"x" * offset + plain)[4:-4] for offset in range(3)]
    return (plain, plain.hex().encode(), *in_base64)


def _found(content: bytes) -> bool:
    return any(spelling in content for secret in (WRONG, TOKEN) for spelling in _spellings(secret))


@dataclass
class Watch:
    """Reads the command line and the environment of our processes, again and again, until it is told to end.

    Those of other tests are left out, because they may use the same emulated cloud.
    """

    home: Path
    """The home of each of our processes."""
    found: list[str] = field(default_factory=list[str])
    looks: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._ended.wait(0.01):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    environ, command = ((process / name).read_bytes() for name in ("environ", "cmdline"))
                except OSError:  # It ended meanwhile.
                    continue
                if f"HOME={self.home}\0".encode() in environ + b"\0":
                    self.looks += 1
                    if _found(environ + command):
                        self.found.append(command.decode())

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


@dataclass
class City:
    url: str
    cloud: str
    api_key: str
    folder: Path
    database_url: str
    seen: list[str] = field(default_factory=list[str])
    """What commands printed and requests were answered."""

    def command(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SPLITPLANE_URL": self.url,
            "SPLITPLANE_API_KEY": self.api_key,
        }
        done = subprocess.run(
            [SPLITPLANE, *arguments], env=environ, input=stdin, capture_output=True, text=True, check=False
        )
        self.seen += [done.stdout, done.stderr]
        return done

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, **options)
        self.seen.append(f"{answer.headers} {answer.text}")
        return answer

    def outcome(self, asked: httpx.Response) -> dict[str, Any]:
        """What came of a request, once the reconciler has finished."""
        assert asked.status_code == 202, asked.text
        found: dict[str, Any] = {}

        def finished() -> bool:
            found.update(self.ask("GET", f"{REQUESTS}/{asked.json()['id']}").json())
            return found["outcome"] is not None

        _wait_until("the reconciler answers", finished)
        return found


def _wait_until(what: str, look: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


@contextmanager
def _process(folder: Path, *arguments: str, **environ: str) -> Iterator[None]:
    base = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=base | environ, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code < 500
    except httpx.TransportError:
        return False


def _key_files(folder: Path) -> tuple[str, str]:
    private, public = folder / "unsealing.pem", folder / "sealing.pem"
    private.write_bytes(NEW.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(NEW.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(private), str(public)


def _bootstrapped(database_url: str) -> str:
    """The API key of an operator's organization."""
    done = subprocess.run(
        [sys.executable, "-m", "control_plane", "bootstrap", "--organization", "us", "--operator"],
        env=os.environ | {"SPLITPLANE_DATABASE_URL": database_url},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()[0]


@pytest.fixture
async def city(server_url: str, template: str, tmp_path: Path) -> AsyncIterator[City]:
    api, metrics, reconciler, cloud = _free_ports(4)
    private, public = _key_files(tmp_path)
    async with fresh_database(server_url, template) as database_url:
        api_key = _bootstrapped(database_url)
        with (
            _process(tmp_path, "providers.emulators", "local", "--port", str(cloud), "--simulated"),
            _process(
                tmp_path,
                "control_plane",
                "serve",
                SPLITPLANE_LISTEN=f"127.0.0.1:{api}",
                SPLITPLANE_METRICS_LISTEN=f"127.0.0.1:{metrics}",
                SPLITPLANE_SEALING_KEY_PATH=public,
                SPLITPLANE_LOG_LEVEL="debug",
                SPLITPLANE_DATABASE_URL=login_url(database_url, Role.API),
            ),
            _process(
                tmp_path,
                "reconciler",
                "run",
                SPLITPLANE_SIMULATED_MACHINES="yes",
                SPLITPLANE_RECONCILER_METRICS_LISTEN=f"127.0.0.1:{reconciler}",
                SPLITPLANE_UNSEALING_KEYS_PATH=private,
                SPLITPLANE_DATABASE_URL=login_url(database_url, Role.RECONCILER),
            ),
        ):
            url = f"http://127.0.0.1:{api}"
            _wait_until("the API serves", lambda: _answers(f"{url}/readyz"))
            _wait_until("the cloud serves", lambda: _answers(f"http://127.0.0.1:{cloud}/v1/types"))
            yield City(url, f"http://127.0.0.1:{cloud}", api_key, tmp_path, database_url)


async def _rows(database_url: str) -> dict[str, bytes]:
    """Every row of every table, as text, and the content of its binary columns as it is."""
    connection = await asyncpg.connect(database_url)
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg|sql)_'"
        )
        found = {}
        for (table,) in tables:
            rows = await connection.fetch(f'SELECT t.*, t::text AS whole FROM "{table}" AS t')
            parts = [value for row in rows for value in row.values()]
            found[table] = b"\n".join(
                value if isinstance(value, bytes) else str(value).encode() for value in parts
            )
        return found
    finally:
        await connection.close()


async def test_planted_credentials_are_found_nowhere(city: City) -> None:
    settings = city.folder / "local.toml"
    settings.write_text(f'token = "{TOKEN}"\n')
    settings.chmod(0o600)
    url = f"url={city.cloud}"
    watch = Watch(city.folder)
    with watch.running():
        refused = city.command("account", "add", "local", "--setting", url, stdin=f'token = "{WRONG}"')
        assert (refused.returncode, "credentials_refused" in refused.stderr) == (1, True), refused.stderr
        added = city.command("account", "add", "local", "--setting", url, "--file", str(settings))
        assert added.returncode == 0, added.stderr
        on_the_command_line = city.command("account", "rotate", "local", "--setting", url, stdin=WRONG)
        assert on_the_command_line.returncode == 1

        body = {"account": "local", "settings": {"token": TOKEN, "url": city.cloud}}
        assert city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=body))["outcome"] == "accepted"
        wrong = body | {"settings": {"token": WRONG, "url": city.cloud}}
        assert (
            city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=wrong))["code"] == "credentials_refused"
        )
        nowhere = body | {"settings": {"token": WRONG, "planted_field": WRONG}}
        assert (
            city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=nowhere))["code"] == "settings_invalid"
        )
        for broken in (
            {"settings": {"token": [WRONG]}},
            {"settings": WRONG},
            {"settings": {"token": WRONG * 1_000}},
        ):
            assert city.ask("POST", ACCOUNTS, json=body | broken).status_code == 422
        assert city.ask(
            "POST", ACCOUNTS, content=f'{{"account": "local", "settings": {{"token": "{WRONG}"'
        ).is_error

        # The reconciler uses the account without a restart.
        _wait_until("there are offers", lambda: city.ask("GET", "/v1/offers").json()["items"])
        for path in (ACCOUNTS, REQUESTS, "/v1/operator/loops", "/v1/operator/orphans"):
            assert city.ask("GET", path).is_success
    assert watch.looks > 100
    assert not watch.found
    for text in city.seen:
        assert not _found(text.encode())
    for log in city.folder.glob("*.log"):
        content = log.read_bytes()
        assert content or log.name == "providers.emulators.log", (
            f"{log.name} says nothing, so it proves nothing"
        )
        assert not _found(content), log.name
    tables = await _rows(city.database_url)
    assert len(tables["secrets"]) > 100
    assert not [table for table, content in tables.items() if _found(content)]


def test_the_search_finds_a_secret_in_every_spelling() -> None:
    for text in (WRONG, f"a{TOKEN}b", WRONG.encode().hex()):
        assert _found(text.encode())
    for offset in range(3):
        assert _found(base64.b64encode(b"x" * offset + WRONG.encode() + b"yz"))
    assert not _found(b"nothing")
