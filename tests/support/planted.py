"""A search for planted secrets: whatever was kept, written or sent, none of them may be in it, however it is spelled."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

import asyncpg

PIECE_BYTES = 16
"""So long a piece of a secret is searched for by itself, because a text may have been cut or wrapped."""


def spellings(secret: bytes) -> frozenset[bytes]:
    """A secret as text, in pieces, escaped, hexadecimal, and in base64 at each of the three offsets it may have there."""
    pieces = [secret[at : at + PIECE_BYTES] for at in range(0, len(secret) - PIECE_BYTES + 1, PIECE_BYTES)]
    found = {secret, *pieces, secret.hex().encode(), secret.hex().upper().encode()}
    found |= {repr(piece)[2:-1].encode() for piece in (secret, *pieces)}
    for offset in range(3):
        encoded = base64.b64encode(b"x" * offset + secret)[4:-4]
        found |= {encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")}
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return frozenset(found)
    found |= {json.dumps(text)[1:-1].encode(), quote(text, safe="").encode(), quote_plus(text).encode()}
    return frozenset(found)


class Planted:
    """Secrets by what they are."""

    def __init__(self) -> None:
        self._spellings: dict[str, frozenset[bytes]] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._spellings)

    def add(self, **secrets: str | bytes) -> None:
        for name, secret in secrets.items():
            plain = secret.encode() if isinstance(secret, str) else secret
            assert len(plain) >= 8, f"{name} is too short to be searched for"
            self._spellings[name] = self._spellings.get(name, frozenset()) | spellings(plain)

    def found(self, content: bytes | str, *, but: frozenset[str] = frozenset()) -> list[str]:
        """The names of those that are in a content, other than `but`, which it may hold."""
        searched = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        return [
            name
            for name, spelled in self._spellings.items()
            if name not in but and any(spelling in searched for spelling in spelled)
        ]


@dataclass
class Watch:
    """Reads the command line and the environment of our processes, again and again, until it is told to end.

    Those of other tests are left out, because they may use the same emulated cloud.
    """

    planted: Planted
    home: Path
    """The home of each of our processes."""
    holds: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """What a process may have in its environment, by a word of its command line."""
    found: set[str] = field(default_factory=set[str])
    looks: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._ended.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    environ, command = ((process / name).read_bytes() for name in ("environ", "cmdline"))
                except OSError:  # It ended meanwhile.
                    continue
                if not command:  # It ended after its environment was read, and is not yet waited for.
                    continue
                if f"HOME={self.home}\0".encode() in environ + b"\0":
                    self.looks += 1
                    self._search(environ, command)

    def _search(self, environ: bytes, command: bytes) -> None:
        words = command.decode(errors="replace").split("\0")
        held = frozenset[str]().union(*(self.holds.get(word, frozenset()) for word in words))
        for name in (*self.planted.found(command), *self.planted.found(environ, but=held)):
            self.found.add(f"{name} in {' '.join(words)}")

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


async def rows_of(database_url: str) -> dict[str, bytes]:
    """Every row of every table, as text, and the content of its binary columns as it is."""
    connection = await asyncpg.connect(database_url)
    try:
        tables: Sequence[asyncpg.Record] = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg|sql)_'"
        )
        found = {}
        for (table,) in tables:
            rows = await connection.fetch(f'SELECT t.*, t::text AS whole FROM "{table}" AS t')
            parts = [value for row in rows for value in row.values()]
            found[table] = b"\n".join(
                value if isinstance(value, bytes) else str(value).encode() for value in parts
            )
        return found
    finally:
        await connection.close()
