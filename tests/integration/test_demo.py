"""The demo's own machinery: one cloud per checkout, and nothing left however it is stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from control_plane.db import embedded
from control_plane.domain.repair import Consent, consent_of
from control_plane.domain.sla import SlaTier
from control_plane.services.sla_terms import parse_terms
from demo import __main__ as command
from demo import lock
from demo.city import SLA_TERMS, City
from demo.processes import start, wait_for
from demo.stopping import AGAIN_SECONDS, SIGNALS, Stopped, Stopping
from demo.story import billed_seconds
from providers.emulators import host_resources
from providers.emulators.nspawn import missing_requirements
from tests.support.clock import START

HOLDER = """
import sys, time
from datetime import datetime
from pathlib import Path
from demo import lock
held = lock.hold(Path(sys.argv[1]), "make up", datetime(2026, 11, 20, 12, 0, 0))
held.tell(url="http://127.0.0.1:4711")
print("held", flush=True)
time.sleep(60)
"""
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_the_second_says_that_the_first_runs_and_a_dead_one_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(lock.AlreadyRunningError) as caught:
            lock.hold(path, "make demo", START)
        assert str(caught.value) == (
            f"`make up` already runs here (pid {holder.pid}, since 2026-11-20 12:00:00 UTC)"
            f" at http://127.0.0.1:4711. To stop it: kill {holder.pid}"
        )
    finally:
        holder.kill()
        holder.communicate()
    held = lock.hold(path, "make demo", START)
    facts = json.loads(path.read_text())
    assert (facts["pid"], facts["command"], "url" in facts) == (str(os.getpid()), "make demo", False)
    for name, text in (("starting", json.dumps(facts)), ("empty", ""), ("nonsense", "[]")):
        path.write_text(text)
        with pytest.raises(
            lock.AlreadyRunningError, match="not up yet" if name == "starting" else "starting"
        ):
            lock.hold(path, "make up", START)
    held.release()
    lock.hold(path, "make up", START).release()


def test_the_second_command_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = lock.hold(tmp_path / "lock", "make up", START)
    monkeypatch.setattr(command, "DIRECTORY", tmp_path)
    monkeypatch.setattr(command, "City", None)
    for name in ("run", "up"):
        monkeypatch.setattr(sys, "argv", ["demo", name])
        assert command.main() == 1
        assert "`make up` already runs here" in capsys.readouterr().out
    held.release()


def test_the_first_signal_stops_in_order_and_the_second_kills_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    done: list[str] = []
    clock = iter([10.0, 10.0 + AGAIN_SECONDS / 2, 10.0 + AGAIN_SECONDS])
    stopping = Stopping(
        lambda _: done.append("said"),
        lambda: done.append("killed"),
        clock=lambda: next(clock),
        leave=lambda code: done.append(f"left with {code}"),
    )
    with pytest.raises(Stopped) as caught:
        stopping.asked(signal.SIGINT)
    assert (caught.value.code, done) == (130, ["said"])
    stopping.asked(signal.SIGINT)
    assert done == ["said"], "make passes on what the terminal has sent already"
    stopping.asked(signal.SIGTERM)
    assert done == ["said", "said", "killed", "left with 143"]


def test_a_signal_does_not_interrupt_a_stop_that_has_begun() -> None:
    said: list[str] = []
    stopping = Stopping(said.append, lambda: None)
    stopping.begun = True
    stopping.asked(signal.SIGINT)
    assert len(said) == 1


def test_a_child_that_does_not_listen_is_ended_with_its_own_children(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ends: tuple[Callable[[City], None], ...] = (City.kill, lambda city: city.children["it"].end(0.2))
    for number, end in enumerate(ends):
        log = tmp_path / f"{number}.log"
        city = City(tmp_path, real_machines=False, say=print)
        city.children["it"] = child = start("it", ["stubborn"], environment, log)
        grandchild = int(str(wait_for("its child", 30, log.read_text, child)))
        end(city)
        assert child.process.poll() is not None
        wait_for("the end of its child", 10, partial(_has_ended, grandchild))


def _has_ended(pid: int) -> bool:
    """Whether it is gone, or has ended and nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements()))
def test_machines_reach_each_other_on_a_host_whose_firewall_forwards_nothing(tmp_path: Path) -> None:
    """As on a host with Docker. The firewall is one of a network namespace."""
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", FORWARDS_NOTHING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    before, after = ran.stdout.split("removed\n")
    assert "-A FORWARD -i spbr0 -o spbr0 -j ACCEPT" in before
    assert after == "-P FORWARD DROP\n"


FORWARDS_NOTHING = """
import subprocess, sys
from pathlib import Path
from providers.emulators import host_resources
from providers.emulators.nspawn import missing_requirements
state = Path(sys.argv[1])
host_resources.FILTERS_BRIDGES = state / "filters"
host_resources.FILTERS_BRIDGES.write_text("1")
subprocess.run(["iptables", "--policy", "FORWARD", "DROP"], check=True)
slot = host_resources.claim_slot(state)
host_resources.make_bridge(slot)
print(subprocess.check_output(["iptables", "--list-rules", "FORWARD"], text=True))
host_resources.remove_bridge(slot)
print("removed")
print(subprocess.check_output(["iptables", "--list-rules", "FORWARD"], text=True), end="")
"""


