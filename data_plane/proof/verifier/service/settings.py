"""The settings of both sides of the verifier service, read once from the environment.

Both sides need certificates, unless SPLITPLANE_VERIFIER_PLAINTEXT=yes allows plaintext, which works on loopback or a
Unix socket only. `docs/generated/settings.md` lists all variables.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from data_plane.proof.verifier.jobs import CHECK_SECONDS_MAX
from data_plane.proof.verifier.service.codec import JOBS_MAX
from data_plane.proof.verifier.service.tls import TlsFiles
from environment import reading
from environment.reading import SettingsError, Variable

__all__ = ["ClientSettings", "ServerSettings", "SettingsError", "read_client", "read_server"]

UNIX = "unix:"
_ONE_FAMILY = ({ipaddress.IPv4Address}, {ipaddress.IPv6Address})
_CERTIFICATES = "required, unless plaintext"


def _address(value: str) -> str:
    if value.startswith(UNIX + "/"):
        return value
    host, _, port = value.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"is {value!r}; write host:port or unix:/path")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"is {value!r}; write an IPv6 address in brackets, as in [::1]:7443")
    return value


def _addresses(value: str) -> tuple[str, ...]:
    return tuple(_address(address.strip()) for address in value.split(",") if value)


def _metrics_listen(value: str) -> tuple[str, int]:
    host, port = _split(_address(value))
    if host is None:
        raise ValueError(f"is {value!r}; write host:port")
    return host, port


Address = Annotated[str, AfterValidator(_address)]
Plaintext = Annotated[
    bool,
    Variable("SPLITPLANE_VERIFIER_PLAINTEXT", "`yes` allows plaintext, on loopback or a Unix socket only"),
]


@dataclass(frozen=True, slots=True)
class ServerVariables:
    """The variables of the service."""

    workers: Annotated[
        int,
        Field(ge=1, le=1024),
        Variable("SPLITPLANE_VERIFIER_WORKERS", "processes that check; 60 MB each", "one per core"),
    ]
    listen: Annotated[
        Address, Variable("SPLITPLANE_VERIFIER_LISTEN", "`host:port` or `unix:/path` of the service")
    ] = "127.0.0.1:7443"
    metrics_listen: Annotated[
        tuple[str, int],
        BeforeValidator(reading.parsed(_metrics_listen)),
        Variable("SPLITPLANE_VERIFIER_METRICS_LISTEN", "host and port of `/metrics`"),
    ] = ("127.0.0.1", 9466)
    certificate: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_VERIFIER_CERTIFICATE",
            "PEM file: the service's certificate, with its chain",
            _CERTIFICATES,
        ),
    ] = None
    key: Annotated[
        Path | None,
        Variable("SPLITPLANE_VERIFIER_KEY", "PEM file: the key of that certificate", _CERTIFICATES),
    ] = None
    client_ca: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_VERIFIER_CLIENT_CA",
            "PEM file: the CA that signs the certificates of callers",
            _CERTIFICATES,
        ),
    ] = None
    # The queue must have room for a whole request, which would otherwise always be refused.
    queue_max: Annotated[
        int,
        Field(ge=JOBS_MAX, le=65_536),
        Variable("SPLITPLANE_VERIFIER_QUEUE", "jobs that may wait for a process; eight GPUs make 48"),
    ] = 512
    batch_seconds_max: Annotated[
        float,
        Field(ge=1, le=3600),
        Variable("SPLITPLANE_VERIFIER_BATCH_SECONDS", "time limit of a batch: four walks, or one other job"),
    ] = 150
    drain_seconds: Annotated[
        float,
        Field(ge=1, le=3600),
        Variable("SPLITPLANE_VERIFIER_DRAIN_SECONDS", "time limit of running calls after SIGTERM"),
    ] = 25
    plaintext: Plaintext = False


@dataclass(frozen=True, slots=True)
class ClientVariables:
    """The variables of its caller, the reconciler."""

    addresses: Annotated[
        tuple[str, ...],
        BeforeValidator(reading.parsed(_addresses)),
        Variable(
            "SPLITPLANE_VERIFIER_ADDRESS",
            "`host:port` with a name for all replicas, IP addresses with ports, or `unix:/path`",
            "jobs are checked in the caller's process",
        ),
    ] = ()
    name: Annotated[
        str | None,
        Variable(
            "SPLITPLANE_VERIFIER_NAME", "the name in the service's certificate", "the host of the address"
        ),
    ] = None
    ca: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_VERIFIER_CA", "PEM file: the CA that signs the service's certificate", _CERTIFICATES
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_VERIFIER_CALLER_CERTIFICATE",
            "PEM file: the caller's certificate, with its chain",
            _CERTIFICATES,
        ),
    ] = None
    key: Annotated[
        Path | None,
        Variable("SPLITPLANE_VERIFIER_CALLER_KEY", "PEM file: the key of that certificate", _CERTIFICATES),
    ] = None
    seconds: Annotated[
        float,
        Field(ge=1, le=CHECK_SECONDS_MAX),
        Variable(
            "SPLITPLANE_VERIFIER_SECONDS",
            "time limit of a check with its retries; after that no machine is judged",
        ),
    ] = 180
    plaintext: Plaintext = False


@dataclass(frozen=True, slots=True)
class ServerSettings:
    listen: str
    """In gRPC's syntax: `host:port` or `unix:/path`."""
    metrics_listen: tuple[str, int]
    tls: TlsFiles | None
    """None: plaintext, for development."""
    workers: int
    queue_max: int
    batch_seconds_max: float
    drain_seconds: float


