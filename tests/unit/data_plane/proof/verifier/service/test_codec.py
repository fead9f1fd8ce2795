"""Jobs and results as messages: there and back unchanged, and refused by the field's name for anything else."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.documents import strict
from data_plane.proof.protocol.messages import (
    BLOCKS_MAX,
    CHAINS_MAX,
    GROUP_MAX,
    GROUPS_MAX,
    INNER_MAX,
    ITERATIONS_MAX,
    OPENED_MAX,
    ROUNDS_MAX,
    STEPS_MAX,
    TILES_MAX,
)
from data_plane.proof.verifier.jobs import (
    Checked,
    Commitment,
    Fault,
    Job,
    LaunchJob,
    TilesJob,
    WalkJob,
)
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service import verifier_pb2 as pb

COMMITMENT = Commitment("walk", b"k" * 16, 1000, 10, b"r" * 32, b"h" * 1600, (0, 3, 99), b"d" * 240)
LAUNCH = LaunchJob(b"s" * 16, 2000, b"f" * 16)
WALK = WalkJob(COMMITMENT, b"s" * 32, 8, 1 << 28, 512, (1, 35, 999))
INT8 = TilesJob(replace(COMMITMENT, phase="int8"), "int8", 16_384, 1024, (1, 35, 999))
BF16 = TilesJob(replace(COMMITMENT, phase="bf16"), "bf16", INNER_MAX, TILES_MAX, ())
JOBS: list[Job] = [LAUNCH, WALK, INT8, BF16]


def test_jobs_go_there_and_back() -> None:
    assert codec.read_request(codec.write_request(JOBS)) == JOBS


def test_the_largest_job_of_all_goes_there_and_back_and_fits_a_request() -> None:
    group = GROUP_MAX
    opened = tuple(range(GROUPS_MAX - OPENED_MAX, GROUPS_MAX))
    largest = WalkJob(
        Commitment(
            "walk",
            bytes(16),
            CHAINS_MAX,
            group,
            bytes(32),
            bytes(codec.HASHES_BYTES_MAX),
            opened,
            bytes(codec.DIGESTS_BYTES_MAX),
        ),
        bytes(32),
        ITERATIONS_MAX,
        BLOCKS_MAX,
        STEPS_MAX,
        tuple(range(CHAINS_MAX - codec.SAMPLE_MAX, CHAINS_MAX)),
    )
    content = codec.write_request([largest])
    assert len(content) < codec.REQUEST_BYTES_MAX
    assert codec.read_request(content) == [largest]


@pytest.mark.parametrize("fault", [None, *Fault])
def test_results_go_there_and_back(fault: Fault | None) -> None:
    results = [Checked(fault, "why it is so", 48, 0.125), Checked(None, "", 0, 0.0)]
    assert codec.read_response(codec.write_response(results), 2) == results


def test_a_long_reason_is_cut_and_the_longest_response_fits() -> None:
    content = codec.write_response([Checked(Fault.SIZES, "w" * 10_000, 2**32 - 1, 1e9)] * codec.JOBS_MAX)
    assert len(content) <= codec.RESPONSE_BYTES_MAX
    assert {len(one.why) for one in codec.read_response(content, codec.JOBS_MAX)} == {codec.WHY_MAX}


def test_tiles_of_another_kind_than_committed_to_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="int8 tiles under a commitment to walk"):
        codec.write_job(replace(INT8, commitment=COMMITMENT))


Change = Callable[[pb.Job], object]


def commitment(change: Callable[[pb.Commitment], object]) -> Change:
    return lambda job: change(job.walk.commitment)


def setting(name: str, value: object) -> Callable[[object], None]:
    return lambda message: setattr(message, name, value)


@pytest.mark.parametrize(
    ("job", "field", "change"),
    [
        (LAUNCH, "launch.start", lambda job: setting("start", b"")(job.launch)),
        (LAUNCH, "launch.final", lambda job: setting("final", bytes(17))(job.launch)),
        (LAUNCH, "launch.rounds", lambda job: setting("rounds", 0)(job.launch)),
        (LAUNCH, "launch.rounds", lambda job: setting("rounds", ROUNDS_MAX + 1)(job.launch)),
        (LAUNCH, "kind", lambda job: job.ClearField("launch")),
        (WALK, "walk.seed", lambda job: setting("seed", bytes(16))(job.walk)),
        (WALK, "walk.iterations", lambda job: setting("iterations", ITERATIONS_MAX + 1)(job.walk)),
        (WALK, "walk.blocks", lambda job: setting("blocks", BLOCKS_MAX + 1)(job.walk)),
        (WALK, "walk.blocks", lambda job: setting("blocks", 0)(job.walk)),
        (WALK, "walk.steps", lambda job: setting("steps", STEPS_MAX + 1)(job.walk)),
        (WALK, "sample has more", lambda job: job.walk.sample.extend([1] * codec.SAMPLE_MAX)),
        (WALK, "sample goes beyond", lambda job: job.walk.sample.append(1000)),
        (WALK, "sample is not in", lambda job: job.walk.sample.append(11)),
        (WALK, "commitment.phase", lambda job: job.walk.ClearField("commitment")),
        (WALK, "commitment.phase", commitment(setting("phase", 0))),
        (WALK, "commitment.phase", commitment(setting("phase", 77))),
        (WALK, "commitment.phase is not walk", commitment(setting("phase", pb.PHASE_INT8))),
        (WALK, "commitment.key", commitment(setting("key", bytes(15)))),
        (WALK, "commitment.count", commitment(setting("count", 0))),
        (WALK, "commitment.count", commitment(setting("count", CHAINS_MAX + 1))),
        (WALK, "commitment.count makes more", commitment(setting("count", 10 * GROUPS_MAX + 1))),
        (WALK, "commitment.group", commitment(setting("group", 0))),
        (WALK, "commitment.group", commitment(setting("group", GROUP_MAX + 1))),
        (WALK, "commitment.root", commitment(setting("root", bytes(31)))),
        (WALK, "commitment.hashes", commitment(setting("hashes", bytes(codec.HASHES_BYTES_MAX + 1)))),
        (WALK, "commitment.digests", commitment(setting("digests", bytes(codec.DIGESTS_BYTES_MAX + 1)))),
        (WALK, "commitment.opened", commitment(lambda one: one.opened.append(99))),
        (WALK, "commitment.opened", commitment(lambda one: one.opened.append(100))),
        (WALK, "commitment.opened", commitment(lambda one: one.opened.append(4))),
        (WALK, "commitment.opened has", commitment(lambda one: one.opened.extend(range(OPENED_MAX)))),
        (INT8, "commitment.phase", lambda job: setting("phase", pb.PHASE_WALK)(job.tiles.commitment)),
        (INT8, "commitment.count", lambda job: setting("count", TILES_MAX + 1)(job.tiles.commitment)),
        (INT8, "tiles.inner", lambda job: setting("inner", INNER_MAX + 32)(job.tiles)),
        (INT8, "tiles.inner", lambda job: setting("inner", 33)(job.tiles)),
        (INT8, "tiles.columns", lambda job: setting("columns", 0)(job.tiles)),
    ],
)
def test_a_field_out_of_bounds_is_refused_by_its_name(job: Job, field: str, change: Change) -> None:
    message = codec.write_job(job)
    change(message)
    content = pb.CheckRequest(jobs=[codec.write_job(LAUNCH), message]).SerializeToString()
    with pytest.raises(strict.Malformed) as refused:
        codec.read_request(content)
    assert str(refused.value).startswith(f"jobs[1].{field}")


@pytest.mark.parametrize("count", [0, codec.JOBS_MAX + 1])
def test_a_request_has_at_least_one_job_and_no_more_than_fit(count: int) -> None:
    with pytest.raises(strict.Malformed, match="jobs are not 1 to"):
        codec.read_request(codec.write_request([LAUNCH] * count))


NEW_FIELD = b"\xf8\x01\x05"
"""Field 31 of a version to come: a varint 5."""


@pytest.mark.parametrize("job", [LAUNCH, WALK, INT8])
def test_a_field_of_a_version_to_come_is_refused_wherever_it_is(job: Job) -> None:
    """Skipped, it would be a check that nobody did."""
    whole = codec.write_job(job)
    for one in (whole, getattr(whole, whole.WhichOneof("kind") or "")):
        changed = pb.Job.FromString(whole.SerializeToString())
        if one is whole:
            changed.MergeFromString(NEW_FIELD)
        else:
            getattr(changed, whole.WhichOneof("kind") or "").MergeFromString(NEW_FIELD)
        with pytest.raises(strict.Malformed, match="does not know"):
            codec.read_request(pb.CheckRequest(jobs=[changed]).SerializeToString())
    deep = pb.Job.FromString(codec.write_job(WALK).SerializeToString())
    deep.walk.commitment.MergeFromString(NEW_FIELD)
    for content in (
        pb.CheckRequest(jobs=[deep]).SerializeToString(),
        codec.write_request([job]) + NEW_FIELD,
    ):
        with pytest.raises(strict.Malformed, match="does not know"):
            codec.read_request(content)


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("results are not 1", lambda response: response.results.add()),
        ("fault", lambda response: setting("fault", 0)(response.results[0])),
        ("fault", lambda response: setting("fault", 99)(response.results[0])),
        ("why", lambda response: setting("why", "w" * 301)(response.results[0])),
        ("cpu_seconds", lambda response: setting("cpu_seconds", float("nan"))(response.results[0])),
        ("cpu_seconds", lambda response: setting("cpu_seconds", -1.0)(response.results[0])),
        ("result has", lambda response: response.results[0].MergeFromString(NEW_FIELD)),
    ],
)
def test_a_result_that_cannot_be_is_refused(why: str, change: Callable[[pb.CheckResponse], object]) -> None:
    response = pb.CheckResponse.FromString(codec.write_response([Checked(None, "", 1, 0.5)]))
    change(response)
    with pytest.raises(strict.Malformed, match=why):
        codec.read_response(response.SerializeToString(), 1)


@given(st.binary(max_size=400))
def test_nothing_but_malformed_leaves_whatever_the_bytes_are(content: bytes) -> None:
    for read in (codec.read_request, lambda content: codec.read_response(content, 1)):
        with contextlib.suppress(strict.Malformed):
            read(content)


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_request_with_one_byte_changed_is_another_one_or_malformed(at: int, value: int) -> None:
    content = bytearray(codec.write_request([WALK, LAUNCH]))
    at %= len(content)
    changed = content[at] != value
    content[at] = value
    try:
        found = codec.read_request(bytes(content))
    except strict.Malformed:
        return
    assert (found != [WALK, LAUNCH]) == changed
