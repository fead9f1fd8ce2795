"""The challenger against a prover of another make: whose turn, what silence means, what a report says."""

import asyncio
import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from data_plane.proof.challenger import challenger
from data_plane.proof.challenger.challenger import TRIES_MAX, ProofChallenger, chosen
from data_plane.proof.challenger.judgement import CODES, UNTIMED
from data_plane.proof.challenger.plan import Plan, Sizes, plan
from data_plane.proof.challenger.port import EVIDENCE_BYTES_MAX, Expected, Occasion, Outcome, ProofReport
from data_plane.proof.challenger.record import Record, commitment_evidence
from data_plane.proof.challenger.reference import TABLE, References
from data_plane.proof.protocol.messages import (
    SMS_MAX,
    Committed,
    Filled,
    FillOrder,
    GapsAnswer,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    Opened,
    OpenOrder,
    Order,
    Refused,
    SmGaps,
    TilesOrder,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode
from data_plane.proof.verifier.jobs import Checked, Commitment, Job, VerifierAway
from data_plane.proof.verifier.recompute import LocalVerifier, check
from tests.support.prover import (
    CHAINS,
    MIB,
    MODEL,
    SIZES,
    TOOK,
    Answered,
    HonestProver,
    ScriptedLine,
    breaking,
    changing,
    dropping,
    expected,
    faithful,
    gpu,
    identity,
    references,
)


class CountingVerifier:
    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def check(self, jobs: Any) -> list[Checked]:
        self.jobs += jobs
        return check(jobs)


def a_challenger(**changes: Any) -> ProofChallenger:
    return ProofChallenger(changes.pop("verifier", LocalVerifier()), references(), sizes=SIZES, **changes)


async def challenge(line: ScriptedLine, occasion: Occasion = Occasion.START) -> ProofReport:
    return await a_challenger().challenge(line, expected(len(line.prover.identity.gpus)), occasion)


def machine(*changes: dict[str, Any], **of_machine: Any) -> HonestProver:
    gpus = [gpu(index, **change) for index, change in enumerate(changes or ({},))]
    return HonestProver(identity(*gpus, **of_machine))


def codes(report: ProofReport) -> set[str]:
    return {finding.code for finding in report.findings}


def with_wrong_digests(phase: str) -> Any:
    """Commits to digests that are none, consistently: root, groups and opened digests fit together."""

    class Wrong(HonestProver):
        def _committed(self, of: Any, keys: list[bytes], group: int) -> list[Answered]:
            if of == phase:
                self._digests = [bytes(len(one)) for one in self._digests]
            return super()._committed(of, keys, group)

    return Wrong


# Passing.


async def test_an_honest_machine_passes_and_the_report_says_what_was_shown() -> None:
    line = ScriptedLine(machine({}, {}))
    report = await challenge(line)
    assert (report.outcome, report.findings, report.hints) == (Outcome.PASSED, (), ())
    assert report.gpu_uuids == ("GPU-0", "GPU-1")
    assert report.proven_bytes == (64 * 512, 64 * 512)
    assert (report.source, report.driver, report.reference) == ("cuda", "570.124.06", "measured (test)")
    walked = [rate for rate in report.rates if rate.phase == "walk"]
    assert [rate.gpu for rate in walked] == [0, 1]
    assert [rate.seconds for rate in walked] == pytest.approx([1.2, 1.2])
    assert walked[0].work == CHAINS * SIZES.steps * 512
    assert {rate.phase for rate in report.rates} == {"fill", "walk", "int8", "bf16"}
    assert report.seconds == pytest.approx(3 + 0.03 + 1.5 + 1.2 + 4 * 0.5 + 5 * 0.02 + 2 * 0.02)


async def test_every_conversation_ends_with_a_goodbye() -> None:
    for bend in (faithful, dropping(Committed), changing(Groups, lambda one: replace(one, raw=b"?"))):
        line = ScriptedLine(bend=bend)
        await challenge(line)
        assert isinstance(line.orders[-1], Goodbye)
        assert sum(isinstance(order, Goodbye) for order in line.orders) == 1


async def test_nonces_are_revealed_when_every_gpu_has_filled_its_memory() -> None:
    line = ScriptedLine(machine({}, {}), bend=dropping(Filled))
    await challenge(line)
    assert any(isinstance(order, FillOrder) for order in line.orders)
    assert not any(isinstance(order, WalkOrder) for order in line.orders)


async def test_the_sample_is_drawn_when_all_roots_and_all_group_hashes_are_here() -> None:
    line = ScriptedLine(machine({}, {}))
    here: list[int] = []

    def choose(count: int, k: int) -> Any:
        here.append(sum(isinstance(one, Groups) for one in line.heard))
        return chosen(count, k)

    await a_challenger(choose=choose).challenge(line, expected(2), Occasion.START)
    assert here[:4] == [2, 2, 4, 4]


async def test_every_try_of_every_gpu_has_a_seed_of_its_own() -> None:
    line = ScriptedLine(machine({}, {}), took={**TOOK, "walk": [1.6, 1.2]})
    await challenge(line)
    drawn = [one.nonce for order in line.orders if isinstance(order, WalkOrder) for one in order.gpus]
    drawn += [one.seed for order in line.orders if isinstance(order, TilesOrder) for one in order.gpus]
    assert len(drawn) == len(set(drawn)) == 2 * 2 + 2 * 4


async def test_one_frame_asks_all_gpus_at_once_for_what_was_planned() -> None:
    line = ScriptedLine(machine({}, {}, {}))
    await challenge(line)
    (walk,) = [order for order in line.orders if isinstance(order, WalkOrder)]
    assert [one.chains for one in walk.gpus] == [CHAINS] * 3


def test_a_sample_has_no_number_twice() -> None:
    for _ in range(20):
        sample = chosen(10, 8)
        assert len(set(sample)) == 8
        assert all(0 <= number < 10 for number in sample)


# Emulations.


async def test_an_emulation_is_challenged_with_little_and_never_proven() -> None:
    line = ScriptedLine(machine(source="emulated"), took={**TOOK, "walk": 9.0, LatencyAnswer: 5.0})
    report = await challenge(line)
    assert report.outcome is Outcome.EMULATED, report.findings
    assert (report.proven_bytes, report.rates, report.reference) == ((), (), "")
    (fill,) = [order for order in line.orders if isinstance(order, FillOrder)]
    assert fill.gpus[0].blocks * 512 <= 2 * MIB


async def test_an_emulation_that_answers_wrong_fails() -> None:
    line = ScriptedLine(with_wrong_digests("int8")(identity(source="emulated")))
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"wrong_digest"})


