"""How many connections of clients the server accepts."""

import resource
from dataclasses import replace
from typing import Any

import pytest

from control_plane.api import server
from control_plane.settings import Settings
from tests.support.cases import case

ENDLESS = resource.RLIM_INFINITY


def test_as_many_connections_are_accepted_as_streams_may_be_open_and_files_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    class Recorder:
        def __init__(self, _: str, **arguments: Any) -> None:
            given.update(arguments)

        def serve(self) -> None:
            pass

    monkeypatch.setattr(server, "Granian", Recorder)
    monkeypatch.setattr(server, "_check_free", lambda *_: None)
    monkeypatch.setattr(server, "allow_open_files", lambda: None)
    plain = Settings(database_url="unused")
    for connections, streams, files, accepted in (
        (16_384, 5_000, ENDLESS, 16_384),
        (100, 5_000, ENDLESS, 5_000 + server.BACKLOG),
        (16_384, 5_000, 4_096, 4_096 - server.FILES_SPARE),
        (16_384, 5_000, 10, 1),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        server.serve(replace(plain, connections_max=connections, streams_max=streams))
        with case(connections, streams, files):
            assert given["backpressure"] == accepted
