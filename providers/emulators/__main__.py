"""Run emulated clouds on this machine.

    python -m providers.emulators local --port 9001               real machines; needs root
    python -m providers.emulators local --port 9001 --simulated   simulated machines; needs nothing
    python -m providers.emulators local=9001 lambda_cloud=9002    two clouds that share this host
    python -m providers.emulators image                           build the machine image and exit

Each cloud listens on 127.0.0.1 only and prints one line when it is ready. On SIGTERM or SIGINT the
process ends every machine before it exits. The machines also end when the process is killed; the
next start then removes what they left behind.
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import uvicorn

from providers.clock import utc_now
from providers.emulators import clouds as clouds_package
from providers.emulators import nspawn, settings
from providers.emulators.grpc_server import GrpcServer
from providers.emulators.host import MachineHost, SimulatedHost
from providers.emulators.host_resources import HostResourceError
from providers.emulators.image import ImageBuildError, ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.scenario import Scenario

LOCAL_ADDRESS = "127.0.0.1"
SIMULATED_BOOT_SECONDS = 2.0
READY_PROBE_SECONDS = 0.02
SHUTDOWN_SECONDS = 2
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Cloud:
    name: str
    port: int
    """0 lets the system choose a port, which the ready line then shows."""


class PortError(Exception):
    """A cloud's port cannot be listened on; the message says why."""


class Server(uvicorn.Server):
    """Several servers run in one process, so none of them may install its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main() -> int:
    arguments = _parser().parse_args()
    # Until the servers run and stop in order: an image that is being built is removed, and so is a bridge.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        clouds = _clouds(arguments.clouds, arguments.port)
        arguments.cache = arguments.cache or settings.images(os.environ)
    except ValueError as error:
        _say(f"error: {error}")
        return 2
    if arguments.clouds == ["image"]:
        return _with_root(lambda root: _say(f"image: {root}"), arguments.cache)
    try:
        return _run(arguments, clouds)
    except PortError as error:
        _say(f"error: {error}")
        return 2


def _run(arguments: argparse.Namespace, clouds: list[Cloud]) -> int:
    """Serve until a signal. Raises PortError."""
    if arguments.simulated:
        asyncio.run(_serve_simulated(clouds))
        return 0
    nodes = NodeSupport(arguments.nodes) if arguments.nodes else None
    return _with_root(
        lambda root: asyncio.run(_serve_real(clouds, root, arguments.state, nodes)), arguments.cache
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m providers.emulators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clouds", nargs="+", metavar="cloud[=port]")
    parser.add_argument(
        "--port", type=int, default=0, help="port of clouds named without one; 0 lets the system choose"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="simulate the machines: nothing boots, no root needed"
    )
    parser.add_argument(
        "--cache", type=Path, help="folder that keeps machine images; default: $SPLITPLANE_IMAGES"
    )
    parser.add_argument(
        "--state", type=Path, default=nspawn.STATE, help="folder for the machines' short-lived files"
    )
    parser.add_argument(
        "--nodes", type=Path, help="folder of the programs of Kubernetes: machines are able to be nodes"
    )
    return parser


def _clouds(words: list[str], port: int) -> list[Cloud]:
    if words == ["image"]:
        return []
    clouds = []
    for word in words:
        name, _, own_port = word.partition("=")
        _module(name)
        if (own_port and not own_port.isdecimal()) or not 0 <= int(own_port or port) <= PORT_MAX:
            raise ValueError(f"not a port: {own_port or port}")
        clouds.append(Cloud(name, int(own_port or port)))
    return clouds


def _module(name: str) -> ModuleType:
    """The emulator of that name: a module of `clouds/` with `create_app(host, scenario, *, now)` for HTTP, or with
    `create_server` for gRPC.
    """
    path = f"{clouds_package.__name__}.{name}"
    found = name.isidentifier() and importlib.util.find_spec(path) is not None
    module = importlib.import_module(path) if found else None
    if module is None or not {"create_app", "create_server"} & vars(module).keys():
        raise ValueError(f"there is no emulated cloud named {name!r}")
    return module


def _with_root(use: Callable[[Path], None], cache: Path) -> int:
    missing = nspawn.missing_requirements()
    if missing:
        _say("error: this host cannot boot machines; --simulated needs none of this", *missing)
        return 1
    try:
        use(ensure_image(cache, _say))
    except (ImageBuildError, HostResourceError, OSError) as error:
        _say(f"error: {error}")
        return 1
    return 0


async def _serve_simulated(clouds: list[Cloud]) -> None:
    await _serve(clouds, SimulatedHost(utc_now, SIMULATED_BOOT_SECONDS), "simulated machines")


async def _serve_real(clouds: list[Cloud], root: Path, state: Path, nodes: NodeSupport | None) -> None:
    host = await nspawn.NspawnHost.open(root, state=state, nodes=nodes)
    try:
        await _serve(clouds, host, f"machines on {host.bridge}, {host.subnet}")
    finally:
        await host.close()


async def _serve(clouds: list[Cloud], host: MachineHost, where: str) -> None:
    """Serve every cloud until a signal arrives or one of them fails."""
    servers = [(cloud, _server(cloud, host), _listen(cloud)) for cloud in clouds]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, [server for _, server, _ in servers])
    async with asyncio.TaskGroup() as group:
        for cloud, server, listener in servers:
            port = listener.getsockname()[1]
            group.create_task(server.serve(sockets=[listener]))
            group.create_task(_announce(cloud, server, port, where))
    _say("stopped")


def _listen(cloud: Cloud) -> socket.socket:
    try:
        return socket.create_server((LOCAL_ADDRESS, cloud.port))
    except OSError as error:
        raise PortError(f"port {cloud.port} of {cloud.name}: {os.strerror(error.errno or 0)}") from error


def _server(cloud: Cloud, host: MachineHost) -> Server | GrpcServer:
    module = _module(cloud.name)
    if hasattr(module, "create_server"):
        server: GrpcServer = module.create_server(host, Scenario(), now=utc_now)
        return server
    app = module.create_app(host, Scenario(), now=utc_now)
    return Server(
        uvicorn.Config(
            app,
            log_level="critical",  # Each connection that is cut on purpose would log a traceback.
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


async def _announce(cloud: Cloud, server: Server | GrpcServer, port: int, where: str) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(READY_PROBE_SECONDS)
    if isinstance(server, GrpcServer):
        _say(server.note)
    _say(f"ready: {cloud.name} at http://{LOCAL_ADDRESS}:{port} ({where})")


def _stop(servers: Sequence[Server | GrpcServer]) -> None:
    for server in servers:
        server.should_exit = True


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