# Wrong answers.


@pytest.mark.parametrize("phase", ["walk", "int8", "bf16"])
async def test_digests_that_nobody_computed_are_found_out(phase: str) -> None:
    report = await challenge(ScriptedLine(with_wrong_digests(phase)(identity())))
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"wrong_digest"})
    assert all(finding.why.startswith(phase) for finding in report.findings)


async def test_a_launch_chain_that_was_cut_short_is_found_out() -> None:
    def change(one: Answered) -> Answered:
        return replace(one, message=replace(one.message, final=bytes(16)))

    report = await challenge(ScriptedLine(bend=changing(LatencyAnswer, change)))
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"wrong_digest"})


async def test_who_sees_the_sample_and_breaks_the_line_later_is_checked_all_the_same() -> None:
    """Else a cheat would look whether it was caught, and make it count as nothing."""
    line = ScriptedLine(with_wrong_digests("walk")(identity()), bend=breaking(Committed, "int8"))
    report = await challenge(line)
    assert report.outcome is Outcome.FAILED
    assert codes(report) == {"line_broken", "wrong_digest"}


async def test_a_late_try_is_opened_and_checked_as_well() -> None:
    verifier = CountingVerifier()
    line = ScriptedLine(took={**TOOK, "walk": [1.6, 1.2]})
    report = await a_challenger(verifier=verifier).challenge(line, expected(), Occasion.START)
    assert report.outcome is Outcome.PASSED
    assert len(verifier.jobs) == 1 + 2 + 2 + 2  # Launch chain, two walks, two repeats of each kind.


async def test_nothing_is_computed_for_a_machine_that_has_failed_already() -> None:
    verifier = CountingVerifier()
    line = ScriptedLine(took={**TOOK, "walk": 1.7})
    report = await a_challenger(verifier=verifier).challenge(line, expected(), Occasion.START)
    assert report.outcome is Outcome.FAILED
    assert verifier.jobs == []


