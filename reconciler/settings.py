"""The reconciler's settings, read once from the environment. No other file of the reconciler reads it."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from control_plane.domain.funding import StopTimes
from control_plane.domain.ids import AccountName
from control_plane.settings import DatabaseUrl, KmsKey
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.proof.verifier.service.settings import ClientSettings, read_client
from environment import reading
from environment.reading import SettingsError, Variable

__all__ = [
    "HubSettings",
    "KeySettings",
    "MoneySettings",
    "Reach",
    "Settings",
    "SettingsError",
    "read",
    "read_keys",
    "read_money",
    "read_reach",
    "read_sla",
]

Endpoint = Annotated[tuple[str, int], BeforeValidator(reading.parsed(reading.endpoint))]
Accounts = Annotated[
    tuple[AccountName, ...],
    BeforeValidator(reading.parsed(reading.names)),
    Variable(
        "SPLITPLANE_PROVIDER_ACCOUNTS",
        "provider accounts of this environment, such as `local,lambda_cloud/research`; operators add others",
        "none",
    ),
]


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Where the mesh hub is, and its SSH host key."""

    endpoint: Annotated[
        Endpoint,
        Variable(
            "SPLITPLANE_HUB", "the mesh hub's SSH endpoint, host and port", "required, unless simulated"
        ),
    ]
    host_key: Annotated[
        str,
        Variable(
            "SPLITPLANE_HUB_HOST_KEY", "the hub's host key, one OpenSSH line", "required, unless simulated"
        ),
    ]
    outside: Annotated[
        str | None,
        Variable(
            "SPLITPLANE_HUB_OUTSIDE",
            "the address at which machines reach the hub, if it differs",
            "as `SPLITPLANE_HUB`",
        ),
    ] = None

    @property
    def address(self) -> str:
        return self.endpoint[0]

    @property
    def ssh_port(self) -> int:
        return self.endpoint[1]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of every reconciler process."""

    database_url: Annotated[
        DatabaseUrl,
        Variable(
            "SPLITPLANE_DATABASE_URL", "the PostgreSQL database, `postgresql://...`; may hold a password"
        ),
    ] = field(repr=False)
    replica: Annotated[str, Variable("SPLITPLANE_REPLICA", "this replica's name in reports", "host name")]
    metrics_listen: Annotated[
        Endpoint,
        Variable(
            "SPLITPLANE_RECONCILER_METRICS_LISTEN", "host and port of `/metrics`, `/healthz` and `/readyz`"
        ),
    ] = ("127.0.0.1", 9465)


@dataclass(frozen=True, slots=True)
class ReachSettings:
    """The variables of a process whose loops reach providers or machines."""

    accounts: Accounts = ()
    simulated: Annotated[
        bool,
        Variable("SPLITPLANE_SIMULATED_MACHINES", "`yes` simulates machines and hub; for development only"),
    ] = False
    ingest: Annotated[
        IngestPlace | None,
        BeforeValidator(reading.parsed(lambda text: IngestPlace(*reading.endpoint(text)))),
        Variable(
            "SPLITPLANE_INGEST_ADDRESS",
            "host and port of the ingest process, as the hub and the servers of clusters reach it",
            "none: agents send heartbeats alone",
        ),
    ] = None
    accept_emulated_gpus: Annotated[
        bool,
        Variable(
            "SPLITPLANE_ACCEPT_EMULATED_GPUS",
            "`yes` accepts machines with emulated GPUs; never use it in production",
        ),
    ] = False
    k3s_files: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_K3S_FILES",
            "folder with the files of a K3s release, which clusters are built from",
            "none: clusters cannot be built",
        ),
    ] = None
    orphans_dry_run: Annotated[
        bool, Variable("SPLITPLANE_ORPHANS_DRY_RUN", "`yes` reports orphans and terminates none")
    ] = False
    proof_dry_run: Annotated[
        bool,
        Variable(
            "SPLITPLANE_PROOF_DRY_RUN",
            "`yes` challenges running machines and terminates none that fail; new ones are still refused",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The key manager that opens sealed secrets."""

    kms_key: KmsKey = None
    unsealing_keys: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_UNSEALING_KEYS_PATH",
            "without AWS KMS, file: the private X25519 keys that open data keys, the newest last; only its owner may"
            " have access",
        ),
    ] = None
    data_key_days: Annotated[
        int,
        Field(ge=1, le=3_650),
        Variable(
            "SPLITPLANE_DATA_KEY_DAYS", "after so many days a secret is encrypted anew under another data key"
        ),
    ] = 90


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How long the audit log is kept."""

    kept_days: Annotated[
        int,
        Field(ge=30, le=36_500),
        Variable(
            "SPLITPLANE_AUDIT_DAYS",
            "how many days lines of the audit log are kept, and until they are exported, if they are; where processes"
            " differ, the fewest count",
        ),
    ] = 400


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Where samples of machines are written to."""

    remote_write: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_REMOTE_WRITE",
            "file: the stores that take samples by Prometheus remote write, as TOML: docs/telemetry.md",
        ),
    ] = None
    sample_archive: Annotated[
        str | None,
        Variable(
            "SPLITPLANE_SAMPLE_ARCHIVE",
            "a folder, or s3://BUCKET/PREFIX: where samples of machines are written to as Parquet before they are"
            " deleted; without it they are not",
        ),
    ] = None
    sample_archive_seconds: Annotated[
        int,
        Field(ge=15, le=3_600),
        Variable(
            "SPLITPLANE_SAMPLE_ARCHIVE_SECONDS",
            "of each machine the last sample of so many seconds is written, and every notable one; 15 writes all",
        ),
    ] = 60
    sample_archive_days: Annotated[
        int,
        Field(ge=1, le=3_650),
        Variable("SPLITPLANE_SAMPLE_ARCHIVE_DAYS", "how many days these files are kept"),
    ] = 90


