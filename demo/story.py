"""The demo's script: three leases at once, a login, a private network, a GPU that fails, a warm pool, a crash, a bill
that adds up, and its proof.

Every expectation is checked where it is printed; the first one that fails ends the demo with an error.
"""

import csv
import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from control_plane.world import utc_now
from demo.city import City
from demo.cluster_story import NODES, ClusterStory
from demo.fault_story import FaultStory
from demo.finance_story import ClosedMonth, FinanceStory
from demo.pool_story import REGION as POOL_REGION
from demo.pool_story import SKU as POOL_SKU
from demo.pool_story import PoolStory
from demo.prices import PROVEN_SKU, SKU
from demo.processes import DemoError, wait_for

READY_SECONDS_MAX = 90
END_SECONDS_MAX = 60
CUSTOMER_KEY = "id_ed25519"
POOLED_SECONDS = 2
"""The target of a lease whose machine waits in a pool."""
REVOKED_SECONDS_MAX = 30
SSH_FAILED = 255
"""The exit code of ssh whose connection was closed."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise DemoError(what)


@dataclass
class Summary:
    """The content of `summary.json`. Money is in nano-US-dollars, times are in seconds."""

    leases: int = 0
    ready_seconds: dict[str, float] = field(default_factory=dict[str, float])
    metered_gpu_seconds: int = 0
    rated_nano: int = 0
    posted_nano: int = 0
    difference_nano: int = 0
    machines_left: int = -1
    wireguard_reached: bool | None = None
    """None: simulated machines have no network."""
    logged_in: bool | None = None
    access_revoked: bool | None = None
    """Whether the revocation of its certificate ended a session, and ssh then got a new certificate by itself."""
    killed_and_recovered: bool = False
    emulation_refused: bool = False
    """Whether a SKU that demands proof refused an emulated machine."""
    replaced_after_fault: bool | None = None
    """Whether a lease whose GPU failed got another machine. None: simulated machines have no GPUs that could fail."""
    credit_nano: int | None = None
    """What was given back for the promises that this broke, as the bill says."""
    pooled_ready_seconds: float | None = None
    """From the creation of a lease to ready, with a machine that waited in a warm pool."""
    cluster_nodes_ready: int | None = None
    """None: without real Kubernetes there is no cluster."""
    pod_across_tunnel: bool | None = None
    """Whether a pod at one provider reached a pod at another."""
    cluster_left: int | None = None
    """What was left of the nodes and of the kubeconfig at the end: objects, tunnels and machines."""
    focus_rows: int = 0
    """Rows of the FOCUS export of all customers."""
    reconcile_difference_nano: int | None = None
    """What the links of the month's reconciliation differ by in all, from the journal to the export."""
    closed_month: str | None = None
    """The month that was closed, such as `2026-10`."""
    invoice: str | None = None
    """The number of its invoice."""
    closed_focus_rows: int = 0
    """Rows of its final FOCUS export."""
    closed_difference_nano: int | None = None
    """What the links of its reconciliation differ by in all."""
    supplier_matched: bool = False
    """Whether the supplier's invoice of it matches our meter and the customers' bills, every difference explained."""
    machines_real: bool = False
    seconds: float = 0.0


