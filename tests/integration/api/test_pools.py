"""Warm pools over HTTP, and `splitplane pool simulate` against a server: what it compares, and which traces it refuses."""

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.cli import main
from control_plane.cli.terminal import Terminal
from control_plane.wire.pools import SERIES_MAX, TRACE_DAYS_MAX, TRACE_REQUESTS_MAX
from tests.integration.api.conftest import Api, Shared, Tenant
from tests.integration.api.endpoints import POOL
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database
POOLS = "/v1/operator/pools"
SIMULATIONS = "/v1/operator/pool-simulations"
SAMPLE = Path("docs/traces/two-weeks.csv")
HEADER = "arrival,sku,region,duration"
SAMPLE_REQUESTS = len(SAMPLE.read_text(encoding="utf-8").splitlines()) - 1
LEAD = 300
_SIMULATION: dict[str, Any] = {
    "series": [{"sku": "h100x1", "region": "eu", "seconds": [0, 3_600, 7_200]}],
    "idle_usd_per_hour": "3",
    "waiting_usd_per_hour": "20",
    "lead_seconds": LEAD,
    "machines_max": 5,
}


# A pool's life over HTTP


def _pool(**other: object) -> dict[str, Any]:
    return {**POOL, "region": "us", "machines_min": 0, "machines_max": 3, "sla": None, **other}


