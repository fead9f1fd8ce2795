"""Kills one activation of a loop at a numbered point, as SIGKILL would.

Every call that leaves the process is two points: before it takes effect, and after its effect but before
its answer. Outside calls are the provider's verbs, the steps on a machine, the hub, posts to stores of samples, and every database
transaction (before its commit, which rolls it back, and after). Nothing of a killed activation runs
afterwards: whatever else it tries, in an `except`, a `finally` or a sibling task, is killed as well.

Calls go one at a time, in the order in which they were asked for, so that a call's number means the
same in every run. A call to the outside with a transaction open is an error: a slow provider would
hold locks that customers wait for.

    crash = Crash(at=3, when="after")
    assert await crash.kills(lambda world: loop.activate(world), stage.replica("doomed"))
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast
from uuid import UUID

from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.secret import KeyContext, MasterKey, Plain, WrappedKey
from control_plane.vault.sealing.port import NewDataKey
from control_plane.vault.unsealing.port import KeyManager
from data_plane.access.line import Line
from data_plane.access.port import Access, Session, Target
from data_plane.access.step import Answer as StepAnswer
from data_plane.access.step import Step
from data_plane.cluster.agents import AgentOrder, Agents, Cleaned, Prepared, Started
from data_plane.cluster.clusters import Clusters
from data_plane.cluster.port import Cluster, IssuedToken, KubernetesPort
from data_plane.cluster.resource import Object, Objects, Resource
from data_plane.cluster.servers import ServerIdentity, ServerOrder, Servers
from data_plane.heartbeats.collector.exchange import Holder, Known, Reports
from data_plane.heartbeats.port import ClusterServer, Collector
from data_plane.mesh.members import Members
from data_plane.mesh.port import Hub, HubIdentity, Network, OverlayPeer, OverlayPlace, Peer, ReadAuthorities
from data_plane.mesh.tunnels import Interface
from data_plane.proof.challenger.port import Challenger, Expected, Occasion, ProofReport
from providers.base import (
    Child,
    Ingress,
    LaunchOrder,
    Listed,
    PlannedWork,
    PowerAction,
    Provider,
    Sighting,
)
from providers.optional import ConsoleTicket, HasChildren, HasConsole, HasFirewall, HasPower, TellsPlannedWork
from reconciler.worlds.complete import CompleteWorld

Answer = TypeVar("Answer")
_IN_TRANSACTION = ContextVar("in_transaction", default=False)
"""Of this task, or of the one that made it."""


class Killed(BaseException):
    """The process was killed. No handler of ours may catch this."""


@dataclass
class Crash:
    """One activation, which is killed `when` it makes call number `at`, or never if that is None."""

    at: int | None = None
    when: Literal["before", "after"] = "after"
    calls: list[str] = field(default_factory=list[str])
    """What was asked of the outside, in order."""
    dead: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def into(self, world: CompleteWorld) -> CompleteWorld:
        """The same world, in which this activation will be killed."""
        return dataclasses.replace(
            world,
            db=cast("Database", _Database(self, world.db)),
            accounts={name: _Provider(self, provider) for name, provider in world.accounts.items()},
            access=cast("Access", _Access(self, world.access)),
            challenger=cast("Challenger", _Challenger(self, world.challenger)),
            hub=cast("Hub", _Hub(self, world.hub)),
            collector=_Collector(self, world.collector),
            servers=_Servers(self, world.servers),
            kubernetes=cast("Clusters", _Clusters(self, world.kubernetes)),
            agents=_Agents(self, world.agents),
            members=_Members(self, world.members),
            connect=lambda name, given: cast("Provider", _Provider(self, world.connect(name, given))),
            keys=None if world.keys is None else cast("KeyManager", _KeyManager(self, world.keys)),
            post=lambda *given: self.call("post", lambda: world.post(*given)),
        )

    async def kills(
        self, activate: Callable[[CompleteWorld], Awaitable[object]], world: CompleteWorld
    ) -> bool:
        """Run one activation. Returns whether it was killed; any other error is raised."""
        try:
            await activate(self.into(world))
        except Killed:
            return True
        except BaseExceptionGroup as group:
            _, others = group.split(Killed)
            if others is not None:
                raise others from None
            return True
        if self.dead:
            raise AssertionError(f"something survived its death {self.when} {self.calls[-1]}")
        return False

    def reach(self, when: Literal["before", "after"], call: str) -> None:
        self.live()
        if when == "before":
            self.calls.append(call)
        if when == self.when and len(self.calls) == self.at:
            self.dead = True
            raise Killed(f"{when} {call}")

    def live(self) -> None:
        if self.dead:
            raise Killed("dead already")

    async def call(self, name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        self.live()
        if _IN_TRANSACTION.get():
            raise AssertionError(f"{name} is called while a transaction is open")
        async with self._turn:
            self.reach("before", name)
            try:
                answer = await ask()
            except Exception:
                self.reach("after", name)
                raise
            self.reach("after", name)
            return answer

    @asynccontextmanager
    async def transaction(self, database: Database, tenant: UUID | None) -> AsyncIterator[Connection]:
        self.live()
        async with self._turn:
            self.live()
            token = _IN_TRANSACTION.set(True)
            try:
                async with database.transaction(tenant) as connection:
                    yield connection
                    self.reach("before", "commit")
                self.reach("after", "commit")
            finally:
                _IN_TRANSACTION.reset(token)

    @asynccontextmanager
    async def statement(self, database: Database) -> AsyncIterator[Connection]:
        self.live()
        async with self._turn:
            self.reach("before", "statement")
            async with database.statement() as connection:
                yield connection
            self.reach("after", "statement")

    @asynccontextmanager
    async def reading(self, database: Database, tenant: UUID | None) -> AsyncIterator[Connection]:
        self.live()
        async with self._turn, database.reading(tenant) as connection:
            self.live()
            yield connection


@dataclass
class _Database:
    crash: Crash
    inner: Database

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.crash.transaction(self.inner, tenant) as connection:
            yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        async with self.crash.statement(self.inner) as connection:
            yield connection

    @asynccontextmanager
    async def reading(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.crash.reading(self.inner, tenant) as connection:
            yield connection


class _Provider:
    def __init__(self, crash: Crash, inner: Provider) -> None:
        self.crash = crash
        self.inner = inner
        self.capabilities = inner.capabilities

    async def offers(self) -> tuple[Listed, ...]:
        return await self.crash.call("offers", self.inner.offers)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        return await self.crash.call("launch", lambda: self.inner.launch(order))

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self.crash.call("inventory", self.inner.inventory)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        await self.crash.call("terminate", lambda: self.inner.terminate(provider_ref))

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        inner = self.inner
        assert isinstance(inner, HasPower)
        await self.crash.call(f"{action}", lambda: inner.power(action, provider_ref))

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        inner = self.inner
        assert isinstance(inner, HasFirewall)
        return await self.crash.call(
            "apply ingress", lambda: inner.apply_ingress(provider_ref, launch_key, wanted)
        )

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str | ConsoleTicket:
        inner = self.inner
        assert isinstance(inner, HasConsole)
        return await self.crash.call("console", lambda: inner.console(provider_ref, ticket))

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        inner = self.inner
        assert isinstance(inner, TellsPlannedWork)
        return await self.crash.call("planned work", inner.planned_work)

    async def children(self) -> tuple[Child, ...]:
        return await self.crash.call("children", self._with_children.children)

    async def delete_child(self, child: Child) -> None:
        await self.crash.call("delete child", lambda: self._with_children.delete_child(child))

    @property
    def _with_children(self) -> HasChildren:
        assert isinstance(self.inner, HasChildren)
        return self.inner

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class _KeyManager:
    crash: Crash
    inner: KeyManager

    @property
    def master(self) -> MasterKey:
        return self.inner.master

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        return await self.crash.call("make data key", lambda: self.inner.make_data_key(context, master))

    async def unwrap(self, key: WrappedKey) -> Plain:
        return await self.crash.call("unwrap", lambda: self.inner.unwrap(key))

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        return await self.crash.call("rewrap", lambda: self.inner.rewrap(key, master))


@dataclass
class _Hub:
    crash: Crash
    inner: Hub

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        return await self.crash.call("hub sync", lambda: self.inner.sync(network, peers, fence=fence))

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        await self.crash.call("hub drop", lambda: self.inner.drop(network, fence=fence))

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        return await self.crash.call("hub trust", lambda: self.inner.trust(read))


@dataclass
class _Collector:
    crash: Crash
    inner: Collector

    async def exchange(
        self, known: Sequence[Known], server: ClusterServer | None = None, holders: Sequence[Holder] = ()
    ) -> Reports:
        return await self.crash.call(
            "exchange heartbeats", lambda: self.inner.exchange(known, server, holders)
        )


@dataclass
class _Servers:
    crash: Crash
    inner: Servers

    async def install(self, order: ServerOrder) -> ServerIdentity:
        return await self.crash.call("install server", lambda: self.inner.install(order))

    async def dismantle(self, host: Target, *, fence: int) -> None:
        await self.crash.call("dismantle server", lambda: self.inner.dismantle(host, fence=fence))


@dataclass
class _Agents:
    crash: Crash
    inner: Agents

    async def prepare(self, machine: Target) -> Prepared:
        return await self.crash.call("prepare", lambda: self.inner.prepare(machine))

    async def start(self, order: AgentOrder) -> Started:
        return await self.crash.call("start", lambda: self.inner.start(order))

    async def drop_token(self, machine: Target) -> None:
        await self.crash.call("drop token", lambda: self.inner.drop_token(machine))

    async def stop(self, machine: Target) -> None:
        await self.crash.call("stop", lambda: self.inner.stop(machine))

    async def clean(self, machine: Target) -> Cleaned:
        return await self.crash.call("clean", lambda: self.inner.clean(machine))


@dataclass
class _Members:
    crash: Crash
    inner: Members

    async def make_key(self, member: Target) -> str:
        return await self.crash.call("make key", lambda: self.inner.make_key(member))

    async def apply(
        self, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer], *, fence: int | None = None
    ) -> Interface:
        return await self.crash.call(
            "apply peers", lambda: self.inner.apply(member, place, peers, fence=fence)
        )

    async def read(self, member: Target) -> Interface:
        return await self.crash.call("read peers", lambda: self.inner.read(member))

    async def probe(self, member: Target, address: str) -> int | None:
        return await self.crash.call("probe", lambda: self.inner.probe(member, address))

    async def hears(self, member: Target, server: Target) -> bool:
        return await self.crash.call("hears", lambda: self.inner.hears(member, server))

    async def make_next_key(self, member: Target, *, fresh: bool = False) -> str:
        return await self.crash.call("make next key", lambda: self.inner.make_next_key(member, fresh=fresh))

    async def switch_key(self, member: Target, key: str) -> None:
        await self.crash.call("switch key", lambda: self.inner.switch_key(member, key))


@dataclass
class _Clusters:
    crash: Crash
    inner: Clusters

    @asynccontextmanager
    async def connect(self, cluster: Cluster) -> AsyncIterator["_Kubernetes"]:
        async with self.inner.connect(cluster) as port:
            yield _Kubernetes(self.crash, port)


@dataclass
class _Kubernetes:
    """Without `watch`, which no loop uses: each activation looks anew."""

    crash: Crash
    inner: KubernetesPort

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return await self.crash.call(
            f"get {resource.kind}", lambda: self.inner.get(resource, name, namespace)
        )

    async def list(
        self, resource: Resource, namespace: str | None = None, **selectors: Mapping[str, str] | None
    ) -> Objects:
        return await self.crash.call(
            f"list {resource.kind}", lambda: self.inner.list(resource, namespace, **selectors)
        )

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:
        return await self.crash.call(
            f"apply {intent['kind']}", lambda: self.inner.apply(intent, take_over=take_over)
        )

    async def apply_status(self, intent: Object) -> Object:
        return await self.crash.call(
            f"apply status of {intent['kind']}", lambda: self.inner.apply_status(intent)
        )

    async def patch(
        self, resource: Resource, name: str, change: Object, namespace: str | None = None
    ) -> Object:
        return await self.crash.call(
            f"patch {resource.kind}", lambda: self.inner.patch(resource, name, change, namespace)
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        await self.crash.call(
            f"delete {resource.kind}",
            lambda: self.inner.delete(resource, name, namespace, uid=uid, grace_s=grace_s),
        )

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        await self.crash.call("evict", lambda: self.inner.evict(pod, namespace, uid=uid))

    async def request_token(self, service_account: str, namespace: str, *, life_s: int) -> IssuedToken:
        return await self.crash.call(
            "request token", lambda: self.inner.request_token(service_account, namespace, life_s=life_s)
        )


@dataclass
class _Access:
    crash: Crash
    inner: Access

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator["_Session"]:
        connection = self.inner.connect(target)
        session = await self.crash.call("connect", connection.__aenter__)
        try:
            yield _Session(self.crash, session)
        finally:
            await connection.__aexit__(None, None, None)


@dataclass
class _Session:
    crash: Crash
    inner: Session

    async def run(
        self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> StepAnswer:
        return await self.crash.call(
            step.name, lambda: self.inner.run(step, arguments, stdin=stdin, private=private)
        )

    @asynccontextmanager
    async def converse(self, step: Step, arguments: Sequence[str] = ()) -> AsyncIterator[Line]:
        conversation = self.inner.converse(step, arguments)
        line = await self.crash.call(step.name, conversation.__aenter__)
        try:
            yield line
        finally:
            await conversation.__aexit__(None, None, None)


@dataclass
class _Challenger:
    crash: Crash
    inner: Challenger

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        return await self.crash.call("challenge", lambda: self.inner.challenge(line, expected, occasion))
