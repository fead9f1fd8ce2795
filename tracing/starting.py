"""Gives a process its tracer, as its environment says."""

from collections.abc import Callable, Mapping

from environment.reading import SettingsError
from tracing import settings
from tracing.tracer import NO_TRACER, Tracer


def tracer(environ: Mapping[str, str], service: str, complain: Callable[[str], None]) -> Tracer:
    """The tracer of this process; one that does nothing while traces are off. Raises SettingsError."""
    if not settings.read(environ).on:
        return NO_TRACER
    from tracing.exporting import start  # noqa: PLC0415 - OpenTelemetry is imported only when it is used

    try:
        return start(service, complain)
    except ValueError as error:
        raise SettingsError(f"OpenTelemetry cannot be set up: {error}") from error
