"""A store of an operator that takes remote write, for stages on which samples are to be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.worlds.telemetry import Target

TARGET = Target("the-store", "http://store.example/api/v1/write")


@dataclass
class SampleStore:
    """Keeps each body once: what is sent again after a crash changes nothing at a real store either."""

    bodies: set[bytes] = field(default_factory=set[bytes])

    async def __call__(
        self, _url: str, _token_path: Path | None, body: bytes, _headers: Mapping[str, str]
    ) -> int:
        self.bodies.add(body)
        return 204
