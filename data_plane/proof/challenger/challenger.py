"""The challenge: all GPUs of a machine get the same orders at the same moment, and are timed by our clock.

The phases are identity, launch chain, fill, walk, int8 tiles, bf16 tiles, gaps, attestation (if the chip supports it)
and Goodbye. Seeds and nonces are drawn when they are needed. The sample of a phase is drawn only after all of its roots
and group hashes have arrived. `conversation` bounds what the prover may send and decides what its silence means,
`judgement` has the rules, and the verifier recomputes the sample after the conversation with the machine is over.

A timed phase that was not in time is repeated with a fresh nonce over the same fill, up to TRIES_MAX times in total.
The best of the tries counts in which every GPU was in time. This spares honest machines the network's jitter and
helps no cheat: every try is opened and checked, and one card cannot pose as two in any of them. A wrong answer is
never asked for again in the same conversation.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from data_plane.access.line import Line
from data_plane.proof.attestation import verdict
from data_plane.proof.attestation.chain import NVIDIA_ROOTS
from data_plane.proof.attestation.verdict import chip_of
from data_plane.proof.challenger import judgement
from data_plane.proof.challenger.conversation import (
    OPENING,
    SHOWING,
    TIMED,
    TRANSFER_SECONDS,
    UNTIMED,
    Conversation,
    Ended,
    Turn,
)
from data_plane.proof.challenger.judgement import (
    Band,
    band,
    in_time,
    judge_identity,
    launch_band,
    time_findings,
)
from data_plane.proof.challenger.plan import KINDS, Plan, Sizes, plan
from data_plane.proof.challenger.port import Expected, Finding, Occasion, ProofReport, Rate
from data_plane.proof.challenger.record import Due, Record, commitment_evidence
from data_plane.proof.challenger.reference import References, TimedPhase, Times
from data_plane.proof.protocol.messages import (
    ATTEST_NONCE_BYTES,
    CHAIN_BYTES_MAX,
    DIGEST_BYTES,
    GROUP_HASH_BYTES,
    NONCE_BYTES,
    REPORT_BYTES_MAX,
    SEED_BYTES,
    VERSION,
    AttestOrder,
    Committed,
    Evidence,
    Fill,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Opened,
    OpenOrder,
    Phase,
    TileKind,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)
from data_plane.proof.verifier.jobs import (
    CHECK_SECONDS_MAX,
    Checked,
    Commitment,
    Job,
    LaunchJob,
    TilesJob,
    Verifier,
    VerifierAway,
    WalkJob,
)

TRIES_MAX = 3
HELLO_SECONDS = 30.0
"""For contexts, kernels and the warm-up on up to 16 GPUs."""
FILL_SECONDS = 30.0
"""Several times what the slowest card needs. The fill is not timed: being fast is of no use before the nonce is
known."""
SLACK_SECONDS = 2.0
"""An answer that is late by less than this is still received, so that the phase can be repeated."""
ATTEST_SECONDS = 15.0
"""A card signs through its kernel driver, which can take seconds."""
EMULATION_SECONDS = 20.0
"""For each answer of an emulation, which is not timed."""

RandomBytes = Callable[[int], bytes]
Choose = Callable[[int, int], Sequence[int]]
"""(count, k) -> k different numbers below count."""


def chosen(count: int, k: int) -> Sequence[int]:
    """Drawn from the operating system's generator, so that nobody can predict it."""
    return secrets.SystemRandom().sample(range(count), k)


def _utc() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


