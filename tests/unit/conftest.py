"""Unit tests do no IO: a socket or a process in one of them is an error. Such tests are integration tests."""

import socket
import subprocess
from typing import NoReturn

import pytest


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a unit test opened a socket or started a process: it belongs in tests/integration")


@pytest.fixture(autouse=True)
def no_sockets_and_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "bind", _refuse)
    monkeypatch.setattr(socket.socket, "connect", _refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", _refuse)
