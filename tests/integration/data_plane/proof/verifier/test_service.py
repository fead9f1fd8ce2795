"""The verifier service as a caller sees it: what it answers, refuses and stops, and how it shuts down."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from data_plane.proof.verifier.jobs import (
    COST_MAX,
    Checked,
    Commitment,
    Fault,
    JobTooLarge,
    VerifierAway,
    WalkJob,
)
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service import verifier_pb2 as pb
from tests.integration.data_plane.proof.verifier import odd_worker as odd
from tests.integration.data_plane.proof.verifier.conftest import Service, job, until

Serve = Callable[..., Awaitable[Service]]


async def ask(service: Service, content: bytes, seconds: float = 30) -> bytes:
    """What a caller that is not our client may send."""
    options = (("grpc.max_send_message_length", -1),)
    async with grpc.aio.insecure_channel(service.address, options=options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(codec.CHECK)
        return await call(content, timeout=seconds)


async def status_of(service: Service, content: bytes) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(service, content)
    return refused.value.code(), refused.value.details() or ""


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def expensive() -> WalkJob:
    commitment = Commitment("walk", bytes(16), 4096, 4096, bytes(32), bytes(16), (0,), bytes(8 * 4096))
    walk = WalkJob(commitment, bytes(32), 1024, 1 << 20, 8192, tuple(range(64)))
    assert walk.cost > COST_MAX
    return walk


async def test_results_come_in_the_order_of_the_jobs(serve: Serve) -> None:
    service = await serve(workers=2)
    behaviours = [odd.RIGHT, odd.WRONG, odd.RIGHT, odd.WRONG]
    results = await service.verifier.check([job(one) for one in behaviours])
    right = Checked(None, "", odd.RIGHT, 0.5)
    wrong = Checked(Fault.DIGEST, "not what it should be", 1, 0.25)
    assert results == [right, wrong, right, wrong]
    assert await service.verifier.check([]) == []


async def test_more_jobs_than_a_request_holds_are_sent_as_several(serve: Serve) -> None:
    service = await serve()
    results = await service.verifier.check([job(odd.RIGHT)] * (codec.JOBS_MAX + 1))
    assert len(results) == codec.JOBS_MAX + 1
    assert service.figure("calls_total", status="ok") == 2


async def test_jobs_are_counted_by_kind_and_result(serve: Serve) -> None:
    service = await serve()
    await service.verifier.check([job(odd.RIGHT), job(odd.RIGHT), job(odd.WRONG)])
    assert service.figure("jobs_total", kind="launch", result="right") == 2
    assert service.figure("jobs_total", kind="launch", result="digest") == 1
    assert service.figure("cpu_seconds_total", kind="launch") == 1.25
    assert service.figure("queue_seconds_count") == 3


@pytest.mark.parametrize("behaviour", [odd.DIE, odd.ANSWER_PART])
async def test_a_worker_that_dies_costs_its_call_and_nobody_else(serve: Serve, behaviour: int) -> None:
    service = await serve()
    request = codec.write_request([job(behaviour)])
    assert (await status_of(service, request))[0] is grpc.StatusCode.UNAVAILABLE
    assert (await service.verifier.check([job(odd.RIGHT)]))[0].fault is None
    assert service.figure("worker_restarts_total", why="crashed") == 1


async def test_a_worker_that_is_killed_in_the_middle_of_a_job_is_replaced_and_the_call_made_again(
    serve: Serve,
) -> None:
    service = await serve()
    (first,) = service.server.pool.pids
    checking = asyncio.create_task(service.verifier.check([job(odd.HANG)]))
    await service.running(1)
    os.kill(first, signal.SIGKILL)
    await until(lambda: service.figure("worker_restarts_total", why="crashed") == 1)
    await service.running(1)
    assert first not in service.server.pool.pids
    checking.cancel()


async def test_a_worker_that_was_killed_while_idle_costs_no_call(serve: Serve) -> None:
    service = await serve()
    (first,) = service.server.pool.pids
    os.kill(first, signal.SIGKILL)
    await until(lambda: not is_alive(first))
    await service.verifier.check([job(odd.RIGHT)])
    assert service.figure("calls_total", status="ok") == 1
    assert service.figure("calls_total", status="unavailable") == 0


async def test_a_job_that_hangs_is_stopped_for_good_and_the_others_go_on(serve: Serve) -> None:
    service = await serve(workers=2, batch_seconds_max=1)
    pids = set(service.server.pool.pids)
    hanging = asyncio.create_task(service.verifier.check([job(odd.HANG)]))
    await service.running(1)
    await service.verifier.check([job(odd.RIGHT)] * 8)
    with pytest.raises(VerifierAway, match="stopped after 1 s"):
        await hanging
    await until(lambda: len(pids & set(service.server.pool.pids)) == 1)
    (gone,) = pids - set(service.server.pool.pids)
    assert not is_alive(gone)
    await service.verifier.check([job(odd.RIGHT)] * 8)
    assert service.figure("worker_restarts_total", why="out_of_time") == 1


async def test_the_deadline_of_the_caller_stops_what_runs(serve: Serve) -> None:
    service = await serve(seconds=1)
    with pytest.raises(VerifierAway, match="DEADLINE_EXCEEDED"):
        await service.verifier.check([job(odd.HANG)])
    await until(lambda: service.figure("worker_restarts_total", why="caller_gone") == 1)
    assert (await service.verifier.check([job(odd.RIGHT)]))[0].fault is None


async def test_a_job_whose_caller_went_while_it_waited_is_never_begun(serve: Serve) -> None:
    service = await serve()
    running = asyncio.create_task(service.verifier.check([job(odd.HANG)]))
    await service.running(1)
    waiting = asyncio.create_task(service.verifier.check([job(odd.DIE)] * 3))
    await until(lambda: service.figure("queued_jobs") == 3)
    waiting.cancel()
    await until(lambda: service.figure("queued_jobs") == 0)
    running.cancel()
    await service.running(0)
    await service.verifier.check([job(odd.RIGHT)])
    assert service.figure("worker_restarts_total", why="caller_gone") == 1
    assert service.figure("worker_restarts_total", why="crashed") == 0


async def test_when_one_job_of_a_call_fails_the_rest_is_stopped(serve: Serve) -> None:
    service = await serve(workers=2)
    with pytest.raises(VerifierAway, match="INTERNAL"):
        await service.verifier.check([job(odd.HANG), job(odd.RAISE), job(odd.DIE)])
    await service.running(0)
    await until(lambda: service.figure("queued_jobs") == 0)
    assert (await service.verifier.check([job(odd.RIGHT)]))[0].fault is None


async def test_what_goes_beyond_the_queue_is_refused_at_once(serve: Serve) -> None:
    service = await serve()
    running = asyncio.create_task(service.verifier.check([job(odd.HANG)]))
    await service.running(1)
    waiting = asyncio.create_task(service.verifier.check([job(odd.RIGHT)] * codec.JOBS_MAX))
    await until(lambda: service.figure("queued_jobs") == codec.JOBS_MAX)
    with pytest.raises(VerifierAway, match="RESOURCE_EXHAUSTED"):
        await service.verifier.check([job(odd.RIGHT)])
    assert service.figure("calls_total", status="resource_exhausted") == 1
    running.cancel()
    assert len(await waiting) == codec.JOBS_MAX
    assert service.figure("queued_jobs") == 0


async def test_a_job_that_costs_too_much_is_refused_before_anything_is_computed(serve: Serve) -> None:
    service = await serve()
    with pytest.raises(JobTooLarge):
        await service.verifier.check([expensive()])
    assert service.figure("call_seconds_count") == 0, "the client knows by itself"
    request = codec.write_request([expensive()])
    code, why = await status_of(service, request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "jobs[0] costs" in why
    assert service.figure("queue_seconds_count") == 0


async def test_a_job_that_needs_more_memory_than_a_worker_has_is_too_large(serve: Serve) -> None:
    service = await serve()
    with pytest.raises(JobTooLarge, match="GiB"):
        await service.verifier.check([job(odd.MEMORY)])


async def test_a_request_longer_than_any_may_be_is_refused_by_its_length(serve: Serve) -> None:
    service = await serve()
    code, _ = await status_of(service, bytes(codec.REQUEST_BYTES_MAX + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert service.figure("call_seconds_count") == 0


async def test_what_is_not_a_request_is_refused_by_the_name_of_the_field(serve: Serve) -> None:
    service = await serve()
    for content, field in (
        (b"", "jobs"),
        (b"\xff\xff", "request"),
        (pb.CheckRequest(jobs=[pb.Job()]).SerializeToString(), r"jobs[0].kind"),
    ):
        code, why = await status_of(service, content)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert why.startswith(field)


async def test_a_worker_inherits_nothing_and_computes_on_one_thread(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "7f3a")
    service = await serve()
    (checked,) = await service.verifier.check([job(odd.ENVIRONMENT)])
    assert "OPENBLAS_NUM_THREADS" in checked.why
    assert "PLANTED" not in checked.why


async def test_a_fault_of_ours_is_internal_and_repeats_no_value(serve: Serve) -> None:
    service = await serve()
    with structlog.testing.capture_logs() as lines, pytest.raises(VerifierAway) as away:
        await service.verifier.check([job(odd.RAISE)])
    assert "ZeroDivisionError" in str(away.value)
    assert "planted" not in str(away.value) + str(lines)


async def test_what_a_library_prints_is_no_answer(serve: Serve) -> None:
    service = await serve()
    (checked,) = await service.verifier.check([job(odd.PRINT)])
    assert checked.recomputed == odd.PRINT


async def test_a_service_that_drains_says_so_and_finishes_what_it_began(serve: Serve) -> None:
    service = await serve()
    (worker,) = service.server.pool.pids
    async with grpc.aio.insecure_channel(service.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=codec.SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        checking = asyncio.create_task(service.verifier.check([job(odd.UNTIL_TOLD)]))
        await service.running(1)
        draining = asyncio.create_task(service.server.drain())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(VerifierAway):
            await service.verifier.check([job(odd.RIGHT)])
        assert not draining.done()
        os.kill(worker, signal.SIGUSR1)
        assert (await checking)[0].recomputed == odd.UNTIL_TOLD
        async with asyncio.timeout(10):  # And not the 20 seconds that it might take: somebody still watches.
            await draining
    assert service.server.pool.pids == ()


async def test_a_service_that_drains_waits_no_longer_than_its_bound(serve: Serve) -> None:
    service = await serve(drain_seconds=1)
    (worker,) = service.server.pool.pids
    request = codec.write_request([job(odd.HANG)])
    checking = asyncio.create_task(status_of(service, request))
    await service.running(1)
    await service.server.drain()
    assert (await checking)[0] is grpc.StatusCode.UNAVAILABLE
    assert not is_alive(worker)
    assert service.server.pool.pids == ()