@dataclass(frozen=True, slots=True)
class ClientSettings:
    addresses: tuple[str, ...]
    """One `host:port` or `unix:/path`, or several IP addresses with ports."""
    tls: TlsFiles | None
    """None: plaintext, for development."""
    name: str | None
    """The name in the service's certificate, if it is not the host of the address."""
    seconds: float


def read_server(environ: Mapping[str, str], *, cores: int) -> ServerSettings:
    """The service's settings. Raises SettingsError."""
    given = reading.read(ServerVariables, environ, workers=cores)
    return ServerSettings(
        listen=given.listen,
        metrics_listen=given.metrics_listen,
        tls=_tls(
            (given.listen,),
            plaintext=given.plaintext,
            files={
                "SPLITPLANE_VERIFIER_CERTIFICATE": given.certificate,
                "SPLITPLANE_VERIFIER_KEY": given.key,
                "SPLITPLANE_VERIFIER_CLIENT_CA": given.client_ca,
            },
        ),
        workers=given.workers,
        queue_max=given.queue_max,
        batch_seconds_max=given.batch_seconds_max,
        drain_seconds=given.drain_seconds,
    )


def read_client(environ: Mapping[str, str]) -> ClientSettings | None:
    """The caller's settings; None if jobs are checked in the caller's process. Raises SettingsError."""
    given = reading.read(ClientVariables, environ)
    if not given.addresses:
        return None
    hosts = [_split(address)[0] for address in given.addresses]
    if len(hosts) > 1 and {type(_ip(host)) for host in hosts} not in _ONE_FAMILY:
        raise SettingsError(
            "SPLITPLANE_VERIFIER_ADDRESS has several addresses, so each must be an IP address and a port,"
            " of one family; or give one name that stands for all replicas"
        )
    tls = _tls(
        given.addresses,
        plaintext=given.plaintext,
        files={
            "SPLITPLANE_VERIFIER_CALLER_CERTIFICATE": given.certificate,
            "SPLITPLANE_VERIFIER_CALLER_KEY": given.key,
            "SPLITPLANE_VERIFIER_CA": given.ca,
        },
    )
    if tls and given.name is None and (len(hosts) > 1 or hosts[0] is None):
        raise SettingsError(
            "SPLITPLANE_VERIFIER_NAME is not set: with several addresses, or a Unix socket,"
            " it says which name the service's certificate has"
        )
    return ClientSettings(addresses=given.addresses, tls=tls, name=given.name, seconds=given.seconds)


def _tls(addresses: tuple[str, ...], *, plaintext: bool, files: Mapping[str, Path | None]) -> TlsFiles | None:
    """`files` are the certificate, its key and the CA, by the names of their variables. None means plaintext."""
    if plaintext:
        if far := [address for address in addresses if not _is_local(_split(address)[0])]:
            certificate, key, ca = files
            raise SettingsError(
                f"SPLITPLANE_VERIFIER_PLAINTEXT is yes, and {', '.join(far)} is not on this machine:"
                f" use 127.0.0.1, [::1] or a Unix socket, or set {certificate}, {key} and {ca}"
            )
        return None
    paths = []
    for name, path in files.items():
        if path is None:
            raise SettingsError(
                f"{name} is not set: a PEM file. For development on one machine, set SPLITPLANE_VERIFIER_PLAINTEXT=yes"
            )
        paths.append(path)
    return TlsFiles(*paths)


def _split(address: str) -> tuple[str | None, int]:
    """The host and the port of an address. A Unix socket has no host."""
    if address.startswith(UNIX):
        return None, 0
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _ip(host: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host or "")
    except ValueError:
        return None


def _is_local(host: str | None) -> bool:
    """Whether a host is on this machine. A name is never local, because it may resolve to another address tomorrow."""
    ip = _ip(host)
    return host is None or (ip is not None and ip.is_loopback)
