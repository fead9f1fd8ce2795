"""GPU proofs on the screen: what was asked, what each GPU showed, and what was allowed."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, indented, pairs, table
from control_plane.cli.words import absolute, ago, both, coarse, plural, sentence, spaced
from control_plane.wire.leases import LeaseProofView
from control_plane.wire.proofs import FindingView, ProofRecordView, ProofView, RateView

OUTCOMES = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "unanswered": ("?", "yellow"),
    "emulated": ("✗", "yellow"),
}
"""The mark and the colour of each outcome."""
OCCASIONS = {
    "start": "before the lease was ready",
    "recheck": "again, after a proof that was not passed",
    "idle": "unannounced, while idle",
    "end": "after the lease, to overwrite the GPU memory",
}
_GIB = 1 << 30
_KINDS = ("int8", "bf16")


def mark(outcome: str) -> Text:
    glyph, style = OUTCOMES.get(outcome, ("•", "default"))
    return Text(f"{glyph} {outcome}", style=style)


def standing(proof: LeaseProofView, now: datetime) -> str | None:
    """A lease's line about proof; None when its SKU demands none."""
    if proof.demanded == "listed":
        return None
    if proof.at is None or proof.outcome is None:
        return f"none yet; {proof.demanded} is required"
    return f"{proof.tier}; {proof.outcome} {ago(proof.at, now)}"


def proof_table(proofs: Sequence[ProofView], now: datetime) -> RenderableType:
    if not proofs:
        return Text("No proofs: the SKU demands none, or the machine was not challenged yet.")
    rows: list[Sequence[Cell]] = [
        (
            proof.id,
            proof.occasion,
            mark(proof.outcome),
            f"{proof.seconds:.1f} s",
            coarse(now - proof.at),
        )
        for proof in proofs
    ]
    columns = ("PROOF", "OCCASION", "OUTCOME", "TOOK", "AGE")
    parts: list[RenderableType] = [
        table(columns, rows, right=("TOOK", "AGE"), whole=("PROOF", "OCCASION", "OUTCOME"))
    ]
    not_passed = [proof for proof in proofs if proof.outcome != "passed"]
    if not_passed:
        reasons = pairs((Text(coarse(now - proof.at)), _reason(proof)) for proof in not_passed)
        parts += [Text(), heading("Reasons"), indented(reasons)]
    return Group(*parts)


_WITHOUT_A_FINDING = {"emulated": "An emulation answered, which proves nothing."}
"""Why a proof without a finding was not passed, by its outcome."""


def _reason(proof: ProofView | ProofRecordView) -> Text:
    code, why = proof.code or proof.outcome, sentence(proof.why or _WITHOUT_A_FINDING.get(proof.outcome, ""))
    return Text.assemble((spaced(code), "yellow"), f"  {why}" if why else "")


def proof_lines(proof: ProofView, now: datetime) -> RenderableType:
    """One proof in a line, with the reason below it when it was not passed."""
    when = f"  {absolute(proof.at)}, {ago(proof.at, now)}"
    line = Text.assemble("GPU proof ", mark(proof.outcome), f", {proof.occasion}", (when, "dim"))
    parts: list[RenderableType] = [line]
    if proof.outcome != "passed":
        parts.append(indented(_reason(proof)))
    return indented(Group(*parts))


def proof_page(proof: ProofView, now: datetime) -> RenderableType:
    """Everything about one proof that a person compares."""
    title = Text.assemble(("GPU proof", "bold"), "  ", mark(proof.outcome), (f"  {proof.id}", "dim"))
    occasion = OCCASIONS.get(proof.occasion, proof.occasion).capitalize()
    parts: list[RenderableType] = [
        title,
        indented(Text(sentence(occasion))),
        Text(),
        facts(
            ("Lease", proof.lease_id),
            ("Machine", proof.machine_id),
            ("Sold as", _sold_as(proof)),
            ("When", both(proof.at, now)),
            ("Took", f"{proof.seconds:.1f} s"),
            ("Source", _source(proof)),
            ("Reference", proof.reference or None),
            ("Attested", "every GPU, signed by its chip" if proof.attested else None),
        ),
    ]
    if proof.gpus:
        parts += [Text(), _gpus(proof)]
    if proof.findings:
        parts += [Text(), heading("Findings"), _findings(proof.findings, "✗", "red")]
    if proof.hints:
        parts += [Text(), heading("Hints", "they do not fail the proof; the next challenge comes sooner")]
        parts.append(_findings(proof.hints, "•", "yellow"))
    return Group(*parts)