class ProofChallenger:
    """`port.Challenger`. It has no state, so one challenger serves any number of machines at the same time."""

    def __init__(
        self,
        verifier: Verifier,
        references: References,
        *,
        sizes: Sizes | None = None,
        random_bytes: RandomBytes = secrets.token_bytes,
        choose: Choose = chosen,
        roots: Collection[bytes] = NVIDIA_ROOTS,
        now: Callable[[], datetime] = _utc,
    ) -> None:
        """`roots` are the SHA-256 of trusted root certificates for attestations; `now` returns an aware time."""
        self._roots = roots
        self._now = now
        self._verifier = verifier
        self._references = references
        self._sizes = sizes or Sizes()
        self._random_bytes = random_bytes
        self._choose = choose

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        """Challenge a machine. Raises VerifierAway; KeyError for a model that is not in the table; and JobTooLarge if
        our own sizes are too large.
        """
        record = Record(expected, occasion, self._references.table[expected.model])
        conversation = Conversation(line)
        try:
            await self._converse(conversation, record)
        except Ended as ended:
            record.findings += ended.findings
        await conversation.farewell(Goodbye())
        failed = any(finding.code in judgement.FAILURES for finding in record.findings)
        if record.due and not failed:
            # This happens even if the line broke: a prover that has seen the sample must not escape by breaking the
            # line.
            record.check(await self._checked([due.job for due in record.due]))
        return record.report(conversation.seconds)

    async def _checked(self, jobs: Sequence[Job]) -> Sequence[Checked]:
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                return await self._verifier.check(jobs)
        except TimeoutError:
            raise VerifierAway(f"no result for {len(jobs)} jobs within {CHECK_SECONDS_MAX} s") from None

    async def _converse(self, conversation: Conversation, record: Record) -> None:
        sent = await conversation.order(Hello(), HELLO_SECONDS)
        received = await conversation.one(Turn(Identity, UNTIMED), sent, HELLO_SECONDS)
        identity: Identity = received.message
        record.identity = identity
        if identity.version != VERSION:
            raise Ended(
                Finding("version", None, f"The prover speaks version {identity.version}, not {VERSION}.")
            )
        judged = judge_identity(identity, record.expected, record.reference, record.occasion)
        record.hints += judged.hints
        if judged.findings:
            raise Ended(*judged.findings)
        record.times = self._references.times(record.expected.model, identity.driver)
        record.plan = plan(
            identity,
            record.expected,
            record.reference,
            record.times,
            occasion=record.occasion,
            sizes=self._sizes,
        )
        phases = _Phases(
            conversation=conversation,
            record=record,
            identity=identity,
            times=record.times,
            plan=record.plan,
            random_bytes=self._random_bytes,
            choose=self._choose,
        )
        await phases.launch_chain()
        await phases.fill()
        await phases.walk()
        for kind in KINDS:
            await phases.tiles(kind)
        await phases.gaps()
        if chip_of(record.expected.model) is not None:
            await phases.attest(self._roots, self._now())


