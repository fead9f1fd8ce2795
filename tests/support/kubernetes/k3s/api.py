"""The few requests that the stand-in itself sends, to the API server and to a supervisor."""

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

SECONDS_MAX = 15


class ApiError(Exception):
    """An answer that is not the one hoped for. `status` is 0 when there was none."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Client:
    """`authority` is the PEM to check the server against; None believes it, as the first request of a join does."""

    url: str
    authority: bytes | None
    pair: tuple[Path, Path] | None = None
    headers: Mapping[str, str] | None = None

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Raises ApiError."""
        parts = urlsplit(self.url)
        connection = HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=SECONDS_MAX, context=self._context()
        )
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        try:
            connection.request(
                method, path, content, {"Content-Type": kind, **(self.headers or {}), **(headers or {})}
            )
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as error:
            raise ApiError(0, f"{method} {self.url}{path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, f"{self.url}{path}: {answer.status}: {_reason(text)}")
        return text

    def get(self, path: str) -> object:
        return json.loads(self.send("GET", path))

    def ensure(self, path: str, thing: Mapping[str, object]) -> None:
        """Create an object unless one of its name exists. Raises ApiError."""
        try:
            self.send("POST", path, thing)
        except ApiError as error:
            if error.status != 409:
                raise

    def _context(self) -> ssl.SSLContext:
        if self.authority is None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cadata=self.authority.decode())
        if self.pair is not None:
            context.load_cert_chain(*self.pair)
        return context


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _reason(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        return text.decode(errors="replace").strip()
