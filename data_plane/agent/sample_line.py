"""Delivers samples by HTTP through the tunnel, and by no other way."""

import http.client
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from data_plane.documents import strict
from data_plane.documents.agent_config import Config
from data_plane.documents.sample_delivery import (
    ANSWER_BYTES_MAX,
    PATH,
    Answer,
    Delivery,
    encode_delivery,
    read_answer,
)

SECONDS = 10
RETRY_SECONDS_MAX = 600


@dataclass(frozen=True)
class Response:
    status: int
    answer: "Answer | None" = None
    """None if the body is no answer, as of a proxy."""
    retry_seconds: "int | None" = None
    """After how long to try again, where the response says it."""


Send = Callable[[Delivery], Response]
"""Raises OSError when there is no response."""


def sender(config: Config) -> Send:
    return partial(deliver, config)


def deliver(config: Config, delivery: Delivery) -> Response:
    """Raises OSError when there is no response within SECONDS.

    The connection comes from the machine's own address in the tunnel. Without the tunnel nobody has that address, and
    nothing is sent: the other end's address alone would lead to the provider's network, and the credential with it.
    """
    line = http.client.HTTPConnection(
        config.hub, config.samples_port, timeout=SECONDS, source_address=(config.own, 0)
    )
    with closing(line):
        try:
            line.request("POST", PATH, encode_delivery(delivery), _headers(config))
            response = line.getresponse()
            body = response.read(ANSWER_BYTES_MAX + 1)
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP: {type(error).__name__}") from None
        retry = response.headers.get("Retry-After", "")
        return Response(response.status, _answer(body), _seconds(retry))


def _headers(config: Config) -> "dict[str, str]":
    return {
        "Authorization": f"Bearer {config.credential}",
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
        "User-Agent": "splitplane-agent",
    }


def _answer(body: bytes) -> "Answer | None":
    try:
        return read_answer(body)
    except strict.Malformed:
        return None


def _seconds(header: str) -> "int | None":
    return min(RETRY_SECONDS_MAX, max(1, int(header))) if re.fullmatch("[0-9]{1,6}", header) else None
