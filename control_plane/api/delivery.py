"""Sends an answer in parts, and gives up on a client that does not read them.

The server keeps what it was given until the client has read it. A part is given to it once the part before it is on its
way, so that a client which asks for large answers and reads none of them cannot fill the memory.
"""

import asyncio
from collections.abc import Callable

from litestar.types import HTTPResponseBodyEvent, Send

PART_BYTES = 65_536
READ_SECONDS = 30.0
"""How long a client may take to make room for a part, as behind docs/nginx.conf."""


class NotReadError(Exception):
    """The client did not read the answer in time."""


class Delivery:
    def __init__(self, send: Send, on_part: Callable[[int], None]) -> None:
        """`on_part` is called with the size of each part before it is sent."""
        self._send = send
        self._on_part = on_part
        self.given_up = False
        """Whether the client did not read in time. The connection ends with the request."""

    async def body(self, message: HTTPResponseBodyEvent) -> None:
        """Send the body of an answer, or the next piece of one. Raises NotReadError."""
        body, more = message["body"], message["more_body"]
        for start in range(0, max(1, len(body)), PART_BYTES):
            part = body[start : start + PART_BYTES]
            self._on_part(len(part))
            follows = more or start + PART_BYTES < len(body)
            await self._part({"type": "http.response.body", "body": part, "more_body": follows})

    async def _part(self, message: HTTPResponseBodyEvent) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS if message["more_body"] else None):
                await self._send(message)
        except TimeoutError as error:
            self.given_up = True
            raise NotReadError from error