@dataclass
class Story:
    city: City
    summary: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._books = FinanceStory(self.city, self._finance)
        self._faults = FaultStory(self.city, self._customer, self._operator)
        self._pool = PoolStory(self.city, self._operator)

    def play(self) -> None:
        self.summary.machines_real = self.city.real_machines
        self._prepare()
        self._lease_three()
        if self.city.real_machines:
            self._log_in()
            self._take_access_away()
            self._reach()
            self._fail()
        else:
            self.city.say("\n  (simulated machines have no GPUs, so none of them fails in this demo)")
        self._keep_warm()
        self._crash()
        self._demand_proof()
        self._release()
        # Before the cluster, so that its entries are old enough to be exported when that is done.
        closed = self._close_month()
        charged_at = self._charged()
        if self.city.cluster:
            self._join()
        self._expect_no_machines()
        self._settle()
        self._prove(charged_at)
        self._export_closed(closed)

    # --- the customer's tools

    def _title(self, text: str) -> None:
        self.city.say(f"\n== {text}")

    def _customer(self, *arguments: str, show: bool = True) -> str:
        """Type a command as the customer would, and show it with its output."""
        return self._type(arguments, self.city.customer_environment(), show=show)

    def _operator(self, *arguments: str, show: bool = True) -> str:
        """Type a command as those who run the installation would."""
        return self._type(arguments, self.city.operator_environment(), show=show)

    def _finance(self, *arguments: str, show: bool = True) -> str:
        """Type a command as whoever keeps the books would."""
        return self._type(("finance", *arguments), self.city.finance_environment(), show=show)

    def _type(self, arguments: tuple[str, ...], environment: dict[str, str], *, show: bool) -> str:
        if show:
            self.city.say(f"$ splitplane {' '.join(arguments)}")
        command = [str(Path(sys.executable).with_name("splitplane")), *arguments]
        live = show and sys.stdout.isatty() and arguments[:2] == ("lease", "watch")
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if live else subprocess.PIPE,
            stderr=None if live else subprocess.STDOUT,
            text=True,
            timeout=READY_SECONDS_MAX + 30,
            check=False,
        )
        printed = "" if live else done.stdout
        if show and printed:
            self.city.say(printed.rstrip())
        expect(
            done.returncode == 0, f"splitplane {' '.join(arguments)} ended with {done.returncode}: {printed}"
        )
        return printed

    def _lease(self, name: str) -> dict[str, Any]:
        found = [lease for lease in self.city.ask("/v1/leases?limit=100")["items"] if lease["name"] == name]
        expect(len(found) == 1, f"there is not exactly one lease called {name}")
        lease: dict[str, Any] = found[0]
        return lease

    # --- the chapters

    def _prepare(self) -> None:
        self._title("A customer arrives")
        key = self.city.directory / "customer" / CUSTOMER_KEY
        key.parent.mkdir(parents=True, exist_ok=True)
        _new_key(key)
        self._customer("ssh-key", "add", "laptop", f"{key}.pub")
        wait_for("the first offers", 30, self._offered, self.city.children["reconciler"])
        self._books.begin()
        self._customer("quote", SKU, "--region", "eu", "--max-price", "25")

    def _offered(self) -> bool:
        pages = [self.city.ask(f"/v1/offers?provider={name}") for name in ("local", "lambda_cloud")]
        return all(any(offer["available"] for offer in page["items"]) for page in pages)

    def _lease_three(self) -> None:
        self._title("Three leases at once: two at the local cloud, one at Lambda")
        # Of the offers, the local cloud's costs least. Alpha names no provider, so that any may replace its machine.
        self._create("alpha", "--sla", "gold")
        self._create("beta", "--provider", "local")
        self._create("gamma", "--provider", "lambda_cloud")
        self._customer("lease", "watch", "alpha", "beta", "gamma", "--until", "ready")
        for name in ("alpha", "beta", "gamma"):
            self._expect_ready(name)
        expect(self._lease("alpha")["machine"]["provider"] == "local", "alpha is not at the local cloud")
        self._customer("lease", "list")

    def _create(self, name: str, *constraints: str) -> None:
        arguments = ("lease", "create", SKU, "--name", name, *constraints, "--ssh-key", "laptop")
        self._customer(*arguments, "--no-wait")

    def _expect_ready(self, name: str) -> None:
        lease = self._lease(name)
        expect(lease["state"] == "ready", f"{name} is {lease['state']}: {lease['end_why']}")
        self.summary.leases += 1
        self.summary.ready_seconds[name] = _seconds(lease["created_at"], lease["ready_at"])

    def _log_in(self) -> None:
        self._title("Logging in as the customer and reading the GPUs")
        self.city.say("  (a real machine has nvidia-smi; here our agent reads the emulated cards)")
        agent = "sudo sh -c 'python3 -I /home/splitplane/.splitplane/agent-*.pyz inventory'"
        seen = json.loads(self._on("alpha", agent))
        self.city.say(f"  {seen['source']}: " + ", ".join(gpu["name"] for gpu in seen["gpus"]))
        expect(
            len(seen["gpus"]) == 1 and "H100" in seen["gpus"][0]["name"], f"not the GPU that was sold: {seen}"
        )
        self.summary.logged_in = True

    def _take_access_away(self) -> None:
        self._title("A revoked certificate ends its session; plain ssh gets a new one by itself")
        key = self.city.directory / "customer" / CUSTOMER_KEY
        config = key.with_name("ssh_config")
        config.write_text(self._customer("lease", "ssh-config", "beta", "--identity", str(key), show=False))
        with self._plain_ssh(config, "echo open; sleep 60") as session:
            expect(session.stdout is not None and session.stdout.readline() == "open\n", "ssh did not log in")
            self._customer("ssh-certificate", "revoke", "beta", "--all")
            expect(session.wait(timeout=REVOKED_SECONDS_MAX) == SSH_FAILED, "the session was not cut off")
        with self._plain_ssh(config, "echo open again") as session:
            expect(session.wait(timeout=REVOKED_SECONDS_MAX) == 0, "ssh got no new certificate")
        self._customer("ssh-certificate", "list", "beta")
        self.summary.access_revoked = True

    def _plain_ssh(self, config: Path, command: str) -> subprocess.Popen[str]:
        self.city.say(f"$ ssh beta '{command}'")
        return subprocess.Popen(
            ["ssh", "-F", str(config), "-o", "BatchMode=yes", "beta", command],
            env=self.city.customer_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _reach(self) -> None:
        self._title("Two machines at different providers reach each other over WireGuard")
        address = self._lease("gamma")["machine"]["mesh_address"]
        self._on("alpha", f"ping -c 3 -i 0.2 -W 3 {address}")
        self.summary.wireguard_reached = True

    def _on(self, name: str, command: str) -> str:
        key = str(self.city.directory / "customer" / CUSTOMER_KEY)
        return self._customer("lease", "ssh", name, "--identity", key, "--", command)

    def _fail(self) -> None:
        self._title("A GPU fails: the lease gets another machine")
        self.summary.replaced_after_fault = self._faults.fail("alpha")
        expect(self.summary.replaced_after_fault, "the lease is not ready on another machine")

    def _keep_warm(self) -> None:
        self._title("A warm pool: the second lease of its SKU is ready at once")
        self._pool.create()
        cold = self._lease_pooled("epsilon")
        self._pool.wait_until_warm()
        waiting = {machine["name"] for machine in self.city.local_inventory()}
        warm = self._lease_pooled("zeta")
        self.summary.pooled_ready_seconds = seconds = _seconds(warm["created_at"], warm["ready_at"], digits=2)
        before = _seconds(cold["created_at"], cold["ready_at"])
        missed = "" if seconds < POOLED_SECONDS else f" (the target is {POOLED_SECONDS} s)"
        self.city.say(f"  bought for it: ready after {before:g} s; from the pool: {seconds:g} s{missed}")
        got = warm["machine"]["machine_id"].partition("_")[2]
        expect(any(name.endswith(got) for name in waiting), "the lease did not get the machine that waited")

    def _lease_pooled(self, name: str) -> dict[str, Any]:
        """Lease a machine of the SKU of which a pool keeps one, and wait until it is ready."""
        where = ("--region", POOL_REGION, "--ssh-key", "laptop")
        self._customer("lease", "create", POOL_SKU, "--name", name, *where)
        self._expect_ready(name)
        return self._lease(name)

    def _crash(self) -> None:
        self._title("The reconciler is killed while another lease starts")
        self._create("delta", "--provider", "local")
        reconciler = self.city.children["reconciler"]
        wait_for("its machine at the provider", 30, lambda: len(self._machines("delta")) == 1, reconciler)
        reconciler.kill()
        before = self._lease("delta")
        self.city.say(f"  SIGKILL. The lease is {before['state']}, at step {before['status']['step']};")
        self.city.say(f"  the provider runs its machine: {self._machines('delta')}")
        expect(before["state"] == "starting", f"the lease was {before['state']} already")
        self.city.start_reconciler()
        self._customer("lease", "watch", "delta", "--until", "ready")
        self._expect_ready("delta")
        machines = self._machines("delta")
        self.city.say(f"  ready, with exactly one machine at the provider: {machines}")
        expect(len(machines) == 1, f"{len(machines)} machines for one lease: {machines}")
        self._customer("why", "delta")
        self.summary.killed_and_recovered = True

    def _demand_proof(self) -> None:
        self._title("A SKU that demands proof refuses an emulated machine")
        arguments = ["lease", "create", PROVEN_SKU, "--name", "strict", "--provider", "local"]
        self._customer(*arguments, "--ssh-key", "laptop", "--no-wait")
        reconciler = self.city.children["reconciler"]
        wait_for(
            "the challenge of its machine", READY_SECONDS_MAX, lambda: self._proofs("strict"), reconciler
        )
        proof = self._proofs("strict")[-1]
        expect(proof["outcome"] == "emulated", f"the proof came to {proof['outcome']}: {proof['why']}")
        self._customer("proof", "show", proof["id"])
        refused = self.city.ask(f"/v1/leases/{self._lease('strict')['id']}/explanation")["attempts"][0]
        expect(refused["fail_reason"] == "proof_emulated", f"the attempt ended as {refused['fail_reason']}")
        expect(self._lease("strict")["ready_at"] is None, "an emulation was leased as proven")
        self._customer("lease", "release", "strict", "--yes")
        self.summary.emulation_refused = True

    def _proofs(self, name: str) -> list[dict[str, Any]]:
        """Newest first."""
        proofs: list[dict[str, Any]] = self.city.ask(f"/v1/leases/{self._lease(name)['id']}/proofs")["items"]
        return proofs

    def _machines(self, name: str) -> list[str]:
        """Provider ids of the machines that carry a launch key of this lease."""
        explained = self.city.ask(f"/v1/leases/{self._lease(name)['id']}/explanation")
        ids = {attempt["machine_id"].partition("_")[2] for attempt in explained["attempts"]}
        listed = self.city.local_inventory()
        return [machine["id"] for machine in listed if machine["name"].rpartition("-")[2] in ids]

    def _join(self) -> None:
        story = ClusterStory(self.city, self._customer)
        self._title("Two nodes of a cluster, at two providers")
        self.summary.cluster_nodes_ready = story.join()
        expect(self.summary.cluster_nodes_ready == NODES, f"not {NODES} nodes are ready")
        self.summary.pod_across_tunnel = story.reach()
        expect(self.summary.pod_across_tunnel, "the pods do not reach each other")
        self._customer("bill")
        self.summary.cluster_left = story.leave()
        expect(self.summary.cluster_left == 0, "something is left of the nodes or of the kubeconfig")

    def _release(self) -> None:
        self._title("Releasing everything")
        self._pool.delete()
        names = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
        self._customer("lease", "release", *names, "--yes")
        wait_for("the end of every lease", END_SECONDS_MAX, self._ended, self.city.children["reconciler"])

    def _charged(self) -> datetime:
        """Wait for the last charges. Returns when that was."""
        wait_for("the last charges", 30, lambda: self.city.ask("/v1/bill")["unrated"]["nano"] == 0)
        return utc_now()

    def _expect_no_machines(self) -> None:
        wait_for("the end of the pool's machine", END_SECONDS_MAX, lambda: not self.city.local_inventory())
        left = self.city.inventories()
        for provider, machines in left.items():
            self.city.say(f"  {provider}: {len(machines)} machines")
        self.summary.machines_left = sum(map(len, left.values()))
        expect(self.summary.machines_left == 0, f"machines are left: {left}")

    def _ended(self) -> bool:
        leases = self.city.ask("/v1/leases?limit=100")["items"]
        return all(lease["state"] == "ended" for lease in leases)

    def _settle(self) -> None:
        self._title("The bill")
        self._charged()
        if self.summary.replaced_after_fault:
            self._credit()
        self._customer("bill")
        totals = self.city.ask("/v1/reconciliation")
        metered = sum(
            billed_seconds(lease, self._faults.pauses(lease["id"]))
            for lease in self.city.ask("/v1/leases?limit=100")["items"]
        )
        self.summary.metered_gpu_seconds = totals["gpu_seconds"]
        self.summary.rated_nano = totals["rated"]["nano"]
        self.summary.posted_nano = totals["posted"]["nano"]
        self.summary.difference_nano = totals["difference"]["nano"]
        self.city.say(
            f"\nmetered {totals['gpu_seconds']} GPU-seconds = rated {totals['rated']['usd']} USD"
            f" = posted {totals['posted']['usd']} USD; difference {totals['difference']['nano']} nano-USD"
        )
        expect(totals["difference"]["nano"] == 0, "rated is not posted")
        expect(totals["rated"]["nano"] > 0, "nothing was rated")
        expect(totals["gpu_seconds"] == metered, f"metered {totals['gpu_seconds']}, the leases say {metered}")
        csv = self._customer("usage", "--csv", show=False)
        expect(_csv_total(csv) == totals["rated"]["nano"], "the usage CSV does not add up to the ledger")

    def _credit(self) -> None:
        self.summary.credit_nano = credited = self._faults.credit("alpha")
        expect(credited > 0, "nothing was given back")
        expect(self._faults.on_bill("alpha") == credited, "the bill does not say what was given back")

    def _prove(self, charged_at: datetime) -> None:
        self._title("Finance: the month as FOCUS 1.2, and proof that the books follow from what happened")
        self.summary.focus_rows = self._books.export(charged_at)
        expect(self.summary.focus_rows >= self.summary.leases, "a lease is missing from the export")
        self.summary.reconcile_difference_nano = self._books.reconcile()
        expect(self.summary.reconcile_difference_nano == 0, "the books do not reconcile")

    def _close_month(self) -> ClosedMonth:
        self._title("Finance: last month is closed, invoiced, and matched with the supplier")
        self.city.say(
            "  (the running month cannot be closed, so this is the month of another customer: what it used"
        )
        self.city.say(
            "  then was written into the database at the start, and billed since by the same reconciler)"
        )
        closed = self._books.close(self._past_customer)
        self.summary.closed_month, self.summary.invoice = closed.month, closed.invoice
        self.summary.supplier_matched = closed.matched
        expect(closed.matched, "the supplier's invoice does not match")
        return closed

    def _export_closed(self, closed: ClosedMonth) -> None:
        self._title("Finance: last month is exported for good, and its books reconcile")
        final = self._books.export_closed(closed)
        self.summary.closed_focus_rows = final.focus_rows
        self.summary.closed_difference_nano = final.difference_nano
        expect(final.difference_nano == 0, "the books of last month do not reconcile")
        expect(final.focus_rows > 0, "nothing of last month is in its export")

    def _past_customer(self, *arguments: str, show: bool = True) -> str:
        """Type a command as the customer of last month would."""
        return self._type(arguments, self.city.past_environment(), show=show)


def _new_key(path: Path) -> None:
    for old in (path, Path(f"{path}.pub")):
        old.unlink(missing_ok=True)
    arguments = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "customer@demo", "-f", str(path)]
    subprocess.run(arguments, check=True)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _seconds(since: str, until: str, digits: int = 1) -> float:
    return round(_time(until) - _time(since), digits)


def billed_seconds(lease: dict[str, Any], pauses: Sequence[tuple[str, str]]) -> int:
    """Whole seconds between ready and release, by the lease's own times, without those of the pauses of its bill."""
    if lease["ready_at"] is None:
        return 0
    spans = [(lease["ready_at"], lease["billed_until"]), *((end, begin) for begin, end in pauses)]
    seconds = sum(math.floor(_time(until)) - math.ceil(_time(since)) for since, until in spans)
    return max(0, seconds) * int(lease["gpu_count"])


def _csv_total(text: str) -> int:
    return sum(int(row["amount_nano_usd"]) for row in csv.DictReader(io.StringIO(text)))


def timed(story: Story) -> Summary:
    begun = time.monotonic()
    story.play()
    story.summary.seconds = round(time.monotonic() - begun, 1)
    return story.summary
