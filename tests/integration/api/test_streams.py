"""Event streams: every event is sent at once and only once, and the stream ends when nothing more can come."""

import asyncio
from typing import Any

import pytest

from control_plane.api import door
from control_plane.api.app import create_app
from control_plane.domain.position import SEEN_MAX, Position
from control_plane.settings import Settings
from tests.integration.api.conftest import Api, Shared, Tenant
from tests.integration.api.open_stream import OpenStream, events
from tests.integration.api.problems import SOME_ID, hold
from tests.support.cases import case
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_a_stream_reports_every_step_once_and_ends_when_the_lease_is_ready(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await acme.lease()
    api.while_asleep = stage.round
    answer = await acme.http.get(f"/v1/leases/{lease}/events?until=ready")
    assert answer.headers["content-type"] == "text/event-stream"
    sent = events(answer.text)
    states = [data["state"] for name, _, data in sent if name == "status"]
    assert (states[0], states[-1]) == ("placing", "ready")
    messages = [data["message"] for name, _, data in sent if name == "status"]
    assert len(messages) == len(set(messages))
    assert sent[-1] == ("end", None, {"reason": "ready"})
    journal = (await acme.http.get(f"/v1/leases/{lease}/journal")).json()["items"]
    assert [data for name, _, data in sent if name == "journal"] == journal
    assert all(position for name, position, _ in sent if name == "journal")


async def test_a_stream_that_comes_back_misses_no_line_and_gets_none_twice(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    api.while_asleep = stage.round
    whole = [e for e in events((await acme.http.get(f"/v1/leases/{lease}/events")).text) if e[0] == "journal"]
    assert [data["event"] for _, _, data in whole] == ["admitted", "released", "machines_gone"]
    for seen in range(3):
        last = whole[seen][1]
        assert last is not None
        rest = await acme.http.get(f"/v1/leases/{lease}/events", headers={"Last-Event-ID": last})
        sent = events(rest.text)
        assert [e.data for e in sent if e.name == "journal"] == [e.data for e in whole[seen + 1 :]]
        assert sent[-1][2] == {"reason": "ended"}


@pytest.mark.parametrize("last", ["", "abc", "--1", "9" * 40, "9" * 19, "1.5.", "٣"])
async def test_an_invalid_event_id_starts_at_the_beginning(last: str, shared: Shared) -> None:
    acme = shared.acme
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    headers = [(b"Last-Event-ID", last.encode())]
    answer = await acme.http.get(f"/v1/leases/{lease}/events?until=ready", headers=headers)
    assert [data["event"] for name, _, data in events(answer.text) if name == "journal"] == [
        "admitted",
        "released",
    ]


async def test_a_client_that_has_the_first_lines_already_gets_the_rest(shared: Shared) -> None:
    """As many lines as a position can name. Without progress behind them, the stream would read them for ever."""
    acme = shared.acme
    lease = await acme.lease()
    for number in range(SEEN_MAX):
        labels = {"number": str(number)}
        await acme.http.put(f"/v1/leases/{lease}/labels", json={"labels": labels})
    lines: list[Any] = []
    cursor = None
    while cursor is not None or not lines:
        query = {"limit": 200} | ({"cursor": cursor} if cursor else {})
        page = (await acme.http.get(f"/v1/leases/{lease}/journal", params=query)).json()
        lines, cursor = lines + page["items"], page["next_cursor"]
    known = tuple(line["number"] for line in lines[:SEEN_MAX])
    stream = OpenStream(shared.api.app, acme.secret, lease, after=str(Position(0, known)))
    await stream.until(f'"number":{lines[-1]["number"]}'.encode())
    assert stream.noted == ["labelled"]
    await stream.leave()


async def test_a_lease_that_will_never_be_ready_ends_the_wait(acme: Tenant) -> None:
    lease = await acme.lease()
    await acme.http.post(f"/v1/leases/{lease}/release")
    sent = events((await acme.http.get(f"/v1/leases/{lease}/events?until=ready")).text)
    assert sent[-1] == ("end", None, {"reason": "ending"})


async def test_an_open_stream_is_no_request_in_progress(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await acme.lease()
    for bound in ("REQUESTS_MAX", "ADDRESS_REQUESTS_MAX", "ORGANIZATION_REQUESTS_MAX", "KEY_REQUESTS_MAX"):
        monkeypatch.setattr(door, bound, 1)
    api.app = create_app(api.world, Settings("unused"), metrics=api.metrics, sleep=api.sleep)
    open_stream = OpenStream(api.app, acme.secret, lease)
    await open_stream.until(b"event: status")
    answer = await api.client(acme.secret).get("/v1/organization")
    await open_stream.leave()
    assert answer.status_code == 200, answer.text


async def test_streams_are_bounded_and_a_client_that_goes_gives_its_place_back(
    api: Api, acme: Tenant, other: Tenant
) -> None:
    second = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()["secret"]
    lease, foreign = await acme.lease(), await other.lease()
    for name, settings, refused, accepted in (
        (
            "1 event streams are open",
            Settings("unused", streams_max=1),
            [(acme.secret, lease), (other.secret, foreign)],
            [],
        ),
        (
            "your organization",
            Settings("unused", streams_per_organization_max=1),
            [(acme.secret, lease), (second, lease)],
            [(other.secret, foreign)],
        ),
        (
            "this API key",
            Settings("unused", streams_per_key_max=1),
            [(acme.secret, lease)],
            [(second, lease), (other.secret, foreign)],
        ),
    ):
        api.app = create_app(api.world, settings, metrics=api.metrics, sleep=api.sleep)
        open_stream = OpenStream(api.app, acme.secret, lease)
        await open_stream.until(b"event: status")
        for secret, wanted in refused:
            with case(name, "refused"):
                async with asyncio.timeout(20):  # A stream that is not refused goes on and on.
                    answer = await api.client(secret).get(f"/v1/leases/{wanted}/events")
                hold(answer, "streams_exhausted")
                assert name in answer.json()["detail"]
                assert answer.headers["retry-after"]
        for secret, wanted in accepted:
            with case(name, "accepted"):
                more = OpenStream(api.app, secret, wanted)
                await more.until(b"event: status")
                await more.leave()
        await open_stream.leave()
        assert api.metrics.registry.get_sample_value("splitplane_api_streams") == 0
        again = OpenStream(api.app, acme.secret, lease)
        await again.until(b": heartbeat")
        assert again.text.count(b"event: status") == 1
        await again.leave()


async def test_a_stream_needs_no_place_to_learn_that_there_is_no_such_lease(shared: Shared) -> None:
    hold(await shared.acme.http.get(f"/v1/leases/le_{SOME_ID}/events"), "lease_not_found")