# Time.


async def test_a_walk_that_is_late_three_times_ends_the_challenge() -> None:
    line = ScriptedLine(took={**TOOK, "walk": 1.6})
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"too_slow"})
    assert sum(isinstance(order, WalkOrder) for order in line.orders) == TRIES_MAX
    assert not any(isinstance(order, TilesOrder) for order in line.orders)


async def test_the_best_of_three_tries_counts_and_is_mentioned() -> None:
    report = await challenge(ScriptedLine(took={**TOOK, "walk": [1.6, 1.7, 1.21]}))
    assert report.outcome is Outcome.PASSED
    assert "retried" in {hint.code for hint in report.hints}
    assert [rate.seconds for rate in report.rates if rate.phase == "walk"] == [pytest.approx(1.21)]


async def test_a_walk_that_is_too_early_is_no_walk() -> None:
    report = await challenge(ScriptedLine(took={**TOOK, "walk": 0.5}))
    assert codes(report) == {"too_fast"}


async def test_a_remote_driver_is_seen_by_its_launches() -> None:
    report = await challenge(ScriptedLine(took={**TOOK, LatencyAnswer: 0.4}))
    assert codes(report) == {"too_slow"}


async def test_the_first_byte_of_a_root_stops_no_clock() -> None:
    """It is a length's, known in advance: who is slow could send it in time and the root when it is there."""

    class Hasty(ScriptedLine):
        async def receive(self, bytes_max: int, seconds: float) -> Any:
            frame = await super().receive(bytes_max, seconds)
            early = isinstance(self.heard[-1], Committed | LatencyAnswer)
            return replace(frame, began=frame.began - 0.3) if early else frame

    for slow in ({"walk": 1.6}, {"int8": 0.9}, {LatencyAnswer: 0.4}):
        report = await challenge(Hasty(took={**TOOK, LatencyAnswer: 0.34, **slow}))
        assert (report.outcome, codes(report)) == (Outcome.FAILED, {"too_slow"}), slow


async def test_repeats_that_differ_are_a_hint() -> None:
    report = await challenge(ScriptedLine(took={**TOOK, "int8": [0.5, 0.56]}))
    assert report.outcome is Outcome.PASSED
    assert {hint.code for hint in report.hints} == {"uneven"}


async def test_who_dawdles_over_untimed_questions_runs_out_of_conversation() -> None:
    line = ScriptedLine(took={**TOOK, Identity: 29.0, Filled: 29.0})
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.UNANSWERED, {"too_long"})
    assert not any(isinstance(order, WalkOrder) for order in line.orders), "asked, and no time to answer"


async def test_nothing_is_waited_for_beyond_the_end_of_the_conversation() -> None:
    line = ScriptedLine(took={**TOOK, Identity: 29.0, Filled: 27.0}, bend=dropping(Groups))
    assert codes(await challenge(line)) == {"too_long"}
    assert line.now - 100.0 == pytest.approx(60.0)


async def test_an_order_that_is_held_back_buys_no_time_to_answer_it() -> None:
    class Held(ScriptedLine):
        async def send(self, frame: bytes) -> float:
            asked = await super().send(frame)
            self.now += 9.0 if isinstance(self.orders[-1], OpenOrder) else 0.0
            return asked

    assert codes(await challenge(Held(took={**TOOK, Opened: 9.9}))) == set()
    late = await challenge(Held(took={**TOOK, Opened: 12.0}))
    assert (late.outcome, codes(late)) == (Outcome.FAILED, {"unopened"})


async def test_who_has_used_up_the_time_is_not_shown_the_sample() -> None:
    """Group hashes that begin in time and end late count by their end."""
    slow = changing(Groups, lambda one: replace(one, later=7.0), "walk")
    line = ScriptedLine(took={**TOOK, Identity: 28.0, Filled: 15.0}, bend=slow)
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.UNANSWERED, {"too_long"})
    assert not any(isinstance(order, OpenOrder) for order in line.orders)


