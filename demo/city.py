"""The whole cloud on this machine, in the foreground: database, emulated providers, mesh hub, sign-in, ingest, API, and
the reconciler.

Every process gets only its own settings: the API no provider key and no SSH key, the reconciler no API
secret, ingest only what adds samples, and the emulated clouds nothing of ours.
"""

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from control_plane.db import embedded
from control_plane.db.engine import Role
from control_plane.domain.rendering import BootOrder, cloud_config
from data_plane.access.ssh import new_host_key
from data_plane.mesh.hub import HUB_PRINCIPAL
from demo import cluster, past_month, prices
from demo.ports import free_port
from demo.processes import Child, DemoError, base_environment, run, start, wait_for
from demo.stopping import postponed
from providers.emulators import host_resources, image, nspawn
from providers.emulators import settings as emulator_settings
from reconciler.server_hosts import SERVER_PRINCIPAL

ORGANIZATION = "acme"
PLATFORM = "platform"
TOP_UP_USD = "500"
LOCAL_TOKEN = "local-cloud-token"
LAMBDA_KEY = "emulated-lambda-key"
IMAGE_SECONDS_MAX = 900
HUB = "mesh-hub"
SERVER_HOST = "k8s-1"
CLUSTER = "main"
K3S_FILES = "SPLITPLANE_K3S_FILES"
SLA_TERMS = Path(__file__).with_name("sla_terms.toml")
HOSTS_OF_OURS = frozenset({HUB, SERVER_HOST})
DATABASE = "splitplane"
PEOPLE = {"ada@example.com": "Ada Lovelace", "grace@example.com": "Grace Hopper"}
"""Who can sign in, without a password."""
LOGINS = {Role.API: "demo_api", Role.RECONCILER: "demo_reconciler", Role.INGEST: "demo_ingest"}
"""Each process has a login of its own, which is a member of one role and owns nothing."""

Say = Callable[[str], None]
_TLS = ssl.create_default_context()
"""One for all calls: a new one takes 20 ms of a CPU, and what is waited for is asked for ten times a second."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of ours, reached over pinned SSH."""

    address: str
    host_key: str
    """One OpenSSH public key line."""


