"""Answers as tables and pages, for 80 columns and for people. Pure: data and a moment in, renderables out.

Everything arrives cleaned (`words.clean`) and goes out as Text or plain strings, never as markup.
Colour repeats what a word says already: without it nothing is lost.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli import proofs, ssh
from control_plane.cli.layout import Cell, facts, heading, indented, pairs, table
from control_plane.cli.wire import (
    Bill,
    Candidate,
    Lease,
    Machine,
    Money,
    Offer,
    Organization,
    Quote,
    Rejected,
    Sku,
    SshKey,
    Status,
    UsageRow,
    CapacityRequest,
)
from control_plane.cli.words import (
    ago,
    both,
    cents,
    coarse,
    gpu_hours,
    moment,
    money,
    short_id,
    spaced,
    span,
)
from control_plane.domain.money import Nano

PHASES = {
    "pending": ("○", "yellow"),
    "starting": ("◐", "cyan"),
    "ready": ("●", "green"),
    "unconfirmed": ("◌", "yellow"),
    "ending": ("◑", "magenta"),
    "ended": ("·", "dim"),
}
STOCK = {"live": "in stock", "advisory": "likely", "static": "not known"}
"""How sure a provider's word about its stock is."""


def phase_mark(status: Status) -> Text:
    glyph, style = PHASES.get(status["phase"], ("?", "default"))
    made = Text(f"{glyph} {status['phase']}", style=style)
    if status["phase"] == "starting":
        made.append(f" {status['steps_done']}/{status['steps_total']}")
    return made


def price(amount: Money | None) -> str:
    return money(amount["usd"]) if amount else "-"


def rounded(amount: Money) -> str:
    return cents(Nano(amount["nano"]))


def hardware(count: int, model: str) -> str:
    return f"{count} x {model}"


# Who I am


def organization(one: Organization, *, url: str, source: str) -> RenderableType:
    return Group(
        heading(one["name"], "suspended" if one["suspended"] else ""),
        facts(
            ("Organization", one["id"]),
            ("API", url),
            ("Key", source),
            ("GPUs", f"{one['gpus_held']} of {one['gpu_quota']} held"),
            ("Balance", f"{price(one['balance'])} USD"),
            ("On hold", f"{price(one['held'])} USD for running leases"),
            ("Available", f"{price(one['available'])} USD"),
        ),
    )


def ssh_keys(items: Sequence[SshKey], now: datetime) -> RenderableType:
    if not items:
        return Text("No SSH keys; add one with: splitplane ssh-key add NAME ~/.ssh/id_ed25519.pub")
    rows = [(key["name"], key["fingerprint"], coarse(now - moment(key["created_at"]))) for key in items]
    return table(("NAME", "FINGERPRINT", "AGE"), rows, right=("AGE",))


# What is sold


def skus(items: Sequence[Sku]) -> RenderableType:
    if not items:
        return Text("Nothing is for sale: the price book is empty.")
    columns = ("SKU", "GPUS", "VCPU", "RAM GiB", "DISK GiB", "USD/GPU-H", "USD/H")
    rows = [
        (
            Text(sku["name"], style="bold"),
            hardware(sku["gpu_count"], sku["gpu_model"]),
            str(sku["vcpus"]),
            f"{sku['memory_gib']:,}",
            f"{sku['disk_gib']:,}",
            price(sku["price_per_gpu_hour"]),
            price(sku["price_per_hour"]),
        )
        for sku in items
    ]
    return Group(table(columns, rows, right=columns[2:]), *proofs.demands(items))


def offers(items: Sequence[Offer]) -> RenderableType:
    """Offers by hardware; within it those in stock first, cheap before dear."""
    if not items:
        return Text("No offers: no provider has listed capacity of this kind yet.")
    cost = any(offer["cost_per_hour"] for offer in items)
    parts: list[RenderableType] = []
    for (model, count), group in groupby(sorted(items, key=_hardware_of), key=_hardware_of):
        members = sorted(group, key=_offer_order)
        sold_as = sorted({sku for offer in members for sku in offer["skus"]})
        parts.append(
            heading(hardware(count, model), f"sold as {', '.join(sold_as)}" if sold_as else "not sold")
        )
        parts += [indented(_offer_table(members, cost=cost)), Text()]
    return Group(*parts[:-1])


def _hardware_of(offer: Offer) -> tuple[str, int]:
    return (offer["gpu_model"], offer["gpu_count"])


def _offer_order(offer: Offer) -> tuple[bool, int, str]:
    amount = offer["cost_per_hour"] or offer["price_per_hour"]
    return (not offer["available"], amount["nano"] if amount else 0, offer["key"])


