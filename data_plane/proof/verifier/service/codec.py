"""Encodes jobs and results as protobuf messages, and decodes them strictly.

Both sides are built from the same source, so a reader has no reason to be tolerant. An unknown field, a size outside
the bounds of `messages` or an impossible number is refused, with the name of the field. If an older verifier skipped
an unknown field, it would skip a check.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from data_plane.documents import strict
from data_plane.proof.protocol.messages import (
    BLOCKS_MAX,
    CHAINS_MAX,
    DIGEST_BYTES,
    GPUS_MAX,
    GROUP_HASH_BYTES,
    GROUP_MAX,
    GROUPS_MAX,
    INNER_MAX,
    ITERATIONS_MAX,
    NONCE_BYTES,
    OPENED_MAX,
    ROOT_BYTES,
    ROUNDS_MAX,
    SEED_BYTES,
    STEPS_MAX,
    TILES_MAX,
    Phase,
    TileKind,
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
from data_plane.proof.verifier.service import verifier_pb2 as pb

SERVICE = "splitplane.proof.v1.Verifier"
CHECK = f"/{SERVICE}/Check"
REASON = "splitplane-reason"
"""Trailing metadata of INVALID_ARGUMENT: TOO_LARGE, or absent."""
TOO_LARGE = "job-too-large"
PING_SECONDS = 30
"""The interval of both sides' keepalive pings. If the connection is lost, its jobs are stopped."""

JOBS_MAX = 8 * GPUS_MAX
"""Jobs of one request: enough for the launch chain, the walk and both kinds of tiles twice, of the largest machine, and
for some repeated phases."""
SAMPLE_MAX = 1 << 16
"""How many chains or tiles are recomputed for one job."""
HASHES_BYTES_MAX = GROUPS_MAX * GROUP_HASH_BYTES
DIGESTS_BYTES_MAX = OPENED_MAX * GROUP_MAX * DIGEST_BYTES
REQUEST_BYTES_MAX = 32 << 20
"""Enough for any single job, and for a machine of eight H200 (22 MB). More jobs are sent in several requests."""
WHY_MAX = 300
RESPONSE_BYTES_MAX = JOBS_MAX * (WHY_MAX + 64)

_PHASES: dict[int, Phase] = {pb.PHASE_WALK: "walk", pb.PHASE_INT8: "int8", pb.PHASE_BF16: "bf16"}
_PHASE_NUMBERS = {phase: number for number, phase in _PHASES.items()}
_FAULTS: dict[int, Fault | None] = {
    pb.FAULT_NONE: None,
    pb.FAULT_SIZES: Fault.SIZES,
    pb.FAULT_ROOT: Fault.ROOT,
    pb.FAULT_GROUP: Fault.GROUP,
    pb.FAULT_DIGEST: Fault.DIGEST,
}
_FAULT_NUMBERS = {fault: number for number, fault in _FAULTS.items()}


# ---- jobs ---------------------------------------------------------------------------------------------------


def write_job(job: Job) -> pb.Job:
    """The message for a job. Raises ValueError for tiles of another kind than their commitment."""
    match job:
        case LaunchJob():
            return pb.Job(launch=pb.LaunchJob(start=job.start, rounds=job.rounds, final=job.final))
        case WalkJob():
            return pb.Job(
                walk=pb.WalkJob(
                    commitment=_write_commitment(job.commitment),
                    seed=job.seed,
                    iterations=job.iterations,
                    blocks=job.blocks,
                    steps=job.steps,
                    sample=job.sample,
                )
            )
        case TilesJob():
            if job.kind != job.commitment.phase:
                raise ValueError(f"{job.kind} tiles under a commitment to {job.commitment.phase}")
            return pb.Job(
                tiles=pb.TilesJob(
                    commitment=_write_commitment(job.commitment),
                    inner=job.inner,
                    columns=job.columns,
                    sample=job.sample,
                )
            )


