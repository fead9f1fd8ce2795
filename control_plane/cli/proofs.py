"""GPU proofs as tables and pages: what was asked, what each GPU showed, and what was allowed. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.layout import Cell, facts, heading, indented, pairs, table
from control_plane.cli.wire import Finding, LeaseProof, Proof, ProofRecord, Rate, Sku
from control_plane.cli.words import absolute, ago, both, coarse, moment, plural, sentence, spaced

OUTCOMES = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "unanswered": ("?", "yellow"),
    "emulated": ("✗", "yellow"),
}
OCCASIONS = {
    "start": "before the lease was ready",
    "recheck": "a second look",
    "idle": "unannounced, while idle",
    "end": "after the lease, to overwrite its memory",
}
_GIB = 1 << 30
_KINDS = ("int8", "bf16")


def mark(outcome: str) -> Text:
    glyph, style = OUTCOMES.get(outcome, ("•", "default"))
    return Text(f"{glyph} {outcome}", style=style)


def standing(one: LeaseProof | None, now: datetime) -> str | None:
    """A lease's line about proof; None where none is demanded, or the API does not say."""
    if one is None or one["demanded"] == "listed":
        return None
    if one["at"] is None or one["outcome"] is None:
        return f"not yet; {one['demanded']} is demanded"
    return f"{one['tier']}; {one['outcome']} {ago(moment(one['at']), now)}"


def demands(items: Sequence[Sku]) -> list[RenderableType]:
    """Which SKUs are proven before they are leased; nothing when none is, or the API does not say."""
    by_tier: dict[str, list[str]] = {}
    for sku in items:
        by_tier.setdefault(sku.get("proof", "listed"), []).append(sku["name"])
    return [
        Text(f"\nGPUs {tier} before they are leased: {', '.join(names)}.", style="dim")
        for tier, names in by_tier.items()
        if tier != "listed"
    ]


def proofs(items: Sequence[Proof], now: datetime) -> RenderableType:
    if not items:
        return Text("No proofs: its SKU demands none, or its machine was not challenged yet.")
    rows: list[Sequence[Cell]] = [
        (
            one["id"],
            one["occasion"],
            mark(one["outcome"]),
            f"{one['seconds']:.1f} s",
            coarse(now - moment(one["at"])),
        )
        for one in items
    ]
    columns = ("PROOF", "OCCASION", "OUTCOME", "TOOK", "AGE")
    parts: list[RenderableType] = [
        table(columns, rows, right=("TOOK", "AGE"), whole=("PROOF", "OCCASION", "OUTCOME"))
    ]
    told = [one for one in items if one["outcome"] != "passed"]
    if told:
        parts += [Text(), heading("Why not")]
        parts.append(indented(pairs((Text(coarse(now - moment(one["at"]))), _reason(one)) for one in told)))
    return Group(*parts)


def _reason(one: Proof | ProofRecord) -> Text:
    code, why = one["code"] or one["outcome"], sentence(one["why"] or "")
    return Text.assemble((spaced(code), "yellow"), f"  {why}" if why else "")


def told(one: Proof, now: datetime) -> RenderableType:
    """One proof in a line, with its reason below it: for the story of a lease."""
    at = moment(one["at"])
    line = mark(one["outcome"])
    line = Text.assemble(
        "GPU proof ", line, f", {one['occasion']}", (f"  {absolute(at)}, {ago(at, now)}", "dim")
    )
    parts: list[RenderableType] = [line]
    if one["outcome"] != "passed":
        parts.append(indented(_reason(one)))
    return indented(Group(*parts))


def proof(one: Proof, now: datetime) -> RenderableType:
    """All of one proof that a person compares."""
    title = Text.assemble(("GPU proof", "bold"), "  ", mark(one["outcome"]), (f"  {one['id']}", "dim"))
    attested = "every GPU signed by its chip's key" if one["attested"] else None
    parts: list[RenderableType] = [
        title,
        indented(Text(sentence(OCCASIONS.get(one["occasion"], one["occasion"]).capitalize()))),
        Text(),
        facts(
            ("Lease", one["lease_id"]),
            ("Machine", one["instance_id"]),
            (
                "Sold as",
                f"{plural(len(one['gpus']), 'GPU')}, {one['gpu_model']}" if one["gpus"] else one["gpu_model"],
            ),
            ("When", both(one["at"], now)),
            ("Took", f"{one['seconds']:.1f} s"),
            ("Answered", _who(one)),
            ("Held to", one["reference"] or None),
            ("Attested", attested),
        ),
    ]
    if one["gpus"]:
        parts += [Text(), _gpus(one)]
    if one["findings"]:
        parts += [Text(), heading("Findings"), _findings(one["findings"], "✗", "red")]
    if one["hints"]:
        parts += [Text(), heading("Hints", "they fail no one; the next challenge comes sooner")]
        parts.append(_findings(one["hints"], "•", "yellow"))
    return Group(*parts)


