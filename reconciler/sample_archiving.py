"""Opens the archive of samples that settings name."""

from pathlib import Path
from urllib.parse import urlsplit

from environment.reading import SettingsError
from reconciler.archive import Archive, FolderArchive
from reconciler.settings import TelemetrySettings
from reconciler.worlds.telemetry import SampleArchive


def opened(settings: TelemetrySettings) -> SampleArchive | None:
    """None without one. Raises SettingsError."""
    place = settings.sample_archive
    if place is None:
        return None
    return SampleArchive(_store(place), settings.sample_archive_seconds, settings.sample_archive_days)


def _store(place: str) -> Archive:
    if "://" not in place:
        return FolderArchive(Path(place))
    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc:
        raise SettingsError(
            f"SPLITPLANE_SAMPLE_ARCHIVE: {place!r} is neither a folder nor s3://BUCKET/PREFIX"
        )
    from reconciler.s3_archive import S3Archive  # noqa: PLC0415 - boto3 is loaded only where it is used

    return S3Archive(parts.netloc, prefix=parts.path)
