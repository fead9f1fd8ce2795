"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, one per test run.

It is ready after 5 to 8 seconds, takes 0.5 GB of memory, and has no node: pods stay Pending unless a test makes nodes.
Each test takes a namespace of its own. All of it ends with the process that started it.
"""

import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from control_plane.world import utc_now
from demo.ports import free_ports
from tests.support.kubernetes import flags
from tests.support.kubernetes.credentials import Credentials, create, kubeconfig
from tests.support.kubernetes.flags import Ports, Ranges
from tests.support.kubernetes.pki import Pair, Subject

READY_SECONDS_MAX = 90.0
DEFAULT_RANGES = Ranges()
ATTEMPTS = 3
"""Another process can take a port between our choice and the start of the program that it is for."""
NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.43.0.1")


class ControlPlaneError(Exception):
    """A part of the control plane ended or never became ready. The text has the end of its log."""


@dataclass
class ControlPlane:
    """A running control plane. Files of certificates and logs lie in `folder`."""

    folder: Path
    ports: Ports
    credentials: Credentials
    programs: Path
    """The folder of kube-apiserver, kubectl and the others."""
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports.api}"

    @property
    def authority(self) -> bytes:
        """The PEM certificate that clients check the API server's against."""
        return self.credentials.authority("server-ca").certificate

    @property
    def admin(self) -> Pair:
        """A client in the group system:masters."""
        return self.credentials.pair("client-admin")

    @property
    def admin_kubeconfig(self) -> Path:
        return self.credentials.files.kubeconfig("admin")

    def client(self, name: str, *groups: str) -> Pair:
        """A certificate for a user in these groups: a node is `system:node:NAME` in `system:nodes`."""
        return self.credentials.client(Subject(name, groups), utc_now())

    def kubeconfig(self, client: Pair) -> str:
        return kubeconfig(self.url, self.authority, client)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints as the admin. Raises CalledProcessError, whose stderr says why."""
        command = [str(self.programs / "kubectl"), f"--kubeconfig={self.admin_kubeconfig}", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, input=stdin, timeout=60)
        return done.stdout

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start(self, name: str, program: str | Path, arguments: Sequence[str]) -> None:
        """Start a program that ends with us and with the control plane."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(program), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # A Ctrl-C on the terminal is for the tests, which then stop us.
            )

    def pid(self, name: str) -> int:
        """Of a program, by the name under which it was started."""
        return self._processes[name].pid

    def stop(self) -> None:
        """Kill all of it: what it stored is thrown away, and asked politely the API server takes ten seconds."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def wait_until(self, what: str, is_true: Callable[[], bool]) -> None:
        """Raises ControlPlaneError when a part has ended, or after a minute and a half."""
        end = time.monotonic() + READY_SECONDS_MAX
        while not is_true():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended with {process.returncode}: {self._end_of(name)}")
            if time.monotonic() > end:
                logs = "\n".join(f"{name}: {self._end_of(name)}" for name in self._processes)
                raise ControlPlaneError(f"{what}: not within {READY_SECONDS_MAX:.0f} s\n{logs}")
            time.sleep(0.05)

    def _end_of(self, name: str) -> str:
        return "\n".join(self.log(name).splitlines()[-10:])

    def answers(self, port: int, path: str) -> bool:
        """Whether a part says 200."""
        connection = HTTPSConnection("127.0.0.1", port, timeout=5, context=self._context(port))
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _context(self, port: int) -> ssl.SSLContext:
        if port != self.ports.api:
            return ssl._create_unverified_context()  # Their certificates sign themselves.
        context = ssl.create_default_context(cadata=self.authority.decode())
        context.load_cert_chain(*self.credentials.files.pair("client-admin"))
        return context


@contextmanager
def running(folder: Path, programs: Path, ranges: Ranges = DEFAULT_RANGES) -> Iterator[ControlPlane]:
    """A control plane that is ready, stopped afterwards. Its logs stay in `folder`; its data does not.

    Raises ControlPlaneError.
    """
    plane = _started(folder, programs, ranges)
    try:
        yield plane
    finally:
        _end(plane)


def _started(folder: Path, programs: Path, ranges: Ranges) -> ControlPlane:
    for attempt in range(ATTEMPTS):
        plane = _prepared(folder / f"attempt-{attempt}", programs)
        try:
            _start(plane, ranges)
        except ControlPlaneError as error:
            _end(plane)
            if "address already in use" not in str(error) or attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            _end(plane)
            raise
        else:
            return plane
    raise AssertionError("the last attempt returns or raises")


def _prepared(folder: Path, programs: Path) -> ControlPlane:
    folder.mkdir(parents=True)
    ports = Ports(*free_ports(5))
    server = f"https://127.0.0.1:{ports.api}"
    made = create(folder / "tls", server=server, names=NAMES, now=utc_now())
    return ControlPlane(folder, ports, made, programs)


def _start(plane: ControlPlane, ranges: Ranges) -> None:
    files, ports = plane.credentials.files, plane.ports
    plane.start("etcd", "etcd", flags.etcd(plane.folder / "data", ports))
    arguments = flags.api_server(files, ports, ranges, issuer=plane.url)
    plane.start("kube-apiserver", plane.programs / "kube-apiserver", arguments)
    plane.wait_until("the API server is ready", lambda: plane.answers(ports.api, "/readyz"))
    arguments = flags.controller_manager(files, ports, ranges)
    plane.start("kube-controller-manager", plane.programs / "kube-controller-manager", arguments)
    plane.start("kube-scheduler", plane.programs / "kube-scheduler", flags.scheduler(files, ports))
    # The controllers work once the first of them has made this; a pod without it is refused.
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    plane.wait_until("the controllers work", lambda: plane.answers(ports.api, account))
    plane.wait_until("the scheduler is ready", lambda: plane.answers(ports.scheduler, "/readyz"))


def _end(plane: ControlPlane) -> None:
    plane.stop()
    shutil.rmtree(plane.folder / "data", ignore_errors=True)
