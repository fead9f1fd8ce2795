"""The reconciler's settings, read once from the environment. No other file of the reconciler reads it."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from control_plane.domain.ids import AccountName
from data_plane.proof.verifier.service.settings import ClientSettings, read_client


class SettingsError(ValueError):
    """A variable is missing or invalid. The message names it and says what to set."""


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Where the mesh hub is, and its SSH host key."""

    address: str
    ssh_port: int
    host_key: str
    outside: str | None
    """The address at which machines reach the hub, when it differs from `address`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of every reconciler process."""

    database_url: str
    metrics_listen: tuple[str, int]
    replica: str


@dataclass(frozen=True, slots=True)
class Reach:
    """The settings of a process whose loops reach providers or machines."""

    accounts: tuple[AccountName, ...]
    ssh_key: Path | None
    """Our private key for machines; None when machines and hub are simulated (development without root)."""
    hub: HubSettings | None
    accept_emulated_gpus: bool
    orphans_dry_run: bool
    proof_dry_run: bool
    verifier: ClientSettings | None
    """The service that recomputes samples of GPU proofs; None recomputes them in this process, for development."""


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings of any reconciler process. Raises SettingsError."""
    return Settings(
        database_url=_required(environ, "SPLITPLANE_DATABASE_URL"),
        metrics_listen=_listen(environ, "SPLITPLANE_RECONCILER_METRICS_LISTEN", "127.0.0.1:9465"),
        replica=environ.get("SPLITPLANE_REPLICA") or socket.gethostname(),
    )


def read_accounts(environ: Mapping[str, str]) -> tuple[AccountName, ...]:
    """Read the names of the provider accounts. Raises SettingsError."""
    return _accounts(_required(environ, "SPLITPLANE_PROVIDER_ACCOUNTS"))


def read_reach(environ: Mapping[str, str]) -> Reach:
    """Read how machines and the hub are reached. Raises SettingsError."""
    simulated = _flag(environ, "SPLITPLANE_SIMULATED_MACHINES")
    ssh_key = environ.get("SPLITPLANE_SSH_KEY_PATH")
    if not simulated and not ssh_key:
        raise SettingsError("SPLITPLANE_SSH_KEY_PATH is not set; it names our private SSH key for machines")
    return Reach(
        accounts=read_accounts(environ),
        ssh_key=Path(ssh_key) if ssh_key and not simulated else None,
        hub=None if simulated else _hub(environ),
        accept_emulated_gpus=_flag(environ, "SPLITPLANE_ACCEPT_EMULATED_GPUS"),
        orphans_dry_run=_flag(environ, "SPLITPLANE_ORPHANS_DRY_RUN"),
        proof_dry_run=_flag(environ, "SPLITPLANE_PROOF_DRY_RUN"),
        verifier=read_client(environ),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise SettingsError(f"{name} is not set")
    return value


def _accounts(text: str) -> tuple[AccountName, ...]:
    return tuple(AccountName(name.strip()) for name in text.split(",") if name.strip())


def _flag(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "no").strip().lower()
    if value not in ("yes", "no"):
        raise SettingsError(f"{name} is {value!r}; set it to yes or no")
    return value == "yes"


def _listen(environ: Mapping[str, str], name: str, default: str) -> tuple[str, int]:
    value = environ.get(name, default)
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{name} is {value!r}; set it to host:port")
    return host, int(port)


def _hub(environ: Mapping[str, str]) -> HubSettings:
    host, port = _listen(environ, "SPLITPLANE_HUB", "unset")
    return HubSettings(
        address=host,
        ssh_port=port,
        host_key=_required(environ, "SPLITPLANE_HUB_HOST_KEY"),
        outside=environ.get("SPLITPLANE_HUB_OUTSIDE"),
    )
