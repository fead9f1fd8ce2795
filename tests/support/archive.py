"""An archive of the audit log in memory."""

from reconciler.archive import ArchiveError


class Shelf:
    """Takes only the same bytes under a key again, and refuses everything while it `fails`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fails = False

    async def put(self, key: str, body: bytes) -> None:
        if self.fails:
            raise ArchiveError("S3 answers AccessDenied")
        assert self.objects.get(key, body) == body, "the same object has other bytes"
        self.objects[key] = body
