"""Leases on the screen: the list, and one lease in full."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli import ssh
from control_plane.cli.render.agents import agent_facts
from control_plane.cli.render.catalogue import hardware, per_hour
from control_plane.cli.render.layout import facts, indented, table
from control_plane.cli.render.proofs import standing
from control_plane.cli.words import ago, both, coarse, exact, plural, price, short_id, spaced, span
from control_plane.wire.leases import AdmittedKeyView, LeaseRequestView, LeaseView, MachineView
from control_plane.wire.power import PowerView

MARKS = {
    "placing": ("○", "yellow"),
    "starting": ("◐", "cyan"),
    "ready": ("●", "green"),
    "ending": ("◑", "magenta"),
    "ended": ("·", "dim"),
}
"""The mark and the colour of each state."""
UNCONFIRMED = ("◌", "yellow")


def mark_of(lease: LeaseView) -> tuple[str, str]:
    """The mark and the colour of a lease."""
    if lease.status.unconfirmed is not None:
        return UNCONFIRMED
    return MARKS.get(lease.state, ("?", "default"))


def state_mark(lease: LeaseView) -> Text:
    """The state of a lease, with what else there is to know: its progress, that it waits, or that it is in doubt."""
    glyph, style = mark_of(lease)
    made = Text(f"{glyph} {word_of(lease)}", style=style)
    if lease.state == "starting":
        made.append(f" {lease.status.steps_done}/{lease.status.steps_total}")
    return made


def word_of(lease: LeaseView) -> str:
    """The state of a lease, and that it waits for stock or that its machine is in doubt."""
    if lease.status.waiting is not None:
        return f"{lease.state}, waiting"
    return f"{lease.state}, unconfirmed" if lease.status.unconfirmed is not None else lease.state


def lease_table(
    leases: Sequence[LeaseView], now: datetime, *, all_states: bool, filtered: bool = False
) -> RenderableType:
    """`filtered` says that the leases are only those of a project, with a label, or that wait."""
    if not leases:
        hint = "" if all_states else " Add --all to see ended ones."
        if filtered:
            return Text(f"No lease matches.{hint}")
        return Text(f"No leases.{hint} Create one: splitplane lease create SKU")
    ids = [lease.id for lease in leases]
    rows = [
        (
            short_id(lease.id, ids),
            Text(lease.name, style="bold"),
            lease.project,
            lease.request.sku,
            state_mark(lease),
            price(lease.price_per_hour),
            coarse(now - lease.created_at),
        )
        for lease in leases
    ]
    columns = ("LEASE", "NAME", "PROJECT", "SKU", "STATE", "USD/H", "AGE")
    whole = ("LEASE", "SKU", "STATE")
    return table(columns, rows, right=("USD/H", "AGE"), whole=whole, varying=("PROJECT",))


def lease_page(lease: LeaseView, now: datetime) -> RenderableType:
    status = lease.status
    parts: list[RenderableType] = [Text.assemble((lease.name, "bold"), "  ", state_mark(lease))]
    if status.message.rstrip(".").lower() != lease.state:
        parts.append(indented(Text(status.message)))
    parts += [
        Text(),
        facts(
            ("Lease", lease.id),
            ("Project", lease.project),
            ("Network", lease.network),
            ("Node pool", f"{lease.node_pool} in the cluster {lease.cluster}" if lease.node_pool else None),
            ("SKU", f"{lease.request.sku}, {hardware(lease.gpu_count, lease.gpu_model)}"),
            ("Price", per_hour(lease.price_per_hour, lease.price_per_gpu_hour)),
            ("Service level", _service_level(lease)),
            ("Quote", lease.quote_id),
            ("Constraints", _constraints(lease.request)),
            ("On eviction", "replace the machine" if lease.on_eviction == "replace" else None),
            ("Labels", labels(lease.labels)),
            ("SSH keys", _ssh_keys(lease.ssh_keys)),
            *_waiting_facts(lease, now),
            *_machine_facts(lease.machine, now),
            ("Power", _power(lease.power, now)),
            ("Proof", standing(lease.proof, now)),
            *agent_facts(lease.agent, now),
            ("Attempts", str(lease.attempts) if lease.attempts > 1 else None),
            ("Created", both(lease.created_at, now)),
            ("Ready", both(lease.ready_at, now)),
            ("Not billed since", both(lease.paused_since, now)),
            ("Taken back", _taken_back(lease, now)),
            ("Committed", _committed(lease, now)),
            ("Auto-release", _auto_release(lease, now)),
            ("Billed until", both(lease.billed_until, now)),
            ("Ended", both(lease.ended_at, now)),
            ("Reason", lease.end_why or (spaced(lease.end_reason) if lease.end_reason else None)),
        ),
    ]
    if lease.state == "ready":
        parts += [Text(), indented(Text(f"splitplane lease ssh {_handle(lease)}", style="cyan"))]
    return Group(*parts)


def _handle(lease: LeaseView) -> str:
    """What to type for this lease: its name if a shell takes it as one word, else its id."""
    plain = lease.name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return lease.name if plain else lease.id


def labels(given: Mapping[str, str]) -> str | None:
    """Labels as they are typed; None when there is none."""
    return ", ".join(f"{key}={value}" for key, value in sorted(given.items())) or None


def _waiting_facts(lease: LeaseView, now: datetime) -> list[tuple[str, str | None]]:
    waiting = lease.status.waiting
    if waiting is None:
        return []
    return [("Waiting since", both(waiting.since, now)), ("Gives up", both(waiting.gives_up_at, now))]


def _auto_release(lease: LeaseView, now: datetime) -> str | None:
    """When a lease is released without its customer; before it is ready, by which limits."""
    limits = lease.auto_release
    if lease.ended_at is not None or limits is None:
        return None
    if lease.release_at is not None:
        return both(lease.release_at, now)
    after = (
        None
        if limits.after_seconds is None
        else f"{span(timedelta(seconds=limits.after_seconds))} after ready"
    )
    spend = None if limits.spend is None else f"before it costs more than {price(limits.spend)} USD"
    return ", or ".join(limit for limit in (after, spend) if limit) or None


def _committed(lease: LeaseView, now: datetime) -> str | None:
    """The term that was committed to, when it ends, and what a release costs before that, or did."""
    days, until = lease.request.committed_days, lease.committed_until
    if days is None:
        return None
    if until is None or lease.billed_until is not None:
        rest = lease.unused
        charged = f"; its rest was charged: {price(rest)} USD" if rest is not None and rest.nano else ""
        return plural(days, "day") + charged
    fee = lease.release_fee
    costs = "" if fee is None or not fee.nano else f"; a release now costs {price(fee)} USD"
    return f"{plural(days, 'day')}, until {both(until, now)}{costs}"


def _taken_back(lease: LeaseView, now: datetime) -> Text | None:
    if lease.taken_back_at is None:
        return None
    return Text(f"{both(lease.taken_back_at, now)}, for a promised lease: save your work", style="yellow")


def _ssh_keys(keys: Sequence[AdmittedKeyView] | None) -> str | None:
    """The keys that it is limited to."""
    if keys is None:
        return None
    return "only " + ", ".join(key.name for key in keys) if keys else "none: nobody can log in"


def _constraints(request: LeaseRequestView) -> str | None:
    words = [
        *([] if request.purchase == "on_demand" else [request.purchase]),
        *request.regions,
        *request.providers,
    ]
    if request.network_gbps_min is not None:
        words.append(f"{request.network_gbps_min:,} Gbit/s at least")
    if request.price_usd_per_hour_max is not None:
        words.append(f"at most {exact(request.price_usd_per_hour_max)} USD per hour")
    return ", ".join(words) or None


def _service_level(lease: LeaseView) -> str | None:
    """The tier with the version of its terms; None where nothing is promised."""
    return None if lease.sla_version is None else f"{lease.request.sla}, terms {lease.sla_version}"


def _power(power: PowerView | None, now: datetime) -> str | None:
    """Whether the machine is on, and what the provider can do; nothing where it can do nothing."""
    if power is None or not (power.actions or power.since):
        return None
    since = "" if power.since is None else f" since {both(power.since, now)}"
    settled = power.state in ("on", "off")
    failed = "" if power.why is None else f"; {'the last request failed: ' if settled else ''}{power.why}"
    stopped = power.price_per_hour_stopped
    costs = "" if stopped is None else f"; {price(stopped)} USD per hour while stopped"
    return f"{power.state}{since}{failed}; can {', '.join(power.actions) or 'do nothing else'}{costs}"


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
