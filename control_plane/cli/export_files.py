"""Exports on a disk: whether one is what its manifest says, and how two of them differ.

Files are read line by line, so that a million rows need no more memory than ten.
"""

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

from control_plane.cli.errors import CliError

CSV = "focus-1.2.csv"
PARQUET = "focus-1.2.parquet"
MANIFEST = "manifest.json"
_READ_BYTES = 1 << 20
_KEY = ("BillingAccountId", "ChargePeriodStart", "x_ChargeId")
"""The order of the rows."""
_CHECKED = ("x_ChargeId", "InvoiceId", "BilledCost", "BillingAccountId", "ChargePeriodStart")
_CENT = Decimal("0.01")
_TOLD_EVERY = 5_000
"""After so many rows it is told how far it is."""

Row = Mapping[str, str]
Tell = Callable[[str], None]
"""Shows how far a long run is."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An export that is what its manifest says."""

    manifest: Mapping[str, Any]
    sha256: str
    """Of the manifest."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row that only one of two exports has, or that differs between them."""

    charge: str
    """The id of the charge."""
    before: Row | None
    after: Row | None

    @property
    def billed(self) -> Decimal:
        """By how much more is billed after it, in US dollars."""
        return _billed(self.after) - _billed(self.before)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that differ; empty for a row that only one of them has."""
        if self.before is None or self.after is None:
            return ()
        return tuple(name for name, value in self.after.items() if self.before.get(name) != value)


@dataclass(slots=True)
class Changes:
    """What the rows that differ come to. It keeps the first ones, so that memory does not grow with their number."""

    kept: int
    """How many rows are kept."""
    first: list[Change] = field(default_factory=list[Change])
    count: int = 0
    billed: Decimal = Decimal(0)
    """By how much more is billed after all of them, in US dollars."""

    def add(self, change: Change) -> None:
        self.count += 1
        self.billed += change.billed
        if len(self.first) < self.kept:
            self.first.append(change)


def _untold(_text: str) -> None:
    pass


def check(folder: Path, tell: Tell = _untold) -> Checked:
    """Check every file of an export against its manifest. Raises CliError with what is wrong."""
    with _readable(folder):
        content = (folder / MANIFEST).read_bytes()
        manifest = json.loads(content)
        for file in manifest["files"]:
            _check_bytes(folder / file["name"], file, tell)
        _check_rows(folder / CSV, manifest, tell)
    return Checked(manifest, hashlib.sha256(content).hexdigest())


@contextmanager
def _readable(folder: Path | str) -> Iterator[None]:
    """Raises CliError where an export in this folder cannot be read, or is none."""
    try:
        yield
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}.", code="file") from error
    except (ValueError, KeyError, TypeError, ArithmeticError, csv.Error) as error:
        raise broken(f"{folder} cannot be read as an export: {error!r}.") from error


def broken(sentence: str) -> CliError:
    return CliError(sentence, code="export_broken")


def _check_bytes(path: Path, said: Mapping[str, Any], tell: Tell) -> None:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
            tell(f"{path.name}: {size / 1e6:,.1f} of {said['bytes'] / 1e6:,.1f} MB")
    if (size, digest.hexdigest()) != (said["bytes"], said["sha256"]):
        raise broken(f"{path} is not the file that the manifest describes.")


def _check_rows(path: Path, manifest: Mapping[str, Any], tell: Tell) -> None:
    sums = dict.fromkeys(manifest["sums"], Decimal(0))
    invoices: dict[str, Decimal] = defaultdict(Decimal)
    rows, last = 0, ("", "", "")
    whole = f"of {manifest['rows']:,} rows"
    for *found, charge, invoice, billed, account, start in _told(
        _fields(path, [*sums, *_CHECKED]), whole, tell
    ):
        rows += 1
        key = account, start, charge
        if key <= last:
            raise broken(f"{path}: {charge} is out of order, or there twice.")
        last = key
        for name, value in zip(sums, found, strict=True):
            sums[name] += Decimal(value or 0)
        if invoice:
            invoices[invoice] += Decimal(billed)
    if rows != manifest["rows"]:
        raise broken(f"{path} has {rows:,} rows, and the manifest says {manifest['rows']:,}.")
    for name, total in sums.items():
        if total != Decimal(manifest["sums"][name]):
            raise broken(
                f"{path}: {name} adds up to {total}, and the manifest says {manifest['sums'][name]}."
            )
    for number, total in invoices.items():
        if total % _CENT:
            raise broken(
                f"{path}: the rows of {number} add up to {total}, which is no whole number of cents."
            )


def _fields(path: Path, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """These columns of every row. Several times as fast as a dictionary for each row."""
    lines = _lines(path)
    picked = itemgetter(*map(list(next(lines, ())).index, names))
    yield from map(picked, lines)


def _lines(path: Path) -> Iterator[Sequence[str]]:
    """The columns' names, and then the fields of each row. Raises CliError for a row with more or fewer."""
    with path.open(encoding="utf-8", newline="") as file:
        reader, columns = csv.reader(file), 0
        for line in reader:
            columns = columns or len(line)
            if len(line) != columns:
                raise broken(f"{path}: line {reader.line_num} has {len(line)} fields instead of {columns}.")
            yield line


def changes(before: Path, after: Path, tell: Tell = _untold) -> Iterator[Change]:
    """The rows in which two exports differ, in their order. Both are read side by side.

    First both are checked against their manifests, so that none turns out to be broken after rows of it were written.
    """
    for folder in (before, after):
        with _readable(folder):
            files = json.loads((folder / MANIFEST).read_bytes())["files"]
            _check_bytes(folder / CSV, {file["name"]: file for file in files}[CSV], tell)
    with _readable(f"{before} or {after}"):
        yield from _merged(_told(_rows(before / CSV), "rows compared", tell), _rows(after / CSV))


def _merged(left: Iterator[Row], right: Iterator[Row]) -> Iterator[Change]:
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and _key(one) < _key(other)):
            assert one is not None  # noqa: S101 - one of them is left, and it is not the other
            yield Change(one["x_ChargeId"], one, None)
            one = next(left, None)
        elif one is None or _key(other) < _key(one):
            yield Change(other["x_ChargeId"], None, other)
            other = next(right, None)
        else:
            if one != other:
                yield Change(one["x_ChargeId"], one, other)
            one, other = next(left, None), next(right, None)


def _told(rows: Iterator[Any], what: str, tell: Tell) -> Iterator[Any]:
    for count, row in enumerate(rows, start=1):
        if count % _TOLD_EVERY == 0:
            tell(f"{count:,} {what}")
        yield row


def _rows(path: Path) -> Iterator[Row]:
    lines = _lines(path)
    names = next(lines, ())
    for line in lines:
        yield dict(zip(names, line, strict=True))


def _key(row: Row) -> tuple[str, str, str]:
    account, start, charge = (row[name] for name in _KEY)
    return account, start, charge


def _billed(row: Row | None) -> Decimal:
    return Decimal(0) if row is None else Decimal(row["BilledCost"])
