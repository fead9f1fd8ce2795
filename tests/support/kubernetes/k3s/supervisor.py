"""K3s' supervisor: the port that agents join through, and everybody else's way to the API server.

Its own paths follow `pkg/server/handlers` of K3s 1.36. Every other request goes to the real API server, with the user of
a client certificate in headers that the API server believes from us alone.
"""

import asyncio
import base64
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from tests.support.kubernetes import pki
from tests.support.kubernetes.credentials import Credentials
from tests.support.kubernetes.flags import Ranges
from tests.support.kubernetes.k3s import bootstrap_tokens, http, passwords, tokens
from tests.support.kubernetes.k3s.api import ApiError, Client
from tests.support.kubernetes.k3s.http import Head
from tests.support.kubernetes.k3s.layout import API_PORT
from tests.support.kubernetes.k3s.processes import say
from tests.support.kubernetes.pki import Subject

READING_AT_ONCE, WRITING_AT_ONCE = 20, 10
"""Requests of agents; K3s' own limits."""
IDENTITY_HEADERS = ("x-remote-", "connection", "keep-alive", "proxy-connection")
NODES, BOOTSTRAPPERS = "system:nodes", bootstrap_tokens.GROUP


class RefusedError(Exception):
    """A request that gets an error. The text is what the other side reads."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    groups: tuple[str, ...]

    @property
    def is_agent(self) -> bool:
        return bool({"k3s:agent", "k3s:server", NODES, BOOTSTRAPPERS} & set(self.groups))


@dataclass(frozen=True, slots=True)
class Secrets:
    """What joins agents: the agents' token, which is the servers' unless it was set."""

    server: str
    agent: str


@dataclass
class Supervisor:
    credentials: Credentials
    admin: Client
    secrets: Secrets
    ranges: Ranges
    addresses: tuple[str, ...]
    """`HOST:PORT` of the servers, for agents."""
    now: Callable[[], datetime]
    enforces_policies: bool = True
    reading: int = 0
    writing: int = 0
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def listen(self, address: str, port: int) -> asyncio.Server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.credentials.files.pair("serving-kube-apiserver"))
        context.load_verify_locations(self.credentials.files.pair("client-ca")[0])
        context.verify_mode = ssl.CERT_OPTIONAL
        return await asyncio.start_server(self._serve, address, port, ssl=context, limit=http.HEAD_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await http.read_head(reader)) is not None:
                handler = self._handler(head)
                if handler is None:
                    await self._pass_on(head, reader, writer)
                    return
                body = await http.read_body(reader, head)
                writer.write(await self._answered(handler, head, body, _certified(writer)))
                await writer.drain()
        except (http.BadRequestError, ValueError) as error:
            writer.write(http.answer(400, str(error).encode()))
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def _handler(self, head: Head) -> "Handler | None":
        if head.path in OPEN:
            return OPEN[head.path]
        if head.path.startswith("/v1-k3s/"):
            return AGENTS.get(head.path.removeprefix("/v1-k3s/"), _not_found)
        return None

    async def _answered(self, handler: "Handler", head: Head, body: bytes, caller: Caller | None) -> bytes:
        try:
            if head.path in OPEN:
                return http.answer(200, await handler(self, head, body, Caller("anonymous", ())))
            async with self._counted(head.method):
                known = caller or await self._authenticated(head)
                return http.answer(200, await handler(self, head, body, known))
        except RefusedError as refusal:
            more = {"Retry-After": "1"} if refusal.status == 429 else None
            return http.answer(refusal.status, f"{refusal}\n".encode(), more=more)
        except ApiError as error:
            say(f"level=error msg={str(error)!r}")
            return http.answer(503, b"the API server does not answer\n", more={"Retry-After": "1"})

    @asynccontextmanager
    async def _counted(self, method: str) -> AsyncIterator[None]:
        writes = method not in ("GET", "HEAD")
        if (self.writing >= WRITING_AT_ONCE) if writes else (self.reading >= READING_AT_ONCE):
            raise RefusedError(429, "too many requests, please try again later")
        self.writing, self.reading = self.writing + writes, self.reading + (not writes)
        try:
            yield
        finally:
            self.writing, self.reading = self.writing - writes, self.reading - (not writes)

    async def _authenticated(self, head: Head) -> Caller:
        kind, _, value = head.header("Authorization").partition(" ")
        if kind == "Basic":
            user, _, password = base64.b64decode(value).decode().partition(":")
            if user == "server" and hmac.compare_digest(password, self.secrets.server):
                return Caller(user, ("k3s:server",))
            if user == "node" and _is_one_of(password, (self.secrets.agent, self.secrets.server)):
                return Caller(user, ("k3s:agent",))
        if kind == "Bearer" and tokens.BOOTSTRAP.fullmatch(value):
            found = await asyncio.to_thread(bootstrap_tokens.find, self.admin, value, self.now())
            if found is not None:
                return Caller(f"system:bootstrap:{value[:6]}", found.groups)
        raise RefusedError(401, "Unauthorized")

    async def _pass_on(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand the connection to the API server: the rest of it is one request, which may be a stream."""
        caller = _certified(writer)
        context = ssl.create_default_context(
            cadata=self.credentials.authority("server-ca").certificate.decode()
        )
        more: dict[str, str | list[str]] = {"Connection": "Upgrade" if head.is_upgrade else "close"}
        if caller is not None:
            context.load_cert_chain(*self.credentials.files.pair("client-auth-proxy"))
            more |= {"X-Remote-User": caller.name, "X-Remote-Group": list(caller.groups)}
        try:
            behind, ahead = await asyncio.open_connection("127.0.0.1", API_PORT, ssl=context)
        except OSError:
            writer.write(http.answer(503, b"apiserver not ready\n", more={"Retry-After": "1"}))
            return
        ahead.write(head.rendered(more, IDENTITY_HEADERS))
        outward = asyncio.create_task(http.pump(behind, writer))
        inward = asyncio.create_task(http.pump(reader, ahead))
        await outward  # When the API server has said all, the connection is over.
        inward.cancel()
        ahead.close()


