"""The process around the app: what it refuses to start with, what it logs, counts and says about its health."""

import contextlib
import dataclasses
import io
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from unittest import mock

import httpx
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from litestar.routes import HTTPRoute
from sqlalchemy import text

from control_plane import server_process
from control_plane import settings as configuration
from control_plane.__main__ import document, main
from control_plane.api import error_page, errors, server
from control_plane.api.app import create_app
from control_plane.api.observe import Metrics, MetricsListener
from control_plane.db import embedded
from control_plane.db.clock import DatabaseClock
from control_plane.db.engine import Database, Role
from control_plane.domain.refusal import RefusalCode
from control_plane.services import process
from control_plane.services.catalogue import parse_price_book
from control_plane.services.key_ring import KeyRing
from control_plane.settings import Settings, SettingsError
from control_plane.vault.token_keys import LocalTokenKeys
from control_plane.world import World, utc_now
from providers.fake import DEFAULT_OFFERS
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import SOME_ID, hold
from tests.support import golden
from tests.support.cases import case
from tests.support.clock import Clock, Host
from tests.support.rows import rows

ENVIRONMENT = {"SPLITPLANE_DATABASE_URL": "postgresql://u@h/d"}


def test_the_openapi_document_is_the_one_in_the_repository() -> None:
    golden.check(Path("docs/generated/openapi.json"), document().decode())


def test_the_page_of_errors_is_the_table() -> None:
    golden.check(Path("docs/errors.md"), error_page.page())
    assert set(RefusalCode) <= set(errors.KINDS)
    assert all(kind.remedy.endswith(".") for kind in errors.KINDS.values())


def test_the_title_of_a_problem_is_the_phrase_of_its_status() -> None:
    assert {kind.status for kind in errors.KINDS.values()} == errors.TITLES.keys()
    newer = {413: "Content too large", 422: "Unprocessable content"}  # RFC 9110; Python 3.11 has RFC 7231's.
    for status, title in errors.TITLES.items():
        assert title == newer.get(status, HTTPStatus(status).phrase.capitalize())


SECRETS = (
    "PROVIDER_LAMBDA_CLOUD_API_KEY",
    "SPLITPLANE_UNSEALING_KEYS_PATH",
)
PLANTED = "planted-secret-7f3a"


@pytest.mark.parametrize("name", SECRETS)
def test_the_api_refuses_an_environment_in_which_it_could_read_a_key(name: str) -> None:
    with pytest.raises(SettingsError, match=name) as refused:
        configuration.refuse_secrets(ENVIRONMENT | {name: PLANTED})
    assert PLANTED not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "name", "code"),
    [
        (("-m", "control_plane", "serve"), SECRETS[0], 2),
        (("-c", "from control_plane.api.server import application as a; a()"), SECRETS[1], 1),
    ],
)
def test_no_entry_of_the_api_starts_where_it_could_read_a_key(
    command: tuple[str, ...], name: str, code: int
) -> None:
    ran = subprocess.run(
        [sys.executable, *command],
        env=ENVIRONMENT | {name: PLANTED},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == code
    assert name in ran.stderr
    assert PLANTED not in ran.stderr + ran.stdout


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPLITPLANE_DATABASE_URL", ""),
        ("SPLITPLANE_LISTEN", "8080"),
        ("SPLITPLANE_LISTEN", "localhost:eighty"),
        ("SPLITPLANE_METRICS_LISTEN", ":9090"),
        ("SPLITPLANE_METRICS_LISTEN", "127.0.0.1:99999"),
        ("SPLITPLANE_REQUESTS_PER_SECOND", "0"),
        ("SPLITPLANE_STREAMS_MAX", "many"),
        ("SPLITPLANE_LOG_LEVEL", "loud"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        configuration.read(ENVIRONMENT | {variable: value})


def test_a_server_may_open_as_many_files_as_the_hard_limit_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[0]), before[1]))
    try:
        server_process.allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_shipped_price_book_sells_what_the_fake_offers_and_loses_no_money() -> None:
    book = tomllib.loads(Path("control_plane/price_book.toml").read_text())["sku"]
    prices = parse_price_book(Path("control_plane/price_book.toml").read_text())
    assert len({price.sku.name for price in prices}) == len(book) == len(prices)
    for offer in DEFAULT_OFFERS:
        serving = [price for price in prices if offer.shape.holds(price.sku.shape)]
        assert serving, offer.native_type
        assert all(price.nano_per_hour > offer.cost_nano_per_hour for price in serving), offer.native_type