def _sold_as(proof: ProofView) -> str:
    return f"{plural(len(proof.gpus), 'GPU')}, {proof.gpu_model}" if proof.gpus else proof.gpu_model


def _source(proof: ProofView) -> str:
    words = {"cuda": "CUDA", "emulated": "an emulation, which is no proof", "": "no answer"}
    driver = f", driver {proof.driver}" if proof.driver else ""
    return words.get(proof.source, proof.source) + driver


def _findings(findings: Sequence[FindingView], glyph: str, style: str) -> RenderableType:
    return indented(pairs((Text(glyph, style=style), _finding(finding, style)) for finding in findings))


def _finding(finding: FindingView, style: str) -> Text:
    gpu = "" if finding.gpu is None else f"  GPU {finding.gpu}"
    return Text.assemble((spaced(finding.code), style), gpu, f"\n{sentence(finding.why)}")


def _gpus(proof: ProofView) -> RenderableType:
    """The GPUs, and what each has shown if the proof got so far."""
    uuids: list[Sequence[Cell]] = [(str(number), gpu.uuid) for number, gpu in enumerate(proof.gpus)]
    named = table(("GPU", "UUID"), uuids, right=("GPU",))
    if not proof.rates:
        return named
    rows: list[Sequence[Cell]] = [
        (
            str(number),
            _memory(gpu.proven_bytes, gpu.sold_bytes),
            _pace(proof.rates, number, "walk", 1e9),
            *(_pace(proof.rates, number, kind, 1e12) for kind in _KINDS),
        )
        for number, gpu in enumerate(proof.gpus)
    ]
    columns = ("GPU", "MEMORY GiB", "WALK GB/s", "INT8 T/s", "BF16 T/s")
    return Group(
        table(columns, rows, right=columns),
        Text("Memory proven of memory sold; measured rates, and the least allowed.", style="dim"),
        Text("T/s: 10^12 multiply-adds a second.", style="dim"),
        Text(),
        named,
    )


def _memory(proven: int | None, sold: int) -> str:
    return f"{'-' if proven is None else f'{proven / _GIB:.1f}'} of {sold / _GIB:.1f}"


def _pace(rates: Sequence[RateView], gpu: int, phase: str, unit: float) -> str:
    """The best try of a phase in `unit` per second. A phase that took too long is repeated, and the best counts."""
    tries = [rate for rate in rates if rate.gpu == gpu and rate.phase == phase]
    if not tries:
        return "-"
    best = max(tries, key=lambda rate: rate.per_second)
    measured = f"{best.per_second / unit:,.0f}"
    if not best.most_seconds:
        return measured
    least = best.per_second * best.seconds / best.most_seconds
    holds = "≥" if best.seconds <= best.most_seconds else "<"
    return f"{measured} {holds} {least / unit:,.0f}"


def record_table(records: Sequence[ProofRecordView], now: datetime) -> RenderableType:
    """How providers' machines answered their challenges."""
    if not records:
        return Text("No proofs of this kind.")
    rows: list[Sequence[Cell]] = [
        (
            record.account,
            record.gpu_model,
            record.occasion,
            mark(record.outcome),
            "ended" if record.ended else "",
            coarse(now - record.at),
        )
        for record in records
    ]
    columns = ("ACCOUNT", "GPUS", "OCCASION", "OUTCOME", "MACHINE", "AGE")
    parts: list[RenderableType] = [table(columns, rows, right=("AGE",), whole=("OCCASION", "OUTCOME"))]
    for record in records:
        if record.outcome != "passed":
            beside = f"{record.id}, {coarse(now - record.at)} ago"
            parts += [Text(), heading(record.offer, beside), indented(_reason(record))]
    return Group(*parts)
