"""Several replicas of the verifier behind one client, which distributes its calls and avoids replicas that stop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from os import kill

import grpc
import grpc.aio
import pytest

from data_plane.proof.verifier.jobs import Checked, Commitment, Job, TilesJob, VerifierAway
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.settings import ClientSettings
from tests.integration.data_plane.proof.verifier import odd_worker as odd
from tests.integration.data_plane.proof.verifier.conftest import Service, job, until

Serve = Callable[..., Awaitable[Service]]
JOBS = [job(odd.RIGHT)]


def client_of(*services: Service, seconds: float = 30) -> RemoteVerifier:
    return connect(ClientSettings(tuple(one.address for one in services), None, None, seconds))


def answered(service: Service) -> float:
    return service.figure("calls_total", status="ok")


async def test_calls_go_around_the_replicas(serve: Serve) -> None:
    one, other = await serve(), await serve()
    verifier = client_of(one, other)
    await verifier.check(JOBS)  # The first may find only one of them connected.

    async def both_answered() -> bool:
        await verifier.check(JOBS)
        return bool(answered(one) and answered(other))

    async with asyncio.timeout(20):
        while not await both_answered():
            pass
    before = answered(one), answered(other)
    for _ in range(10):
        await verifier.check(JOBS)
    assert (answered(one) - before[0], answered(other) - before[1]) == (5, 5)
    await verifier.close()


async def test_a_replica_that_drains_loses_no_call_and_gets_no_new_one(serve: Serve) -> None:
    one, other = await serve(), await serve()
    verifier = client_of(one, other)
    for _ in range(4):
        await verifier.check(JOBS)
    workers = one.server.pool.pids + other.server.pool.pids
    busy = [asyncio.create_task(verifier.check([job(odd.UNTIL_TOLD)])) for _ in range(2)]
    await one.running(1)
    await other.running(1)
    draining = asyncio.create_task(one.server.drain())
    in_the_middle = [asyncio.create_task(verifier.check(JOBS)) for _ in range(10)]
    for pid in workers:
        kill(pid, signal.SIGUSR1)
    assert [len(results) for results in await asyncio.gather(*busy, *in_the_middle)] == [1] * 12
    await draining
    before = answered(one)
    for _ in range(5):
        await verifier.check(JOBS)
    assert answered(one) == before
    await verifier.close()


def large() -> TilesJob:
    commitment = Commitment("int8", bytes(16), 1, 1, bytes(32), bytes(16), (0,), bytes(8 << 20))
    return TilesJob(commitment, "int8", 32, 1, (0,))


@pytest.mark.parametrize("more", [[], [large()]])
async def test_a_call_that_lost_its_worker_is_made_again_and_its_caller_does_not_notice(
    serve: Serve, more: list[Job]
) -> None:
    """However large it is: gRPC keeps 256 KiB of a call by itself, and cannot repeat a longer one."""
    service = await serve()
    (first,) = service.server.pool.pids
    checking = asyncio.create_task(service.verifier.check([job(odd.UNTIL_TOLD), *more]))
    await service.running(1)
    kill(first, signal.SIGKILL)
    await until(lambda: service.figure("calls_total", status="unavailable") == 1)
    await service.running(1)
    (second,) = service.server.pool.pids
    kill(second, signal.SIGUSR1)
    assert (await checking)[0].recomputed == odd.UNTIL_TOLD


async def test_a_call_that_a_server_drops_as_it_begins_to_end_is_made_again() -> None:
    asked = 0

    async def check(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 1:
            await context.abort(grpc.StatusCode.CANCELLED)
        return codec.write_response([Checked(None, "", 7, 0.0)])

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(codec.SERVICE, {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    verifier = connect(ClientSettings((f"127.0.0.1:{port}",), None, None, seconds=30))
    try:
        assert [one.recomputed for one in await verifier.check(JOBS)] == [7]
    finally:
        await verifier.close()
        await server.stop(None)
    assert asked == 2


async def test_a_verifier_that_is_nowhere_is_away_within_the_deadline() -> None:
    verifier = connect(ClientSettings(("127.0.0.1:1",), None, None, seconds=1))
    async with asyncio.timeout(5):
        with pytest.raises(VerifierAway):
            await verifier.check(JOBS)
    await verifier.close()


async def test_a_verifier_that_comes_back_is_found_again(serve: Serve) -> None:
    service = await serve()
    await service.verifier.check(JOBS)
    await service.server.drain()
    with pytest.raises(VerifierAway):
        await service.verifier.check(JOBS)
    await serve(listen=service.address)
    async with asyncio.timeout(20):
        while True:
            try:
                await service.verifier.check(JOBS)
            except VerifierAway:
                continue
            break