async def test_silence_after_the_sample_is_a_failure_also_where_the_conversation_ends_first() -> None:
    class HeldUp(ScriptedLine):
        """Seven seconds pass at our side between the group hashes and the question for the sample."""

        async def send(self, frame: bytes) -> float:
            order, _ = decode(frame[4:], get_args(Order))
            self.now += 7.0 if isinstance(order, OpenOrder) else 0.0
            return await super().send(frame)

    slow = {**TOOK, Identity: 28.0, Filled: 15.0}
    line = HeldUp(with_wrong_digests("walk")(identity()), took=slow, bend=dropping(Opened))
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"unopened"})
    assert line.now - 100.0 == pytest.approx(60.0), (
        "it ended with its answer's time, not with the conversation's"
    )


async def test_group_hashes_may_take_their_time_once_the_root_is_here() -> None:
    later = changing(Groups, lambda one: replace(one, later=9.0), "walk")
    assert (await challenge(ScriptedLine(bend=later))).outcome is Outcome.PASSED


# Silence.


@pytest.mark.parametrize(
    ("kind", "silence", "broken"),
    [
        (Identity, "silent", "line_broken"),
        (LatencyAnswer, "too_slow", "line_broken"),
        (Filled, "silent", "line_broken"),
        (Committed, "too_slow", "line_broken"),
        (Groups, "unopened", "line_broken"),
        (Opened, "unopened", "unopened"),
    ],
)
async def test_what_silence_means_depends_on_what_was_asked(
    kind: type[Any], silence: str, broken: str
) -> None:
    silent: Any = (
        (lambda one: [] if isinstance(one.message, Committed | Groups) else [one])
        if (kind is Committed)
        else dropping(kind)
    )
    assert codes(await challenge(ScriptedLine(bend=silent))) == {silence}
    assert codes(await challenge(ScriptedLine(bend=breaking(kind)))) == {broken}


async def test_a_refusal_proves_nothing_unless_it_withholds_what_was_committed_to() -> None:
    refused = Refused(0, "cuda_error", "an illegal instruction")
    for kind, code in ((Filled, "refused"), (Committed, "refused"), (Opened, "unopened")):
        bend = changing(kind, lambda one: replace(one, message=refused, blob=b""))
        report = await challenge(ScriptedLine(bend=bend))
        assert codes(report) == {code}
        assert "cuda_error" in report.findings[0].why


async def test_a_silent_prover_costs_bounded_time() -> None:
    for kind in (Identity, LatencyAnswer, Filled, Committed, Groups, Opened, GapsAnswer):
        line = ScriptedLine(bend=dropping(kind))
        await challenge(line)
        assert line.now - 100.0 <= 60.0


async def test_gaps_that_are_not_reported_cost_only_a_hint() -> None:
    for bend in (dropping(GapsAnswer), breaking(GapsAnswer)):
        report = await challenge(ScriptedLine(bend=bend))
        assert report.outcome is Outcome.PASSED
        assert {hint.code for hint in report.hints} - {"attestation_unanswered"} == {"gaps_unanswered"}


async def test_gaps_on_every_multiprocessor_are_a_hint() -> None:
    sliced = GapsAnswer(0, tuple(SmGaps(sm, 1000, 5, 2000) for sm in range(132)))
    report = await challenge(ScriptedLine(bend=changing(GapsAnswer, lambda _: Answered(sliced))))
    assert report.outcome is Outcome.PASSED
    assert {hint.code for hint in report.hints} == {"time_sliced"}


# Messages.


async def test_bytes_that_are_no_message_fail_wherever_they_come() -> None:
    for kind in (Identity, LatencyAnswer, Filled, Committed, Groups, Opened, GapsAnswer):
        report = await challenge(ScriptedLine(bend=changing(kind, lambda one: replace(one, raw=b"\0\2{}"))))
        assert (report.outcome, codes(report)) == (Outcome.FAILED, {"malformed"}), kind


async def test_an_answer_that_comes_twice_or_out_of_turn_fails() -> None:
    twice: Any = lambda one: [one, one] if isinstance(one.message, Filled) else [one]  # noqa: E731
    early = changing(Filled, lambda _: Answered(Committed(0, "walk", bytes(32), 1, 0)))
    other = changing(Committed, lambda one: Answered(replace(one.message, phase="int8")), "walk")
    nobody = changing(Filled, lambda one: Answered(replace(one.message, gpu=9)))
    for bend in (twice, early, other, nobody):
        report = await challenge(ScriptedLine(bend=bend))
        assert (report.outcome, codes(report)) == (Outcome.FAILED, {"protocol"})


