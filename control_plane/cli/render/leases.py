"""Leases on the screen: the list, and one lease in full."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli import ssh
from control_plane.cli.render.catalogue import hardware
from control_plane.cli.render.layout import facts, indented, table
from control_plane.cli.render.proofs import standing
from control_plane.cli.words import ago, both, coarse, price, short_id, spaced
from control_plane.wire.leases import LeaseRequestView, LeaseView, MachineView, StatusView

PHASES = {
    "pending": ("○", "yellow"),
    "starting": ("◐", "cyan"),
    "ready": ("●", "green"),
    "unconfirmed": ("◌", "yellow"),
    "ending": ("◑", "magenta"),
    "ended": ("·", "dim"),
}
"""The mark and the colour of each phase."""


def phase_mark(status: StatusView) -> Text:
    glyph, style = PHASES.get(status.phase, ("?", "default"))
    made = Text(f"{glyph} {status.phase}", style=style)
    if status.phase == "starting":
        made.append(f" {status.steps_done}/{status.steps_total}")
    return made


def lease_table(leases: Sequence[LeaseView], now: datetime, *, all_states: bool) -> RenderableType:
    if not leases:
        hint = "" if all_states else " Add --all to see ended ones."
        return Text(f"No leases.{hint} Create one: splitplane lease create SKU")
    ids = [lease.id for lease in leases]
    rows = [
        (
            short_id(lease.id, ids),
            Text(lease.name, style="bold"),
            lease.project,
            lease.request.sku,
            phase_mark(lease.status),
            price(lease.price_per_hour),
            coarse(now - lease.created_at),
        )
        for lease in leases
    ]
    columns = ("LEASE", "NAME", "PROJECT", "SKU", "STATUS", "USD/H", "AGE")
    whole = ("LEASE", "SKU", "STATUS")
    return table(columns, rows, right=("USD/H", "AGE"), whole=whole, varying=("PROJECT",))


def lease_page(lease: LeaseView, now: datetime) -> RenderableType:
    status = lease.status
    parts: list[RenderableType] = [Text.assemble((lease.name, "bold"), "  ", phase_mark(status))]
    if status.message.rstrip(".").lower() != status.phase:
        parts.append(indented(Text(status.message)))
    per_hour, per_gpu_hour = price(lease.price_per_hour), price(lease.price_per_gpu_hour)
    parts += [
        Text(),
        facts(
            ("Lease", lease.id),
            ("Project", lease.project),
            ("SKU", f"{lease.request.sku}, {hardware(lease.gpu_count, lease.gpu_model)}"),
            ("Price", f"{per_hour} USD per hour, {per_gpu_hour} per GPU-hour"),
            ("Constraints", _constraints(lease.request)),
            *_machine_facts(lease.machine, now),
            ("Proof", standing(lease.proof, now)),
            ("Attempts", str(lease.attempts) if lease.attempts > 1 else None),
            ("Created", both(lease.created_at, now)),
            ("Ready", both(lease.ready_at, now)),
            ("Billed until", both(lease.billed_until, now)),
            ("Ended", both(lease.ended_at, now)),
            ("Reason", lease.end_why or (spaced(lease.end_reason) if lease.end_reason else None)),
        ),
    ]
    if status.phase in ("ready", "unconfirmed"):
        parts += [Text(), indented(Text(f"splitplane lease ssh {_handle(lease)}", style="cyan"))]
    return Group(*parts)


def _handle(lease: LeaseView) -> str:
    """What to type for this lease: its name if a shell takes it as one word, else its id."""
    plain = lease.name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return lease.name if plain else lease.id


def _constraints(request: LeaseRequestView) -> str | None:
    words = [*request.regions, *request.providers]
    if request.price_per_hour_max:
        words.append(f"at most {price(request.price_per_hour_max)} USD per hour")
    return ", ".join(words) or None


def _machine_facts(machine: MachineView | None, now: datetime) -> list[tuple[str, str | None]]:
    if machine is None:
        return []
    port = "" if machine.ssh_port == 22 else f" port {machine.ssh_port}"
    sighted = machine.sighted_at
    return [
        ("Machine", f"{machine.provider} {machine.region}, {machine.state}"),
        ("Address", f"{machine.ssh_user}@{machine.address}{port}" if machine.address else None),
        ("Host key", ssh.fingerprint(machine.host_key)),
        ("Private IP", machine.mesh_address),
        ("Last seen", f"{ago(sighted, now)}, by the provider's list" if sighted else None),
    ]