async def test_a_pool_is_created_as_a_dry_run_changed_shown_and_deleted(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    made = await operator.http.post(POOLS, json=_pool(name="us", dry_run=True))
    assert made.status_code == 201, made.text
    pool = made.json()
    assert (pool["state"], pool["decided_at"], pool["last_day"]) == ("dry_run", None, None)
    assert [each["name"] for each in (await operator.http.get(POOLS)).json()["items"]] == ["us"]

    begun = await operator.http.patch(
        f"{POOLS}/us", json={"dry_run": False, "policy": "fixed", "machines_min": 2}
    )
    assert (begun.json()["state"], begun.json()["policy"], begun.json()["machines_min"]) == (
        "active",
        "fixed",
        2,
    )
    await stage.play(300, step=30)
    shown = (await operator.http.get(f"{POOLS}/us")).json()
    assert (shown["target"], shown["verified"], shown["starting"]) == (2, 2, 0)
    assert shown["decisions"][0]["target"] == 2
    assert shown["last_day"]["idle_cost"]["nano"] > 0
    assert shown["last_day"]["hit_rate"] is None, "nobody asked"

    assert (await operator.http.delete(f"{POOLS}/us")).status_code == 204
    hold(await operator.http.patch(f"{POOLS}/us", json={"machines_max": 9}), "not_found")
    await stage.play(300, step=30)
    hold(await operator.http.get(f"{POOLS}/us"), "not_found")
    assert not stage.cloud.alive()


async def test_what_no_pool_can_be_is_refused_and_says_why(api: Api, operator: Tenant) -> None:
    assert (await operator.http.post(POOLS, json=_pool(name="one"))).status_code == 201
    for body, code in (
        (_pool(name="one", region="eu"), "pool_exists"),
        (_pool(name="two"), "pool_exists"),
        (_pool(name="two", sku="nothing", region="eu"), "sku_unknown"),
        (_pool(name="two", region="eu", machines_min=4, machines_max=3), "pool_invalid"),
        (_pool(name="two", region="eu", machines_max=1_001), "invalid_request"),
        (_pool(name="two", region="eu", policy="guess"), "invalid_request"),
    ):
        hold(await operator.http.post(POOLS, json=body), code)
    hold(await operator.http.patch(f"{POOLS}/one", json={"machines_min": 9}), "pool_invalid")
    hold(await operator.http.get(f"{POOLS}/two"), "not_found")
    assert (await operator.http.post(POOLS, json=_pool(name="two", sla="gold"))).status_code == 201


# Simulations


async def _simulate(operator: Tenant, **other: object) -> dict[str, Any]:
    answer = await operator.http.post(SIMULATIONS, json=_SIMULATION | other)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_simulation_of_a_trace_is_what_a_person_computes(shared: Shared) -> None:
    """Three requests an hour apart, machines of 3 USD an hour that take 5 minutes, and 20 USD for an hour of waiting."""
    found = await _simulate(shared.operator)
    assert (found["requests"], found["pools"], found["hours"]) == (3, 1, 2.0)
    none, fixed, newsvendor = found["policies"]
    assert (none["policy"], none["hits"], none["idle_cost"]["nano"]) == ("none", 0, 0)
    assert none["waited_seconds_mean"] == none["waited_seconds_p95"] == LEAD
    assert none["waiting_cost"]["nano"] == none["total_cost"]["nano"] == 3 * 20 * 10**9 * LEAD // 3_600
    # One machine, ordered a lead time before the first request, and another one for each that is taken.
    assert (fixed["policy"], fixed["parameter"], fixed["hits"]) == ("fixed", 1, 3)
    assert fixed["idle_machine_hours"] == pytest.approx((LEAD + 2 * 3_600) / 3_600)
    assert fixed["idle_cost"]["nano"] == 3 * 10**9 * (LEAD + 2 * 3_600) // 3_600
    assert fixed["waiting_cost"]["nano"] == 0
    assert newsvendor["policy"] == "newsvendor"
    assert newsvendor["parameter"] == 20
    assert newsvendor["hits"] <= 3
    curve = [(each["policy"], each["parameter"]) for each in found["curve"]]
    assert [number for policy, number in curve if policy == "fixed"] == [1, 2, 3, 5]
    assert [usd for policy, usd in curve if policy == "newsvendor"] == [1, 2, 5, 10, 20, 50, 100, 200]
    for each in (*found["policies"], *found["curve"]):
        assert each["total_cost"]["nano"] == each["idle_cost"]["nano"] + each["waiting_cost"]["nano"], each


async def test_the_order_of_requests_does_not_matter_and_pairs_are_pools_of_their_own(shared: Shared) -> None:
    series = {"sku": "h100x1", "region": "eu", "seconds": [7_200, 0, 3_600]}
    assert await _simulate(shared.operator, series=[series]) == await _simulate(shared.operator)
    both = await _simulate(shared.operator, series=[series, series | {"region": "us"}])
    assert (both["requests"], both["pools"]) == (6, 2)
    assert both["policies"][1]["idle_cost"]["nano"] == 2 * 3 * 10**9 * (LEAD + 2 * 3_600) // 3_600


async def test_a_trace_that_the_server_cannot_take_is_refused_with_its_field(shared: Shared) -> None:
    half = {"sku": "h100x1", "region": "eu", "seconds": [0] * (TRACE_REQUESTS_MAX // 2 + 1)}
    answer = await shared.operator.http.post(SIMULATIONS, json=_SIMULATION | {"series": [half, half]})
    hold(answer, "trace_too_long")
    refused: list[dict[str, object]] = [
        {"series": []},
        {"series": [half | {"seconds": []}]},
        {"series": [half | {"seconds": [-1]}]},
        {"series": [half | {"seconds": [TRACE_DAYS_MAX * 86_400 + 1]}]},
        {"series": [half | {"seconds": [1.5]}]},
        {"series": [half | {"sku": "no sku"}]},
        {"series": [half | {"seconds": [0]}] * (SERIES_MAX + 1)},
        {"idle_usd_per_hour": "-1"},
        {"lead_seconds": 0},
        {"machines_max": 1_001},
    ]
    for wrong in refused:
        answer = await shared.operator.http.post(SIMULATIONS, json=_SIMULATION | wrong)
        hold(answer, "invalid_request")
        (field,) = wrong
        assert field in answer.text, "it says which field"


# The command


class _Bridge(httpx.BaseTransport):
    """Carries the requests of the command, which waits for each answer, to the app on the event loop of the test."""

    def __init__(self, http: httpx.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._http, self._loop = http, loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result(timeout=60)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        headers = {
            name: value for name, value in request.headers.items() if name not in ("host", "content-length")
        }
        return await self._http.request(
            request.method, request.url.raw_path.decode(), content=request.content, headers=headers
        )


Run = Callable[..., Any]


@pytest.fixture
def run(shared: Shared, tmp_path: Path) -> Run:
    """Runs a command as an operator: its exit code, standard output and standard error."""

    async def ran(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        terminal = Terminal(
            environ={
                "HOME": str(tmp_path),
                "SPLITPLANE_URL": "https://api",
                "SPLITPLANE_API_KEY": shared.operator.secret,
            },
            stdin=io.StringIO(stdin),
            stdout=out,
            stderr=err,
            transport=_Bridge(shared.operator.http, asyncio.get_running_loop()),
        )
        code = await asyncio.to_thread(main.main, arguments, terminal)
        return int(code), out.getvalue(), err.getvalue()

    return ran


async def test_the_shipped_trace_is_compared_on_a_server_drawn_and_written(run: Run, tmp_path: Path) -> None:
    svg = tmp_path / "curve.svg"
    arguments = ("pool", "simulate", "--trace", str(SAMPLE), "--idle", "2.50")
    code, out, err = await run(*arguments, "--svg", str(svg))
    assert (code, err) == (0, ""), out
    assert out.startswith(f"{SAMPLE_REQUESTS} requests, ")
    for word in ("none", "fixed", "newsvendor", "Trade-off"):
        assert word in out
    assert svg.read_text(encoding="utf-8").startswith("<svg")

    code, out, _ = await run(*arguments, "--json")
    found = json.loads(out)
    assert found["requests"] == SAMPLE_REQUESTS
    none, fixed, newsvendor = found["policies"]
    assert none["hits"] == 0
    assert 0 < newsvendor["total_cost"]["nano"] < none["total_cost"]["nano"], (
        "waiting costs more than idling here"
    )
    assert newsvendor["hits"] > 0
    assert fixed["waited_seconds_mean"] < none["waited_seconds_mean"] == LEAD


async def test_a_trace_may_be_json_lines_or_come_from_stdin_with_times_or_seconds(
    run: Run, tmp_path: Path
) -> None:
    moments = ("2026-11-02T00:00:00Z", "2026-11-02T02:00:00+01:00", "2026-11-02T02:00:00")
    as_times = [{"arrival": at, "sku": "h100x1", "region": "eu", "duration": 60} for at in moments]
    as_seconds = [
        {"arrival": at, "sku": "h100x1", "region": "eu", "duration": "60"} for at in (0, "3600", 7_200.4)
    ]
    answers = []
    for lines in (as_times, as_seconds):
        file = tmp_path / "trace.jsonl"
        file.write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        answers.append(await run("pool", "simulate", "--trace", str(file), "--idle", "3", "--json"))
    rows = "\n".join(f"{at},h100x1,eu,60" for at in (0, 3_600, 7_200))
    answers.append(
        await run("pool", "simulate", "--trace", "-", "--idle", "3", "--json", stdin=f"{HEADER}\n{rows}\n")
    )
    assert [code for code, _, _ in answers] == [0, 0, 0], answers
    assert len({out for _, out, _ in answers}) == 1
    assert json.loads(answers[0][1])["policies"][1]["hits"] == 3


_TOO_MANY = "\n".join(f"{number},h100x1,eu,60" for number in range(TRACE_REQUESTS_MAX + 1))
_TOO_WIDE = "\n".join(f"{number},h100x1,eu-{number},60" for number in range(SERIES_MAX + 1))
BAD: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("first line of CSV has to be", HEADER)),
    "another header": ("at,sku,region\n1,h100x1,eu\n", ("first line of CSV has to be", HEADER)),
    "no requests": (f"{HEADER}\n", ("has no requests",)),
    "a missing field": (f"{HEADER}\n1,,eu,60\n", ("line 2", "sku is missing")),
    "a word as time": (f"{HEADER}\n1,h100x1,eu,60\nsoon,h100x1,eu,60\n", ("line 3", "'soon'", "nor seconds")),
    "not a number": (f"{HEADER}\nnan,h100x1,eu,60\n", ("line 2", "'nan'", "nor seconds")),
    "endless": (f"{HEADER}\ninf,h100x1,eu,60\n", ("line 2", "'inf'", "nor seconds")),
    "a negative duration": (f"{HEADER}\n1,h100x1,eu,-5\n", ("line 2", "'-5'", "no duration")),
    "a word as duration": (f"{HEADER}\n1,h100x1,eu,long\n", ("line 2", "'long'", "no duration")),
    "an endless duration": (f"{HEADER}\n1,h100x1,eu,nan\n", ("line 2", "'nan'", "no duration")),
    "broken JSON": ('{"arrival": 1\n', ("line 1", "not a JSON object")),
    "JSON with a list": ('{"arrival": [1], "sku": "a", "region": "eu", "duration": 1}\n', ("line 1", "JSON")),
    "JSON without a field": (
        '{"arrival": 1, "sku": "h100x1", "region": "eu"}\n',
        ("line 1", "duration is missing"),
    ),
    "a quote that never ends": (f'{HEADER}\n1,"{"x" * 140_000}\n', ("line", "not CSV")),
    "too many requests": (f"{HEADER}\n{_TOO_MANY}\n", ("7,001 requests", "7,000 fit", "Take a part")),
    "too many pairs": (
        f"{HEADER}\n{_TOO_WIDE}\n",
        ("21 pairs of a SKU and a region", "20 fit", "Take a part"),
    ),
    "too long": (
        f"{HEADER}\n2026-01-01,h100x1,eu,60\n2026-03-01,h100x1,eu,60\n",
        ("59 days", "31 fit", "Take a part"),
    ),
    "a SKU that is no name": (f"{HEADER}\n1,no sku at all,eu,60\n", ("series[0].sku",)),
    "a region that is no name": (f"{HEADER}\n1,h100x1,The Moon,60\n", ("series[0].region",)),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_trace_is_refused_with_what_is_to_change(run: Run, tmp_path: Path, what: str) -> None:
    content, expected = BAD[what]
    file = tmp_path / "trace"
    file.write_text(content, encoding="utf-8")
    code, out, err = await run("pool", "simulate", "--trace", str(file), "--idle", "2.50")
    assert code in (1, 2), (out, err)
    said = " ".join((out + err).replace(str(file), "FILE").split())
    for word in expected:
        assert word in said, said
    assert "Traceback" not in said


async def test_a_file_that_cannot_be_read_or_written_is_named(run: Run, tmp_path: Path) -> None:
    code, _, err = await run("pool", "simulate", "--trace", str(tmp_path / "none.csv"), "--idle", "2")
    assert (code, "No such file" in err) == (2, True), err
    latin = tmp_path / "latin.csv"
    latin.write_bytes(f"{HEADER}\n1,h100x1,eu,60 \xe9\n".encode("latin-1"))
    code, _, err = await run("pool", "simulate", "--trace", str(latin), "--idle", "2")
    assert (code, "not a text in UTF-8" in " ".join(err.split())) == (2, True), err
    nowhere = tmp_path / "no" / "curve.svg"
    code, _, err = await run("pool", "simulate", "--trace", str(SAMPLE), "--idle", "2", "--svg", str(nowhere))
    assert (code, "cannot be written" in " ".join(err.split())) == (2, True), err
