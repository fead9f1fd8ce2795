"""The settings of both sides of the verifier service, read once from the environment.

The service:

SPLITPLANE_VERIFIER_LISTEN          host:port or unix:/path of the service (127.0.0.1:7443)
SPLITPLANE_VERIFIER_METRICS_LISTEN  host:port of /metrics (127.0.0.1:9466)
SPLITPLANE_VERIFIER_CERTIFICATE     PEM file: the service's certificate, with its chain
SPLITPLANE_VERIFIER_KEY             PEM file: the key of that certificate
SPLITPLANE_VERIFIER_CLIENT_CA       PEM file: the CA that signs the certificates of callers
SPLITPLANE_VERIFIER_WORKERS         how many processes check jobs (one per core)
SPLITPLANE_VERIFIER_QUEUE           how many jobs may wait for a process (512)
SPLITPLANE_VERIFIER_BATCH_SECONDS   the time limit of a batch: four walks, or one other job (150)
SPLITPLANE_VERIFIER_DRAIN_SECONDS   the time limit of the current calls after a signal to stop (25)

Its caller (the reconciler):

SPLITPLANE_VERIFIER_ADDRESS             host:port, where the host is a name for all replicas; or IP addresses
                                        with ports, separated by commas; or unix:/path. If unset, jobs are
                                        checked in the caller's process
SPLITPLANE_VERIFIER_NAME                the name in the service's certificate (the host of the address)
SPLITPLANE_VERIFIER_CA                  PEM file: the CA that signs the service's certificate
SPLITPLANE_VERIFIER_CALLER_CERTIFICATE  PEM file: the caller's certificate, with its chain
SPLITPLANE_VERIFIER_CALLER_KEY          PEM file: the key of that certificate
SPLITPLANE_VERIFIER_SECONDS             the time limit of a call with its retries; at most 200 (180)

Both: SPLITPLANE_VERIFIER_PLAINTEXT=yes allows plaintext, on loopback or a Unix socket only.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from data_plane.proof.verifier.jobs import CHECK_SECONDS_MAX
from data_plane.proof.verifier.service.codec import JOBS_MAX
from data_plane.proof.verifier.service.tls import TlsFiles

UNIX = "unix:"
_ONE_FAMILY = ({ipaddress.IPv4Address}, {ipaddress.IPv6Address})


class SettingsError(ValueError):
    """A variable is missing or invalid. The message names it and says what to set."""


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
    listen = _address(
        "SPLITPLANE_VERIFIER_LISTEN", environ.get("SPLITPLANE_VERIFIER_LISTEN") or "127.0.0.1:7443"
    )
    metrics = _address(
        "SPLITPLANE_VERIFIER_METRICS_LISTEN",
        environ.get("SPLITPLANE_VERIFIER_METRICS_LISTEN") or "127.0.0.1:9466",
    )
    host, port = _split(metrics)
    if host is None:
        raise SettingsError(f"SPLITPLANE_VERIFIER_METRICS_LISTEN is {metrics!r}; write host:port")
    return ServerSettings(
        listen=listen,
        metrics_listen=(host, port),
        tls=_tls(
            environ,
            (listen,),
            certificate="SPLITPLANE_VERIFIER_CERTIFICATE",
            key="SPLITPLANE_VERIFIER_KEY",
            ca="SPLITPLANE_VERIFIER_CLIENT_CA",
        ),
        workers=_whole(environ, "SPLITPLANE_VERIFIER_WORKERS", cores, 1, 1024),
        # The queue must have room for a whole request, which would otherwise always be refused.
        queue_max=_whole(environ, "SPLITPLANE_VERIFIER_QUEUE", 512, JOBS_MAX, 65_536),
        batch_seconds_max=_whole(environ, "SPLITPLANE_VERIFIER_BATCH_SECONDS", 150, 1, 3600),
        drain_seconds=_whole(environ, "SPLITPLANE_VERIFIER_DRAIN_SECONDS", 25, 1, 3600),
    )


def read_client(environ: Mapping[str, str]) -> ClientSettings | None:
    """The caller's settings; None if jobs are checked in the caller's process. Raises SettingsError."""
    text = environ.get("SPLITPLANE_VERIFIER_ADDRESS", "").strip()
    if not text:
        return None
    variable = "SPLITPLANE_VERIFIER_ADDRESS"
    addresses = tuple(_address(variable, one.strip()) for one in text.split(","))
    if len(addresses) > 1 and {type(_ip(_split(one)[0])) for one in addresses} not in _ONE_FAMILY:
        raise SettingsError(
            f"{variable} has several addresses, so each must be an IP address and a port, of one family;"
            " or give one name that stands for all replicas"
        )
    tls = _tls(
        environ,
        addresses,
        certificate="SPLITPLANE_VERIFIER_CALLER_CERTIFICATE",
        key="SPLITPLANE_VERIFIER_CALLER_KEY",
        ca="SPLITPLANE_VERIFIER_CA",
    )
    name = environ.get("SPLITPLANE_VERIFIER_NAME", "").strip() or None
    if tls and name is None and (len(addresses) > 1 or _split(addresses[0])[0] is None):
        raise SettingsError(
            "SPLITPLANE_VERIFIER_NAME is not set: with several addresses, or a Unix socket,"
            " it says which name the service's certificate has"
        )
    return ClientSettings(
        addresses=addresses,
        tls=tls,
        name=name,
        seconds=_whole(environ, "SPLITPLANE_VERIFIER_SECONDS", 180, 1, CHECK_SECONDS_MAX),
    )


def _tls(
    environ: Mapping[str, str], addresses: tuple[str, ...], *, certificate: str, key: str, ca: str
) -> TlsFiles | None:
    plaintext = environ.get("SPLITPLANE_VERIFIER_PLAINTEXT", "no").strip().lower()
    if plaintext not in ("yes", "no"):
        raise SettingsError(f"SPLITPLANE_VERIFIER_PLAINTEXT is {plaintext!r}; say yes or no")
    if plaintext == "yes":
        if far := [one for one in addresses if not _is_local(_split(one)[0])]:
            raise SettingsError(
                f"SPLITPLANE_VERIFIER_PLAINTEXT is yes, and {', '.join(far)} is not on this machine:"
                f" use 127.0.0.1, [::1] or a Unix socket, or set {certificate}, {key} and {ca}"
            )
        return None
    paths = []
    for name in (certificate, key, ca):
        value = environ.get(name, "").strip()
        if not value:
            raise SettingsError(
                f"{name} is not set: a PEM file. For development on one machine, set SPLITPLANE_VERIFIER_PLAINTEXT=yes"
            )
        paths.append(Path(value))
    return TlsFiles(*paths)


def _address(variable: str, value: str) -> str:
    if value.startswith(UNIX + "/"):
        return value
    host, _, port = value.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{variable} is {value!r}; write host:port or unix:/path")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise SettingsError(f"{variable} is {value!r}; write an IPv6 address in brackets, as in [::1]:7443")
    return value


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


def _whole(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name, "").strip() or str(default)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise SettingsError(f"{name} is {text!r}; write a whole number from {least} to {most}")
    return int(text)
