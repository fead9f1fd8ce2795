"""Child processes of the demo: each gets only the environment that it needs, writes to a log, and is always stopped."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class DemoError(RuntimeError):
    """An expectation of the demo does not hold; the message says which."""


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def base_environment() -> dict[str, str]:
    """What every child gets: paths, locale, proxies and where traces go, but no setting of ours."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "SPLITPLANE_IMAGES",
        "PYTHONPATH",
        "SSL_CERT_FILE",
    )
    proxies = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    traces = (name for name in os.environ if name.startswith("OTEL_"))
    return {name: os.environ[name] for name in (*kept, *proxies, *traces) if name in os.environ}


@dataclass
class Child:
    """A child process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def expect_alive(self) -> None:
        code = self.process.poll()
        if code is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise DemoError(f"{self.name} ended with {code}; the end of {self.log}:\n{tail}")

    def kill(self) -> None:
        """Send SIGKILL to it and to all that it started, so that it cannot clean up."""
        with contextlib.suppress(ProcessLookupError):  # All of them have ended.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, seconds_max: float = 20) -> None:
        """Ask it to stop; after `seconds_max`, and for what it leaves behind, kill."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds_max)
        self.kill()


def start(name: str, arguments: list[str], environment: Mapping[str, str], log: Path) -> Child:
    """Start `python -m ...`; it ends with us."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A group of its own: a Ctrl-C at the terminal reaches only us, and we can end it with all its children.
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread when it starts children
        )
    return Child(name, process, log)


def run(arguments: list[str], environment: Mapping[str, str]) -> str:
    """Run `python -m ...` to its end and answer what it printed; a failure is a DemoError with its last words."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_end_with_parent,
    )
    if done.returncode:
        raise DemoError(f"python -m {' '.join(arguments[:2])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def wait_for(
    what: str, seconds_max: float, look: Callable[[], object | None], child: Child | None = None
) -> object:
    """Call `look` every tenth of a second until it returns something true. Raises DemoError after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        if child is not None:
            child.expect_alive()
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise DemoError(f"{what} did not happen within {seconds_max:g} s")