def _write_commitment(commitment: Commitment) -> pb.Commitment:
    return pb.Commitment(
        phase=cast("pb.Phase", _PHASE_NUMBERS[commitment.phase]),
        key=commitment.key,
        count=commitment.count,
        group=commitment.group,
        root=commitment.root,
        hashes=commitment.hashes,
        opened=commitment.opened,
        digests=commitment.digests,
    )


def write_request(jobs: Iterable[Job]) -> bytes:
    return pb.CheckRequest(jobs=[write_job(job) for job in jobs]).SerializeToString()


def read_request(content: bytes) -> list[Job]:
    """The jobs of a request. Raises strict.Malformed, and nothing else, whatever the bytes are."""
    request = _parsed(pb.CheckRequest(), content, "request")
    if not 1 <= len(request.jobs) <= JOBS_MAX:
        raise strict.Malformed(f"jobs are not 1 to {JOBS_MAX}")
    jobs: list[Job] = []
    for number, message in enumerate(request.jobs):
        try:
            jobs.append(_job(message))
        except strict.Malformed as error:
            raise strict.Malformed(f"jobs[{number}].{error}") from None
    return jobs


def _job(message: pb.Job) -> Job:
    _only_known(message, "job")
    match message.WhichOneof("kind"):
        case "launch":
            return _launch(message.launch)
        case "walk":
            return _walk(message.walk)
        case "tiles":
            return _tiles(message.tiles)
        case _:
            raise strict.Malformed("kind is missing")


def _launch(message: pb.LaunchJob) -> LaunchJob:
    _only_known(message, "launch")
    return LaunchJob(
        start=_exactly(message.start, NONCE_BYTES, "launch.start"),
        rounds=_whole(message.rounds, 1, ROUNDS_MAX, "launch.rounds"),
        final=_exactly(message.final, NONCE_BYTES, "launch.final"),
    )


def _walk(message: pb.WalkJob) -> WalkJob:
    _only_known(message, "walk")
    commitment = _commitment(message.commitment, CHAINS_MAX)
    if commitment.phase != "walk":
        raise strict.Malformed("commitment.phase is not walk")
    return WalkJob(
        commitment=commitment,
        seed=_exactly(message.seed, SEED_BYTES, "walk.seed"),
        iterations=_whole(message.iterations, 1, ITERATIONS_MAX, "walk.iterations"),
        blocks=_whole(message.blocks, 1, BLOCKS_MAX, "walk.blocks"),
        steps=_whole(message.steps, 1, STEPS_MAX, "walk.steps"),
        sample=_sample(message.sample, commitment),
    )


def _tiles(message: pb.TilesJob) -> TilesJob:
    _only_known(message, "tiles")
    commitment = _commitment(message.commitment, TILES_MAX)
    if commitment.phase == "walk":
        raise strict.Malformed("commitment.phase is not a kind of tiles")
    kind: TileKind = commitment.phase
    inner = _whole(message.inner, 32, INNER_MAX, "tiles.inner")
    if inner % 32:
        raise strict.Malformed("tiles.inner is not a multiple of 32")
    return TilesJob(
        commitment=commitment,
        kind=kind,
        inner=inner,
        columns=_whole(message.columns, 1, TILES_MAX, "tiles.columns"),
        sample=_sample(message.sample, commitment),
    )


