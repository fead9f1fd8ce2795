"""Every process of a deployment starts from the installed wheels, as its container does, and ends when it is told to."""

import asyncio
import hashlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import asyncssh
import pytest

from control_plane.db.engine import Role
from demo.ports import free_ports
from infra.components.containers import STOP_SECONDS
from infra.services import LOGINS, SERVICES
from providers.emulators.nspawn import missing_requirements
from tests.support.authority import Authority
from tests.support.cloud.graph import graphs
from tests.support.cloud.image import Image
from tests.support.database import fresh_database, login_url
from tests.support.proxy import proxied

pytestmark = [
    pytest.mark.machines,
    pytest.mark.database,
    pytest.mark.xdist_group("infra"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]
HEALTHY_WITHIN = 90
BEGUN = {"reconciler": "loops_started"}
"""What the log says when a process does its work, where it may be up and still wait."""
LOOK = """
import os, pathlib
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
written = []
for folder in ("/", "/etc", "/opt/k3s", {installed!r}, "/tmp", "/run/splitplane"):
    try:
        pathlib.Path(folder, "written").write_text("x")
    except OSError:
        continue
    written.append(folder)
print(os.getuid(), int(status["CapEff"], 16), int(status["NoNewPrivs"]), *written)
"""


@dataclass(frozen=True)
class Around:
    """What AWS gives to containers, made here: an image, secrets, free ports. KMS, the hub and the verifier are away."""

    image: Image
    secrets: Mapping[str, str]
    ports: Mapping[str, str]

    def container(self, service: str, name: str) -> tuple[list[str], dict[str, str], dict[str, Any]]:
        """Command, variables and definition of a container, as its task defines it, with our own addresses."""
        task = graphs()["dev"].one("TaskDefinition", service)
        (found,) = [one for one in json.loads(task.inputs["containerDefinitions"]) if one["name"] == name]
        assert found["readonlyRootFilesystem"], "as it is here"
        plain = {one["name"]: self._here(one["value"]) for one in found.get("environment", [])}
        of_secrets = {one["name"]: self.secrets[_label(one["valueFrom"])] for one in found.get("secrets", [])}
        aws = {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        return found["command"], plain | of_secrets | aws, found

    def _here(self, value: str) -> str:
        if re.fullmatch(r"(10\.|verifier\.|ingest\.).*:\d+", value):
            return "127.0.0.1:1"  # The hub and the other processes are away.
        return self.port(value)

    def port(self, text: str) -> str:
        return re.sub(r"(?<=:)\d{4}\b", lambda found: self.ports[found[0]], text)


def _label(arn: str) -> str:
    """The name of a secret: `arn:...:secret/splitplane-dev/database-api`."""
    return arn.partition(":secret")[2].rpartition("/")[2] if ":secret" in arn else arn.rpartition("/")[2]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Image:
    return Image(tmp_path_factory.mktemp("image"), installed)


@pytest.fixture
async def around(image: Image, database_url: str, server_url: str) -> AsyncIterator[Around]:
    authority = Authority("splitplane.internal")
    pair = authority.issue("verifier.dev.splitplane.internal")
    host_key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    for name in ("k3s", "install.sh"):
        (image.k3s / name).write_text("#!/bin/sh\n")
    (image.k3s / "k3s-airgap-images-amd64.tar").write_text("images")
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in image.k3s.glob("[ki]*")
    ]
    (image.k3s / "SHA256SUMS").write_text("".join(sums))
    async with (
        fresh_database(server_url, "template0") as empty,
        proxied(login_url(database_url, Role.API)) as api,
        proxied(login_url(database_url, Role.RECONCILER)) as reconciler,
        proxied(login_url(database_url, Role.INGEST)) as ingest,
        proxied(login_url(database_url, Role.ADMIN)) as admin,
        proxied(empty) as owner,
    ):
        secrets = {
            "database-api": api.url,
            "database-reconciler": reconciler.url,
            "database-ingest": ingest.url,
            "database-admin": admin.url,
            "database-migrate": owner.url,
            "hub-host-key": host_key,
            "verifier-ca": authority.certificate.decode(),
            "verifier-certificate": pair.certificate.decode(),
            "verifier-key": pair.key.decode(),
            "verifier-caller-certificate": pair.certificate.decode(),
            "verifier-caller-key": pair.key.decode(),
        }
        yield Around(image, secrets, _free_ports())


@pytest.fixture
async def with_new_logins(around: Around, server_url: str) -> AsyncIterator[Around]:
    """URLs of logins that are not there yet, because others share the server and its logins."""
    names = {name: f"image_{os.getpid()}_{name}" for name in LOGINS.files}
    urls = {
        f"database-{name}": f"postgresql://{login}:word@database/splitplane" for name, login in names.items()
    }
    root = around.secrets["database-migrate"]
    yield replace(around, secrets={**around.secrets, **urls, "database-root": root})
    connection = await asyncpg.connect(server_url)
    for login in names.values():
        await connection.execute(f"DROP ROLE {login}")
    await connection.close()


def _free_ports() -> dict[str, str]:
    """A free port for each one that a process listens on, so that two runs of these tests do not meet."""
    ports = ("8080", "8441", "9090", "9465", "9466", "9467", "7443")
    return dict(zip(ports, map(str, free_ports(len(ports))), strict=True))


def test_nothing_but_two_folders_can_be_written(image: Image) -> None:
    said, _ = image.start(["python", "-c", LOOK.format(installed=str(image.installed))], {}).communicate(
        timeout=60
    )
    assert said.split() == ["10001", "0", "1", "/tmp", "/run/splitplane"]
    (image.files / "written").unlink()


async def test_the_logins_are_made(with_new_logins: Around) -> None:
    for container in ("files", "logins"):
        command, variables, _ = with_new_logins.container("logins", container)
        await _ended(with_new_logins.image.start(command, variables), 120)
    for name in LOGINS.files:
        (with_new_logins.image.files / name).unlink()


@pytest.mark.parametrize("name", [service.name for service in SERVICES if service is not LOGINS])
async def test_a_process_starts_is_well_and_ends_when_it_is_told_to(around: Around, name: str) -> None:
    (service,) = [one for one in SERVICES if one.name == name]
    if service.files:
        command, variables, _ = around.container(name, "files")
        await _ended(around.image.start(command, variables), 60)
    command, variables, definition = around.container(name, name)
    process = around.image.start(command, variables)
    try:
        if service.health is None:
            await _ended(process, 120)
        else:
            await _well(around, process, definition["healthCheck"]["command"])
            await _says(process, BEGUN.get(name))
            process.terminate()
            await _ended(process, STOP_SECONDS)
    finally:
        process.kill()


async def _ended(process: "subprocess.Popen[str]", seconds: float) -> None:
    said, _ = await asyncio.to_thread(process.communicate, timeout=seconds)
    assert process.returncode == 0, said[-3000:]


async def _says(process: "subprocess.Popen[str]", event: str | None) -> None:
    """Wait for an event in the log of the process."""
    before: list[str] = []
    while event is not None:
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), HEALTHY_WITHIN)
        assert line, "".join(before)[-3000:]
        if f'"event": "{event}"' in line:
            return
        before.append(line)


async def _well(around: Around, process: "subprocess.Popen[str]", probe: list[str]) -> None:
    """Ask as ECS does until the process is well."""
    kind, *words = probe
    assert kind == "CMD"
    async with asyncio.timeout(HEALTHY_WITHIN):
        while True:
            assert process.poll() is None, process.communicate()[0][-3000:]
            asked = around.image.start([around.port(word) for word in words], {})
            await asyncio.to_thread(asked.communicate)
            if asked.returncode == 0:
                return
