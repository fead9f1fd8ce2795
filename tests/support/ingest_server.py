"""An HTTP server that takes samples as the ingest process does, for tests of agents."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from data_plane.documents import strict
from data_plane.documents.sample import Sample
from data_plane.documents.sample_delivery import (
    BODY_BYTES_MAX,
    PATH,
    STATUSES,
    Answer,
    Delivery,
    TooLarge,
    VersionNotKnown,
    encode_answer,
    read_delivery,
)


@dataclass
class IngestServer:
    host: str
    port: int = 0
    """Where it listens; 0 before it ever did."""
    known: set[str] = field(default_factory=set[str])
    """The digests of credentials that may deliver."""
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    refused: list[str] = field(default_factory=list[str])
    """The verdicts of what was not accepted."""
    slow_down: bool = False
    _server: ThreadingHTTPServer | None = None
    _thread: threading.Thread | None = None

    @property
    def samples(self) -> list[Sample]:
        """In the order in which they came."""
        return [sample for delivery in self.deliveries for sample in delivery.samples]

    def open(self) -> None:
        """Listen, at the same port each time."""
        self._server = ThreadingHTTPServer((self.host, self.port), _handler(self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Be away."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        self.open()
        try:
            yield
        finally:
            self.close()

    def answer(self, credential: str, body: bytes) -> Answer:
        if hashlib.sha256(credential.encode()).hexdigest() not in self.known:
            return Answer("not_known")
        if self.slow_down:
            return Answer("too_fast")
        try:
            delivery = read_delivery(body)
        except TooLarge:
            return Answer("too_large")
        except VersionNotKnown:
            return Answer("version_not_known")
        except strict.Malformed:
            return Answer("malformed")
        self.deliveries.append(delivery)
        return Answer("accepted", delivery.samples[-1].sequence)


def _handler(ingest: IngestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length", "0")), BODY_BYTES_MAX + 1)
            body = self.rfile.read(length)
            scheme, _, credential = self.headers.get("Authorization", "").partition(" ")
            asked = (self.path, scheme, self.headers.get("Content-Encoding"))
            answer = (
                ingest.answer(credential, body) if asked == (PATH, "Bearer", "gzip") else Answer("malformed")
            )
            if answer.verdict != "accepted":
                ingest.refused.append(answer.verdict)
            content = encode_answer(answer)
            self.send_response(STATUSES[answer.verdict])
            if answer.verdict == "too_fast":
                self.send_header("Retry-After", "2")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    return Handler
