"""What every adapter of a gRPC API does in the same way: make a call once, and judge its outcome by the law.

It is to gRPC what `rest.py` is to HTTP:

  - A call is made once. The channel's own retries are off, and nothing here waits for a better time.
  - Every failure becomes an error of the port by `error_law.py`, from the adapter's `ErrorContract`.
  - gRPC says UNAVAILABLE both for "no connection" and for "the connection broke after the request". So the connection
    comes first and the call second: only what fails before the call begins was certainly not sent.
  - No error text repeats what signed the call, or what the adapter names as private.

The transport is an argument, so that an emulator in the same process needs no socket.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from providers.base import Capabilities, ProviderError, Throttled, Unauthorized, Verb
from providers.error_law import ErrorDetail, Failure, Meaning, Rule, error_for, error_of
from providers.listings import UnreadableAnswer

CONNECT_SECONDS = 10.0
"""Shorter than the guard's shortest timeout: a provider out of reach is Unavailable, also to a write."""
ANSWER_SECONDS = 120.0
"""Longer than the guard's longest timeout, which is the one that counts; this ends a forgotten call."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
STATUS_DETAILS = "grpc-status-details-bin"
"""The trailing metadata that holds a google.rpc.Status."""
_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),  # DNS records must not switch retries on.
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # A proxy of this host must not see the token.
)

Metadata = tuple[tuple[str, str], ...]
Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")
Sign = Callable[[], Awaitable[Metadata]]
"""Returns the metadata that proves that a call is ours. Nothing has left us when it runs; it runs for every call."""


class CallFailedError(Exception):
    """A call that was begun ended with a status other than OK, whoever made it: the server, a proxy, or this side."""

    def __init__(self, status: str, message: str, details: bytes = b"") -> None:
        super().__init__(status)
        self.status = status
        """The name of gRPC's status code."""
        self.message = message
        self.details = details
        """What STATUS_DETAILS held; empty where there was none."""


class NotConnectedError(Exception):
    """There was no connection, so that the call was never begun."""


class Transport(Protocol):
    async def call(self, host: str, path: str, request: bytes, metadata: Metadata) -> bytes:
        """Make one call. Raises CallFailedError, NotConnectedError."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    host: str
    """The service's part of the host name: `compute` of compute.api.nebius.cloud."""
    path: str
    """`/package.Service/Method`"""
    answer: type[Answer]


@dataclass(frozen=True, slots=True)
class ErrorContract:
    """How a provider speaks of failures. A failure that no rule names is unclear."""

    detail_of: Callable[[CallFailedError], ErrorDetail]
    rules: tuple[Rule, ...]


class Rpc:
    """One provider's API over one transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        sign: Sign | None,
        errors: ErrorContract,
        capabilities: Capabilities,
    ) -> None:
        self._transport = transport
        self._sign = sign
        self._errors = errors
        self._rate_limits = capabilities.rate_limits

    async def call(
        self,
        verb: Verb,
        method: Method[Answer],
        request: Message,
        read: Callable[[Answer], Result],
        *,
        metadata: Metadata = (),
        private: Iterable[str] = (),
    ) -> Result:
        """Make one call; returns what `read` makes of the answer. `private` is never repeated in an error.

        Raises the error of the port that the law has for whatever else happens, also inside `read`; only a
        ProviderError that `read` raises passes as it is.
        """
        signed = await self._signed(verb)
        try:
            body = await self._transport.call(
                method.host, method.path, request.SerializeToString(), (*signed, *metadata)
            )
        except NotConnectedError as error:
            raise error_for(verb, Meaning.NOT_SENT, f"no connection ({error})") from None
        except CallFailedError as error:
            failure = Failure(None, self._errors.detail_of(error))
            hidden = (*(value for _, value in signed), *private)
            limits = self._rate_limits
            raise error_of(verb, failure, self._errors.rules, private=hidden, rate_limits=limits) from None
        return _result(verb, method, body, read)

    async def close(self) -> None:
        await self._transport.close()

    async def _signed(self, verb: Verb) -> Metadata:
        if self._sign is None:
            return ()
        try:
            return await self._sign()
        except (Unauthorized, Throttled):
            raise
        except Exception as error:  # noqa: BLE001 - whatever fails here, the call was not begun
            why = str(error) if isinstance(error, ProviderError) else type(error).__name__
            raise error_for(verb, Meaning.NOT_SENT, f"the call could not be signed ({why})") from None


def readable(kind: type[Answer], data: bytes) -> Answer | None:
    """The message that `data` holds; None for what cannot be read as one."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def _result(verb: Verb, method: Method[Answer], body: bytes, read: Callable[[Answer], Result]) -> Result:
    try:
        return read(method.answer.FromString(body))
    except ProviderError:
        raise
    except UnreadableAnswer as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - whatever an answer does to its reader, it was no readable answer
        why = type(error).__name__
    raise error_for(verb, Meaning.UNCLEAR, f"{method.path}: an unreadable answer ({why})")


class Channels:
    """The transport over the network: one channel for each host of `base_url`, opened when it is needed.

    `https://api.example.com` stands for TLS to HOST.api.example.com:443 of each service. `http://127.0.0.1:9003` stands
    for that address in plain text, whatever the service: an emulator. Raises ValueError for another form.
    """

    def __init__(self, base_url: str) -> None:
        self._url = urlsplit(base_url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname or self._url.path.strip("/"):
            raise ValueError("base_url is neither https://DOMAIN nor http://ADDRESS:PORT")
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closed = False

    async def call(self, host: str, path: str, request: bytes, metadata: Metadata) -> bytes:
        if self._closed:
            raise NotConnectedError("the account was disconnected")
        channel = self._channel(host)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await channel.channel_ready()
        except TimeoutError:
            raise NotConnectedError(f"{host} did not answer in {CONNECT_SECONDS:g} s") from None
        except grpc.aio.UsageError:
            raise NotConnectedError("the account was disconnected") from None
        return await _call(channel, path, request, metadata)

    async def close(self) -> None:
        """Calls that are under way end without an answer."""
        self._closed = True
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _channel(self, host: str) -> grpc.aio.Channel:
        address = self._address(host)
        if address not in self._channels:
            if self._url.scheme == "http":
                opened = grpc.aio.insecure_channel(address, options=_OPTIONS)
            else:
                opened = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), options=_OPTIONS)
            self._channels[address] = opened
        return self._channels[address]

    def _address(self, host: str) -> str:
        if self._url.scheme == "http":
            return self._url.netloc
        return f"{host}.{self._url.hostname}:{self._url.port or 443}"


async def _call(channel: grpc.aio.Channel, path: str, request: bytes, metadata: Metadata) -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    try:
        return await call(request, metadata=metadata, timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise CallFailedError(error.code().name, error.details() or "", _details(error)) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled us: the channel was closed under the call, which gRPC tells in the same way.
        raise CallFailedError("CANCELLED", "the connection was closed") from None


def _details(error: grpc.aio.AioRpcError) -> bytes:
    found = dict(error.trailing_metadata() or ()).get(STATUS_DETAILS, b"")
    return found if isinstance(found, bytes) else b""
