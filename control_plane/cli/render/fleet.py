"""The fleet on the screen, and as CSV."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import ID_DIGITS_MIN, cents, coarse, plural, spaced
from control_plane.wire import csv_lines
from control_plane.wire.fleet import FleetMachineView, FleetTotals, FleetTotalView

_STYLES = {"healthy": "green", None: "dim"}
CSV_COLUMNS = (
    *(
        "machine_id",
        "account",
        "provider",
        "provider_ref",
        "region",
        "gpu_model",
        "gpu_count",
        "state",
        "verdict",
        "native_status",
    ),
    *("organization_id", "organization", "project_id", "project", "lease_id", "lease", "created_at"),
    *("cost_usd_per_hour", "cost_usd", "silent", "stopped"),
)


def fleet_table(machines: Sequence[FleetMachineView], now: datetime) -> RenderableType:
    if not machines:
        return Text("No such machines.")
    shown = _id_length([machine.id for machine in machines])
    rows = [
        (
            Text(machine.id[:shown]).append(f"\n{coarse(now - machine.created_at)} old", style="dim"),
            f"{machine.account}\n{machine.region}\n{_gpus(machine)}",
            Text(_health(machine), style=_STYLES.get(machine.verdict, "yellow")),
            "-" if machine.organization is None else f"{machine.organization} /\n{machine.project}",
            cents(machine.cost_per_hour.nano),
            cents(machine.cost.nano),
        )
        for machine in machines
    ]
    columns = ("MACHINE", "WHERE AND WHAT", "HEALTH", "FOR", "USD/H", "USD")
    nano = sum(machine.cost_per_hour.nano for machine in machines)
    so_far = sum(machine.cost.nano for machine in machines)
    return Group(
        table(columns, rows, right=("USD/H", "USD"), whole=("MACHINE", "WHERE AND WHAT", "HEALTH")),
        Text(),
        Text(
            f"{plural(len(machines), 'machine')}, {cents(nano)} USD per hour in all, {cents(so_far)} USD so far."
        ),
    )


def _gpus(machine: FleetMachineView) -> str:
    return f"{machine.gpu_count} x {machine.gpu_model}" if machine.gpu_model else "no GPUs"


def _id_length(ids: Sequence[str]) -> int:
    """How many characters of an id tell it from all others: there may be thousands."""
    length = len("mc_") + ID_DIGITS_MIN
    while len({machine[:length] for machine in ids}) < len(ids):
        length += 1
    return length


def totals_table(totals: FleetTotals) -> RenderableType:
    if not totals.lines:
        return Text("No such machines.")
    words = tuple(word.upper() for word in _COUNTED)
    columns = ("PROVIDER, GPUS", "", *words)
    rows = [row for line in (*totals.lines, totals.total) for row in _rows(line)]
    return Group(
        table(columns, rows, right=words),
        Text(),
        Text(f"{cents(totals.total.cost_per_hour.nano)} USD per hour in all."),
    )


def _rows(line: FleetTotalView) -> list[tuple[str, ...]]:
    """Its machines, and below them their GPUs."""
    counts = (line.all, line.delivered, line.healthy, line.reserved, line.active)
    model = "" if line.provider is None else line.gpu_model or "no GPUs"
    return [
        (line.provider or "all", "machines", *(f"{count.machines:,}" for count in counts)),
        (model, "GPUs", *(f"{count.gpus:,}" for count in counts)),
    ]


_COUNTED = ("all", "delivered", "healthy", "reserved", "active")
TOTALS_COLUMNS = (
    *("provider", "gpu_model"),
    *(f"{word}_{what}" for word in _COUNTED for what in ("machines", "gpus")),
    "cost_usd_per_hour",
)


def totals_csv(totals: FleetTotals) -> str:
    """A header and one line for each provider and GPU model. The sum is left to the reader's program."""
    rows: list[Sequence[object]] = [TOTALS_COLUMNS]
    for line in totals.lines:
        counts = (line.all, line.delivered, line.healthy, line.reserved, line.active)
        numbers = [number for count in counts for number in (count.machines, count.gpus)]
        rows.append((line.provider, line.gpu_model, *numbers, line.cost_per_hour.usd))
    return csv_lines.lines(rows)


def _health(machine: FleetMachineView) -> str:
    """The verdict or the state, and whether it is stopped or silent, below each other.

    For a machine that is lost, the provider's own word.
    """
    words = spaced(machine.verdict or machine.state).split()
    if machine.verdict == "lost" and machine.native_status is not None:
        words = [f"lost: {machine.native_status}"]
    words += ["stopped"] * machine.stopped + ["silent"] * machine.silent
    return "\n".join(words)


def fleet_csv(machines: Sequence[FleetMachineView]) -> str:
    """A header and one line for each machine. Amounts are exact."""
    return csv_lines.lines([CSV_COLUMNS, *map(_csv_row, machines)])


def _csv_row(machine: FleetMachineView) -> Sequence[object]:
    return (
        *(machine.id, machine.account, machine.provider, machine.provider_ref),
        *(machine.region, machine.gpu_model, machine.gpu_count, machine.state, machine.verdict),
        *(machine.native_status, machine.organization_id, machine.organization),
        *(machine.project_id, machine.project),
        *(machine.lease_id, machine.lease, machine.created_at.isoformat()),
        *(machine.cost_per_hour.usd, machine.cost.usd),
        *("true" if each else "false" for each in (machine.silent, machine.stopped)),
    )