def _who(one: Proof) -> str:
    words = {"cuda": "CUDA", "emulated": "an emulation, which never counts", "": "nobody"}
    driver = f", driver {one['driver']}" if one["driver"] else ""
    return words.get(one["source"], one["source"]) + driver


def _findings(items: Sequence[Finding], glyph: str, style: str) -> RenderableType:
    return indented(
        pairs(
            (
                Text(glyph, style=style),
                Text.assemble(
                    (spaced(one["code"]), style),
                    "" if one["gpu"] is None else f"  GPU {one['gpu']}",
                    f"\n{sentence(one['why'])}",
                ),
            )
            for one in items
        )
    )


def _gpus(one: Proof) -> RenderableType:
    """Which GPUs there were, and what each has shown, where it came to that."""
    uuids: list[Sequence[Cell]] = [(str(n), gpu["uuid"]) for n, gpu in enumerate(one["gpus"])]
    named = table(("GPU", "UUID"), uuids, right=("GPU",))
    if not one["rates"]:
        return named
    rows: list[Sequence[Cell]] = [
        (
            str(number),
            _memory(gpu["proven_bytes"], gpu["sold_bytes"]),
            _pace(one["rates"], number, "walk", 1e9),
            *(_pace(one["rates"], number, kind, 1e12) for kind in _KINDS),
        )
        for number, gpu in enumerate(one["gpus"])
    ]
    columns = ("GPU", "MEMORY GiB", "WALK GB/s", "INT8 T/s", "BF16 T/s")
    return Group(
        table(columns, rows, right=columns),
        Text("Memory proven of memory sold; rates as seen from here, and the least allowed.", style="dim"),
        Text("T/s: 10^12 multiply-adds a second.", style="dim"),
        Text(),
        named,
    )


def _memory(proven: int | None, sold: int) -> str:
    return f"{'-' if proven is None else f'{proven / _GIB:.1f}'} of {sold / _GIB:.1f}"


def _pace(rates: Sequence[Rate], gpu: int, phase: str, unit: float) -> str:
    """The best try of a phase; a phase that was out of time is repeated, and the best counts."""
    tries = [one for one in rates if one["gpu"] == gpu and one["phase"] == phase]
    if not tries:
        return "-"
    best = max(tries, key=lambda one: one["per_second"])
    shown = f"{best['per_second'] / unit:,.0f}"
    if not best["most_seconds"]:
        return shown
    least = best["per_second"] * best["seconds"] / best["most_seconds"]
    holds = "≥" if best["seconds"] <= best["most_seconds"] else "<"
    return f"{shown} {holds} {least / unit:,.0f}"


def records(items: Sequence[ProofRecord], now: datetime) -> RenderableType:
    """How providers' machines answered, for operators."""
    if not items:
        return Text("No proofs of this kind.")
    rows: list[Sequence[Cell]] = [
        (
            one["account"],
            one["gpu_model"],
            one["occasion"],
            mark(one["outcome"]),
            "ended" if one["ended"] else "",
            coarse(_age(one, now)),
        )
        for one in items
    ]
    columns = ("ACCOUNT", "GPUS", "OCCASION", "OUTCOME", "MACHINE", "AGE")
    parts: list[RenderableType] = [table(columns, rows, right=("AGE",), whole=("OCCASION", "OUTCOME"))]
    for one in items:
        if one["outcome"] == "passed":
            continue
        parts += [
            Text(),
            heading(one["offer"], f"{one['id']}, {coarse(_age(one, now))} ago"),
            indented(_reason(one)),
        ]
    return Group(*parts)


def _age(one: ProofRecord, now: datetime) -> timedelta:
    return now - moment(one["at"])
