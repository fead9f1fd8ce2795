"""The demo's command line.

python -m demo run         lease, use and bill machines, from end to end; writes var/demo/summary.json
python -m demo up          run the same cloud without the script, until Ctrl-C
python -m demo packages    print what this host lacks for real machines, and the command to install it
"""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

import httpx

from demo.city import City
from demo.packages import missing
from demo.processes import DemoError
from demo.story import Story, timed

DIRECTORY = Path("var/demo")


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="A whole GPU cloud on this machine.")
    parser.add_argument("command", choices=("run", "up", "packages"))
    command = parser.parse_args().command
    lacking = missing()
    if command == "packages":
        for line in lacking:
            say(line)
        return 0
    if lacking:
        say(f"machines are simulated: {'; '.join(lacking)}")
    # However we are asked to stop, we stop normally, and so do the processes that we started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    city = City(DIRECTORY, real_machines=not lacking, say=say)
    try:
        city.start()
        return _run(city) if command == "run" else _stay(city)
    except (DemoError, httpx.HTTPError) as error:
        say(f"\nthe demo failed: {error}\nlogs are in {DIRECTORY}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        city.stop()


def _run(city: City) -> int:
    summary = timed(Story(city))
    path = DIRECTORY / "summary.json"
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
    say(f"\nit took {summary.seconds:g} s; the figures are in {path}")
    return 0


def _stay(city: City) -> int:
    say(f"\nthe cloud is up. In another terminal:\n\n  export SPLITPLANE_URL={city.api_url}")
    say(f"  export SPLITPLANE_API_KEY={city.api_key}\n  .venv/bin/splitplane skus\n")
    say("Ctrl-C stops it and its machines")
    while True:
        for child in city.children.values():
            child.expect_alive()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
