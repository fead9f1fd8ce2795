"""What the stored evidence of a node's steps says, as phrases for operators.

Evidence is JSON that the steps wrote (`reconciler/node_joining.py`, `leave_nodes.py`), partly in the words of a machine
that we do not trust. So nothing here relies on its shape: what a phrase needs and is not there is left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from control_plane.domain.node import JoinStep, LeaveStep

Evidence = Mapping[str, object]
GIVEN_UP = "given_up"
"""In the evidence of a step of leaving that was given up: why."""
_NAMED_MAX = 5
_GIB = 1024**3


def phrase(step: str, evidence: Evidence) -> str:
    """What is known from this step."""
    if GIVEN_UP in evidence:
        return f"given up: {evidence[GIVEN_UP]}"
    for gone in ("cluster", "machine"):
        if evidence.get(gone) == "gone":
            return f"the {gone} is gone"
    made = _PHRASES.get(step)
    return (made and made(evidence)) or "done"


def _prepared(evidence: Evidence) -> str:
    parts = [
        f"{_count(evidence, 'files', 'file')} of K3s with the right digest",
        f"kernel {evidence['kernel']}" if evidence.get("kernel") else "",
        f"{_count(evidence, 'settings', 'setting')} of the kernel" if evidence.get("settings") else "",
    ]
    return _joined(parts)


def _tunnelled(evidence: Evidence) -> str:
    largest = evidence.get("largest_packet")
    if largest is None:
        return ""
    return f"packets of up to {largest} bytes pass to the server at {evidence.get('server')}"


def _started(evidence: Evidence) -> str:
    return f"K3s {evidence['version']} runs" if evidence.get("version") else ""


def _registered(evidence: Evidence) -> str:
    pods = f"pods have {evidence['pods']}" if evidence.get("pods") else ""
    return _joined([f"Node {evidence['uid']}" if evidence.get("uid") else "", pods])


def _opened(evidence: Evidence) -> str:
    own = _count(evidence, "labels", "label")
    return f"open for pods, in the pool {evidence.get('pool')}, with {own} of its customer's"


def _measured(evidence: Evidence) -> str:
    sold = evidence.get("sold")
    bought = _of(sold, "vcpus", "memory_gib", "gpus") if isinstance(sold, Mapping) else ""
    short = _list(evidence.get("short"))
    claimed = _claimed(evidence)
    disk = evidence.get("disk_short")
    parts = [f"claims {claimed}" if claimed else "", f"{bought} were bought" if bought else "", *short]
    parts.append(disk if isinstance(disk, str) else "")
    return "; ".join(part for part in parts if part)


def _claimed(evidence: Evidence) -> str:
    cpu, memory, devices = (evidence.get(name) for name in ("cpu_millis", "memory_bytes", "devices"))
    parts = [
        f"{cpu / 1000:g} CPUs" if isinstance(cpu, int) else "",
        f"{memory / _GIB:,.1f} GiB" if isinstance(memory, int) else "",
    ]
    if isinstance(devices, Mapping):
        parts += [f"{count} {name}" for name, count in sorted(devices.items())]
    return _joined(parts)


def _of(sold: Mapping[str, object], cpus: str, memory: str, gpus: str) -> str:
    units = {cpus: "CPUs", memory: "GiB", gpus: "GPUs"}
    return _joined([f"{sold[name]} {unit}" for name, unit in units.items() if sold.get(name) is not None])


def _healthy(evidence: Evidence) -> str:
    conditions = evidence.get("conditions")
    if not isinstance(conditions, Mapping):
        return ""
    told = [f"{name}={value}" for name, value in sorted(conditions.items())]
    return _joined(told[:_NAMED_MAX])


def _cordoned(evidence: Evidence) -> str:
    return "" if evidence.get("found") else "there was no Node any more"


def _drained(evidence: Evidence) -> str:
    killed, left = _list(evidence.get("killed")), _list(evidence.get("left"))
    refused = evidence.get("refused")
    parts = [
        _named(killed, "killed") if killed else "",
        f"{refused} evictions refused" if refused else "",
        _named(left, "left") if left else "",
    ]
    return _joined(parts) or "all pods went by themselves"


def _deleted(evidence: Evidence) -> str:
    return "its Node, its password and its token" if evidence.get("node") else ""


def _cut_off(evidence: Evidence) -> str:
    return "every other member was read without its key" if "listed_by" in evidence else ""


def _cleaned(evidence: Evidence) -> str:
    left = _list(evidence.get("left"))
    looked = _list(evidence.get("looked_for"))
    if left:
        return f"still there: {', '.join(left)}"
    return f"nothing is left of {len(looked)} kinds of traces" if looked else ""


def _count(evidence: Evidence, name: str, noun: str) -> str:
    found = evidence.get(name)
    count = len(found) if isinstance(found, Collection) else 0
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(found: object) -> Sequence[str]:
    return [str(each) for each in found] if isinstance(found, list | tuple) else []


def _named(found: Sequence[str], what: str) -> str:
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return f"{what}: {', '.join(found[:_NAMED_MAX])}{more}"


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(part for part in parts if part)


_PHRASES: Mapping[str, Callable[[Evidence], str]] = {
    JoinStep.PREPARED: _prepared,
    JoinStep.TUNNELLED: _tunnelled,
    JoinStep.STARTED: _started,
    JoinStep.REGISTERED: _registered,
    JoinStep.MEASURED: _measured,
    JoinStep.HEALTHY: _healthy,
    JoinStep.OPENED: _opened,
    LeaveStep.CORDONED: _cordoned,
    LeaveStep.DRAINED: _drained,
    LeaveStep.DELETED: _deleted,
    LeaveStep.CUT_OFF: _cut_off,
    LeaveStep.CLEANED: _cleaned,
}
