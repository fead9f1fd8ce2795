"""Our messages against the official protos, and a machine's life over real gRPC."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from providers import rpc
from providers.base import (
    ListedState,
    MachineNotFound,
    OutcomeUnknown,
    PowerAction,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.emulators.clouds.nebius_account import PUBLIC_KEY_ID
from providers.emulators.grpc_server import GrpcServer
from providers.emulators.scenario import FaultKind
from providers.nebius import Nebius, connect
from providers.nebius_api import machines, methods
from providers.nebius_api import messages_pb2 as pb
from providers.rpc import Method
from tests.contract.clouds import a_key
from tests.contract.clouds.nebius import EmulatedNebius

OFFICIAL = json.loads((Path(__file__).parent / "schemas" / "nebius.json").read_text())
PACKAGE = re.compile(r"(google\.rpc|nebius\.\w+\.v\d+)\.")
SAME_NAME = {
    "InterfaceSecurityGroup": "nebius.compute.v1.SecurityGroup",
    "SecurityGroup": "nebius.vpc.v1.SecurityGroup",
}
"""Ours to the official name, where two official messages of different packages have the same one."""
TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_BOOL: "bool",
}


def official_name(name: str, section: str) -> str:
    """The official full name of our message or enum: ours behind the name of its package."""
    found = [each for each in OFFICIAL[section] if PACKAGE.sub("", each, count=1) == name]
    return SAME_NAME.get(name) or "".join(found)


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "map<string,string>"
    kind = field.message_type or field.enum_type
    word = TYPES[field.type] if kind is None else str(kind.name)
    word = SAME_NAME.get(word, word).split(".")[-1]
    return f"repeated {word}" if field.is_repeated else word


def messages(descriptor: Descriptor, prefix: str = "") -> Iterator[tuple[str, Descriptor]]:
    if not descriptor.GetOptions().map_entry:
        yield prefix + descriptor.name, descriptor
        for nested in descriptor.nested_types:
            yield from messages(nested, f"{prefix}{descriptor.name}.")


def enums() -> Iterator[tuple[str, EnumDescriptor]]:
    yield from pb.DESCRIPTOR.enum_types_by_name.items()
    for each in pb.DESCRIPTOR.message_types_by_name.values():
        for name, descriptor in messages(each):
            yield from ((f"{name}.{enum.name}", enum) for enum in descriptor.enum_types)


def called() -> list[Method[Any]]:
    return [each for each in vars(methods).values() if isinstance(each, Method)]


def test_every_field_of_ours_has_the_official_number_and_type() -> None:
    compared = 0
    for root in pb.DESCRIPTOR.message_types_by_name.values():
        for name, descriptor in messages(root):
            official = OFFICIAL["messages"][official_name(name, "messages")]
            for field in descriptor.fields:
                assert official.get(field.name) == [field.number, type_of(field)], (name, field.name)
                compared += 1
    assert compared > 150


def test_every_value_of_our_enums_is_official() -> None:
    for name, descriptor in enums():
        official = OFFICIAL["enums"][official_name(name, "enums")]
        assert {v.name: v.number for v in descriptor.values}.items() <= official.items(), name


def test_every_state_of_a_machine_is_official_and_has_a_meaning() -> None:
    states = OFFICIAL["enums"]["nebius.compute.v1.InstanceStatus.InstanceState"]
    assert machines.STATES.keys() == {
        word for state in states if state != "UNSPECIFIED" for word in (state, f"{state}/reconciling")
    }


def test_every_method_that_we_call_exists_at_the_address_that_we_call() -> None:
    assert len(called()) == 17
    for method in called():
        assert OFFICIAL["methods"][method.path][1] == method.answer.DESCRIPTOR.name
        service = method.path.split("/")[1]
        assert OFFICIAL["addresses"][service] == f"{method.host}.api.nebius.cloud:443"


async def test_every_call_of_a_machines_life_goes_to_the_documented_service_with_the_documented_request() -> (
    None
):
    cloud = EmulatedNebius()
    await cloud.provider.offers()
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(200.0)
    await cloud.provider.inventory()
    await cloud.provider.refused_later()
    await cloud.provider.planned_work()
    for action in (PowerAction.STOP, PowerAction.START):
        await cloud.provider.power(action, ref)
    await cloud.provider.terminate(ref)
    addresses = {method.path: method.host for method in called()}
    assert set(cloud.wire.paths) == addresses.keys()
    for host, path, request, _, answer in cloud.wire.calls:
        assert host == addresses[path]
        asked, answered = (getattr(pb, name) for name in OFFICIAL["methods"][path])
        for kind, body in ((asked, request), (answered, answer)):
            if body is not None:
                assert not list(unknown_fields(kind.FromString(body))), path


def unknown_fields(message: Any) -> Iterator[object]:
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415 - needed here only

    found: Any = UnknownFieldSet(message)
    yield from found
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                yield from unknown_fields(each)


@asynccontextmanager
async def served(server: GrpcServer) -> AsyncIterator[str]:
    """The emulator on a port of this host."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server.should_exit = False
    running = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:  # noqa: ASYNC110 - servers offer no event to wait for
            await asyncio.sleep(0)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await running