@dataclass(frozen=True, slots=True)
class EnforcementSettings:
    """When something is done about leases that run, and what."""

    rules: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_ENFORCEMENT_RULES",
            "file: the rules of enforcement, as TOML, instead of those that are shipped: docs/enforcement.md",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class MoneySettings:
    """What happens to machines whose next hour their customer cannot pay."""

    stop_below_minutes: Annotated[
        int,
        Field(ge=15, le=30),
        Variable(
            "SPLITPLANE_STOP_BELOW_MINUTES",
            "a machine that cannot be paid is stopped when fewer minutes of its hold are left",
        ),
    ] = 20
    data_kept_hours: Annotated[
        int,
        Field(ge=1, le=8_760),
        Variable(
            "SPLITPLANE_DATA_KEPT_HOURS",
            "how many hours the data of such a machine is kept, where the balance pays for it",
        ),
    ] = 168

    @property
    def stop_times(self) -> StopTimes:
        return StopTimes(timedelta(minutes=self.stop_below_minutes), timedelta(hours=self.data_kept_hours))


@dataclass(frozen=True, slots=True)
class SlaSettings:
    """What happens when a promise to a customer was broken."""

    credits_posted: Annotated[
        bool,
        Variable(
            "SPLITPLANE_SLA_CREDITS",
            "`yes` posts credits for broken promises; without it they are computed and reported, and none is posted",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class Reach:
    """The settings of a process whose loops reach providers or machines."""

    accounts: tuple[AccountName, ...]
    hub: HubSettings | None
    """None when machines and hub are simulated (development without root)."""
    accept_emulated_gpus: bool
    orphans_dry_run: bool
    proof_dry_run: bool
    verifier: ClientSettings | None
    """The service that recomputes samples of GPU proofs; None recomputes them in this process, for development."""
    keys: KeySettings
    audit: AuditSettings
    money: MoneySettings
    sla: SlaSettings
    telemetry: TelemetrySettings
    enforcement: EnforcementSettings
    ingest: IngestPlace | None = None
    """Where samples of machines go; None when nobody takes them."""
    k3s_files: Path | None = None
    """The folder of the K3s release that clusters are built from; None when they cannot be built."""


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings of any reconciler process. Raises SettingsError."""
    return reading.read(Settings, environ, replica=socket.gethostname())


def read_keys(environ: Mapping[str, str]) -> KeySettings:
    """Read which key manager opens secrets. Raises SettingsError."""
    return reading.read(KeySettings, environ)


def read_money(environ: Mapping[str, str]) -> MoneySettings:
    """Read when machines are stopped for lack of money. Raises SettingsError."""
    return reading.read(MoneySettings, environ)


def read_sla(environ: Mapping[str, str]) -> SlaSettings:
    """Read whether credits for broken promises are posted. Raises SettingsError."""
    return reading.read(SlaSettings, environ)


def read_telemetry(environ: Mapping[str, str]) -> TelemetrySettings:
    """Read where samples are written to. Raises SettingsError."""
    return reading.read(TelemetrySettings, environ)


def read_enforcement(environ: Mapping[str, str]) -> EnforcementSettings:
    """Read where the rules of enforcement are. Raises SettingsError."""
    return reading.read(EnforcementSettings, environ)


def read_reach(environ: Mapping[str, str]) -> Reach:
    """Read how machines and the hub are reached. Raises SettingsError."""
    given = reading.read(ReachSettings, environ)
    return Reach(
        accounts=given.accounts,
        hub=None if given.simulated else reading.read(HubSettings, environ),
        accept_emulated_gpus=given.accept_emulated_gpus,
        orphans_dry_run=given.orphans_dry_run,
        proof_dry_run=given.proof_dry_run,
        verifier=read_client(environ),
        keys=read_keys(environ),
        audit=reading.read(AuditSettings, environ),
        money=read_money(environ),
        sla=read_sla(environ),
        telemetry=read_telemetry(environ),
        enforcement=read_enforcement(environ),
        ingest=given.ingest,
        k3s_files=given.k3s_files,
    )
