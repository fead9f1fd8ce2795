"""Settings of the ingest process, read once from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from control_plane.settings import Address, DatabaseUrl, address
from environment import reading
from environment.reading import Variable


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: DatabaseUrl = field(repr=False)
    listen: Annotated[
        Address,
        BeforeValidator(reading.parsed(address)),
        Variable("SPLITPLANE_INGEST_LISTEN", "where the ingest process takes samples"),
    ] = field(default=Address("127.0.0.1", 8441))
    metrics_listen: Annotated[
        Address,
        BeforeValidator(reading.parsed(address)),
        Variable(
            "SPLITPLANE_INGEST_METRICS_LISTEN", "where Prometheus reads the metrics of the ingest process"
        ),
    ] = field(default=Address("127.0.0.1", 9467))
    connections_max: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Variable("SPLITPLANE_INGEST_CONNECTIONS_MAX", "open connections of machines to the ingest process"),
    ] = 16_384
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(reading.parsed(str.lower)),
        Variable("SPLITPLANE_LOG_LEVEL", "`debug`, `info`, `warning` or `error`"),
    ] = "info"


def read(environment: Mapping[str, str]) -> Settings:
    """Raises SettingsError."""
    return reading.read(Settings, environment)