def over_grpc(cloud: EmulatedNebius, base_url: str, *, key: str = PUBLIC_KEY_ID) -> Nebius:
    return connect(cloud.settings(base_url=base_url, public_key_id=key), now=cloud.clock.now)


async def test_a_machines_life_over_real_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "CONNECT_SECONDS", 0.3)
    cloud = EmulatedNebius()
    async with served(cloud.server) as base_url:
        provider = over_grpc(cloud, base_url)
        assert len(await provider.offers()) == 6  # One of them left out.
        ref = await provider.launch(cloud.order())
        cloud.advance(200.0)
        (found,) = await provider.inventory()
        assert (found.provider_ref, found.state) == (ref, ListedState.RUNNING)
        assert found.address

        cloud.scenario.add("launch", FaultKind.CUT_AFTER)
        with pytest.raises(OutcomeUnknown):
            await provider.launch(cloud.order(2))
        assert cloud.ever(a_key(2)) == 1

        await provider.terminate(ref)
        cloud.advance(60.0)
        with pytest.raises(MachineNotFound) as refused:
            await provider.terminate(ref)
        assert refused.value.code == "NOT_FOUND/resource_not_found", "the details came with the status"
        stranger = over_grpc(cloud, base_url, key="publickey-revoked")
        with pytest.raises(Unauthorized):
            await stranger.inventory()
        await stranger.close()
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await provider.launch(cloud.order(3))
    await provider.close()


async def test_a_launch_during_which_the_account_is_disconnected_is_unknown_and_later_ones_are_not_sent() -> (
    None
):
    cloud = EmulatedNebius()
    arrived, hold = asyncio.Event(), asyncio.Event()

    async def wait(_: float) -> None:
        arrived.set()
        await hold.wait()

    async with served(cloud.server) as base_url:
        provider = over_grpc(cloud, base_url)
        await provider.launch(cloud.order())
        cloud.scenario.sleep, cloud.scenario.latency_seconds = wait, {"launch": 1.0}
        launching = asyncio.create_task(provider.launch(cloud.order(2)))
        await arrived.wait()
        await provider.close()
        with pytest.raises(OutcomeUnknown):
            await launching
        with pytest.raises(Unavailable):
            await provider.launch(cloud.order(3))
        hold.set()


async def test_a_call_that_its_caller_gives_up_ends_at_once() -> None:
    cloud = EmulatedNebius()
    hold = asyncio.Event()

    async def wait(_: float) -> None:
        await hold.wait()

    async with served(cloud.server) as base_url:
        provider = over_grpc(cloud, base_url)
        await provider.inventory()
        cloud.scenario.sleep, cloud.scenario.latency_seconds = wait, {"inventory": 1.0}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await provider.inventory()
        hold.set()
        await provider.close()


async def test_a_launch_for_which_there_is_no_connection_was_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "CONNECT_SECONDS", 0.2)
    cloud = EmulatedNebius()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    provider = over_grpc(cloud, f"http://127.0.0.1:{port}")
    with pytest.raises(Unavailable, match="no connection"):
        await provider.launch(cloud.order())
    await provider.close()


def test_the_emulator_prints_what_an_account_of_it_needs() -> None:
    from providers.emulators.clouds.nebius import create_server  # noqa: PLC0415 - makes a key of its own

    cloud = EmulatedNebius()
    note = create_server(cast("Any", None), cloud.scenario, now=cloud.clock.now).note
    path = Path(note.rpartition(" ")[2])
    try:
        settings = cloud.settings(private_key=path.read_text())
        assert settings.project_id in note
        assert path.stat().st_mode & 0o077 == 0
    finally:
        path.unlink()


async def test_too_many_calls_are_refused_until_the_minute_ends() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.inventory()
    limiter = cloud.server.cloud.limiter
    while limiter.allows():
        pass
    with pytest.raises(Throttled):
        await cloud.provider.inventory()
    cloud.advance(60.0)
    await cloud.provider.inventory()