async def test_one_gpu_cannot_speak_in_the_turn_of_another() -> None:
    """Both kinds are due then, of different GPUs."""

    def as_gpu(number: int, kind: type[Any], of: int) -> Any:
        def change(one: Answered) -> Answered:
            return replace(one, message=replace(one.message, gpu=number)) if one.message.gpu == of else one

        return changing(kind, change, "walk")

    def delaying(one: Answered) -> Any:
        """The first GPU's group hashes arrive where the second one's root is due, and are the second's."""
        if isinstance(one.message, Committed) and one.message.gpu == 1:
            return []
        if isinstance(one.message, Groups) and one.message.gpu == 0:
            return [replace(one, message=replace(one.message, gpu=1))]
        return [one]

    for bend in (as_gpu(0, Committed, of=1), as_gpu(0, Groups, of=1), delaying):
        report = await challenge(ScriptedLine(machine({}, {}), bend=bend))
        assert (report.outcome, codes(report)) == (Outcome.FAILED, {"protocol"})


async def test_an_answer_from_before_the_question_fails() -> None:
    """A frame that waited in the buffer would stop the clock before it runs."""

    class Early(ScriptedLine):
        async def receive(self, bytes_max: int, seconds: float) -> Any:
            frame = await super().receive(bytes_max, seconds)
            return replace(frame, began=frame.began - 2) if isinstance(self.heard[-1], Committed) else frame

    assert codes(await challenge(Early())) == {"protocol"}


async def test_opened_groups_have_exactly_the_size_that_was_asked_for() -> None:
    for kind in (Groups, Opened):
        for size in (-8, 8):

            def change(one: Answered, size: int = size) -> Answered:
                return replace(one, blob=one.blob[:size] if size < 0 else one.blob + bytes(size))

            report = await challenge(ScriptedLine(bend=changing(kind, change)))
            assert codes(report) == {"malformed"}


async def test_an_answer_may_be_no_larger_than_what_was_ordered() -> None:
    line = ScriptedLine()
    await challenge(line)
    largest = {type(one): size for one, size in zip(line.heard, line.allowed, strict=True)}
    assert largest[LatencyAnswer] < 2000
    assert largest[Filled] < 2000
    assert largest[Groups] < 2000 + 16 * 5


async def test_another_version_of_the_protocol_proves_nothing() -> None:
    report = await challenge(ScriptedLine(machine(version=2)))
    assert (report.outcome, codes(report)) == (Outcome.UNANSWERED, {"version"})


async def test_claims_that_contradict_each_other_end_the_challenge_at_once() -> None:
    line = ScriptedLine(machine({"nvml_uuid": "GPU-other"}))
    report = await challenge(line)
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"uuid_differs"})
    assert len(line.orders) == 2


# Occasions, our own faults, evidence.


@pytest.mark.parametrize("free", [0, 2 << 30, 9 << 30, 40 << 30])
async def test_a_machine_whose_memory_is_in_use_is_asked_nothing_and_has_shown_nothing(free: int) -> None:
    line = ScriptedLine(machine({}, {"cuda_free": free}))
    report = await challenge(line, Occasion.IDLE)
    assert (report.outcome, report.findings[0].code) == (Outcome.UNANSWERED, "memory_in_use")
    assert report.findings[0].gpu == 1
    assert (report.proven_bytes, report.rates) == ((), ())
    assert [type(order) for order in line.orders] == [Hello, Goodbye]


async def test_an_idle_machine_that_somebody_holds_passes_with_all_phases() -> None:
    report = await challenge(ScriptedLine(machine({}, {})), Occasion.IDLE)
    assert (report.outcome, report.findings) == (Outcome.PASSED, ())
    assert len(report.proven_bytes) == 2
    assert {rate.phase for rate in report.rates} == {"fill", "walk", "int8", "bf16"}


async def test_the_memory_that_an_emulation_claims_is_not_judged() -> None:
    report = await challenge(ScriptedLine(machine({"cuda_free": 0}, source="emulated")), Occasion.IDLE)
    assert (report.outcome, report.findings) == (Outcome.EMULATED, ())


async def test_our_own_verifier_that_is_away_is_no_strike() -> None:
    class Away:
        async def check(self, jobs: Any) -> list[Checked]:
            raise VerifierAway

    line = ScriptedLine()
    with pytest.raises(VerifierAway):
        await a_challenger(verifier=Away()).challenge(line, expected(), Occasion.START)
    assert isinstance(line.orders[-1], Goodbye)