def test_what_a_killed_emulator_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"slot-{number}/machine").mkdir(parents=True)
    living = host_resources.claim_slot(tmp_path / "other")
    (tmp_path / "slot-2").mkdir()
    host_resources.sweep(tmp_path)
    assert list(tmp_path.glob("slot-*/")) == []
    host_resources.sweep(tmp_path / "other")
    assert living.folder.exists()
    living.release()


@pytest.mark.parametrize("broken", ["start", "recreate", "stop"])
def test_a_fault_of_the_database_is_one_sentence(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fault(*_: object, **__: object) -> str:
        raise embedded.EmbeddedError("the PostgreSQL server in planted does not answer")

    monkeypatch.setattr(command, "DIRECTORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo", "up"])
    monkeypatch.setattr(Stopping, "install", lambda _: None)
    for step in ("start", "recreate", "stop"):
        monkeypatch.setattr(embedded, step, fault if step == broken else lambda *_, **__: "")
    if broken == "stop":
        monkeypatch.setattr(City, "_start_clouds", lambda _: None)
        monkeypatch.setattr("demo.city.run", fault)
    assert command.main() == 1
    said, logged = capfd.readouterr()
    assert "the PostgreSQL server in planted does not answer" in said
    assert "Traceback" not in said + logged
    assert ("not everything that was started here has ended" in said) is (broken == "stop")


def test_a_server_that_does_not_start_says_its_last_complaint_and_one_that_does_not_run_is_stopped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "postgres"
    embedded.stop(directory)
    embedded.start(directory, throwaway=True)
    embedded.stop(directory, immediately=True)
    embedded.stop(directory)
    (directory / "global" / "pg_control").unlink()
    with pytest.raises(embedded.EmbeddedError) as caught:
        embedded.start(directory, throwaway=True)
    assert str(caught.value).startswith(f"the PostgreSQL server in {directory} does not start: ")
    assert "pg_control" in str(caught.value)
    assert "\n" not in str(caught.value)
    embedded.stop(directory)
    assert capfd.readouterr().err == ""


def test_a_signal_while_the_database_starts_leaves_no_server_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def start_server(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("started")
        return ""

    monkeypatch.setattr(embedded, "start", start_server)
    monkeypatch.setattr(embedded, "stop", lambda *_, **__: done.append("stopped"))
    stopping = Stopping(lambda _: None, lambda: None)
    before = signal.signal(signal.SIGTERM, stopping.asked)
    city = City(tmp_path, real_machines=False, say=lambda _: None)
    try:
        with pytest.raises(Stopped):
            city.start()
    finally:
        signal.signal(signal.SIGTERM, before)
    city.stop()
    assert done == ["started", "stopped"]


def test_the_second_signal_ends_the_demo_even_if_something_cannot_be_killed() -> None:
    left: list[int] = []

    def kill() -> None:
        raise embedded.EmbeddedError("planted")

    clock = iter([10.0, 10.0 + AGAIN_SECONDS])
    stopping = Stopping(lambda _: None, kill, clock=lambda: next(clock), leave=left.append)
    stopping.begun = True
    stopping.asked(signal.SIGINT)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with pytest.raises(embedded.EmbeddedError):
            stopping.asked(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert left == [130]


def test_the_terms_of_the_demo_promise_a_replacement_with_gold_alone() -> None:
    terms = {each.tier: each for each in parse_terms(SLA_TERMS.read_text())}
    consents = {tier: consent_of(promised) for tier, promised in terms.items()}
    assert consents == {SlaTier.BRONZE: Consent.ASKED, SlaTier.GOLD: Consent.NOTIFIED}
    assert terms[SlaTier.GOLD].replacement_credit_bp > 0
    assert terms[SlaTier.GOLD].availability[0].credit_bp > 0


def test_the_ingest_process_gets_its_own_login_and_the_reconciler_where_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "start", lambda *_, **__: "postgresql://owner@/postgres?host=/somewhere")
    city = City(tmp_path, real_machines=False, say=lambda _: None)
    assert "SPLITPLANE_INGEST_ADDRESS" not in city.reconciler_environment(), "before it has a place"
    city.ingest = "127.0.0.1:4711"
    own = {name: value for name, value in city.ingest_environment().items() if "SPLITPLANE" in name}
    assert set(own) - {"SPLITPLANE_IMAGES"} == {
        "SPLITPLANE_DATABASE_URL",
        "SPLITPLANE_INGEST_LISTEN",
        "SPLITPLANE_INGEST_METRICS_LISTEN",
    }
    assert "demo_ingest" in own["SPLITPLANE_DATABASE_URL"]
    assert own["SPLITPLANE_INGEST_LISTEN"] == "127.0.0.1:4711"
    assert city.reconciler_environment()["SPLITPLANE_INGEST_ADDRESS"] == "127.0.0.1:4711"


def test_the_time_in_which_a_lease_waits_for_another_machine_is_not_billed() -> None:
    def at(second: str) -> str:
        return f"2026-11-20T12:00:{second}Z"

    lease = {"gpu_count": 8, "ready_at": at("02.4"), "billed_until": at("29.9")}
    assert billed_seconds(lease, []) == 8 * (29 - 3)
    assert billed_seconds(lease, [(at("10"), at("20.1"))]) == 8 * ((10 - 3) + (29 - 21))
    assert billed_seconds({"gpu_count": 8, "ready_at": None, "billed_until": None}, []) == 0
