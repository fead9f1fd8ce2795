"""A whole cloud for the command line: API, reconciler, sign-in and an emulated provider as processes, and a customer's
home."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from control_plane.cli import main
from control_plane.cli.terminal import Terminal
from control_plane.db import accounts
from control_plane.db.engine import Database, Role
from demo import prices
from demo.ports import free_ports
from tests.support import oidc_server
from tests.support.database import fresh_database, login_url

READY_SECONDS_MAX = 60


@dataclass
class City:
    """An API, a reconciler, and a customer's home."""

    url: str
    api_key: str
    home: Path
    operator_key: str
    finance_key: str
    issuer: oidc_server.Provider
    """With whom people sign in."""
    lambda_cloud: str
    """The API of an emulated Lambda Cloud, of which nobody has an account here at first."""
    installation: str
    """The eight hexadecimal digits in the launch keys of this installation."""

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        } | more

    def run(self, *arguments: str, stdin: str = "", code: int = 0, **environ: str) -> str:
        """Standard output of a command, with its standard error if the command is expected to fail."""
        out, err = io.StringIO(), io.StringIO()
        terminal = Terminal(environ=self.environ(**environ), stdin=io.StringIO(stdin), stdout=out, stderr=err)
        ended = main.main(arguments, terminal)
        assert self.api_key not in out.getvalue() + err.getvalue()
        assert ended == code, out.getvalue() + err.getvalue()
        return out.getvalue() if code == 0 else out.getvalue() + err.getvalue()

    def answer(self, *arguments: str, **environ: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **environ))

    @property
    def operator(self) -> dict[str, Any]:
        """The environment of those who run machines."""
        return {"SPLITPLANE_URL": self.url, "SPLITPLANE_API_KEY": self.operator_key}

    @property
    def finance(self) -> dict[str, Any]:
        """The environment of those who post money."""
        return {"SPLITPLANE_URL": self.url, "SPLITPLANE_API_KEY": self.finance_key}


@contextmanager
def _process(arguments: list[str], environ: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=environ, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_until(what: str, look: Any) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _private_key(path: Path) -> X25519PrivateKey:
    key = X25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


@contextmanager
def _started(
    database_url: str, folder: Path, issuer: oidc_server.Provider, installation: str
) -> Iterator[City]:
    api_port, metrics_port, reconciler_port, cloud_port = free_ports(4)
    token_key, unsealing, sealing = (folder / f"{name}.pem" for name in ("token-key", "unsealing", "sealing"))
    _private_key(token_key)
    sealing.write_bytes(
        _private_key(unsealing).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    client_secret = folder / "oidc-secret"
    client_secret.touch(mode=0o600)
    client_secret.write_text("any")
    base = {"PATH": os.environ["PATH"], "HOME": str(folder), "SPLITPLANE_DATABASE_URL": database_url}
    api = base | {
        "SPLITPLANE_DATABASE_URL": login_url(database_url, Role.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{api_port}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{metrics_port}",
        "SPLITPLANE_PUBLIC_URL": f"http://127.0.0.1:{api_port}",
        "SPLITPLANE_TOKEN_KEY_PATH": str(token_key),
        "SPLITPLANE_SEALING_KEY_PATH": str(sealing),
        "SPLITPLANE_OIDC_ISSUER": issuer.issuer,
        "SPLITPLANE_OIDC_CLIENT_ID": "splitplane",
        "SPLITPLANE_OIDC_CLIENT_SECRET_PATH": str(client_secret),
    }
    reconciler = base | {
        "SPLITPLANE_DATABASE_URL": login_url(database_url, Role.RECONCILER),
        "SPLITPLANE_SIMULATED_MACHINES": "yes",
        "SPLITPLANE_ACCEPT_EMULATED_GPUS": "yes",
        "SPLITPLANE_PROVIDER_ACCOUNTS": "fake",
        "SPLITPLANE_RECONCILER_METRICS_LISTEN": f"127.0.0.1:{reconciler_port}",
        "SPLITPLANE_UNSEALING_KEYS_PATH": str(unsealing),
    }
    cloud = ["providers.emulators", f"lambda_cloud={cloud_port}", "--simulated"]
    book = folder / "price_book.toml"
    book.write_text(prices.price_book())
    _administer(base, "price-book", str(book))
    api_key = _administer(base, "bootstrap", "--organization", "acme", "--top-up", "500")
    operator, finance = _administer(base, "bootstrap", "--organization", "platform", "--operator").split()
    with (
        _process(cloud, base, folder / "cloud.log"),
        _process(["control_plane", "serve"], api, folder / "api.log"),
        _process(["reconciler", "run"], reconciler, folder / "reconciler.log"),
    ):
        home, lambda_cloud = folder / "home", f"http://127.0.0.1:{cloud_port}/api/v1"
        city = City(
            f"http://127.0.0.1:{api_port}",
            api_key,
            home,
            operator,
            finance,
            issuer,
            lambda_cloud,
            installation,
        )
        wait_until("the API serves", lambda: _answers(city.url))
        _move_in(city)
        yield city
    assert api_key not in (folder / "api.log").read_text()


async def _installation(database_url: str) -> str:
    database = Database(database_url, role=None)
    async with database.reading() as connection:
        code = await accounts.installation(connection)
    await database.close()
    return code


def _administer(environ: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "control_plane", *arguments]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _move_in(city: City) -> None:
    """Log in and add an SSH key, as every customer does first."""
    key = city.home / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(key)], check=True)
    city.run("login", "--url", city.url, "--key-stdin", stdin=f"{city.api_key}\n")
    city.run("ssh-key", "add", "laptop")
    wait_until("there are offers", lambda: city.answer("offers")["items"])


@pytest.fixture(scope="session")
async def city(
    server_url: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[City]:
    async with fresh_database(server_url, template) as database_url:
        with (
            oidc_server.running() as issuer,
            _started(
                database_url, tmp_path_factory.mktemp("city"), issuer, await _installation(database_url)
            ) as started,
        ):
            yield started
