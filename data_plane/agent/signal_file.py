"""The file in which the machine's workload reads what it is asked for: replaced at once, and removed when it is over.

The agent writes nothing else that others read, and reads nothing from there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_plane.documents.signal import NAME, Signal, encode_file

KEPT_WITHIN_SECONDS = 30
"""A file whose times differ less from what is said now stays as it is, so that it does not change every 15 s."""


@dataclass
class SignalFile:
    folder: Path
    """Where the service may write and everybody may read."""
    unix: "Callable[[], float]" = time.time
    monotonic: "Callable[[], float]" = time.monotonic
    _shown: "Signal | None" = None
    _until: float = 0.0
    """By the monotonic clock: whoever sets the machine's clock changes nothing."""
    _ends: "float | None" = None

    def show(self, signal: "Signal | None") -> None:
        """What the answer to a delivery asks for; None: nothing. Raises OSError."""
        if signal is None:
            self._remove()
        elif not self._says(signal):
            self._write(signal)

    def expire(self) -> None:
        """Remove the file when its time is over. Raises OSError."""
        if self._shown is not None and self.monotonic() >= self._until:
            self._remove()

    def _says(self, signal: Signal) -> bool:
        """Whether the file says this already, about as long as it is to."""
        shown, now = self._shown, self.monotonic()
        if shown is None or (shown.action, shown.reason) != (signal.action, signal.reason):
            return False
        ends = None if signal.ends_in is None else now + signal.ends_in
        if (ends is None) != (self._ends is None):
            return False
        differs = max(
            abs(now + signal.seconds - self._until), 0.0 if ends is None else abs(ends - (self._ends or 0.0))
        )
        return differs < KEPT_WITHIN_SECONDS and (self.folder / NAME).exists()

    def _write(self, signal: Signal) -> None:
        new = self.folder / f".{NAME}.new"
        new.write_bytes(encode_file(signal, self.unix()))
        new.chmod(0o644)  # The service's own umask lets nobody read.
        new.replace(self.folder / NAME)
        now = self.monotonic()
        self._shown, self._until = signal, now + signal.seconds
        self._ends = None if signal.ends_in is None else now + signal.ends_in

    def _remove(self) -> None:
        (self.folder / NAME).unlink(missing_ok=True)
        self._shown, self._ends = None, None