@contextlib.asynccontextmanager
async def unreachable(url: str, clock: Clock) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app whose database cannot be reached."""
    database = Database(url, role=Role.API, pool_size=1, readers=1)
    app = create_app(World(database, now=clock.now), Settings("unused"))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client
    await database.close()


@pytest.mark.database
async def test_a_database_that_is_away_is_a_503_and_health_says_which(
    database_url: str, clock: Clock
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    no_database = database_url.replace("/test_", "/gone_")
    for url in (nowhere, no_database):
        async with unreachable(url, clock) as client:
            assert (await client.get("/healthz")).json() == {"status": "up"}
            for path in ("/readyz", "/v1/leases"):
                answer = await client.get(path, headers={"Authorization": "Bearer spk_some"})
                hold(answer, "database_unavailable")
                assert int(answer.headers["retry-after"]) > 0


@pytest.mark.database
async def test_a_connection_that_is_cut_costs_at_most_one_request(
    api: Api, acme: Tenant, database_url: str
) -> None:
    superuser = Database(database_url, role=None, pool_size=1, readers=1)
    for method, path, body in (
        ("GET", "/v1/leases", None),
        ("POST", "/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}),
    ):
        assert (await acme.http.request(method, path, json=body)).is_success
        async with superuser.transaction() as connection:
            await connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        answers = [await acme.http.request(method, path, json=body) for _ in range(4)]
        assert answers[-1].is_success
        for answer in answers:
            if not answer.is_success:
                hold(answer, "database_unavailable")
    await superuser.close()


@pytest.mark.database
async def test_an_empty_database_is_not_ready(server_url: str, template: str, clock: Clock) -> None:
    async with unreachable(server_url, clock) as client:
        hold(await client.get("/readyz"), "not_ready")


@pytest.mark.database
async def test_metrics_have_a_listener_of_their_own_and_no_ids(api: Api, acme: Tenant) -> None:
    lease = await acme.lease()
    await acme.http.get(f"/v1/leases/{lease}")
    await acme.http.get(f"/v1/leases/le_{SOME_ID}")
    await acme.http.get("/made/up/1")
    await acme.http.request("BREW", "/v1/leases")
    hold(await acme.http.get("/metrics"), "route_not_found")
    with contextlib.closing(MetricsListener(api.metrics, host="127.0.0.1", port=0)) as listener:
        async with httpx.AsyncClient() as scraper:
            shown = (await scraper.get(f"http://127.0.0.1:{listener.port}/metrics")).text
    route = 'splitplane_api_requests_total{method="GET",route="/v1/leases/{lease_id}",status="%s"} 1.0'
    assert route % 200 in shown
    assert route % 404 in shown
    assert 'splitplane_api_requests_total{method="GET",route="none",status="404"} 2.0' in shown
    assert 'method="other"' in shown
    assert "splitplane_api_request_seconds_bucket" in shown
    assert lease not in shown
    assert SOME_ID not in shown


@pytest.mark.database
async def test_a_request_is_one_line_and_no_secret_is_in_any(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    private = "planted-7f3a-secret"
    with structlog.testing.capture_logs() as lines:
        issued = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
        await acme.http.post("/v1/ssh-keys", json={"name": "k", "public_key": SSH_KEY})
        await acme.http.get(f"/v1/leases?cursor={private}")
        await acme.http.get(f"/{private}")
        await acme.http.get("/v1/leases", headers={"Authorization": f"Bearer spk_{private}"})
        await acme.http.post("/v1/leases", content=private, headers={"Idempotency-Key": private})
        made = (await operator.http.post("/v1/operator/organizations", json={"name": "n"})).json()
    assert len(lines) == 7
    assert {line["event"] for line in lines} == {"request"}
    assert all(line["request_id"].startswith("req_") for line in lines)
    text = json.dumps(lines)
    for secret in (
        private,
        acme.secret,
        operator.secret,
        issued["secret"],
        made["secret"],
        SSH_KEY.split()[1],
    ):
        assert secret not in text


@pytest.mark.database
async def test_a_fault_of_ours_is_a_500_without_details_and_a_log_line_that_locates_it(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted-7f3a-secret")

    monkeypatch.setattr("control_plane.services.billing.bill", broken)
    with structlog.testing.capture_logs() as lines:
        answer = await acme.http.get("/v1/bill")
    hold(answer, "internal")
    assert "planted" not in answer.text + json.dumps(lines)
    assert (lines[0]["event"], lines[0]["error"]) == ("request_failed", "ZeroDivisionError")
    assert "broken" in lines[0]["where"][-1]


@pytest.mark.database
async def test_a_key_that_sends_requests_too_fast_learns_when_to_try_again(api: Api, acme: Tenant) -> None:
    metrics = Metrics()
    api.app = create_app(
        api.world, Settings("unused", requests_per_second=10, requests_burst=3), metrics=metrics
    )
    client = api.client(acme.secret)
    answers = [await client.get("/v1/organization") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"key";q=3;w=1, "organization";q=400;w=2'
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=2", "r=1", "r=0", "r=0"]
    hold(answers[3], "rate_limited")
    assert answers[3].headers["retry-after"] == "1"
    api.clock.advance(0.2)
    assert (await client.get("/v1/organization")).status_code == 200
    second = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()["secret"]
    assert (await api.client(second).get("/v1/organization")).status_code == 200


@dataclass
class Ran:
    returncode: int | str | None
    stdout: str
    stderr: str


def _process(url: str, *arguments: str) -> Ran:
    """A command as a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "control_plane", *arguments],
        env={"SPLITPLANE_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def _command(url: str, *arguments: str, **variables: str) -> Ran:
    """A command in this process, which costs a tenth; in a thread, because it runs an event loop of its own."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["control_plane", *arguments]),
        mock.patch.dict(os.environ, {"SPLITPLANE_DATABASE_URL": url} | variables, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        ThreadPoolExecutor(1) as pool,
    ):
        code: int | str | None
        try:
            code = pool.submit(main).result()
        except SystemExit as error:
            code = error.code
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.database
async def test_an_administrator_sets_up_a_first_organization(database_url: str, api: Api) -> None:
    made = _process(
        database_url, "bootstrap", "--organization", "first", "--top-up", "12.5", "--gpu-quota", "3"
    )
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("spk_")
    assert secret not in made.stderr
    again = _process(database_url, "bootstrap", "--organization", "first")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "There is an organization called 'first' already.\n"

    for expected in (
        "Posted 0.500000000 USD to first.\n",
        "Nothing changed: the key 'may' was posted before.\n",
    ):
        credited = _command(database_url, "topup", "first", "0.5", "--key", "may")
        assert (credited.returncode, credited.stderr) == (0, expected)
    book = _command(database_url, "price-book")
    assert (book.returncode, book.stderr) == (
        0,
        "12 SKUs are in force: price book v2.\n",
    )  # The API's is the first.

    api.clock.advance(100 * 365 * 86_400)  # The commands run in real time, which is past the test's own.
    client = api.client(secret)
    seen = (await client.get("/v1/organization")).json()
    assert (seen["gpu_quota"], seen["balance"]["usd"]) == (3, "13.000000000")
    assert "l4.1x" in {sku["name"] for sku in (await client.get("/v1/skus")).json()["items"]}
    hold(await client.get("/v1/operator/loops"), "permission_denied")


@pytest.mark.database
async def test_an_administrator_lists_the_keys_of_tokens_and_removes_one_that_leaked(
    database_url: str, api: Api
) -> None:
    ring = KeyRing(replace(api.world, now=utc_now), LocalTokenKeys([X25519PrivateKey.generate()]))
    made = await ring.keep()
    assert made is not None
    listed = _command(database_url, "token-keys")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.startswith(f"{made.id}  current ")
    for code, sentence in ((0, "Removed. "), (1, f"There is no key {made.id!r}, or it is removed already.")):
        removed = _command(database_url, "token-keys", f"--remove={made.id}")
        assert removed.returncode == code
        assert removed.stderr.startswith(sentence)
    assert _command(database_url, "token-keys").stdout == ""
    async with api.owner.db.reading() as connection:
        lines = await rows(connection, text("SELECT event, subject FROM audit_pending ORDER BY number"))
    made_and_removed = [("signing_keys.make", "api"), ("signing_keys.remove", "administrator")]
    assert [(line.event, line.subject) for line in lines] == made_and_removed


@pytest.mark.database
def test_a_command_that_cannot_be_done_says_so_in_one_line(
    server_url: str, database_url: str, tmp_path: Path
) -> None:
    gone = embedded.named(server_url, "gone")
    stranger = server_url.replace("://postgres:", "://stranger:", 1)
    broken = tmp_path / "book.toml"
    broken.write_text('[[sku]]\nname = "x"\n')
    for url, arguments, sentence in (
        (database_url, ("topup", "nobody", "5", "--key", "k"), "There is no organization 'nobody'."),
        (database_url, ("price-book", str(broken)), "SKU number 1: the field 'gpu_count' is missing"),
        (database_url, ("price-book", str(tmp_path / "missing.toml")), "No such file"),
        (NOWHERE, ("migrate",), "The database cannot be used: connection refused at 127.0.0.1:1."),
        (NOWHERE, ("price-book",), "The database cannot be used: connection refused at 127.0.0.1:1."),
        (gone, ("migrate",), 'The database cannot be used: database "gone" does not exist at /'),
        (stranger, ("migrate",), 'The database cannot be used: role "stranger" does not exist at /'),
        (gone, ("topup", "first", "5", "--key", "k"), 'database "gone" does not exist at /'),
        (server_url, ("price-book",), "run `python -m control_plane migrate`"),
    ):
        with case(url, arguments):
            ran = _command(url, *arguments)
            assert ran.returncode == 1
            assert sentence in ran.stderr
            assert ran.stderr.count("\n") == 1
            assert "planted" not in ran.stderr
    assert _command(database_url, "topup", "first", "-5", "--key", "k").returncode == 2


NOWHERE = "postgresql://nobody:planted@127.0.0.1:1/none"


def test_serve_says_in_one_sentence_why_it_cannot_start_and_ends_with_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for variables, sentence in (
            ({"SPLITPLANE_DATABASE_URL": "cloud"}, "SPLITPLANE_DATABASE_URL names no PostgreSQL database"),
            ({"SPLITPLANE_LISTEN": address}, f"SPLITPLANE_LISTEN is {address}, where we cannot listen"),
            (
                {"SPLITPLANE_LISTEN": "127.0.0.1:0", "SPLITPLANE_METRICS_LISTEN": address},
                f"SPLITPLANE_METRICS_LISTEN is {address}, where we cannot listen: Address already in use",
            ),
        ):
            with case(variables):
                ran = _command(NOWHERE, "serve", **variables)
                assert ran.returncode == 2
                assert ran.stderr.startswith(sentence)
                assert ran.stderr.count("\n") == 1


def _on(api: Api, clock: DatabaseClock) -> httpx.AsyncClient:
    """A client without a key, of an API process that works with this clock."""
    api.world = dataclasses.replace(api.world, now=clock.now, clock_refusal=clock.refusal)
    api.app = create_app(api.world, Settings("unused"))
    return api.client(None)


@pytest.mark.database
async def test_an_api_whose_clock_is_wrong_in_either_direction_does_no_work_until_it_is_right(
    api: Api, acme: Tenant
) -> None:
    host = Host(api.clock)
    client = _on(api, await host.database_clock())
    client.headers["Authorization"] = f"Bearer {acme.secret}"
    lease = {"sku": "h100x1", "ssh_key_ids": []}
    for earlier, ahead in enumerate((5.5, -5.5, 3_600, -3_600)):
        with case(ahead):
            host.ahead = ahead
            again = {"Idempotency-Key": f"asked {ahead}"}
            refused = await client.post("/v1/leases", json=lease, headers=again)
            hold(refused, "clock_differs")
            assert int(refused.headers["retry-after"]) > 0
            assert str(int(ahead)) not in refused.json()["detail"], (
                "how far they differ is no stranger's business"
            )
            hold(await client.get("/readyz"), "not_ready")
            assert (await client.get("/healthz")).is_success

            host.ahead = 0
            assert (await client.get("/readyz")).is_success
            leases = (await client.get("/v1/leases")).json()["items"]
            assert len(leases) == earlier, "the refused request took effect"
            made = (await client.post("/v1/leases", json=lease, headers=again)).json()
            assert made["created_at"].startswith(api.clock.now().isoformat()[:19])
            assert (await client.post(f"/v1/leases/{made['id']}/release")).is_success
            api.clock.advance(1)
    for ahead in (4.5, -4.5):
        host.ahead = ahead
        assert (await client.get("/v1/leases")).is_success, ahead


@pytest.mark.database
async def test_with_a_wrong_clock_every_endpoint_is_refused_before_anybody_is_asked_for_a_key(
    api: Api,
) -> None:
    client = _on(api, await Host(api.clock, ahead=3_600).database_clock())
    served = set()
    for route in api.app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            for method in handler.http_methods - {"OPTIONS"}:
                path = re.sub(r"{\w+(:\w+)?}", "x", route.path)
                answer = await client.request(method, path)
                if answer.status_code != 503 or answer.json()["code"] != "clock_differs":
                    served.add(path)
    assert served == {"/healthz", "/readyz", "/docs", "/schema", "/schema/openapi.json", "/schema/x"}


@pytest.mark.database
async def test_an_administrators_command_says_by_how_much_the_clock_is_wrong(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours, said in ((1, "ahead of"), (-1, "behind")):
        with case(hours):
            host = partial(_wrong_by, timedelta(hours=hours))
            monkeypatch.setattr(process, "utc_now", host)
            with pytest.raises(process.ClockDiffers, match=f"3[56][0-9][0-9].* s {said} the database's"):
                async with process.administrator(database_url):
                    pass


def _wrong_by(difference: timedelta) -> datetime:
    return utc_now() + difference


async def test_the_metrics_show_how_far_the_host_is_ahead_of_the_databases_clock(clock: Clock) -> None:
    host = Host(clock, ahead=3_600)
    unread = process.api_process(ENVIRONMENT["SPLITPLANE_DATABASE_URL"], connections=1)
    served = dataclasses.replace(unread, clock=await host.database_clock())
    registry = server.metrics_of(served).registry
    for ahead in (3_600.0, -2.5, 0.0):
        host.ahead = ahead
        shown = registry.get_sample_value("splitplane_clock_difference_seconds")
        assert shown == pytest.approx(ahead, abs=0.001)


@pytest.mark.database
async def test_before_the_databases_clock_is_read_nothing_is_answered_with_another_time(
    api: Api, acme: Tenant
) -> None:
    host = Host(api.clock, ahead=3_600)
    unread = DatabaseClock(host, host=host.now, stopwatch=host.stopwatch)
    api.world = dataclasses.replace(api.world, now=unread.now, clock_refusal=unread.refusal)
    api.app = create_app(api.world, Settings("unused"))
    client = api.client(acme.secret)
    hold(await client.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []}), "database_unavailable")
    hold(await client.get("/readyz"), "not_ready")
    assert (await client.get("/healthz")).is_success
