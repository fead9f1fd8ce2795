"""Answers as tables and pages, for 80 columns and for people. Pure: data and a moment in, renderables out.

Everything arrives cleaned (`words.clean`) and goes out as Text or plain strings, never as markup.
Colour repeats what a word says already: without it nothing is lost.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from control_plane.cli import ssh
from control_plane.cli.wire import (
    Account,
    Bill,
    Candidate,
    Lease,
    Loop,
    Machine,
    Money,
    Offer,
    Organization,
    Orphan,
    Quote,
    Rejected,
    Sku,
    SshKey,
    Status,
    UsageRow,
    Wish,
)
from control_plane.cli.words import (
    ago,
    both,
    gpu_hours,
    moment,
    money,
    plural,
    short_id,
    short_usd,
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


def table(*columns: str, right: Iterable[str] = (), wrap: Iterable[str] = ()) -> Table:
    """A table without lines: quiet headings, numbers to the right, one column that may wrap."""
    made = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name not in wrap,
            overflow="fold" if name in wrap else "ellipsis",
        )
    return made


def facts(*pairs: tuple[str, RenderableType | None]) -> RenderableType:
    """Labelled lines; a fact that is None is left out."""
    made = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None:
            made.add_row(label, value)
    return indented(made)


def indented(what: RenderableType, by: int = 2) -> RenderableType:
    return Padding(what, (0, 0, 0, by))


def heading(text: str, beside: str = "") -> Text:
    made = Text(text, style="bold")
    return made.append(f"  {beside}", style="not bold dim") if beside else made


def phase_mark(status: Status, *, steps: bool = False) -> Text:
    glyph, style = PHASES.get(status["phase"], ("?", "default"))
    made = Text(f"{glyph} {status['phase']}", style=style)
    if steps and status["phase"] == "starting":
        made.append(f" {status['steps_done']}/{status['steps_total']}")
    return made


def price(amount: Money | None) -> str:
    return money(amount["usd"] if amount else None)


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
    made = table("NAME", "FINGERPRINT", "ADDED")
    for key in items:
        added = moment(key["created_at"])
        made.add_row(Text(key["name"]), key["fingerprint"], ago(added, now) if added else "-")
    return made


# What is sold


def skus(items: Sequence[Sku]) -> RenderableType:
    if not items:
        return Text("Nothing is for sale: the price book is empty.")
    made = table(
        "SKU",
        "GPUS",
        "VCPUS",
        "MEMORY",
        "DISK",
        "USD/GPU-H",
        "USD/H",
        right=("VCPUS", "MEMORY", "DISK", "USD/GPU-H", "USD/H"),
    )
    for sku in items:
        made.add_row(
            Text(sku["name"], style="bold"),
            hardware(sku["gpu_count"], sku["gpu_model"]),
            str(sku["vcpus"]),
            f"{sku['memory_gib']:,} GiB",
            f"{sku['disk_gib']:,} GiB",
            price(sku["price_per_gpu_hour"]),
            price(sku["price_per_hour"]),
        )
    return made


_STOCK = {"live": "in stock", "advisory": "likely", "static": "not known"}


def stock(offer: Offer) -> Text:
    if not offer["available"]:
        return Text("sold out", style="dim")
    word = _STOCK.get(offer["confidence"], offer["confidence"])
    return Text(word, style="green" if offer["confidence"] == "live" else "yellow")


def offers(items: Sequence[Offer]) -> RenderableType:
    """Offers by hardware; within it those in stock first, cheap before dear."""
    if not items:
        return Text("No offers: no provider has listed capacity of this kind yet.")
    shown_cost = any(offer["cost_per_hour"] for offer in items)
    parts: list[RenderableType] = []
    ordered = sorted(items, key=lambda offer: (offer["gpu_model"], offer["gpu_count"]))
    for (model, count), group in groupby(ordered, key=lambda offer: (offer["gpu_model"], offer["gpu_count"])):
        members = sorted(group, key=_offer_order)
        sold_as = sorted({sku for offer in members for sku in offer["skus"]})
        parts.append(
            heading(hardware(count, model), f"sold as {', '.join(sold_as)}" if sold_as else "not sold")
        )
        parts.append(indented(_offer_table(members, cost=shown_cost)))
        parts.append(Text())
    return Group(*parts[:-1])


def _offer_order(offer: Offer) -> tuple[bool, int, str]:
    amount = offer["cost_per_hour"] or offer["price_per_hour"]
    return (not offer["available"], amount["nano"] if amount else 0, offer["key"])


def _offer_table(members: Sequence[Offer], *, cost: bool) -> Table:
    columns = ["PROVIDER", "REGION", "TYPE", "STOCK", "SEEN", "USD/H", *(["COST"] if cost else [])]
    made = table(*columns, right=("SEEN", "USD/H", "COST"))
    for offer in members:
        row: list[RenderableType] = [
            Text(offer["provider"]),
            offer["region"],
            Text(offer["native_type"]),
            stock(offer),
            _age(offer["age_seconds"]),
            price(offer["price_per_hour"]),
        ]
        if cost:
            row.append(price(offer["cost_per_hour"]))
        made.add_row(*row)
    return made


def _age(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


def quote(one: Quote) -> RenderableType:
    """Price, verdict, where it would go. A refusal itself is told on standard error, as every refusal is."""
    parts: list[RenderableType] = []
    if one["price_per_hour"] is not None:
        per_gpu = price(one["price_per_gpu_hour"])
        parts.append(
            heading(one["sku"], f"{price(one['price_per_hour'])} USD per hour, {per_gpu} per GPU-hour")
        )
    if one["verdict"]["admitted"]:
        hold = price(one["first_hour"])
        parts.append(
            Text("Would be admitted", style="green").append(
                f" with a hold of {hold} USD for its first hour.", style="default"
            )
        )
    if one["candidates"]:
        parts += [Text(), heading("Would be tried, best first"), candidates(one["candidates"], chosen=None)]
    elif one["price_per_hour"] is not None:
        parts += [Text(), Text("No machine can serve it now; a lease would wait for one.", style="yellow")]
    if one["rejected"]:
        parts += [Text(), heading("Ruled out"), rejected(one["rejected"])]
    return Group(*parts)


def candidates(items: Sequence[Candidate], *, chosen: str | None) -> RenderableType:
    cost = any(one["cost_per_hour"] for one in items)
    columns = ["", "#", "PROVIDER", "REGION", "TYPE", "STOCK", *(["COST USD/H"] if cost else [])]
    made = table(*columns, right=("#", "COST USD/H"))
    for number, one in enumerate(items, start=1):
        row: list[RenderableType] = [
            Text("▸" if one["key"] == chosen else " ", style="green"),
            str(number),
            Text(one["provider"]),
            one["region"],
            Text(one["native_type"]),
            _STOCK.get(one["confidence"] or "", one["confidence"] or "-"),
        ]
        if cost:
            row.append(price(one["cost_per_hour"]))
        made.add_row(*row)
    return made


def rejected(items: Sequence[Rejected]) -> RenderableType:
    """Every one with its reason: where on one line, why on the next, so that neither is cut."""
    made = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for one in items:
        where = Text(f"{one['provider']} {one['region']} {one['native_type']}")
        where.append(f"  {spaced(one['code'])}", style="yellow")
        made.add_row(Text("✗", style="dim"), Group(where, Text(one["why"], style="dim")))
    return indented(made)


# Leases


def leases(items: Sequence[Lease], now: datetime, *, all_states: bool) -> RenderableType:
    if not items:
        hint = "" if all_states else " Ended ones show with --all."
        return Text(f"No leases.{hint} Get one with: splitplane lease create SKU")
    ids = [lease["id"] for lease in items]
    made = table("LEASE", "NAME", "SKU", "STATUS", "USD/H", "AGE", right=("USD/H", "AGE"))
    made.columns[1].ratio = 1
    made.expand = True
    for lease in items:
        created = moment(lease["created_at"])
        made.add_row(
            Text(short_id(lease["id"], ids)),
            Text(lease["name"], style="bold"),
            lease["wish"]["sku"],
            phase_mark(lease["status"], steps=True),
            price(lease["price_per_hour"]),
            span(now - created) if created else "-",
        )
    return made


def lease(one: Lease, now: datetime) -> RenderableType:
    status = one["status"]
    title = Text.assemble((one["name"], "bold"), "  ", phase_mark(status, steps=True))
    parts: list[RenderableType] = [title, indented(Text(status["message"])), Text()]
    times = [(label, moment(one[field])) for label, field in _TIMES]  # type: ignore[literal-required]
    parts.append(
        facts(
            ("Lease", one["id"]),
            ("SKU", f"{one['wish']['sku']}, {hardware(one['gpu_count'], one['gpu_model'])}"),
            (
                "Price",
                f"{price(one['price_per_hour'])} USD per hour, {price(one['price_per_gpu_hour'])} per GPU-hour",
            ),
            ("Asked for", _wish(one["wish"])),
            *_machine_facts(one["machine"], now),
            ("Attempts", str(one["attempts"]) if one["attempts"] > 1 else None),
            *((label, both(at, now) if at else None) for label, at in times),
            ("Ended", None if one["end_reason"] is None else _end(one)),
        )
    )
    if status["phase"] in ("ready", "unconfirmed"):
        parts += [Text(), indented(Text(f"splitplane lease ssh {_handle(one)}", style="cyan"))]
    return Group(*parts)


_TIMES = (
    ("Created", "created_at"),
    ("Ready", "ready_at"),
    ("Billed to", "billed_until"),
    ("Gone", "ended_at"),
)


def _handle(one: Lease) -> str:
    """What to type for this lease: its name if a shell takes it as one word, else its id."""
    return (
        one["name"] if one["name"].replace("-", "").replace("_", "").replace(".", "").isalnum() else one["id"]
    )


def _wish(wish: Wish) -> str | None:
    words = [*wish["regions"], *wish["providers"]]
    if wish["price_per_hour_max"]:
        words.append(f"at most {price(wish['price_per_hour_max'])} USD per hour")
    return ", ".join(words) or None


def _end(one: Lease) -> str:
    why = f": {one['end_why']}" if one["end_why"] else ""
    return f"{spaced(one['end_reason'] or '')}{why}"


def _machine_facts(machine: Machine | None, now: datetime) -> list[tuple[str, RenderableType | None]]:
    if machine is None:
        return []
    address = machine["address"]
    if address and machine["ssh_port"] != 22:
        address = f"{address} port {machine['ssh_port']}"
    sighted = moment(machine["sighted_at"])
    key = ssh.fingerprint(machine["host_key"])
    return [
        ("Machine", f"{machine['provider']} {machine['region']}, {machine['state']}"),
        ("Address", address),
        ("Host key", key),
        ("Private", machine["mesh_address"]),
        ("Last seen", f"{ago(sighted, now)}, by the provider's list" if sighted else None),
    ]


# Money


def usage(items: Sequence[UsageRow], since: datetime, until: datetime) -> RenderableType:
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    if not items:
        return Text(f"No usage was rated from {period}.")
    made = table(
        "LEASE", "SKU", "FROM (UTC)", "LENGTH", "GPU-HOURS", "USD", right=("LENGTH", "GPU-HOURS", "USD")
    )
    for row in items:
        start, end = moment(row["started_at"]), moment(row["ended_at"])
        made.add_row(
            Text(row["lease_name"]),
            row["sku"],
            f"{start:%Y-%m-%d %H:%M:%S}" if start else "-",
            span(end - start) if start and end else "-",
            gpu_hours(row["gpu_seconds"]),
            cents(row["amount"]),
        )
    made.add_section()
    total = Nano(sum(row["amount"]["nano"] for row in items))
    seconds = sum(row["gpu_seconds"] for row in items)
    _total_row(made, "Total", "", "", "", gpu_hours(seconds), rounded(total))
    return Group(heading("Usage", period), Text(), made, Text(), _rounding_note())


def bill(one: Bill) -> RenderableType:
    since = moment(one["since"])
    month = f"{since:%B %Y}" if since else "This period"
    parts: list[RenderableType] = [heading(f"{month} so far", "calendar month, UTC"), Text()]
    if one["lines"]:
        made = table(
            "LEASE", "SKU", "USD/GPU-H", "GPU-HOURS", "POSTED", "NOT RATED YET",
            right=("USD/GPU-H", "GPU-HOURS", "POSTED", "NOT RATED YET"),
        )  # fmt: skip
        for line in one["lines"]:
            made.add_row(
                Text(line["name"]),
                line["sku"],
                price(line["price_per_gpu_hour"]),
                gpu_hours(line["gpu_seconds"] + line["unrated_gpu_seconds"]),
                cents(line["amount"]),
                cents(line["unrated"]),
            )
        seconds = sum(line["gpu_seconds"] + line["unrated_gpu_seconds"] for line in one["lines"])
        _total_row(made, "Total", "", "", gpu_hours(seconds), cents(one["amount"]), cents(one["unrated"]))
        parts += [made, Text()]
    else:
        parts += [Text("Nothing was used."), Text()]
    owed = Nano(one["amount"]["nano"] + one["unrated"]["nano"])
    parts.append(
        facts(
            ("Used", f"{rounded(owed)} USD, of which {cents(one['amount'])} posted"),
            ("Balance", f"{cents(one['balance'])} USD"),
            ("On hold", f"{cents(one['held'])} USD"),
            ("Available", f"{cents(one['available'])} USD"),
        )
    )
    return Group(*parts, Text(), _rounding_note())


def _rounding_note() -> Text:
    return Text("Shown in cents; --json has every amount to the nano-dollar.", style="dim")


def _total_row(made: Table, *cells: str) -> None:
    made.add_row(*(Text(cell, style="bold") for cell in cells))


def cents(amount: Money) -> str:
    return rounded(Nano(amount["nano"]))


def rounded(amount: Nano) -> str:
    """To the cent, half to even, for columns that a person compares. The exact figure is never this one."""
    whole, rest = divmod(amount, 10_000_000)
    if rest > 5_000_000 or (rest == 5_000_000 and whole % 2):
        whole += 1
    return short_usd(Nano(whole * 10_000_000))


# Operators


def loops(items: Sequence[Loop]) -> RenderableType:
    if not items:
        return Text("No loop has reported yet; is the reconciler running?", style="yellow")
    made = table(
        "LOOP",
        "ACCOUNT",
        "STATE",
        "LAST",
        "EVERY",
        "LOOKED",
        "ACTED",
        right=("LAST", "EVERY", "LOOKED", "ACTED"),
    )
    for loop in items:
        made.add_row(
            loop["loop"],
            Text(loop["account"] or "-"),
            _loop_state(loop),
            f"{_age(loop['age_seconds'])} ago",
            _age(loop["every_seconds"]),
            f"{loop['looked_at']:,}",
            f"{loop['acted_on']:,}",
        )
    parts: list[RenderableType] = [made]
    for loop in items:
        if loop["late"] or loop["errors"] or loop["notes"]:
            parts += [Text(), *_loop_words(loop)]
    return Group(*parts)


def _loop_state(loop: Loop) -> Text:
    if loop["late"]:
        return Text("▲ stuck", style="bold red")
    if loop["errors"]:
        return Text("✗ " + plural(len(loop["errors"]), "error"), style="red")
    return Text("● ok", style="green")


def _loop_words(loop: Loop) -> list[RenderableType]:
    where = " ".join(word for word in (loop["account"], f"on {loop['replica']}") if word)
    parts: list[RenderableType] = [heading(loop["loop"], where)]
    if loop["late"]:
        silent = _age(loop["age_seconds"])
        stuck = f"▲ silent for {silent}; it should report every {_age(loop['every_seconds'])}"
        parts.append(indented(Text(stuck, style="red")))
    parts += [indented(Text(f"✗ {error}", style="red")) for error in loop["errors"]]
    parts += [indented(Text(note, style="dim")) for note in loop["notes"]]
    return parts


def orphans(items: Sequence[Orphan], now: datetime) -> RenderableType:
    if not items:
        return Text(
            "No orphans: every machine with one of our launch keys belongs to an open record.", style="green"
        )
    parts: list[RenderableType] = []
    for orphan in items:
        asked = moment(orphan["terminate_asked_at"])
        parts += [
            heading(f"{orphan['account']} {orphan['provider_ref']}", orphan["native_status"]),
            facts(
                ("Launch key", orphan["launch_key"]),
                ("First seen", both(moment(orphan["first_seen_at"]), now)),
                (
                    "Last seen",
                    f"{both(moment(orphan['last_seen_at']), now)}, in {plural(orphan['lists_seen'], 'list')}",
                ),
                ("Told to end", both(asked, now) if asked else "not yet"),
                ("Note", orphan["note"]),
            ),
            Text(),
        ]
    return Group(*parts[:-1])


def accounts(items: Sequence[Account], now: datetime) -> RenderableType:
    if not items:
        return Text(
            "No provider accounts are registered; the reconciler registers those it is configured with."
        )
    made = table("ACCOUNT", "PROVIDER", "STATE", "MACHINES", "LISTED", right=("MACHINES", "LISTED"))
    for account in items:
        listed = moment(account["listing_asked_at"])
        made.add_row(
            Text(account["name"], style="bold"),
            account["provider"],
            _account_state(account),
            f"{account['listing_size']:,}" if listed else "-",
            ago(listed, now) if listed else "never",
        )
    parts: list[RenderableType] = [made]
    for account in items:
        for word, style, since, why in (
            ("frozen", "yellow", account["frozen_since"], account["frozen_why"]),
            ("failing", "red", account["failing_since"], account["failing_why"]),
        ):
            if since is not None:
                parts += [Text(), heading(account["name"], f"{word} since {both(moment(since), now)}")]
                parts.append(indented(Text(why or "", style=style)))
    return Group(*parts)


def _account_state(account: Account) -> Text:
    if account["failing_since"] is not None:
        return Text("✗ failing", style="red")
    if account["frozen_since"] is not None:
        return Text("▲ frozen", style="yellow")
    return Text("● ok", style="green")