@dataclass
class City:
    """Start the parts in order, find them again by name, stop them in reverse order."""

    directory: Path
    real_machines: bool
    say: Say
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    api_key: str = ""
    """Of the customer."""
    operator_key: str = ""
    past_key: str = ""
    """Of the customer of last month."""
    finance_key: str = ""
    """Of those who run the installation: who runs machines posts no money."""
    api_url: str = ""
    cluster: bool = False
    """Whether there is a cluster, which real machines join as nodes."""
    local_url: str = ""
    lambda_url: str = ""
    ingest: str = ""
    """Where samples are taken: host and port, as the hub reaches them."""
    sign_in_url: str = ""
    """The OpenID provider."""
    _hub: dict[str, str] = field(default_factory=dict[str, str])
    _database_started: bool = False

    # --- the environment of each process

    @property
    def owner_url(self) -> str:
        """The database, as its owner: for migrations and admin commands only."""
        return embedded.named(embedded.start(self.directory / "postgres"), DATABASE)

    def _url_of(self, role: Role) -> str:
        """The database, as a login that can take this role and nothing else."""
        return embedded.with_login(self.owner_url, LOGINS[role])

    def api_environment(self) -> dict[str, str]:
        return base_environment() | {
            "SPLITPLANE_DATABASE_URL": self._url_of(Role.API),
            "SPLITPLANE_LISTEN": self.api_url.removeprefix("http://"),
            "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
            "SPLITPLANE_SEALING_KEY_PATH": str(self.sealing_key),
            "SPLITPLANE_PUBLIC_URL": self.api_url,
            "SPLITPLANE_TOKEN_KEY_PATH": str(self.token_key),
            "SPLITPLANE_OIDC_ISSUER": self.sign_in_url,
            "SPLITPLANE_OIDC_CLIENT_ID": "splitplane",
            "SPLITPLANE_OIDC_CLIENT_SECRET_PATH": str(self.client_secret),
        }

    def customer_environment(self) -> dict[str, str]:
        """For the customer's CLI."""
        return self._command_line("customer", self.api_key)

    def past_environment(self) -> dict[str, str]:
        """For the CLI of the customer of last month."""
        return self._command_line("past", self.past_key)

    def reconciler_environment(self) -> dict[str, str]:
        environment = base_environment() | {
            "SPLITPLANE_DATABASE_URL": self._url_of(Role.RECONCILER),
            "SPLITPLANE_PROVIDER_ACCOUNTS": "local,lambda_cloud",
            "PROVIDER_LOCAL_URL": self.local_url,
            "PROVIDER_LOCAL_TOKEN": LOCAL_TOKEN,
            "PROVIDER_LAMBDA_CLOUD_BASE_URL": f"{self.lambda_url}/api/v1",
            "PROVIDER_LAMBDA_CLOUD_API_KEY": LAMBDA_KEY,
            "SPLITPLANE_ACCEPT_EMULATED_GPUS": "yes",
            "SPLITPLANE_RECONCILER_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
            "SPLITPLANE_REPLICA": "demo",
            "SPLITPLANE_SLA_CREDITS": "yes",
            "SPLITPLANE_UNSEALING_KEYS_PATH": str(self.unsealing_key),
        }
        if self.ingest:
            environment["SPLITPLANE_INGEST_ADDRESS"] = self.ingest
        if not self.real_machines:
            return environment | {"SPLITPLANE_SIMULATED_MACHINES": "yes"}
        return environment | self._hub | ({K3S_FILES: str(self.k3s_files)} if self.cluster else {})

    def ingest_environment(self) -> dict[str, str]:
        return base_environment() | {
            "SPLITPLANE_DATABASE_URL": self._url_of(Role.INGEST),
            "SPLITPLANE_INGEST_LISTEN": self.ingest,
            "SPLITPLANE_INGEST_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
        }

    def operator_environment(self) -> dict[str, str]:
        """For the CLI of those who run the installation."""
        return self._command_line("operator", self.operator_key)

    def finance_environment(self) -> dict[str, str]:
        """For the CLI of those who keep the books."""
        return self._command_line("finance", self.finance_key)

    def _command_line(self, who: str, key: str) -> dict[str, str]:
        """A URL, a key, and a home of its own."""
        home = self.directory / who
        return base_environment() | {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "SPLITPLANE_URL": self.api_url,
            "SPLITPLANE_API_KEY": key,
        }

    @property
    def k3s_files(self) -> Path:
        """The files of a K3s release, as an operator puts them beside the reconciler."""
        return self.directory / "k3s"

    @property
    def sealing_key(self) -> Path:
        """The public key with which the API seals secrets."""
        return self.directory / "sealing.pem"

    @property
    def unsealing_key(self) -> Path:
        """The private one, with which the reconciler opens them."""
        return self.directory / "unsealing.pem"

    @property
    def token_key(self) -> Path:
        """The private key with which the API opens the keys that sign access tokens."""
        return self.directory / "token-key.pem"

    @property
    def client_secret(self) -> Path:
        """With which the API names itself to the OpenID provider, which takes any."""
        return self.directory / "oidc-secret"

    # --- starting

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.directory / "customer", ignore_errors=True)
        for log in self.directory.glob("*.log"):
            log.unlink()
        self._make_keys()
        self._start_database()
        self._start_clouds()
        if self.real_machines:
            self._order_hub()
        self._start_ingest()
        if self.cluster:
            cluster.make_files(self.k3s_files)
        self.start_reconciler()
        self._start_sign_in()
        self.start_api()
        if self.cluster:
            self._create_cluster()

    def _make_keys(self) -> None:
        """The database is new, so no secret needs the keys of the last start."""
        sealing = _private_key(self.unsealing_key).public_key()
        self.sealing_key.write_bytes(sealing.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        _private_key(self.token_key)
        _private_file(self.client_secret, b"any")

    def _start_database(self) -> None:
        self.say("database: an empty PostgreSQL of our own")
        with postponed():  # Interrupted, it would leave a server that nobody knows of.
            server = embedded.start(self.directory / "postgres")
            self._database_started = True
        embedded.recreate(server, DATABASE)
        environment = base_environment() | {"SPLITPLANE_DATABASE_URL": self.owner_url}
        run(["control_plane", "migrate"], environment)
        for role, login in LOGINS.items():
            embedded.make_login(server, login, role)
        book = self.directory / "price_book.toml"
        book.write_text(prices.price_book())
        run(["control_plane", "price-book", str(book)], environment)
        run(["control_plane", "sla-terms", str(SLA_TERMS)], environment)
        arguments = ["bootstrap", "--organization", ORGANIZATION, "--top-up", TOP_UP_USD]
        self.api_key = run(["control_plane", *arguments], environment).strip()
        past = ["bootstrap", "--organization", past_month.CUSTOMER, "--top-up", TOP_UP_USD]
        self.past_key = run(["control_plane", *past], environment).strip()
        platform = ["bootstrap", "--organization", PLATFORM, "--operator"]
        self.operator_key, self.finance_key = run(["control_plane", *platform], environment).split()

    def _start_clouds(self) -> None:
        self.say("providers: the local cloud and an emulated Lambda Cloud, on the same machines")
        arguments = ["providers.emulators", "local=0", "lambda_cloud=0"]
        if not self.real_machines:
            arguments.append("--simulated")
        if self.cluster:
            arguments += ["--nodes", str(cluster.programs())]
        child = self._start("clouds", arguments, base_environment())
        shown = 0

        def ready() -> dict[str, str] | None:
            nonlocal shown
            lines = child.log.read_text(errors="replace").splitlines()
            for line in lines[shown:]:
                self.say(f"  {line}")
            shown = len(lines)
            urls = dict(re.findall(r"^ready: (\w+) at (\S+)", "\n".join(lines), re.MULTILINE))
            return urls if len(urls) == 2 else None

        urls = wait_for("the emulated clouds' start", IMAGE_SECONDS_MAX, ready, child)
        if not isinstance(urls, dict):
            raise DemoError("the emulated clouds did not print their URLs")
        self.local_url, self.lambda_url = urls["local"], urls["lambda_cloud"]

    def _order_hub(self) -> None:
        self.say("mesh hub: one rented machine, reached over pinned SSH")
        hub = self._order_host(HUB, HUB_PRINCIPAL)
        self.ingest = _address_towards(hub.address)
        self._hub = {"SPLITPLANE_HUB": f"{hub.address}:22", "SPLITPLANE_HUB_HOST_KEY": hub.host_key}

    def _order_host(self, name: str, principal: str) -> Host:
        """Rent a host of ours. It is a machine like any other, with a host key that is known before it boots."""
        host_key = new_host_key()
        authorities = run(["reconciler", "ssh-authority", "keys"], self.reconciler_environment()).splitlines()
        order = {
            "name": name,
            "type": "gpu-l4x1",
            "region": "local-1",
            "user_data": cloud_config(
                BootOrder(host_key.private_openssh, host_key.public, authorities, principal)
            ),
            "tags": {"role": "host"},
        }
        made = self.local("POST", "/v1/machines", json=order)["machine"]

        def address() -> str | None:
            return self.local("GET", f"/v1/machines/{made['id']}")["machine"]["ip"] or None

        found = str(wait_for(f"the address of {name}", 60, address, self.children["clouds"]))
        wait_for(f"the SSH port of {name}", 60, lambda: _answers(found, 22), self.children["clouds"])
        return Host(found, host_key.public)

    def _create_cluster(self) -> None:
        """A cluster on a host of ours, as docs/clusters.md tells operators."""
        self.say(f"cluster: {CLUSTER}, whose server is installed on a host of ours")
        server = self._order_host(SERVER_HOST, SERVER_PRINCIPAL)
        key = self.directory / "server-host.pub"
        key.write_text(server.host_key + "\n")
        host = [SERVER_HOST, server.address, "--region", "eu-local-1", "--host-key", str(key)]
        self._operate("server-host", "add", *host)
        self._operate("cluster", "create", CLUSTER, "--region", "eu-local-1")

    def _operate(self, *arguments: str) -> str:
        """What the CLI prints for those who run the installation. Raises DemoError."""
        command = [str(Path(sys.executable).with_name("splitplane")), *arguments]
        done = subprocess.run(
            command, env=self.operator_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DemoError(f"splitplane {' '.join(arguments[:2])} failed: {done.stderr.strip()}")
        return done.stdout

    def _start_ingest(self) -> None:
        """Real machines reach it through the hub, and simulated ones from within the reconciler."""
        host = self.ingest or "127.0.0.1"
        self.ingest = f"{host}:{free_port(host)}"
        self.say(f"ingest: {self.ingest}, which may add samples of machines and nothing else")
        child = self._start("ingest", ["control_plane.ingest"], self.ingest_environment())
        wait_for("ingest's readiness", 30, lambda: _succeeds(f"http://{self.ingest}/readyz"), child)

    def start_reconciler(self) -> None:
        self.say("reconciler: the only process with provider keys and the SSH authority")
        self._start("reconciler", ["reconciler", "run"], self.reconciler_environment())

    def _start_sign_in(self) -> None:
        """An OpenID provider for tests, which lets everybody in as whoever they choose."""
        port = free_port()
        self.sign_in_url = f"http://127.0.0.1:{port}"
        self.say(f"sign-in: an OpenID provider for tests at {self.sign_in_url}")
        arguments = ["oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
        for email, name in PEOPLE.items():
            claims = {"sub": email, "email": email, "email_verified": True, "name": name}
            arguments += ["--user-claims", json.dumps(claims)]
        child = self._start("sign-in", arguments, base_environment())
        metadata = f"{self.sign_in_url}/.well-known/openid-configuration"
        wait_for("the OpenID provider", 30, lambda: _succeeds(metadata), child)

    def start_api(self) -> None:
        """Started again, it listens where it listened before."""
        self.api_url = self.api_url or f"http://127.0.0.1:{free_port()}"
        self.say(f"API: {self.api_url}, with none of these keys")
        child = self._start("api", ["control_plane", "serve"], self.api_environment())
        wait_for("the API's readiness", 30, lambda: _succeeds(f"{self.api_url}/readyz"), child)

    def _start(self, name: str, arguments: list[str], environment: dict[str, str]) -> Child:
        child = start(name, arguments, environment, self.directory / f"{name}.log")
        self.children[name] = child
        return child

    # --- inspecting

    def local(self, method: str, path: str, **content: Any) -> Any:
        """A call of the local cloud's own API, as its customer: us."""
        headers = {"Authorization": f"Bearer {LOCAL_TOKEN}"}
        answer = httpx.request(
            method, self.local_url + path, headers=headers, timeout=30, verify=_TLS, **content
        )
        answer.raise_for_status()
        return answer.json()

    def ask(self, path: str) -> Any:
        """What the API answers to the customer."""
        headers = {"Authorization": f"Bearer {self.api_key}"}
        answer = httpx.get(self.api_url + path, headers=headers, timeout=30, verify=_TLS)
        answer.raise_for_status()
        return answer.json()

    def sell_locally(self, left: int | None) -> None:
        """Leave so many machines with one H100 in the local cloud's stock; None: any number."""
        line = {"native_type": "gpu-h100x1", "native_region": "local-1", "left": left}
        httpx.post(f"{self.local_url}/__control", json={"stock": [line]}, timeout=30).raise_for_status()

    def fail_gpu(self, address: str) -> None:
        """Have the first GPU of the machine at this address of the local cloud fall off the bus, as its NVML says."""
        step = {"at": 0, "gpu": 0, "xid": 79, "lost": True}
        body = {"machine": address, "step": step}
        httpx.post(f"{self.local_url}/__control/gpu_faults", json=body, timeout=30).raise_for_status()

    def on_server_host(self, *command: str) -> str:
        """What a command prints that root runs on the host of the cluster's server. Raises DemoError."""
        machines = self.local("GET", "/v1/machines")["machines"]
        (provided,) = [machine["id"] for machine in machines if machine["name"] == SERVER_HOST]
        # The emulator boots it under this name, of which systemd-nspawn gets the UUID.
        booted = uuid5(NAMESPACE_URL, f"{SERVER_HOST}-{provided}")
        machine = set(_processes("--full", f"uuid={booted}"))
        (init,) = set(_processes("--parent", ",".join(machine))) - machine
        entered = ["nsenter", "--target", init, "--mount", "--net", "--pid", "--uts", "--ipc"]
        done = subprocess.run([*entered, *command], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise DemoError(f"{' '.join(command)} failed on {SERVER_HOST}: {done.stderr.strip()}")
        return done.stdout

    def inventories(self) -> dict[str, list[dict[str, Any]]]:
        """Every machine that each provider lists for us and that is not terminated, hosts of ours left out."""
        return {"local": self.local_inventory(), "lambda_cloud": self._lambda_inventory()}

    def local_inventory(self) -> list[dict[str, Any]]:
        machines = self.local("GET", "/v1/machines")["machines"]
        return [
            machine
            for machine in machines
            if machine["name"] not in HOSTS_OF_OURS and machine["status"] != "terminated"
        ]

    def _lambda_inventory(self) -> list[dict[str, Any]]:
        """Lambda allows one request per second, and the reconciler sends some too, so wait for a turn."""
        headers = {"Authorization": f"Bearer {LAMBDA_KEY}"}

        def look() -> httpx.Response | None:
            answer = httpx.get(
                f"{self.lambda_url}/api/v1/instances", headers=headers, timeout=30, verify=_TLS
            )
            return None if answer.status_code == httpx.codes.TOO_MANY_REQUESTS else answer.raise_for_status()

        answer = wait_for("a turn at Lambda", 30, look)
        if not isinstance(answer, httpx.Response):
            raise DemoError("no answer from the emulated Lambda Cloud")
        return [machine for machine in answer.json()["data"] if machine["status"] != "terminated"]

    # --- stopping

    def stop(self) -> None:
        """Stop everything in order, and wait for it."""
        for child in reversed(self.children.values()):
            child.end()
        try:
            self._sweep()
        finally:
            if self._database_started:
                embedded.stop(self.directory / "postgres")

    def kill(self) -> None:
        """End everything at once. What the processes can no longer remove themselves is removed here."""
        for child in self.children.values():
            child.kill()
        try:
            self._sweep()
        finally:
            if self._database_started:
                embedded.stop(self.directory / "postgres", immediately=True)

    def _sweep(self) -> None:
        """Remove what killed emulators left on this host: interfaces, folders, half a machine image."""
        if self.real_machines:
            host_resources.sweep(nspawn.STATE)
            image.remove_unfinished(emulator_settings.images(base_environment()))


def _address_towards(address: str) -> str:
    """The address of this host by which the host at another one reaches it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # Nothing is sent.
        return str(probe.getsockname()[0])


def _processes(*which: str) -> list[str]:
    """The ids of processes, as pgrep finds them."""
    return subprocess.run(["pgrep", *which], capture_output=True, text=True, check=True).stdout.split()


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _succeeds(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, verify=_TLS).is_success
    except httpx.HTTPError:
        return False


def _private_key(path: Path) -> X25519PrivateKey:
    """A new key, in a file that nobody else may read."""
    key = X25519PrivateKey.generate()
    _private_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def _private_file(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)
