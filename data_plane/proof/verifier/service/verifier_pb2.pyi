from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_WALK: _ClassVar[Phase]
    PHASE_INT8: _ClassVar[Phase]
    PHASE_BF16: _ClassVar[Phase]

class Fault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_UNSPECIFIED: _ClassVar[Fault]
    FAULT_NONE: _ClassVar[Fault]
    FAULT_SIZES: _ClassVar[Fault]
    FAULT_ROOT: _ClassVar[Fault]
    FAULT_GROUP: _ClassVar[Fault]
    FAULT_DIGEST: _ClassVar[Fault]
PHASE_UNSPECIFIED: Phase
PHASE_WALK: Phase
PHASE_INT8: Phase
PHASE_BF16: Phase
FAULT_UNSPECIFIED: Fault
FAULT_NONE: Fault
FAULT_SIZES: Fault
FAULT_ROOT: Fault
FAULT_GROUP: Fault
FAULT_DIGEST: Fault

class CheckRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Checked]
    def __init__(self, results: _Optional[_Iterable[_Union[Checked, _Mapping]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("launch", "walk", "tiles")
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    WALK_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    launch: LaunchJob
    walk: WalkJob
    tiles: TilesJob
    def __init__(self, launch: _Optional[_Union[LaunchJob, _Mapping]] = ..., walk: _Optional[_Union[WalkJob, _Mapping]] = ..., tiles: _Optional[_Union[TilesJob, _Mapping]] = ...) -> None: ...

class LaunchJob(_message.Message):
    __slots__ = ("start", "rounds", "final")
    START_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    rounds: int
    final: bytes
    def __init__(self, start: _Optional[bytes] = ..., rounds: _Optional[int] = ..., final: _Optional[bytes] = ...) -> None: ...

class WalkJob(_message.Message):
    __slots__ = ("commitment", "seed", "iterations", "blocks", "steps", "sample")
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    commitment: Commitment
    seed: bytes
    iterations: int
    blocks: int
    steps: int
    sample: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, commitment: _Optional[_Union[Commitment, _Mapping]] = ..., seed: _Optional[bytes] = ..., iterations: _Optional[int] = ..., blocks: _Optional[int] = ..., steps: _Optional[int] = ..., sample: _Optional[_Iterable[int]] = ...) -> None: ...

class TilesJob(_message.Message):
    __slots__ = ("commitment", "inner", "columns", "sample")
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    INNER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    commitment: Commitment
    inner: int
    columns: int
    sample: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, commitment: _Optional[_Union[Commitment, _Mapping]] = ..., inner: _Optional[int] = ..., columns: _Optional[int] = ..., sample: _Optional[_Iterable[int]] = ...) -> None: ...

class Commitment(_message.Message):
    __slots__ = ("phase", "key", "count", "group", "root", "hashes", "opened", "digests")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    key: bytes
    count: int
    group: int
    root: bytes
    hashes: bytes
    opened: _containers.RepeatedScalarFieldContainer[int]
    digests: bytes
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., key: _Optional[bytes] = ..., count: _Optional[int] = ..., group: _Optional[int] = ..., root: _Optional[bytes] = ..., hashes: _Optional[bytes] = ..., opened: _Optional[_Iterable[int]] = ..., digests: _Optional[bytes] = ...) -> None: ...

class Checked(_message.Message):
    __slots__ = ("fault", "why", "recomputed", "cpu_seconds")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    why: str
    recomputed: int
    cpu_seconds: float
    def __init__(self, fault: _Optional[_Union[Fault, str]] = ..., why: _Optional[str] = ..., recomputed: _Optional[int] = ..., cpu_seconds: _Optional[float] = ...) -> None: ...
