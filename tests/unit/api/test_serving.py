"""How many connections of clients the server accepts, and how long it keeps them."""

import resource
from dataclasses import replace
from typing import Any

import pytest

from control_plane import server_process
from control_plane.api import server
from control_plane.server_process import FILES_SPARE
from control_plane.settings import Settings
from tests.support.cases import case

PLAIN = Settings(database_url="unused")
ENDLESS = resource.RLIM_INFINITY


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Granian is started with."""
    arguments: dict[str, Any] = {}

    class Recorder:
        def __init__(self, _: str, **given: Any) -> None:
            arguments.update(given)

        def serve(self) -> None:
            pass

    monkeypatch.setattr(server_process, "Granian", Recorder)
    monkeypatch.setattr(server_process, "allow_open_files", lambda: None)
    monkeypatch.setattr(server, "check_free", lambda *_: None)
    return arguments


def test_as_many_connections_are_accepted_as_streams_may_be_open_and_files_allow(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for connections, streams, files, accepted in (
        (16_384, 5_000, ENDLESS, 16_384),
        (100, 5_000, ENDLESS, 5_000 + server.BACKLOG),
        (16_384, 5_000, 4_096, 4_096 - FILES_SPARE),
        (16_384, 5_000, 10, 1),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        server.serve(replace(PLAIN, connections_max=connections, streams_max=streams))
        with case(connections, streams, files):
            assert given["backpressure"] == accepted


def test_idle_connections_are_kept_for_as_long_as_the_settings_say(given: dict[str, Any]) -> None:
    server.serve(replace(PLAIN, idle_seconds=75))
    assert given["http1_settings"].header_read_timeout == 75_000
