"""Samples over a real connection, and metrics of real servers on this machine."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from data_plane.agent import local_page, sample_line
from data_plane.agent.sample_line import Response, deliver
from data_plane.documents.agent_config import Config
from data_plane.documents.sample_delivery import Answer, Delivery
from tests.support.ingest_server import IngestServer
from tests.support.samples import busy_delivery, busy_sample

HOST = "127.0.0.1"
CREDENTIAL = "5e" * 32


@pytest.fixture
def ingest() -> Iterator[IngestServer]:
    server = IngestServer(HOST, known={hashlib.sha256(CREDENTIAL.encode()).hexdigest()})
    with server.listening():
        yield server


def config(port: int, credential: str = CREDENTIAL) -> Config:
    return Config(credential, HOST, "127.0.0.5", samples_port=port)


def test_a_delivery_arrives_as_it_was_sent_and_is_accepted(ingest: IngestServer) -> None:
    delivery = busy_delivery(3)
    assert deliver(config(ingest.port), delivery) == Response(200, Answer("accepted", 3))
    assert ingest.deliveries == [delivery]


def test_each_refusal_has_its_status(ingest: IngestServer) -> None:
    delivery = busy_delivery()
    assert deliver(config(ingest.port, "0" * 64), delivery) == Response(401, Answer("not_known"))
    ingest.slow_down = True
    assert deliver(config(ingest.port), delivery) == Response(429, Answer("too_fast"), retry_seconds=2)
    ingest.slow_down = False
    one = busy_sample()
    assert deliver(config(ingest.port), Delivery(0, (one, one))) == Response(400, Answer("malformed"))
    assert ingest.deliveries == []


def test_the_time_of_sending_tells_how_old_a_sample_is_whatever_the_clock_says(ingest: IngestServer) -> None:
    """The receiver corrects the time of a sample by this difference alone, so no clock has to be right."""
    for skew_ms in (-86_400_000, 0, 3_600_000):
        old = busy_sample(at_ms=1_795_800_000_000 + skew_ms)
        deliver(config(ingest.port), Delivery(1_795_800_090_000 + skew_ms, (old,)))
    ages = [
        delivery.sent_at_ms - sample.at_ms for delivery in ingest.deliveries for sample in delivery.samples
    ]
    assert ages == [90_000] * 3


def test_without_the_tunnel_nothing_is_sent(ingest: IngestServer) -> None:
    nowhere = Config(CREDENTIAL, HOST, "192.0.2.1", samples_port=ingest.port)
    with pytest.raises(OSError, match="assign"):
        deliver(nowhere, busy_delivery())
    assert ingest.refused == []
    assert ingest.deliveries == []


@contextmanager
def _answering(answer: "Callable[[socket.socket], None]") -> Iterator[int]:
    """A port at which each connection is given to `answer`."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line:
                    try:
                        line.settimeout(5)
                        answer(line)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _sending(content: bytes) -> Callable[[socket.socket], None]:
    def answer(line: socket.socket) -> None:
        line.recv(65_536)
        line.sendall(content)
        line.shutdown(socket.SHUT_WR)
        # What is not read when a connection is closed resets it, and the answer is lost.
        while line.recv(65_536):
            pass

    return answer


def test_whatever_answers_in_its_place_is_no_acceptance() -> None:
    for content in (
        b"",
        b"\0" * 1000,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
    ):
        with _answering(_sending(content)) as port, pytest.raises(OSError):  # noqa: PT011 - any of its kinds
            deliver(config(port), busy_delivery())
    for content in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    ):
        with _answering(_sending(content)) as port:
            response = deliver(config(port), busy_delivery())
            assert (response.answer, response.retry_seconds) == (None, None)


def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_line, "SECONDS", 0.3)
    ended = threading.Event()
    with _answering(lambda _: (ended.wait(5), None)[1]) as port:
        with pytest.raises(TimeoutError):
            deliver(config(port), busy_delivery())
        ended.set()


def test_a_page_of_this_machine_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nvllm:num_requests_running 3\n"
    with _answering(_sending(page)) as port:
        assert local_page.get(HOST, port, "/metrics") == "vllm:num_requests_running 3\n"
    for other in (b"HTTP/1.0 404 Not Found\r\n\r\nx", b"HTTP/1.1 2000 \r\n\r\nx", b"nonsense", b""):
        with _answering(_sending(other)) as port:
            assert local_page.get(HOST, port, "/metrics") is None
    monkeypatch.setattr(local_page, "BYTES_MAX", 1000)
    with _answering(_sending(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 2000)) as port:
        assert local_page.get(HOST, port, "/metrics") is None


def test_a_server_that_answers_a_byte_at_a_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_page, "SECONDS", 0.5)

    def drip(line: socket.socket) -> None:
        for _ in range(50):
            line.sendall(b"x")
            time.sleep(0.1)  # Real sockets take real time.

    began = time.monotonic()
    with _answering(drip) as port, pytest.raises(TimeoutError):
        local_page.get(HOST, port, "/metrics")
    assert time.monotonic() - began < 5


def test_nobody_at_a_port_is_an_error_at_once() -> None:
    with socket.create_server((HOST, 0)) as nobody:
        port = int(nobody.getsockname()[1])
    with pytest.raises(ConnectionRefusedError):
        local_page.get(HOST, port, "/metrics")