def _commitment(message: pb.Commitment, count_max: int) -> Commitment:
    _only_known(message, "commitment")
    if message.phase not in _PHASES:
        raise strict.Malformed("commitment.phase is not one of walk, int8, bf16")
    count = _whole(message.count, 1, count_max, "commitment.count")
    group = _whole(message.group, 1, GROUP_MAX, "commitment.group")
    groups = -(-count // group)
    if groups > GROUPS_MAX:
        raise strict.Malformed(f"commitment.count makes more than {GROUPS_MAX} groups")
    opened = _ascending(message.opened, OPENED_MAX, groups, "commitment.opened")
    return Commitment(
        phase=_PHASES[message.phase],
        key=_exactly(message.key, NONCE_BYTES, "commitment.key"),
        count=count,
        group=group,
        root=_exactly(message.root, ROOT_BYTES, "commitment.root"),
        hashes=_at_most(message.hashes, HASHES_BYTES_MAX, "commitment.hashes"),
        opened=opened,
        digests=_at_most(message.digests, DIGESTS_BYTES_MAX, "commitment.digests"),
    )


def _sample(values: Sequence[int], commitment: Commitment) -> tuple[int, ...]:
    if len(values) > SAMPLE_MAX:
        raise strict.Malformed(f"sample has more than {SAMPLE_MAX} entries")
    if any(value >= commitment.count for value in values):
        raise strict.Malformed("sample goes beyond what was committed to")
    if not {value // commitment.group for value in values} <= set(commitment.opened):
        raise strict.Malformed("sample is not in the opened groups")
    return tuple(values)


# ---- results ------------------------------------------------------------------------------------------------


def write_response(results: Iterable[Checked]) -> bytes:
    return pb.CheckResponse(results=[_write_checked(checked) for checked in results]).SerializeToString()


def _write_checked(checked: Checked) -> pb.Checked:
    return pb.Checked(
        fault=cast("pb.Fault", _FAULT_NUMBERS[checked.fault]),
        why=strict.printable(checked.why, WHY_MAX),
        recomputed=checked.recomputed,
        cpu_seconds=checked.cpu_seconds,
    )


def read_response(content: bytes, count: int) -> list[Checked]:
    """The results of `count` jobs. Raises strict.Malformed, and nothing else, whatever the bytes are."""
    response = _parsed(pb.CheckResponse(), content, "response")
    if len(response.results) != count:
        raise strict.Malformed(f"results are not {count}")
    return [_checked(message) for message in response.results]


def _checked(message: pb.Checked) -> Checked:
    _only_known(message, "result")
    if message.fault not in _FAULTS:
        raise strict.Malformed("fault is not one that we know")
    if len(message.why) > WHY_MAX:
        raise strict.Malformed(f"why is longer than {WHY_MAX}")
    if not (math.isfinite(message.cpu_seconds) and message.cpu_seconds >= 0):
        raise strict.Malformed("cpu_seconds is not a time")
    return Checked(_FAULTS[message.fault], message.why, message.recomputed, message.cpu_seconds)


# ---- fields -------------------------------------------------------------------------------------------------


_M = TypeVar("_M", bound=Message)


def _parsed(message: _M, content: bytes, name: str) -> _M:
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise strict.Malformed(f"{name} is not a message of this service") from None
    _only_known(message, name)
    return message


def _only_known(message: Message, name: str) -> None:
    if len(UnknownFieldSet(message)):
        raise strict.Malformed(f"{name} has fields that this version does not know")


def _exactly(value: bytes, size: int, name: str) -> bytes:
    if len(value) != size:
        raise strict.Malformed(f"{name} is not {size} bytes")
    return value


def _at_most(value: bytes, size: int, name: str) -> bytes:
    if len(value) > size:
        raise strict.Malformed(f"{name} is longer than {size} bytes")
    return value


def _whole(value: int, least: int, most: int, name: str) -> int:
    if not least <= value <= most:
        raise strict.Malformed(f"{name} is not a whole number from {least} to {most}")
    return value


def _ascending(values: Iterable[int], most: int, below: int, name: str) -> tuple[int, ...]:
    numbers = tuple(values)
    if len(numbers) > most:
        raise strict.Malformed(f"{name} has more than {most} entries")
    if list(numbers) != sorted(set(numbers)) or (numbers and numbers[-1] >= below):
        raise strict.Malformed(f"{name} is not ascending group numbers below {below}")
    return numbers
