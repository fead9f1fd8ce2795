"""An emulated cloud that speaks gRPC: in this process as a transport of `rpc.Rpc`, or on a port of this host."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from providers.emulators.scenario import ConnectionCut
from providers.rpc import STATUS_DETAILS, CallFailedError, Metadata

STOP_SECONDS = 1.0
LOOK_SECONDS = 0.1


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    """A status other than OK, by its name, and the google.rpc.Status that goes with it; empty for none."""

    def __init__(self, status: str, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.status, self.message, self.details = status, message, details


class Cloud(Protocol):
    async def answer(self, path: str, body: bytes, metadata: Metadata) -> bytes:
        """The answer to one call. Raises Refusal, ConnectionCut."""
        ...


class GrpcServer:
    """One emulated cloud. `serve`, `started` and `should_exit` are as uvicorn has them: both run side by side."""

    def __init__(self, cloud: Any, note: str = "") -> None:
        self.cloud = cloud
        self.note = note
        """What somebody who starts the emulator by hand has to know."""
        self.started = False
        self.should_exit = False

    async def call(self, host: str, path: str, request: bytes, metadata: Metadata) -> bytes:  # noqa: ARG002 - one emulator stands for every host
        """As a transport: one call, without a socket."""
        try:
            answer: bytes = await self.cloud.answer(path, request, metadata)
        except Refusal as refusal:
            raise CallFailedError(refusal.status, refusal.message, refusal.details) from None
        except ConnectionCut:
            raise CallFailedError("UNAVAILABLE", "Socket closed") from None
        return answer

    async def close(self) -> None:
        """As a transport: nothing is open."""

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve in plain text on the port of the socket until `should_exit`. gRPC binds a socket of its own there."""
        server = grpc.aio.server(handlers=[_Handlers(self.cloud)])
        address, port = sockets[0].getsockname()[:2]
        sockets[0].close()
        server.add_insecure_port(f"{address}:{port}")
        await server.start()
        self.started = True
        try:
            while not self.should_exit:  # noqa: ASYNC110 - the flag is set by a signal, like uvicorn's
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await server.stop(STOP_SECONDS)


class _Handlers(grpc.GenericRpcHandler):
    """Hands every method to the cloud, with bytes in and bytes out."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            metadata = tuple((str(key), value) for key, value in context.invocation_metadata())
            try:
                return await self._cloud.answer(str(handler_call_details.method), request, metadata)
            except Refusal as refusal:
                details = ((STATUS_DETAILS, refusal.details),) if refusal.details else ()
                await context.abort(grpc.StatusCode[refusal.status], refusal.message, details)
            except ConnectionCut:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            raise AssertionError("abort does not return")

        return grpc.unary_unary_rpc_method_handler(answer)
