"""HEAD and OPTIONS on every path. The framework knows only the methods that one controller names for it.

HEAD is GET without the body (RFC 9110, section 9.3.2), so every path with GET has it, and `Allow` says so.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

from litestar.enums import ScopeType
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

from control_plane.api import observe


class Methods:
    """Wraps the routed app: answers HEAD by GET, and completes the `Allow` header."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._methods: defaultdict[str, set[str]] = defaultdict(set)
        """The methods of each path by its template."""
        for route in routes:
            if isinstance(route, HTTPRoute):
                self._methods[route.path_format] |= route.methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
        elif cast("dict[str, Any]", scope)["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self._app(scope, receive, self._completing(scope, send))

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = {**scope, "method": "GET"}
        answer = _Bodiless(
            receive,
            self._completing(asked, send),
            partial(observe.count_part, asked),  # type: ignore[arg-type]  # as below
        )
        try:
            await self._app(asked, answer.receive, answer.send)  # type: ignore[arg-type]  # a copy of a TypedDict
        finally:
            # What the layers noted for the log is about this request, whichever method it was routed as.
            scope.update({**asked, "method": "HEAD"})  # type: ignore[typeddict-item]  # as above
        await answer.end()

    def _completing(self, scope: Mapping[str, Any], send: Send) -> Send:
        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, self._allow(scope, value) if name == b"allow" else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        return completed

    def _allow(self, scope: Mapping[str, Any], found: bytes) -> bytes:
        template = str(scope.get("path_template", ""))
        methods = {method.strip() for method in found.decode().split(",")} | self._methods.get(
            template, set()
        )
        return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set()))).encode()


class _Bodiless:
    """Sends the head of an answer and drops its body. A stream is told that its client left."""

    def __init__(self, receive: Receive, send: Send, count: Callable[[int], None]) -> None:
        """`count` is called with the size of each part of the body, which was made although it is dropped."""
        self._receive = receive
        self._send = send
        self._count = count
        self._begun = asyncio.Event()
        self._body_read = False

    async def receive(self) -> HTTPReceiveMessage:
        if not self._body_read:
            message = await self._receive()
            self._body_read = not message.get("more_body", False)
            return message  # type: ignore[return-value]  # an app for HTTP receives nothing else
        await self._begun.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            self._begun.set()
        elif message["type"] == "http.response.body":
            self._count(len(message["body"]))

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
