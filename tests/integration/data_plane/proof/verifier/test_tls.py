"""Who may call the verifier, and which server a caller accepts as it: mutual TLS with certificates of a small CA."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
import structlog

from data_plane.proof.verifier.jobs import VerifierAway
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service.client import connect
from data_plane.proof.verifier.service.settings import ClientSettings
from data_plane.proof.verifier.service.tls import CertificateFiles, CertificatesError, TlsFiles
from tests.integration.data_plane.proof.verifier import odd_worker as odd
from tests.integration.data_plane.proof.verifier.conftest import Service, job
from tests.support.authority import Authority, Issued, write

NAME = "verifier.test"
JOBS = [job(odd.RIGHT)]
Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
def authority() -> Authority:
    return Authority("ours")


@pytest.fixture
def server_files(tmp_path: Path, authority: Authority) -> TlsFiles:
    return write(tmp_path / "server", authority.issue(NAME), authority)


@pytest.fixture
def client_files(tmp_path: Path, authority: Authority) -> TlsFiles:
    return write(tmp_path / "client", authority.issue("reconciler"), authority)


def caller(files: TlsFiles, name: str = NAME) -> ClientSettings:
    return ClientSettings((), tls=files, name=name, seconds=20)


async def test_a_caller_with_a_certificate_of_the_ca_is_served_and_named_in_the_log(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles
) -> None:
    service = await serve(tls=server_files, client=caller(client_files))
    with structlog.testing.capture_logs() as lines:
        assert len(await service.verifier.check(JOBS)) == 1
    assert [line["caller"] for line in lines if line["event"] == "call"] == ["reconciler"]
    assert service.figure("calls_total", status="ok") == 1


def test_a_key_that_other_users_may_read_is_refused_at_the_start_and_at_a_renewal(
    server_files: TlsFiles,
) -> None:
    files = CertificateFiles(server_files)
    server_files.key.chmod(0o644)
    with structlog.testing.capture_logs() as lines:
        assert not files.changed()
    assert [line["event"] for line in lines] == ["certificates_not_usable"]
    with pytest.raises(CertificatesError, match=f"chmod 600 {server_files.key}"):
        CertificateFiles(server_files)


async def refused(service: Service, client: ClientSettings) -> None:
    verifier = connect(ClientSettings((service.address,), client.tls, client.name, seconds=20))
    with pytest.raises(VerifierAway, match="UNAVAILABLE"):
        await verifier.check(JOBS)
    await verifier.close()
    assert service.figure("call_seconds_count") == 0


async def test_a_caller_without_a_certificate_is_refused(
    serve: Serve, server_files: TlsFiles, authority: Authority
) -> None:
    service = await serve(tls=server_files, client=None)
    options = (("grpc.ssl_target_name_override", NAME),)
    nameless = grpc.ssl_channel_credentials(authority.certificate)
    channels = (
        grpc.aio.secure_channel(service.address, nameless, options=options),
        grpc.aio.insecure_channel(service.address),
    )
    for channel in channels:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(codec.CHECK)
        with pytest.raises(grpc.aio.AioRpcError) as away:
            await call(b"", timeout=20)
        assert away.value.code() is grpc.StatusCode.UNAVAILABLE
        await channel.close()
    assert service.figure("call_seconds_count") == 0


def _by_another(authority: Authority) -> Issued:
    return Authority("ours").issue("reconciler")  # Of the same name: what counts is the signature.


def _expired(authority: Authority) -> Issued:
    return authority.issue("reconciler", ends_in=-timedelta(minutes=1))


@pytest.mark.parametrize("issue", [_by_another, _expired])
async def test_a_caller_with_a_wrong_certificate_is_refused(
    serve: Serve,
    server_files: TlsFiles,
    authority: Authority,
    tmp_path: Path,
    issue: Callable[[Authority], Issued],
) -> None:
    service = await serve(tls=server_files)
    await refused(service, caller(write(tmp_path / "wrong", issue(authority), authority)))


async def test_a_server_with_another_name_or_of_another_ca_is_refused_by_the_client(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles, authority: Authority, tmp_path: Path
) -> None:
    service = await serve(tls=server_files)
    await refused(service, caller(client_files, name="other.test"))
    other = Authority("another")
    await refused(service, caller(write(tmp_path / "trusts_another", authority.issue("reconciler"), other)))


async def test_new_certificates_on_both_sides_are_used_without_a_restart(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles
) -> None:
    service = await serve(tls=server_files, client=caller(client_files))
    await service.verifier.check(JOBS)
    renewed = Authority("renewed")
    write(server_files.certificate.parent, renewed.issue(NAME), renewed)
    late = connect(ClientSettings((service.address,), client_files, NAME, seconds=20))
    with pytest.raises(VerifierAway, match="UNAVAILABLE"):
        await late.check(JOBS)
    await service.verifier.check(JOBS)  # Its connection is from before.
    write(client_files.certificate.parent, renewed.issue("reconciler"), renewed)
    await late.check(JOBS)
    await service.verifier.check(JOBS)
    await late.close()


async def test_certificates_that_change_between_two_requests_of_a_check_do_not_end_it(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles, authority: Authority
) -> None:
    service = await serve(tls=server_files, client=caller(client_files), workers=2)
    two_requests = [job(odd.UNTIL_TOLD)] + [job(odd.RIGHT)] * codec.JOBS_MAX
    checking = asyncio.create_task(service.verifier.check(two_requests))
    await service.running(1)
    write(client_files.certificate.parent, authority.issue("renewed"), authority)
    with structlog.testing.capture_logs() as lines:
        await service.verifier.check(JOBS)
        for pid in service.server.pool.pids:
            os.kill(pid, signal.SIGUSR1)
        assert len(await checking) == len(two_requests)
    assert [line["caller"] for line in lines if line["event"] == "call"] == [
        "renewed",
        "reconciler",
        "renewed",
    ]


async def test_a_check_after_the_client_was_closed_finds_the_verifier_away(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles
) -> None:
    service = await serve(tls=server_files)
    verifier = connect(ClientSettings((service.address,), client_files, NAME, seconds=20))
    await verifier.close()
    with pytest.raises(VerifierAway, match="closed"):
        await verifier.check(JOBS)


async def test_in_the_middle_of_a_renewal_the_last_good_certificate_stays(
    serve: Serve, server_files: TlsFiles, client_files: TlsFiles, authority: Authority
) -> None:
    service = await serve(tls=server_files)
    half = authority.issue(NAME)
    server_files.certificate.write_bytes(half.certificate)
    verifier = connect(ClientSettings((service.address,), client_files, NAME, seconds=20))
    with structlog.testing.capture_logs() as lines:
        await verifier.check(JOBS)
    await verifier.close()
    assert {line["event"] for line in lines} == {"certificates_not_usable", "call"}
    server_files.key.write_bytes(half.key)
    verifier = connect(ClientSettings((service.address,), client_files, NAME, seconds=20))
    with structlog.testing.capture_logs() as lines:
        await verifier.check(JOBS)
    await verifier.close()
    assert "certificates_changed" in {line["event"] for line in lines}


def test_files_that_do_not_fit_are_named_and_never_shown(
    tmp_path: Path, authority: Authority, server_files: TlsFiles
) -> None:
    other = write(tmp_path / "other", authority.issue(NAME), authority)
    missing = tmp_path / "missing.pem"
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("planted-7f3a")
    good = server_files
    for files, named in (
        (TlsFiles(missing, good.key, good.ca), missing),
        (TlsFiles(good.certificate, other.key, good.ca), other.key),
        (TlsFiles(good.certificate, nonsense, good.ca), nonsense),
        (TlsFiles(good.certificate, good.key, nonsense), nonsense),
    ):
        with pytest.raises(CertificatesError, match=str(named)) as unusable:
            CertificateFiles(files)
        assert "planted" not in str(unusable.value)