def _is_one_of(text: str, secrets: tuple[str, ...]) -> bool:
    return any(hmac.compare_digest(text, secret) for secret in secrets)


def _certified(writer: asyncio.StreamWriter) -> Caller | None:
    """Whom the client certificate names."""
    certificate = writer.get_extra_info("peercert")
    if not certificate:
        return None
    fields = [pair for rdn in certificate["subject"] for pair in rdn]
    name = next((value for key, value in fields if key == "commonName"), "")
    return Caller(name, tuple(value for key, value in fields if key == "organizationName"))


# What it answers.

Handler = Callable[[Supervisor, Head, bytes, Caller], Awaitable[bytes]]


async def _not_found(_self: Supervisor, head: Head, _body: bytes, _caller: Caller) -> bytes:
    raise RefusedError(404, f"404 page not found: {head.path}")


async def _authorities(self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    return self.credentials.authority("server-ca").certificate


async def _ping(_self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    return b"pong"


def for_agents(handler: Handler) -> Handler:
    async def checked(self: Supervisor, head: Head, body: bytes, caller: Caller) -> bytes:
        if not caller.is_agent:
            raise RefusedError(403, "Forbidden")
        return await handler(self, head, body, caller)

    return checked


async def _registered(self: Supervisor, head: Head, caller: Caller) -> str:
    """The node's name, once its password fits. Raises RefusedError."""
    node, password = head.header("k3s-Node-Name").lower(), head.header("k3s-Node-Password")
    if not node or not password:
        raise RefusedError(400, "node name and node password must be set")
    if NODES in caller.groups and caller.name != f"system:node:{node}":
        raise RefusedError(403, f"{caller.name} may not ask for certificates of {node}")
    try:
        if NODES in caller.groups:
            await asyncio.to_thread(self.admin.get, f"/api/v1/nodes/{node}")
        await asyncio.to_thread(passwords.ensure, self.admin, node, password)
    except passwords.NotStoredError as error:
        say(f"level=info msg={str(error)!r}")  # K3s lets the node pass, and tries to store it later.
    except passwords.PasswordRefusedError as refusal:
        say(f"level=error msg={str(refusal)!r}")
        raise RefusedError(403, str(refusal)) from refusal
    except ApiError as error:
        if error.status == 404:
            raise RefusedError(403, f"node {node} is not registered any more: join it again") from error
        raise
    return node


def _issued(
    self: Supervisor, authority: str, subject: Subject, body: bytes, names: tuple[str, ...] = ()
) -> bytes:
    """A certificate for the key of the request, or with a key of ours where there is no request; then the authority."""
    issuer = self.credentials.authority(authority)
    if body:
        return pki.sign(issuer, body, subject, self.now(), names=names) + issuer.certificate
    pair = pki.issue(issuer, subject, self.now(), names=names)
    return pair.certificate + issuer.certificate + pair.key


async def _kubelet_client(self: Supervisor, head: Head, body: bytes, caller: Caller) -> bytes:
    node = await _registered(self, head, caller)
    return _issued(self, "client-ca", Subject(f"system:node:{node}", (NODES,)), body)


async def _kubelet_server(self: Supervisor, head: Head, body: bytes, caller: Caller) -> bytes:
    node = await _registered(self, head, caller)
    addresses = [part for part in head.header("k3s-Node-IP").split(",") if part]
    return _issued(self, "server-ca", Subject(node), body, (node, "127.0.0.1", "localhost", *addresses))


async def _proxy_client(self: Supervisor, _head: Head, body: bytes, _caller: Caller) -> bytes:
    return _issued(self, "client-ca", Subject("system:kube-proxy"), body)


async def _controller_client(self: Supervisor, _head: Head, body: bytes, _caller: Caller) -> bytes:
    return _issued(self, "client-ca", Subject("system:k3s-controller"), body)


async def _client_authority(self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    return self.credentials.authority("client-ca").certificate


async def _servers(self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    return json.dumps(list(self.addresses)).encode()


async def _config(self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    settings = {"ClusterIPRange": self.ranges.pods, "ServiceIPRange": self.ranges.services}
    settings |= {"ClusterDomain": "cluster.local", "FlannelBackend": "vxlan"}
    return json.dumps({**settings, "DisableNPC": not self.enforces_policies}).encode()


async def _ready(self: Supervisor, _head: Head, _body: bytes, _caller: Caller) -> bytes:
    try:
        return await asyncio.to_thread(self.admin.send, "GET", "/readyz")
    except ApiError as error:
        raise RefusedError(503, "not ready") from error


def for_servers(handler: Handler) -> Handler:
    """What agents must not ask. No server asks it here, as there is one."""

    async def checked(self: Supervisor, head: Head, body: bytes, caller: Caller) -> bytes:
        if "k3s:server" not in caller.groups:
            raise RefusedError(403, "Forbidden")
        return await handler(self, head, body, caller)

    return checked


OPEN: Mapping[str, Handler] = {"/cacerts": _authorities, "/ping": _ping}
AGENTS: Mapping[str, Handler] = {
    path: for_agents(handler)
    for path, handler in {
        "client-kubelet.crt": _kubelet_client,
        "serving-kubelet.crt": _kubelet_server,
        "client-kube-proxy.crt": _proxy_client,
        "client-k3s-controller.crt": _controller_client,
        "client-ca.crt": _client_authority,
        "server-ca.crt": _authorities,
        "apiservers": _servers,
        "config": _config,
        "readyz": _ready,
    }.items()
} | {
    path: for_servers(_not_found)
    for path in ("token", "server-bootstrap", "cert/cacerts", "encrypt/status", "encrypt/config")
}