async def test_our_own_verifier_that_is_slow_is_no_strike_either(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        async def check(self, jobs: Any) -> list[Checked]:
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(challenger, "CHECK_SECONDS_MAX", 0.01)
    with pytest.raises(VerifierAway, match="no result for 6 jobs within"):
        await a_challenger(verifier=Slow()).challenge(ScriptedLine(), expected(), Occasion.START)


async def test_the_evidence_is_enough_to_check_the_sample_again() -> None:
    line = ScriptedLine()
    evidence = json.loads(json.dumps((await challenge(line)).evidence))
    walk = next(one for one in evidence["tries"] if one["phase"] == "walk")["gpus"][0]
    (order,) = [order for order in line.orders if isinstance(order, WalkOrder)]
    (fill,) = [order for order in line.orders if isinstance(order, FillOrder)]
    (shown,) = [order for order in line.orders if isinstance(order, OpenOrder) and order.phase == "walk"]
    assert bytes.fromhex(walk["key"]) == order.gpus[0].nonce
    assert bytes.fromhex(evidence["fill"][0]["seed"]) == fill.gpus[0].seed
    assert evidence["plan"]["gpus"][0]["blocks"] == fill.gpus[0].blocks
    assert evidence["plan"]["sizes"]["steps"] == order.steps
    assert sorted({number // SIZES.group for number in walk["sample"]}) == list(shown.gpus[0])
    assert evidence["bounds"]["walk"] == [[pytest.approx(0.84), pytest.approx(1.54), pytest.approx(1.2)]]
    assert 0 < evidence["hidden_memory_max"] <= 1
    assert {"root", "hashes_sha256", "digests_sha256", "seconds", "throttle"} <= walk.keys()


def test_evidence_of_the_largest_machine_fits_with_every_phase_tried_three_times() -> None:
    reference = TABLE["b200-sxm-180gb"]
    wide = {
        "cuda_name": "N" * 96,
        "nvml_name": "N" * 96,
        "proc_model": "N" * 96,
        "cuda_uuid": "GPU-" + "f" * 76,
    }
    claimed = identity(*(gpu(index, **wide) for index in range(16)))
    times = References().times(reference.model, "570")
    sold = Expected(reference.model, 16, frozenset(), (183359,), 2)
    planned: Plan = plan(claimed, sold, reference, times, occasion=Occasion.START, sizes=Sizes())
    record = Record(
        sold, Occasion.START, reference,
        identity=replace(claimed, libraries=claimed.libraries * 16), times=times, plan=planned,
    )  # fmt: skip
    sample = range(99_999_900, 99_999_948)
    for phase in ("walk", "int8", "bf16") * 3:
        commitment = Commitment("walk", bytes(16), 1, 1, bytes(32), b"", (), b"")
        committed = [Committed(index, "walk", bytes(32), 1 << 39, 1 << 61) for index in range(16)]
        entries = [commitment_evidence(commitment, sample, one, 99.999999) for one in committed]
        record.add("tries", {"phase": phase, "gpus": entries})
        record.bound(phase, [UNTIMED] * 16)
    for index in range(16):
        record.gaps(GapsAnswer(index, (SmGaps(0, 1, 2**32 - 1, 2**32 - 1),) * SMS_MAX))
        starts = {"starts": ["0" * 32] * 16, "finals": ["0" * 32] * 16, "seconds": [99.999999] * 16}
        record.add("launch", starts)
    assert len(json.dumps(record.report(60.0).evidence)) < EVIDENCE_BYTES_MAX


async def test_every_code_of_a_finding_or_hint_is_explained() -> None:
    bends = (dropping(Filled), breaking(Opened), changing(Committed, lambda one: replace(one, raw=b"")))
    reports = [await challenge(ScriptedLine(bend=bend)) for bend in bends]
    reports.append(await challenge(ScriptedLine(machine({"cuda_mps": True, "nvml_throttle": 0x8}))))
    found_codes = {finding.code for report in reports for finding in (*report.findings, *report.hints)}
    assert found_codes == {"silent", "unopened", "malformed", "mps", "throttled"}
    assert found_codes <= CODES.keys()
    assert MODEL in TABLE
