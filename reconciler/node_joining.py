"""The steps that make a machine a node of a cluster (`domain/node.py`). Each can be repeated, and returns evidence."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from control_plane.db import node_turns, nodes, overlays, server_hosts
from control_plane.db.nodes import OpenNode, Place
from control_plane.domain import node_health
from control_plane.domain.node import JOINS_IN_FLIGHT_MAX, JoinStep
from control_plane.domain.node_capacity import (
    GPU,
    Capacity,
    Finding,
    Verdict,
    disk_shortfall,
    judge_capacity,
)
from control_plane.domain.node_files import SENDS_IN_FLIGHT_MAX, is_late
from control_plane.domain.node_tunnels import packet_problem
from control_plane.domain.overlay import pod_block_of
from data_plane.access.port import StepFailed, Target
from data_plane.cluster import bootstrap_token
from data_plane.cluster import node as in_cluster
from data_plane.cluster.agents import AgentOrder, NodePasswordRejected
from data_plane.cluster.capacity import ClaimedCapacity, allocatable, claimed_capacity
from data_plane.cluster.files import StillSending
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.objects.node import keeps_pods_away
from data_plane.cluster.port import KubernetesPort, NotFound
from data_plane.cluster.resource import NODE, Object
from data_plane.documents.strict import shown
from data_plane.mesh.members import ServerAway
from reconciler.nodes import Held
from reconciler.overlay import PORT
from reconciler.server_hosts import connected, target
from reconciler.worlds.clusters import ClusterWorld

TOKEN_LIFE = timedelta(minutes=10)
API_PORT = 6443
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

Evidence = Mapping[str, object]


class NotYet(Exception):  # noqa: N818 - reads as a sentence
    """The step has to wait for something. That is no failed try."""


class HeldUp(NotYet):
    """It waits for something of ours or for other nodes, so its deadline moves on."""


class Hostile(Exception):  # noqa: N818 - says what the machine is
    """The machine claims what it does not have."""


async def _prepare(world: ClusterWorld, held: Held) -> Evidence:
    now, limit = world.now(), SENDS_IN_FLIGHT_MAX
    async with world.db.transaction() as connection:
        turn = await node_turns.may_be_sent_files(
            connection, held.node, limit=limit, token=held.token, now=now
        )
    if not turn:
        raise HeldUp(f"files are sent to {limit} other machines of its provider first")
    try:
        found = await world.agents.prepare(held.machine)
    except StillSending as sent:
        late = is_late(held.node.created_at, world.now(), arrived=sent.arrived, seconds=sent.seconds)
        raise (NotYet if late else HeldUp)(str(sent)) from None
    return {
        "files": dict(found.files),
        "kernel": found.kernel,
        "settings": dict(found.settings),
        "modules": list(found.modules),
    }


async def _tunnel(world: ClusterWorld, held: Held) -> Evidence:
    if held.node.public_key is None:
        key = await world.members.make_key(held.machine)
        await _keep_key(world, held, key, await _endpoint(world, held))
        raise HeldUp("it waits for its tunnels")
    if not held.place.has_tunnels:
        raise HeldUp("it waits for its tunnels")
    largest = await world.members.probe(held.machine, held.server_address)
    if largest is None:
        raise NotYet("the cluster's server does not answer through the tunnel yet")
    problem = packet_problem(largest)
    if problem is not None:
        raise StepFailed(JoinStep.TUNNELLED, None, problem)
    return {
        "public_key": held.node.public_key,
        "server": held.server_address,
        "largest_packet": largest,
        "looked_for_at": outside_of(held.machine),
        "heard_from_outside": held.node.endpoint is not None,
    }


async def _keep_key(world: ClusterWorld, held: Held, public_key: str, endpoint: str | None) -> None:
    """Store its key, which puts it on the peer map. Whoever has the key of another member wants its packets."""
    async with world.db.transaction() as connection:
        await nodes.lock_numbers(connection)
        now = world.now()
        taken = await nodes.key_is_taken(connection, held.node, public_key)
        if not taken:
            await nodes.keep_key(connection, held.node.id, public_key, endpoint, token=held.token, now=now)
            await overlays.soon(connection, held.cluster.id, now=now)
    if taken:
        raise Hostile("it claims the key of another member of its cluster")


async def _endpoint(world: ClusterWorld, held: Held) -> str | None:
    """Where it can be reached from outside; None when nothing from there reaches it. Raises HeldUp."""
    async with world.db.reading() as connection:
        hosts = await server_hosts.of_cluster(connection, held.cluster.id)
    try:
        heard = await world.members.hears(held.machine, target(hosts[0]))
    except ServerAway as error:
        raise HeldUp(str(error)) from None
    return outside_of(held.machine) if heard else None


def outside_of(machine: Target) -> str:
    """Where its tunnels are looked for from outside."""
    host = f"[{machine.address}]" if ":" in machine.address else machine.address
    return f"{host}:{PORT}"


async def _start(world: ClusterWorld, held: Held) -> Evidence:
    now, limit = world.now(), JOINS_IN_FLIGHT_MAX
    async with world.db.transaction() as connection:
        turn = await node_turns.may_start(connection, held.node, limit=limit, token=held.token, now=now)
    if not turn:
        raise HeldUp(f"{limit} other nodes of its cluster are joining")
    made = BootstrapToken(held.token_id, "".join(secrets.choice(_LETTERS) for _ in range(16)))
    async with connected(world, held.cluster) as port:
        await bootstrap_token.admit_machine(
            port, made, held.node.name, held.address, now=world.now(), life=TOKEN_LIFE
        )
        order = AgentOrder(
            machine=held.machine,
            node=held.node.name,
            address=held.address,
            server=f"https://{held.server_address}:{API_PORT}",
            token=made.text(held.cluster.ca_pem or ""),
        )
        try:
            started = await world.agents.start(order)
        except NodePasswordRejected:
            await _forget_old_password(port, held)
            raise
    return {"version": started.version, "token_id": made.id}


async def _forget_old_password(port: KubernetesPort, held: Held) -> None:
    """An earlier try of ours may have stored another password. Where there is a Node, somebody else has the name."""
    try:
        await port.get(NODE, held.node.name)
    except NotFound:
        await in_cluster.forget_password(port, held.node.name)
        return
    raise Hostile("another machine has joined under its name")


async def _register(world: ClusterWorld, held: Held) -> Evidence:
    async with connected(world, held.cluster) as port:
        found = await node_of(port, held)
        if not keeps_pods_away(found):
            raise Hostile("it registered without the taint that keeps pods away")
        await bootstrap_token.withdraw(port, held.token_id, held.node.name)
        await let_plugin_run(world, port, held, found)
    await world.agents.drop_token(held.machine)
    pods = found["spec"].get("podCIDR")
    block = _pod_block(pods)
    uid = found["metadata"]["uid"]
    async with world.db.transaction() as connection:
        await nodes.lock_numbers(connection)
        if await nodes.pod_block_is_taken(connection, held.node, block):
            raise HeldUp("the range of its pods is still that of a node that leaves")
        await nodes.keep_object(
            connection, held.node.id, uid=uid, pod_block=block, reported=reported(found), token=held.token
        )
        await overlays.soon(connection, held.cluster.id, now=world.now())
    return {"uid": uid, "pods": pods, "version": _info(found).get("kubeletVersion")}


async def let_plugin_run(world: ClusterWorld, port: KubernetesPort, held: Held, found: Object) -> None:
    """Let the device plugin run on a node that was sold with GPUs, also when it is switched on after it registered."""
    if (
        world.device_plugin is not None
        and held.marks.has_gpus
        and not in_cluster.is_expected_to_have_gpus(found)
    ):
        await in_cluster.expect_gpus(port, held.node.name)


def _pod_block(pods: str | None) -> int:
    """The number of a range of pods. The cluster assigns it after the registration, unless the node brought one."""
    if pods is None:
        raise HeldUp("the cluster has assigned no addresses to its pods yet")
    try:
        return pod_block_of(pods)
    except ValueError as error:
        raise Hostile(f"the range of its pods is outside the cluster's plan: {error}") from None


async def node_of(port: KubernetesPort, held: Held) -> Object:
    """Its Node. Raises NotYet when there is none, and Hostile when it is another one than the one that registered."""
    try:
        found = await port.get(NODE, held.node.name)
    except NotFound:
        raise NotYet("it has not registered yet") from None
    if held.node.uid not in (None, found["metadata"]["uid"]):
        raise Hostile("its Node was replaced by another one of the same name")
    return found


async def _measure(world: ClusterWorld, held: Held) -> Evidence:
    async with connected(world, held.cluster) as port:
        found = await node_of(port, held)
    claimed, verdict = _judged(found, held.place)
    if verdict.finding is Finding.SHORT and not world.accept_emulated:
        raise StepFailed(JoinStep.MEASURED, None, "; ".join(verdict.reasons))
    return {
        "short": list(verdict.reasons),
        "cpu_millis": claimed.cpu_millis,
        "memory_bytes": claimed.memory_bytes,
        "disk_bytes": claimed.disk_bytes,
        "disk_short": disk_shortfall(held.place.disk_gib, claimed.disk_bytes),
        "pods": claimed.pods,
        "devices": {name: count for name, count in claimed.devices.items() if count},
        "sold": {
            "vcpus": held.place.vcpus,
            "memory_gib": held.place.memory_gib,
            "gpus": held.place.gpu_count,
            "disk_gib": held.place.disk_gib,
        },
    }


def _judged(found: Object, place: Place) -> tuple[ClaimedCapacity, Verdict]:
    """What a node claims, and that it is no more than was bought. Raises Hostile."""
    try:
        claimed = claimed_capacity(found)
    except ValueError:
        raise Hostile(
            "its capacity cannot be read"
        ) from None  # Customers read this; `nodes.reported` has it.
    verdict = judge(place, claimed)
    if verdict.finding is Finding.EXCESS:
        raise Hostile("; ".join(verdict.reasons))
    return claimed, verdict


def reported(found: Object, gpu_problem: str | None = None) -> dict[str, object]:
    """What a Node says of itself, as we keep it: bounded, and believed in nothing."""
    missing = {node_health.GPUS_MISSING: "True"} if gpu_problem else {}
    status = found.get("status", {})
    capacity = list((status.get("capacity") or {}).items())[:32]
    return {
        "conditions": {**conditions(found), **missing},
        "capacity": {_shown(name, 317): _shown(amount, 40) for name, amount in capacity},
        "version": _shown(_info(found).get("kubeletVersion", ""), 40),
    }


def _shown(told: object, length: int) -> str:
    """A node's own words: Kubernetes takes any character, NUL included."""
    return shown(str(told), length)