def _offer_table(members: Sequence[Offer], *, cost: bool) -> Table:
    columns = ("PROVIDER", "REGION", "TYPE", "STOCK", "SEEN", "USD/H", *(("COST",) if cost else ()))
    rows = [
        (
            offer["provider"],
            offer["region"],
            offer["native_type"],
            _stock(offer),
            coarse(timedelta(seconds=offer["age_seconds"])),
            price(offer["price_per_hour"]),
            *((price(offer["cost_per_hour"]),) if cost else ()),
        )
        for offer in members
    ]
    return table(columns, rows, right=("SEEN", "USD/H", "COST"))


def _stock(offer: Offer) -> Text:
    if not offer["available"]:
        return Text("sold out", style="dim")
    word = STOCK.get(offer["confidence"], offer["confidence"])
    return Text(word, style="green" if offer["confidence"] == "live" else "yellow")


def quote(one: Quote) -> RenderableType:
    """Price, verdict, where it would go. A refusal itself is told on standard error, as every refusal is."""
    parts: list[RenderableType] = []
    if one["price_per_hour"] is not None:
        per_gpu = price(one["price_per_gpu_hour"])
        parts.append(
            heading(one["sku"], f"{price(one['price_per_hour'])} USD per hour, {per_gpu} per GPU-hour")
        )
    if one["verdict"]["admitted"]:
        hold = f" with a hold of {price(one['first_hour'])} USD for its first hour."
        parts.append(Text.assemble(("Would be admitted", "green"), hold))
    if one["candidates"]:
        title = "Would be tried, best first" if one["verdict"]["admitted"] else "Could serve it, best first"
        parts += [Text(), heading(title), candidates(one["candidates"], chosen=None)]
    elif one["verdict"]["admitted"]:
        parts += [Text(), Text("No machine can serve it now; a lease would wait for one.", style="yellow")]
    if one["rejected"]:
        parts += [Text(), heading("Ruled out"), rejected(one["rejected"])]
    return Group(*parts)


def candidates(items: Sequence[Candidate], *, chosen: str | None) -> RenderableType:
    cost = any(one["cost_per_hour"] for one in items)
    columns = ("", "#", "PROVIDER", "REGION", "TYPE", "STOCK", *(("COST USD/H",) if cost else ()))
    rows = [
        (
            Text("▸" if one["key"] == chosen else " ", style="green"),
            str(number),
            one["provider"],
            one["region"],
            one["native_type"],
            STOCK.get(one["confidence"] or "", one["confidence"] or "-"),
            *((price(one["cost_per_hour"]),) if cost else ()),
        )
        for number, one in enumerate(items, start=1)
    ]
    return table(columns, rows, right=("#", "COST USD/H"))


def rejected(items: Sequence[Rejected]) -> RenderableType:
    """Every one with its reason: where on one line, why on the next, so that neither is cut.

    The same type ruled out for the same reason in many regions is told once, with all the regions.
    """
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for one in items:
        key = (one["provider"], one["native_type"], one["code"], one["why"])
        alike.setdefault(key, []).append(one["region"])
    return indented(
        pairs((Text("✗", style="dim"), _rejection(*what, where)) for what, where in alike.items())
    )


def _rejection(provider: str, native_type: str, code: str, why: str, regions: Sequence[str]) -> Text:
    if len(regions) == 1:
        return Text.assemble(
            f"{provider} {regions[0]} {native_type}  ", (spaced(code), "yellow"), "\n", (why, "dim")
        )
    where = f"{provider} {native_type} in {len(regions)} regions  "
    return Text.assemble(where, (spaced(code), "yellow"), "\n", (f"{why} {', '.join(regions)}", "dim"))


# Leases


def leases(items: Sequence[Lease], now: datetime, *, all_states: bool) -> RenderableType:
    if not items:
        hint = "" if all_states else " Ended ones show with --all."
        return Text(f"No leases.{hint} Get one with: splitplane lease create SKU")
    ids = [lease["id"] for lease in items]
    rows = [
        (
            short_id(lease["id"], ids),
            Text(lease["name"], style="bold"),
            lease["wish"]["sku"],
            phase_mark(lease["status"]),
            price(lease["price_per_hour"]),
            coarse(now - moment(lease["created_at"])),
        )
        for lease in items
    ]
    columns = ("LEASE", "NAME", "SKU", "STATUS", "USD/H", "AGE")
    return table(columns, rows, right=("USD/H", "AGE"), whole=("LEASE", "SKU", "STATUS"))