class _Phases:
    """The phases of one challenge, in the order of their methods. Each of them raises Ended."""

    def __init__(
        self,
        *,
        conversation: Conversation,
        record: Record,
        identity: Identity,
        times: Times,
        plan: Plan,
        random_bytes: RandomBytes,
        choose: Choose,
    ) -> None:
        self._conversation = conversation
        self._record = record
        self._identity = identity
        self._times = times
        self._plan = plan
        self._sizes = plan.sizes
        self._random_bytes = random_bytes
        self._choose = choose
        self._gpus = range(len(identity.gpus))
        self._fills: tuple[Fill, ...] = ()

    async def launch_chain(self) -> None:
        rounds = self._sizes.rounds

        async def once(seconds: float) -> list[float]:
            starts = self._keys()
            sent = await self._conversation.order(LatencyOrder(rounds, starts), seconds, TIMED)
            received = await self._each(LatencyAnswer, sent, seconds)
            answers = [one.message.final for one in received]
            for gpu in self._gpus:
                self._owe(gpu, "launch", LaunchJob(starts[gpu], rounds, answers[gpu]))
            took = [one.ended - sent for one in received]
            tries = {"starts": [one.hex() for one in starts], "finals": [one.hex() for one in answers]}
            self._record.add("launch", {**tries, "seconds": [round(one, 6) for one in took]})
            return took

        bounds = [
            self._unless_emulated(launch_band(self._sizes.launch_seconds, len(self._gpus)))
            for _ in self._gpus
        ]
        await self._timed("launch", bounds, 1, once)

    async def fill(self) -> None:
        self._fills = tuple(
            Fill(self._random_bytes(SEED_BYTES), one.iterations, one.blocks) for one in self._plan.gpus
        )
        seconds = EMULATION_SECONDS if self._emulated else FILL_SECONDS
        sent = await self._conversation.order(FillOrder(self._fills), seconds)
        received = await self._each(Filled, sent, seconds)
        for gpu in self._gpus:
            took, filled = received[gpu].ended - sent, received[gpu].message
            self._rate(gpu, "fill", took, self._plan.units_computed(gpu))
            self._record.add(
                "fill",
                {
                    "gpu": gpu,
                    "seed": self._fills[gpu].seed.hex(),
                    "seconds": round(took, 6),
                    "free": filled.free,
                    "device_us": filled.device_us,
                },
            )

    async def walk(self) -> None:
        steps, group = self._sizes.steps, self._sizes.group
        counts = [one.chains for one in self._plan.gpus]

        async def once(seconds: float) -> list[float]:
            nonces = self._keys()
            walks = tuple(Walk(nonce, count) for nonce, count in zip(nonces, counts, strict=True))
            order = WalkOrder(steps, group, walks)

            def job(gpu: int, commitment: Commitment, sample: tuple[int, ...]) -> Job:
                fill = self._fills[gpu]
                return WalkJob(commitment, fill.seed, fill.iterations, fill.blocks, steps, sample)

            opened = self._sizes.chains_opened
            return await self._committed(
                "walk", order, seconds, nonces, counts=counts, opened=opened, job=job
            )

        bounds = [self._band("walk", self._plan.bytes_read(gpu)) for gpu in self._gpus]
        took = await self._timed("walk", bounds, 1, once)
        for gpu in self._gpus:
            self._rate(gpu, "walk", took[gpu], self._plan.bytes_read(gpu))

    async def tiles(self, kind: TileKind) -> None:
        inner, columns = self._sizes.inner, self._sizes.columns
        counts = [one.tiles[kind] for one in self._plan.gpus]

        async def once(seconds: float) -> list[float]:
            seeds = self._keys()
            tiles = tuple(Tiles(seed, count) for seed, count in zip(seeds, counts, strict=True))
            order = TilesOrder(kind, inner, columns, self._sizes.group, tiles)

            def job(_: int, commitment: Commitment, sample: tuple[int, ...]) -> Job:
                return TilesJob(commitment, kind, inner, columns, sample)

            opened = self._sizes.tiles_opened
            return await self._committed(kind, order, seconds, seeds, counts=counts, opened=opened, job=job)

        bounds = [self._band(kind, self._plan.multiply_adds(gpu, kind)) for gpu in self._gpus]
        took = await self._timed(kind, bounds, self._sizes.repeats, once)
        for gpu in self._gpus:
            self._rate(gpu, kind, took[gpu], self._plan.multiply_adds(gpu, kind))

    async def gaps(self) -> None:
        """Gaps give only hints, so a prover that does not answer loses nothing. A malformed answer is a failure."""
        milliseconds = self._sizes.gap_milliseconds
        seconds = milliseconds / 1000 + TRANSFER_SECONDS
        try:
            order = GapsOrder(milliseconds, self._sizes.gap_threshold_us)
            sent = await self._conversation.order(order, seconds)
            received = await self._each(GapsAnswer, sent, seconds)
        except Ended as ended:
            if any(finding.code in judgement.FAILURES for finding in ended.findings):
                raise
            self._record.hints += [Finding("gaps_unanswered", one.gpu, one.why) for one in ended.findings]
            return
        for one in received:
            self._record.gaps(one.message)
            if not self._emulated:
                self._record.hints += judgement.gap_hints(one.message, self._identity.gpus[one.message.gpu])

    async def attest(self, roots: Collection[bytes], now: datetime) -> None:
        """Attestation is additional evidence: a card that does not sign is proven without it (docs/gpu-proof.md).

        But two cards with the same identity are one card, which is a failure.
        """
        nonces = tuple(self._random_bytes(ATTEST_NONCE_BYTES) for _ in self._gpus)
        turns = [(Turn(Evidence, UNTIMED, gpu, REPORT_BYTES_MAX + CHAIN_BYTES_MAX),) for gpu in self._gpus]
        try:
            sent = await self._conversation.order(AttestOrder(nonces), ATTEST_SECONDS)
            received = await self._conversation.each(turns, sent, ATTEST_SECONDS, lambda _: True)
        except Ended as ended:
            if any(finding.code in judgement.FAILURES for finding in ended.findings):
                raise
            self._record.hints += [
                Finding("attestation_unanswered", one.gpu, one.why) for one in ended.findings
            ]
            return
        for gpu, (one,) in enumerate(received):
            evidence: Evidence = one.message
            if evidence.missing is not None:
                self._record.add("attestation", {"gpu": gpu, "missing": evidence.missing})
                continue
            report, chain = one.blob[: evidence.report], one.blob[evidence.report :]
            judged = verdict.verify(
                report, chain, nonce=nonces[gpu], roots=roots, now=now, model=self._record.expected.model
            )
            self._record.attest(gpu, nonces[gpu], report, judged)

    # ---- shared by the phases -------------------------------------------------------------------------------

    @property
    def _emulated(self) -> bool:
        return self._identity.source == "emulated"

    def _unless_emulated(self, band: Band) -> Band:
        return judgement.UNTIMED if self._emulated else band

    def _band(self, phase: TimedPhase, work: float) -> Band:
        peak, margin = self._record.reference.peak(phase), judgement.PEAK_MARGIN[phase]
        return self._unless_emulated(band(work, self._times.of(phase), peak, margin))

    def _keys(self) -> tuple[bytes, ...]:
        """Fresh random keys, one for each GPU."""
        return tuple(self._random_bytes(NONCE_BYTES) for _ in self._gpus)

    def _owe(self, gpu: int, phase: str, job: Job) -> None:
        self._record.due.append(Due(gpu, phase, job))

    def _rate(self, gpu: int, phase: str, seconds: float, work: float) -> None:
        self._record.rates.append(Rate(gpu, phase, seconds, float(work)))

    async def _each(self, message: type[Any], sent: float, seconds: float) -> list[Any]:
        """One answer from each GPU."""
        stage = TIMED if message is LatencyAnswer else UNTIMED
        turns = [(Turn(message, stage, gpu),) for gpu in self._gpus]
        return [one for (one,) in await self._conversation.each(turns, sent, seconds, lambda _: True)]

    async def _timed(
        self,
        phase: str,
        bounds: Sequence[Band],
        repeats: int,
        once: Callable[[float], Awaitable[list[float]]],
    ) -> list[float]:
        """Repeat a phase until every GPU was in time in one try. Returns each GPU's best time in such tries."""
        self._record.bound(phase, bounds)
        seconds = EMULATION_SECONDS if self._emulated else max(one.most for one in bounds) + SLACK_SECONDS
        tries: list[list[float]] = []
        late: list[Finding] = []
        for number in range(1, TRIES_MAX + 1):
            tries.append(await once(seconds))
            late = time_findings(phase, tries, bounds)
            if not late and number >= repeats:
                break
        if late:
            raise Ended(*late)
        if not self._emulated:
            spread = [judgement.spread_hint(gpu, phase, [took[gpu] for took in tries]) for gpu in self._gpus]
            self._record.hints += [hint for hint in spread if hint is not None]
            self._record.hints += judgement.retry_hints(phase, tries, repeats, bounds)
        counted = [took for took in tries if in_time(took, bounds)]
        return [min(took[gpu] for took in counted) for gpu in self._gpus]

    async def _committed(
        self,
        phase: Phase,
        order: WalkOrder | TilesOrder,
        seconds: float,
        keys: Sequence[bytes],
        *,
        counts: Sequence[int],
        opened: int,
        job: Callable[[int, Commitment, tuple[int, ...]], Job],
    ) -> list[float]:
        """Send the order, receive the roots and group hashes of all GPUs, and then draw the sample and have it
        opened.
        """
        group = self._sizes.group

        def is_mine(message: Any) -> bool:
            return bool(message.phase == phase)

        turns = [
            (
                Turn(Committed, TIMED, gpu),
                Turn(Groups, SHOWING, gpu, -(-counts[gpu] // group) * GROUP_HASH_BYTES),
            )
            for gpu in self._gpus
        ]
        sent = await self._conversation.order(order, seconds, TIMED)
        received = await self._conversation.each(turns, sent, seconds, is_mine)

        samples = [tuple(sorted(self._choose(count, min(opened, count)))) for count in counts]
        groups = [tuple(sorted({number // group for number in sample})) for sample in samples]
        opening = [
            (Turn(Opened, OPENING, gpu, _digests(groups[gpu], group, counts[gpu]) * DIGEST_BYTES),)
            for gpu in self._gpus
        ]
        sent_at = await self._conversation.order(OpenOrder(phase, tuple(groups)), TRANSFER_SECONDS, OPENING)
        answers = await self._conversation.each(opening, sent_at, TRANSFER_SECONDS, is_mine)

        evidence: list[dict[str, Any]] = []
        took: list[float] = []
        for gpu in self._gpus:
            (root, hashes), (digests,) = received[gpu], answers[gpu]
            commitment = Commitment(
                phase,
                keys[gpu],
                counts[gpu],
                group,
                root.message.root,
                hashes.blob,
                groups[gpu],
                digests.blob,
            )
            self._owe(gpu, phase, job(gpu, commitment, samples[gpu]))
            took.append(root.ended - sent)
            evidence.append(commitment_evidence(commitment, samples[gpu], root.message, took[gpu]))
            hint = judgement.throttle_hint(root.message)
            if hint is not None and not self._emulated:
                self._record.hints.append(hint)
        self._record.add("tries", {"phase": phase, "gpus": evidence})
        return took


def _digests(groups: Sequence[int], group: int, count: int) -> int:
    """How many digests these groups have in total. Only the very last group may be smaller than the others."""
    return sum(min(group, count - number * group) for number in groups)
