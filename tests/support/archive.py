"""An archive of the audit log, or of samples, in memory."""

from collections.abc import Sequence

from reconciler.archive import LINES, ArchiveError


class Shelf:
    """Takes only the same bytes under a key again, and refuses everything while it `fails`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fails = False

    async def put(self, key: str, body: bytes, content_type: str = LINES) -> None:
        self._answer()
        assert self.objects.get(key, body) == body, "the same object has other bytes"
        self.objects[key] = body

    async def get(self, key: str) -> bytes | None:
        self._answer()
        return self.objects.get(key)

    async def delete(self, keys: Sequence[str]) -> None:
        self._answer()
        for key in keys:
            self.objects.pop(key, None)

    def _answer(self) -> None:
        if self.fails:
            raise ArchiveError("S3 answers AccessDenied")
