"""The demo's command line.

python -m demo run         lease, use and bill machines, from end to end; writes var/demo/summary.json
python -m demo up          run the same cloud without the script, until Ctrl-C; a second Ctrl-C kills it at once
python -m demo packages    print what this host lacks for real machines and tests, and the commands to install it
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import httpx

from control_plane.db.embedded import EmbeddedError
from control_plane.world import utc_now
from demo import cluster, lock
from demo.city import PEOPLE, City
from demo.packages import missing, missing_for_tests
from demo.processes import DemoError
from demo.stopping import Stopped, Stopping
from demo.story import Story, timed
from providers.emulators.host_resources import HostResourceError

DIRECTORY = Path("var/demo")
FAULTS = (DemoError, EmbeddedError, HostResourceError, httpx.HTTPError, OSError, subprocess.SubprocessError)
"""What a person reads as one sentence. Anything else is a bug of the demo's, which shows where it is."""


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="A whole GPU cloud on this machine.")
    parser.add_argument("command", choices=("run", "up", "packages"))
    command = parser.parse_args().command
    if command == "packages":
        for line in missing_for_tests():
            say(line)
        return 0
    try:
        held = lock.hold(DIRECTORY / "lock", "make demo" if command == "run" else "make up", utc_now())
    except lock.AlreadyRunningError as error:
        say(str(error))
        return 1
    lacking = missing()
    if lacking:
        say(f"machines are simulated: {'; '.join(lacking)}")
    unclustered = lacking or cluster.missing()
    if not lacking and unclustered:
        say(unclustered[0])
    try:
        city = City(DIRECTORY, real_machines=not lacking, say=say, cluster=not unclustered)
        return _play(command, city, held)
    finally:
        held.release()


def _play(command: str, city: City, held: lock.Lock) -> int:
    """Run the cloud. However we are asked to stop, nothing that we started stays."""
    stopping = Stopping(say, city.kill)
    stopping.install()
    try:
        city.start()
        held.tell(url=city.api_url)
        code = _run(city) if command == "run" else _stay(city)
    except FAULTS as error:
        say(f"\nthe demo failed: {error}\nlogs are in {DIRECTORY}")
        code = 1
    except Stopped as asked:
        code = asked.code
    finally:
        stopping.begun = True
        ended = _stop(city)
    return code if ended else 1


def _stop(city: City) -> bool:
    """Stop everything; whether all of it ended."""
    try:
        city.stop()
    except FAULTS as error:
        say(f"not everything that was started here has ended: {error}")
        return False
    say("everything that was started here has ended")
    return True


def _run(city: City) -> int:
    summary = timed(Story(city))
    path = DIRECTORY / "summary.json"
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
    say(f"\nit took {summary.seconds:g} s; the figures are in {path}")
    return 0


def _stay(city: City) -> int:
    say(f"\nthe cloud is up. In another terminal:\n\n  export SPLITPLANE_URL={city.api_url}")
    say(f"  export SPLITPLANE_API_KEY={city.api_key}\n  .venv/bin/splitplane skus\n")
    say("That is the key of a customer. Operators (`splitplane loops`, `fleet`, `account`) have this one:\n")
    say(f"  export SPLITPLANE_API_KEY={city.operator_key}\n")
    say("and whoever posts money (`splitplane finance topup`) this one:\n")
    say(f"  export SPLITPLANE_API_KEY={city.finance_key}\n")
    people = " and ".join(PEOPLE)
    say(f"{people} can sign in, without a password, once the customer has invited them (docs/tenancy.md):")
    say(f"\n  .venv/bin/splitplane login --url {city.api_url}\n")
    say(
        "The local cloud takes a spot machine back when it is asked to, by the address in `splitplane lease show`:"
    )
    taken = '{"machine": "ADDRESS", "state": "taken"}'
    say(f"\n  curl -H 'Content-Type: application/json' -d '{taken}' {city.local_url}/__control/evictions\n")
    say("Ctrl-C stops it and its machines")
    while True:
        for child in city.children.values():
            child.expect_alive()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