def lease(one: Lease, now: datetime) -> RenderableType:
    status = one["status"]
    parts: list[RenderableType] = [Text.assemble((one["name"], "bold"), "  ", phase_mark(status))]
    if status["message"].rstrip(".").lower() != status["phase"]:
        parts.append(indented(Text(status["message"])))
    per_hour, per_gpu_hour = price(one["price_per_hour"]), price(one["price_per_gpu_hour"])
    parts += [
        Text(),
        facts(
            ("Lease", one["id"]),
            ("SKU", f"{one['wish']['sku']}, {hardware(one['gpu_count'], one['gpu_model'])}"),
            ("Price", f"{per_hour} USD per hour, {per_gpu_hour} per GPU-hour"),
            ("Asked for", _wish(one["wish"])),
            *_machine_facts(one["machine"], now),
            ("Proof", proofs.standing(one.get("proof"), now)),
            ("Attempts", str(one["attempts"]) if one["attempts"] > 1 else None),
            ("Created", both(one["created_at"], now)),
            ("Ready", both(one["ready_at"], now)),
            ("Billed to", both(one["billed_until"], now)),
            ("Gone", both(one["ended_at"], now)),
            ("Because", one["end_why"] or (spaced(one["end_reason"]) if one["end_reason"] else None)),
        ),
    ]
    if status["phase"] in ("ready", "unconfirmed"):
        parts += [Text(), indented(Text(f"splitplane lease ssh {_handle(one)}", style="cyan"))]
    return Group(*parts)


def _handle(one: Lease) -> str:
    """What to type for this lease: its name if a shell takes it as one word, else its id."""
    plain = one["name"].replace("-", "").replace("_", "").replace(".", "").isalnum()
    return one["name"] if plain else one["id"]


def _wish(wish: CapacityRequest) -> str | None:
    words = [*wish["regions"], *wish["providers"]]
    if wish["price_per_hour_max"]:
        words.append(f"at most {price(wish['price_per_hour_max'])} USD per hour")
    return ", ".join(words) or None


def _machine_facts(machine: Machine | None, now: datetime) -> list[tuple[str, str | None]]:
    if machine is None:
        return []
    address, sighted = machine["address"], machine["sighted_at"]
    if address:
        port = "" if machine["ssh_port"] == 22 else f" port {machine['ssh_port']}"
        address = f"{machine['ssh_user']}@{address}{port}"
    return [
        ("Machine", f"{machine['provider']} {machine['region']}, {machine['state']}"),
        ("Address", address),
        ("Host key", ssh.fingerprint(machine["host_key"])),
        ("Private", machine["mesh_address"]),
        ("Last seen", f"{ago(moment(sighted), now)}, by the provider's list" if sighted else None),
    ]


# Money


def usage(items: Sequence[UsageRow], since: datetime, until: datetime) -> RenderableType:
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    if not items:
        return Text(f"No usage was rated from {period}.")
    rows: list[Sequence[Cell]] = [
        (
            row["lease_name"],
            row["sku"],
            f"{moment(row['started_at']):%Y-%m-%d %H:%M:%S}",
            span(moment(row["ended_at"]) - moment(row["started_at"])),
            gpu_hours(row["gpu_seconds"]),
            rounded(row["amount"]),
        )
        for row in items
    ]
    seconds = sum(row["gpu_seconds"] for row in items)
    total = Nano(sum(row["amount"]["nano"] for row in items))
    rows.append(_total("Total", "", "", "", gpu_hours(seconds), cents(total)))
    columns = ("LEASE", "SKU", "FROM (UTC)", "LENGTH", "GPU-HOURS", "USD")
    made = table(columns, rows, right=columns[3:], whole=("SKU",))
    return Group(heading("Usage", period), Text(), made, Text(), _rounding_note())


def bill(one: Bill) -> RenderableType:
    owed = Nano(one["amount"]["nano"] + one["unrated"]["nano"])
    return Group(
        heading(f"{moment(one['since']):%B %Y} so far", "calendar month, UTC"),
        Text(),
        _bill_lines(one) if one["lines"] else Text("Nothing was used."),
        Text(),
        facts(
            ("Used", f"{cents(owed)} USD, of which {rounded(one['amount'])} posted"),
            ("Balance", f"{rounded(one['balance'])} USD"),
            ("On hold", f"{rounded(one['held'])} USD"),
            ("Available", f"{rounded(one['available'])} USD"),
        ),
        Text(),
        _rounding_note(),
    )


def _bill_lines(one: Bill) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            line["name"],
            line["sku"],
            price(line["price_per_gpu_hour"]),
            gpu_hours(line["gpu_seconds"] + line["unrated_gpu_seconds"]),
            rounded(line["amount"]),
            rounded(line["unrated"]),
        )
        for line in one["lines"]
    ]
    seconds = sum(line["gpu_seconds"] + line["unrated_gpu_seconds"] for line in one["lines"])
    rows.append(_total("Total", "", "", gpu_hours(seconds), rounded(one["amount"]), rounded(one["unrated"])))
    columns = ("LEASE", "SKU", "USD/GPU-H", "GPU-HOURS", "POSTED", "NOT RATED YET")
    return table(columns, rows, right=columns[2:], whole=("SKU",))


def _total(*cells: str) -> list[Cell]:
    return [Text(cell, style="bold") for cell in cells]


def _rounding_note() -> Text:
    return Text("Shown in cents; --json has every amount to the nano-dollar.", style="dim")