def conditions(found: Object) -> dict[str, str]:
    """The conditions of a Node, each with `True`, `False` or `Unknown`."""
    listed = (found.get("status", {}).get("conditions") or [])[:32]
    return {_shown(each.get("type"), 64): _shown(each.get("status"), 16) for each in listed}


def _info(found: Object) -> Object:
    info = found.get("status", {}).get("nodeInfo")
    return info if isinstance(info, dict) else {}


def judge(place: Place | OpenNode, claimed: ClaimedCapacity) -> Verdict:
    """What a node claims, against what was bought.

    Its GPUs were proven before it became a node. A cluster without a device plugin reports none of them, so that counts
    as no claim.
    """
    devices = {GPU: place.gpu_count} if GPU in claimed.devices else {}
    sold = Capacity(place.vcpus * 1000, place.memory_gib * 1024**3, devices)
    return judge_capacity(
        sold, Capacity(claimed.cpu_millis, claimed.memory_bytes, claimed.devices, claimed.pods)
    )


async def _see_healthy(world: ClusterWorld, held: Held) -> Evidence:
    async with connected(world, held.cluster) as port:
        found = await node_of(port, held)
        await let_plugin_run(world, port, held, found)
    problem = problem_of(world, found, held.place)
    if problem is not None:
        raise NotYet(problem)
    return reported(found)


def problem_of(world: ClusterWorld, found: Object, place: Place) -> str | None:
    """Why a node is not opened, as a sentence; None when it may be.

    Raises Hostile when it claims more than was bought by now: its GPUs are reported long after it was measured.
    """
    _judged(found, place)
    return node_health.problem(conditions(found)) or gpu_problem(world, found, place)


def gpu_problem(world: ClusterWorld, found: Object, place: Place | OpenNode) -> str | None:
    """What is wrong with the GPUs that pods get, where that is up to us; None when nothing is."""
    if world.device_plugin is None:
        return None
    return node_health.gpu_problem(allocatable=allocatable(found, GPU), sold=place.gpu_count)


# How a node is opened is in `node_opening.py`: its lease begins with it, and others may open together with it.
STEPS: Mapping[JoinStep, Callable[[ClusterWorld, Held], Awaitable[Evidence]]] = {
    JoinStep.PREPARED: _prepare,
    JoinStep.TUNNELLED: _tunnel,
    JoinStep.STARTED: _start,
    JoinStep.REGISTERED: _register,
    JoinStep.MEASURED: _measure,
    JoinStep.HEALTHY: _see_healthy,
}
