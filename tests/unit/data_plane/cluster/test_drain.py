"""Which pods a drain asks to go, and what it makes of pods that went by themselves. On a real API server: test_nodes.py."""

from data_plane.cluster.drain import Look, drain
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.pod import Draining, draining
from data_plane.cluster.port import ClusterError, Conflict, NotFound, TooManyRequests, Unreachable
from data_plane.cluster.resource import Object


def _pod(name: str = "p", *, phase: str = "Running", **metadata: object) -> Object:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, **metadata},
        "status": {"phase": phase},
    }


def _owner(kind: str, *, controller: bool) -> list[Object]:
    return [{"kind": kind, "name": "x", "controller": controller}]


def test_pods_of_the_node_itself_and_pods_that_ended_are_left_alone() -> None:
    cases = {
        "plain": (_pod(), Draining.EVICT),
        "pending": (_pod(phase="Pending"), Draining.EVICT),
        "of a ReplicaSet": (_pod(ownerReferences=_owner("ReplicaSet", controller=True)), Draining.EVICT),
        "of a DaemonSet": (_pod(ownerReferences=_owner("DaemonSet", controller=True)), Draining.LEAVE),
        "beside a DaemonSet": (_pod(ownerReferences=_owner("DaemonSet", controller=False)), Draining.EVICT),
        "of the kubelet": (_pod(annotations={"kubernetes.io/config.mirror": "x"}), Draining.LEAVE),
        "done": (_pod(phase="Succeeded"), Draining.LEAVE),
        "failed": (_pod(phase="Failed"), Draining.LEAVE),
        "ending": (_pod(deletionTimestamp="2026-11-22T12:00:00Z"), Draining.WAIT),
        "ended, and ending": (_pod(phase="Failed", deletionTimestamp="2026-11-22T12:00:00Z"), Draining.LEAVE),
    }
    for case, (pod, verdict) in cases.items():
        assert draining(pod) is verdict, case


class Pods(LightkubePort):
    """A cluster that has these pods and answers each deletion with an error, or with none."""

    def __init__(self, pods: list[Object], errors: dict[str, ClusterError]) -> None:
        self._pods, self._errors = pods, errors
        self.calls: list[tuple[str, str, int]] = []

    async def list(self, *_: object, **__: object) -> list[Object]:
        return self._pods

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        self._answer("evict", uid, -1)

    async def delete(
        self, *_: object, uid: str | None = None, grace_s: int | None = None, **__: object
    ) -> None:
        self._answer("delete", uid or "", -1 if grace_s is None else grace_s)

    def _answer(self, verb: str, uid: str, grace_s: int) -> None:
        self.calls.append((verb, uid, grace_s))
        if uid in self._errors:
            raise self._errors[uid]


ERRORS = {
    "gone": NotFound("gone"),
    "replaced": Conflict("uid"),
    "guarded": TooManyRequests("budget"),
    "lost": Unreachable("no answer"),
}


async def test_one_pod_that_cannot_go_holds_up_no_other_one() -> None:
    port = Pods([_pod(name) for name in (*ERRORS, "free")], ERRORS)
    look = await drain(port, "n", time_is_up=False)
    assert look.evicted == ("ns/free",)
    assert look.refused == {"ns/guarded": "budget", "ns/lost": "no answer"}
    assert [call for call in port.calls if call[0] == "delete"] == []


async def test_once_the_time_is_up_who_still_runs_is_killed_and_who_went_by_itself_is_not_named() -> None:
    ending = _pod("ending", deletionTimestamp="2026-11-22T12:00:00Z")
    own = _pod("own", annotations={"kubernetes.io/config.mirror": "x"})
    port = Pods([_pod("gone"), _pod("replaced"), _pod("lost"), _pod("free"), ending, own], ERRORS)
    look = await drain(port, "n", time_is_up=True)
    assert look == Look(killed=("ns/free", "ns/ending"), refused={"ns/lost": "no answer"}, left=("ns/own",))
    assert [(verb, grace) for verb, _, grace in port.calls] == [("delete", 0)] * 5
    assert not look.is_empty
