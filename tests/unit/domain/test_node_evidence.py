"""Evidence reads as phrases, and whatever a machine made of it does no harm."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.node import JoinStep, LeaveStep
from control_plane.domain.node_evidence import phrase

J, L = JoinStep, LeaveStep
MEASURED = {
    "short": [],
    "cpu_millis": 208_000,
    "memory_bytes": 1_849 * 1024**3,
    "devices": {"nvidia.com/gpu": 8},
    "sold": {"vcpus": 208, "memory_gib": 1_800, "gpus": 8},
}
CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        J.PREPARED,
        {
            "files": {"k3s": "ab"},
            "kernel": "6.12.1",
            "settings": {"vm.overcommit_memory": "1"},
            "modules": [],
        },
        "1 file of K3s with the right digest, kernel 6.12.1, 1 setting of the kernel",
    ),
    (
        J.TUNNELLED,
        {"public_key": "k", "server": "10.64.0.1", "largest_packet": 1420},
        "packets of up to 1420 bytes pass to the server at 10.64.0.1",
    ),
    (J.STARTED, {"version": "v1.36.3+k3s1", "token_id": "abcdef"}, "K3s v1.36.3+k3s1 runs"),
    (J.REGISTERED, {"uid": "u-1", "pods": "10.48.1.0/24"}, "Node u-1, pods have 10.48.1.0/24"),
    (
        J.OPENED,
        {"pool": "train", "labels": {"team": "vision"}},
        "open for pods, in the pool train, with 1 label of its customer's",
    ),
    (
        J.MEASURED,
        MEASURED,
        "claims 208 CPUs, 1,849.0 GiB, 8 nvidia.com/gpu; 208 CPUs, 1800 GiB, 8 GPUs were bought",
    ),
    (
        J.MEASURED,
        {**MEASURED, "short": ["has 6 nvidia.com/gpu, 8 were sold"], "devices": {}, "sold": {"gpus": 8}},
        "claims 208 CPUs, 1,849.0 GiB; 8 GPUs were bought; has 6 nvidia.com/gpu, 8 were sold",
    ),
    (
        J.MEASURED,
        {**MEASURED, "disk_short": "its pods have 60 GiB of disk, of 1,000 that were sold"},
        "claims 208 CPUs, 1,849.0 GiB, 8 nvidia.com/gpu; 208 CPUs, 1800 GiB, 8 GPUs were bought; its pods have 60 GiB of disk, of 1,000 that were sold",
    ),
    (J.HEALTHY, {"conditions": {"Ready": "True", "DiskPressure": "False"}}, "DiskPressure=False, Ready=True"),
    (L.CORDONED, {"found": True}, "done"),
    (L.CORDONED, {"found": False}, "there was no Node any more"),
    (L.CORDONED, {"cluster": "gone"}, "the cluster is gone"),
    (L.DRAINED, {"killed": [], "refused": 0, "left": []}, "all pods went by themselves"),
    (
        L.DRAINED,
        {"killed": [f"p{n}" for n in range(7)], "refused": 2, "left": ["q"]},
        "killed: p0, p1, p2, p3, p4 and 2 more, 2 evictions refused, left: q",
    ),
    (L.DELETED, {"node": "node-1"}, "its Node, its password and its token"),
    (L.CUT_OFF, {"public_key": "k", "listed_by": []}, "every other member was read without its key"),
    (L.CUT_OFF, {"given_up": "members [1] may still list it"}, "given up: members [1] may still list it"),
    (L.CLEANED, {"machine": "gone"}, "the machine is gone"),
    (L.CLEANED, {"left": [], "looked_for": ["mounts", "keys"]}, "nothing is left of 2 kinds of traces"),
    (L.CLEANED, {"left": ["mounts"], "looked_for": ["mounts", "keys"]}, "still there: mounts"),
    ("unheard_of", {"anything": 1}, "done"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_NAMES = sorted({name for _, evidence, _ in CASES for name in evidence})


def test_each_step_says_what_is_known_from_it() -> None:
    for step, evidence, expected in CASES:
        assert phrase(step, evidence) == expected, (step, evidence)
    assert {step for step, _, _ in CASES} >= {*J, *L}


@given(st.sampled_from([*J, *L]), st.dictionaries(st.sampled_from(_NAMES), _JSON))
def test_evidence_of_any_shape_has_a_phrase(step: str, evidence: dict[str, Any]) -> None:
    assert phrase(step, evidence)
