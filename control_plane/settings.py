"""Settings of the API process and the admin commands, read once from the environment.

SPLITPLANE_DATABASE_URL        postgresql://... (required)
SPLITPLANE_LISTEN              host and port of the API (127.0.0.1:8080)
SPLITPLANE_METRICS_LISTEN      host and port of /metrics, which has a listener of its own (127.0.0.1:9090)
SPLITPLANE_REQUESTS_PER_SECOND requests per API key and process, on average (100)
SPLITPLANE_REQUESTS_BURST      requests per API key and process, at once (200)
SPLITPLANE_STREAMS_MAX         open event streams per process (200)
SPLITPLANE_DATABASE_CONNECTIONS connections for writes, and as many again for reads (10)
SPLITPLANE_LOG_LEVEL           debug, info, warning or error (info)
"""

from collections.abc import Mapping
from dataclasses import dataclass

FORBIDDEN_PREFIXES = ("PROVIDER_", "SPLITPLANE_SSH_KEY")
"""Prefixes of secrets that the public process must not hold. It refuses to start when it could read one."""
LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A variable is missing or invalid. The message names the variable and contains no secret."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str
    listen: Address = Address("127.0.0.1", 8080)
    metrics_listen: Address = Address("127.0.0.1", 9090)
    requests_per_second: float = 100.0
    requests_burst: int = 200
    streams_max: int = 200
    database_connections: int = 10
    log_level: str = "info"


def read(environment: Mapping[str, str]) -> Settings:
    url = environment.get("SPLITPLANE_DATABASE_URL", "")
    if not url:
        raise SettingsError("SPLITPLANE_DATABASE_URL is not set; it names the PostgreSQL database")
    level = environment.get("SPLITPLANE_LOG_LEVEL", "info").lower()
    if level not in LOG_LEVELS:
        raise SettingsError(f"SPLITPLANE_LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}")
    return Settings(
        database_url=url,
        listen=_address(environment, "SPLITPLANE_LISTEN", "127.0.0.1:8080"),
        metrics_listen=_address(environment, "SPLITPLANE_METRICS_LISTEN", "127.0.0.1:9090"),
        requests_per_second=float(_number(environment, "SPLITPLANE_REQUESTS_PER_SECOND", 100)),
        requests_burst=_number(environment, "SPLITPLANE_REQUESTS_BURST", 200),
        streams_max=_number(environment, "SPLITPLANE_STREAMS_MAX", 200),
        database_connections=_number(environment, "SPLITPLANE_DATABASE_CONNECTIONS", 10),
        log_level=level,
    )


def refuse_secrets(environment: Mapping[str, str]) -> None:
    """Raise SettingsError when the environment holds a secret that the public process must not be able to read."""
    found = sorted(name for name in environment if name.startswith(FORBIDDEN_PREFIXES))
    if found:
        raise SettingsError(
            f"{', '.join(found)}: the API process holds no provider key and no SSH key;"
            " give them to the reconciler only"
        )


def _address(environment: Mapping[str, str], name: str, default: str) -> Address:
    host, _, port = environment.get(name, default).rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{name} must be a host and a port, such as {default}")
    return Address(host.strip("[]"), int(port))


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 1_000_000 or len(text) > 9:
        raise SettingsError(f"{name} must be a whole number from 1 to 1000000")
    return int(text)
