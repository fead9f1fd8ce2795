"""The compose file gives each process settings that it reads, opens one port, and holds no secret. No engine runs it here."""

import re
from pathlib import Path
from typing import Any

import yaml

from control_plane import settings as control_plane
from control_plane.ingest import settings as ingest
from data_plane.proof.verifier.service import settings as verifier
from environment.names import KNOWN
from infra.services import API, INGEST, RECONCILER, VERIFIER
from reconciler import settings as reconciler

FILE = Path("infra/host/compose.yaml")
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("${SPLITPLANE_IMAGE:?")]
DATABASE = {"SPLITPLANE_DATABASE_URL": "postgresql://login:word@database/splitplane"}
TOOLS = {"migrate", "admin", "backup"}
"""What people run, and what ends by itself."""
IN_ENV_FILES = {
    "api": DATABASE | {"SPLITPLANE_PUBLIC_URL": "https://api.example.com"},
    "reconciler": DATABASE
    | {
        "SPLITPLANE_HUB": "203.0.113.10:22",
        "SPLITPLANE_HUB_HOST_KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm0Kf",
        "SPLITPLANE_HUB_OUTSIDE": "203.0.113.10",
        "SPLITPLANE_INGEST_ADDRESS": "10.0.0.5:8441",
    },
    "ingest": DATABASE,
}
"""What docs/installing.md has people write there."""


def test_the_processes_are_those_of_every_deployment() -> None:
    for service in (API, RECONCILER, INGEST, VERIFIER):
        assert SERVICES[service.name]["command"] == list(service.command)
    assert set(OURS) == {"api", "reconciler", "ingest", "verifier", "migrate", "admin"}


def test_everything_but_the_tools_starts_again_after_a_reboot() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["tools"]} == TOOLS
    for name, service in SERVICES.items():
        assert service["restart"] == ("no" if name in TOOLS else "unless-stopped"), name


def test_the_backup_dumps_the_database_with_the_script_of_hosts() -> None:
    backup = SERVICES["backup"]
    folders = dict(volume.split(":")[:2] for volume in backup["volumes"])
    assert folders["./backup"] == backup["entrypoint"][-1]
    script = FILE.with_name("backup").read_text()
    read = set(re.findall(r"\$\{?([A-Z_]+)", script))
    assert read == {"PGHOST", "PGUSER", "PGDATABASE"} | set(backup["environment"])
    assert backup["environment"]["STATE_DIRECTORY"] == folders["./dumps"]
    assert backup["image"] == SERVICES["database"]["image"], "pg_dump is of the server's version"
    assert backup["networks"] == ["database"]


def test_every_process_reads_the_settings_that_it_is_given() -> None:
    for name in OURS:
        assert set(SERVICES[name].get("environment", {})) <= KNOWN, name
    api = IN_ENV_FILES["api"] | SERVICES["api"]["environment"]
    control_plane.refuse_secrets(api)
    given = control_plane.read(api)
    networks = COMPOSE["networks"]["proxy"]["ipam"]["config"]
    assert [str(network) for network in given.trusted_proxies] == [networks[0]["subnet"]]
    reach = reconciler.read_reach(IN_ENV_FILES["reconciler"] | SERVICES["reconciler"]["environment"])
    served = verifier.read_server(SERVICES["verifier"]["environment"], cores=2)
    taken = ingest.read(IN_ENV_FILES["ingest"] | SERVICES["ingest"]["environment"]).listen
    assert SERVICES["ingest"]["ports"][0].endswith(f":{INGEST.port}:{taken.port}")
    assert reach.hub is not None
    assert reach.ingest is not None
    assert reach.ingest.port == INGEST.port
    assert reach.verifier is not None
    assert reach.verifier.addresses == (served.listen,)
    for name in ("api", "reconciler"):
        paths = {
            value for value in SERVICES[name]["environment"].values() if value.startswith("/run/secrets/")
        }
        assert paths == {f"/run/secrets/{secret}" for secret in SERVICES[name]["secrets"]}, name


def test_every_container_is_bounded_and_has_no_more_rights_than_it_needs() -> None:
    added = {name: set(service["cap_add"]) for name, service in SERVICES.items() if "cap_add" in service}
    begins_as_root = {"CHOWN", "SETGID", "SETUID"}
    assert added == {
        "proxy": begins_as_root | {"NET_BIND_SERVICE"},
        "database": begins_as_root | {"DAC_OVERRIDE", "FOWNER"},
    }
    for name, service in SERVICES.items():
        assert (service["read_only"], service["cap_drop"], service["pids_limit"]) == (True, ["ALL"], 1024), (
            name
        )
        assert service["security_opt"] == ["no-new-privileges:true"], name
    sizes = yaml.safe_load(Path("infra/stacks/Pulumi.prod.yaml").read_text())["config"]
    (on_aws,) = [
        value["services"] for value in sizes.values() if isinstance(value, dict) and "services" in value
    ]
    for service in (API, RECONCILER, INGEST, VERIFIER):
        gib = on_aws[service.name]["memory_mib"] // 1024
        assert SERVICES[service.name]["mem_limit"] == f"{gib}g", service.name
    assert all(re.fullmatch("[1-9]g", service["mem_limit"]) for service in SERVICES.values())


def test_processes_can_change_nothing_of_themselves() -> None:
    for name in (*OURS, "backup"):
        service = SERVICES[name]
        assert (service["user"], service["read_only"], service["cap_drop"]) == (
            "10001:10001",
            True,
            ["ALL"],
        ), name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_only_the_proxy_is_reached_from_the_internet() -> None:
    opened = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert opened.pop("proxy") == ["443:443"]
    ((name, (port,)),) = opened.items()
    assert name == "ingest"
    assert port.startswith("${PRIVATE_ADDRESS:?"), "it is bound to an address that somebody has to name"
    assert COMPOSE["networks"]["database"]["internal"] is True
    assert SERVICES["database"]["networks"] == ["database"]
    assert "database" not in SERVICES["proxy"]["networks"]
    assert SERVICES["verifier"]["network_mode"] == "none"


def test_the_file_names_no_image_by_a_tag_and_holds_no_secret() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:\?[^}]*digest[^}]*\}", service["image"]), name
    assert not re.search(r"://[^/\s]*:[^/\s]*@|PRIVATE KEY|PASSWORD:", FILE.read_text())
    assert all(list(secret) == ["file"] for secret in COMPOSE["secrets"].values())


def test_the_api_holds_no_key_that_opens_secrets() -> None:
    assert "unsealing" not in SERVICES["api"]["secrets"]
    assert [name for name, service in SERVICES.items() if "unsealing" in service.get("secrets", [])] == [
        "reconciler"
    ]
