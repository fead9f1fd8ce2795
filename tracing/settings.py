"""Whether a process makes traces. OpenTelemetry's own variables decide; its SDK reads those that it alone needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator

from environment import reading
from environment.reading import Variable


def _flag(text: str) -> bool:
    """As OpenTelemetry specifies: true, or else false."""
    return text.lower() == "true"


@dataclass(frozen=True, slots=True)
class Settings:
    """The variables that turn traces on, and those that the SDK reads."""

    disabled: Annotated[
        bool,
        BeforeValidator(reading.parsed(_flag)),
        Variable("OTEL_SDK_DISABLED", "`true` turns traces off, whatever else is set", "`false`"),
    ] = False
    exporter: Annotated[
        Literal["otlp", "none"] | None,
        Variable(
            "OTEL_TRACES_EXPORTER",
            "`otlp` turns traces on, `none` off",
            "`otlp` when an endpoint is set, otherwise `none`",
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        Variable(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "the collector, `http://collector:4318`; turns traces on, which go to `/v1/traces` below it",
            "`http://localhost:4318`",
        ),
    ] = None
    traces_endpoint: Annotated[
        str | None,
        Variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "as above, with the whole path", "not set"),
    ] = None
    protocol: Annotated[
        Literal["http/protobuf"],
        Variable("OTEL_EXPORTER_OTLP_PROTOCOL", "how the collector is spoken to; nothing else is supported"),
    ] = "http/protobuf"
    traces_protocol: Annotated[
        Literal["http/protobuf"],
        Variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "as above", "as above"),
    ] = "http/protobuf"
    headers: Annotated[
        str | None,
        Variable(
            "OTEL_EXPORTER_OTLP_HEADERS", "headers for the collector, `name=value,...`; a secret", "none"
        ),
    ] = field(default=None, repr=False)
    service_name: Annotated[
        str | None,
        Variable(
            "OTEL_SERVICE_NAME",
            "the name of the process in its traces",
            "`splitplane-api` or `splitplane-reconciler`",
        ),
    ] = None
    sampler: Annotated[
        str,
        Variable("OTEL_TRACES_SAMPLER", "which traces are recorded, such as `parentbased_traceidratio`"),
    ] = "parentbased_always_on"
    sampler_argument: Annotated[
        str | None,
        Variable(
            "OTEL_TRACES_SAMPLER_ARG", "the share of traces, `0.1`, for the samplers that take one", "`1`"
        ),
    ] = None

    @property
    def on(self) -> bool:
        if self.disabled or self.exporter == "none":
            return False
        return self.exporter == "otlp" or self.endpoint is not None or self.traces_endpoint is not None


def read(environ: Mapping[str, str]) -> Settings:
    """Raises SettingsError."""
    return reading.read(Settings, environ)
