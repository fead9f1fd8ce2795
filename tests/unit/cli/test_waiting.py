"""Commands that wait for clusters and node pools say what happens, outlive a short outage, and end when it is decided."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand

READY, FAILING = answers.CLUSTERS["items"]
BUILDING = {**FAILING, "failing_since": None, "failing_why": None}
BUILT = {**READY, "id": FAILING["id"], "name": "acme"}
CREATE = ("cluster", "create", "acme", "--region", "eu-central-1")
WHOLE = answers.NODE_POOLS["items"][1]


def _one_after_the_other(found: Iterable[dict[str, Any] | int]) -> Answer:
    left = iter(found)

    def answer(_: httpx.Request) -> httpx.Response:
        each = next(left)
        return httpx.Response(each) if isinstance(each, int) else httpx.Response(200, json=each)

    return answer


def _creating(home: Path, *shown: dict[str, Any] | int) -> Stand:
    path = f"GET /v1/clusters/{FAILING['id']}"
    return Stand(home, {"POST /v1/operator/clusters": BUILDING, path: _one_after_the_other(shown)})


def test_a_cluster_is_waited_for_until_it_is_ready_whatever_fails_meanwhile(tmp_path: Path) -> None:
    stand = _creating(tmp_path, BUILDING, FAILING, 503, FAILING, BUILT)
    result = stand.run(*CREATE)
    assert result.code == 0
    said = result.err.splitlines()
    assert said[0] == "acme: its server is being installed on a host in eu-central-1"
    assert [line for line in said if "no route to k8s-2" in line] == [
        "acme: it cannot be built, and is tried again: Unreachable: no route to k8s-2"
    ]
    assert "https://k8s-1.example.com:6443" in result.out
    assert stand.hours.now >= 8


def test_a_cluster_that_is_deleted_meanwhile_is_an_error(tmp_path: Path) -> None:
    result = _creating(tmp_path, BUILDING, {**BUILDING, "state": "deleting"}).run(*CREATE)
    assert (result.code, "acme is being deleted" in result.err) == (1, True)


def test_an_outage_that_lasts_ends_the_wait(tmp_path: Path) -> None:
    result = _creating(tmp_path, *[503] * 400).run(*CREATE)
    assert result.code != 0


def test_who_does_not_wait_gets_the_first_answer(tmp_path: Path) -> None:
    stand = _creating(tmp_path)
    assert stand.run(*CREATE, "--no-wait").code == 0
    assert [request.method for request in stand.requests] == ["POST"]


def test_a_pool_that_is_scaled_is_waited_for_until_it_is_whole(tmp_path: Path) -> None:
    path = f"/v1/node-pools/{WHOLE['id']}"
    more = {**WHOLE, "nodes": 3, "leases": {**WHOLE["leases"], "ready": 1}}
    last = {**more, "leases": {**WHOLE["leases"], "ready": 3}}
    stand = Stand(
        tmp_path,
        {
            "GET /v1/node-pools": answers.NODE_POOLS,
            f"GET {path}": _one_after_the_other([WHOLE, more, last]),
            f"PATCH {path}": more,
        },
    )
    result = stand.run("node-pool", "scale", "batch", "--nodes", "3", "--wait")
    assert result.code == 0, result.err
    assert result.err.count("1 of 3 nodes ready") == 1
    assert len(stand.hours.waits) == 2


def test_who_waits_at_a_terminal_sees_for_how_long(tmp_path: Path) -> None:
    stand = _creating(tmp_path, *[BUILDING] * 40, BUILT)
    stand.at_a_terminal = True
    result = stand.run(*CREATE)
    assert (result.code, "waiting for 1 min 20 s" in result.err) == (0, True)
    assert "waiting for" not in _creating(tmp_path, BUILDING, BUILT).run(*CREATE).err


def test_who_waits_for_a_node_pool_reads_what_it_waits_for(tmp_path: Path) -> None:
    why = "None of 3 offers can serve it now: 3 sold out."
    waits = {"since": WHOLE["created_at"], "code": "no_stock", "why": why}
    waiting = {**WHOLE, "state": "pending", "waiting": waits}
    path = f"GET /v1/node-pools/{WHOLE['id']}"
    stand = Stand(
        tmp_path,
        {"POST /v1/node-pools": waiting, path: _one_after_the_other([waiting, {**WHOLE, "state": "ready"}])},
    )
    result = stand.run(
        "node-pool", "create", "train", "--cluster", "eu-1", "--nodes", "2", "--sku", "h100-sxm.8x"
    )
    assert result.code == 0, result.err
    assert f"no stock: {why}" in result.err
