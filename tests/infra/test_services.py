"""The processes of a deployment start with what it gives them: their own readers of settings accept it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from control_plane import settings as control_plane
from control_plane.db.logins import ROLES
from control_plane.ingest import settings as ingest
from data_plane.proof.verifier.service import settings as verifier
from environment.names import KNOWN
from infra.components.containers import WRITE_FILES
from infra.config import ConfigError, read
from infra.services import FILES, SERVICES, Runs
from infra.sign_in import SECRET, with_sign_in
from reconciler import settings as reconciler
from tests.support.cloud.graph import SIGN_IN, Graph, graphs, settings_of
from tests.support.prometheus import needs_promtool, promtool

pytestmark = pytest.mark.xdist_group("infra")
VALUES = {
    "SPLITPLANE_DATABASE_URL": "postgresql://login:word@database.example.com:5432/splitplane?sslmode=verify-full",
    "SPLITPLANE_HUB_HOST_KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm0Kf",
}


def _environment(graph: Graph, service: str) -> dict[str, str]:
    """What the process gets: its variables, and those that ECS fills from secrets."""
    (container,) = [one for name, one in graph.containers() if name == service and one["name"] == service]
    plain = {variable["name"]: variable["value"] for variable in container.get("environment", [])}
    return plain | {secret["name"]: VALUES[secret["name"]] for secret in container["secrets"]}


def test_every_process_reads_the_settings_that_it_is_given() -> None:
    for graph in graphs().values():
        api = _environment(graph, "api")
        control_plane.refuse_secrets(api)
        given = control_plane.read(api)
        assert (given.listen.port, given.public_url) == (8080, f"https://{graph.settings['domain']}")
        assert len(given.trusted_proxies) == 3
        assert given.kms_key == graph.one("Key", "sealing").arn
        reach = reconciler.read_reach(_environment(graph, "reconciler"))
        assert reach.hub is not None
        assert (reach.hub.address, reach.hub.outside) == ("10.21.0.10", "203.0.113.10")
        taken = ingest.read(_environment(graph, "ingest"))
        name = graph.one("PrivateDnsNamespace", "names").inputs["name"]
        assert str(reach.ingest) == f"ingest.{name}:{taken.listen.port}"
        assert reach.verifier is not None
        assert reach.keys.kms_key == given.kms_key
        assert reconciler.read(_environment(graph, "reconciler")).metrics_listen == ("0.0.0.0", 9465)
        archive = reconciler.read_telemetry(_environment(graph, "reconciler")).sample_archive
        assert archive == f"s3://{graph.one('Bucket', 'samples').inputs['bucket']}"
        assert verifier.read_server(_environment(graph, "verifier"), cores=4).workers == 4
        for name in ("migrate", "admin", "logins"):
            assert (
                control_plane.read(_environment(graph, name)).database_url
                == VALUES["SPLITPLANE_DATABASE_URL"]
            )


def test_people_sign_in_where_a_stack_says_so() -> None:
    graph = graphs()["signing_in"]
    given = control_plane.read(_environment(graph, "api"))
    assert (given.oidc_issuer, given.oidc_client_id) == (SIGN_IN["issuer"], "splitplane")
    assert given.oidc_client_secret == Path(FILES) / SECRET
    assert given.oidc_email_domains == ("example.com", "example.org")
    written = [one["secrets"] for name, one in graph.containers() if name == "api" and one["name"] == "files"]
    secret = graph.one("Secret", SECRET).arn
    assert written == [[{"name": f"FILE_{SECRET.encode().hex()}", "valueFrom": secret}]]
    ways = [rule.name for rule in graph.of("SecurityGroupEgressRule") if rule.inputs.get("cidrIpv4")]
    assert "api-to-internet-tcp-443" in ways
    assert control_plane.read(_environment(graphs()["dev"], "api")).oidc_issuer is None


def test_a_public_client_has_no_secret() -> None:
    public = read("dev", settings_of("dev") | {"sign_in": SIGN_IN | {"client_secret": False}}).sign_in
    (api,) = [service for service in with_sign_in(SERVICES, public) if service.public]
    assert dict(api.files) == {}
    assert "SPLITPLANE_OIDC_CLIENT_SECRET_PATH" not in api.environment


def test_prometheus_finds_every_process_by_its_private_name() -> None:
    """By the configuration in docs/monitoring, through the rules of the security groups, at the ports that listen."""
    graph = graphs()["prod"]
    domain = graph.one("PrivateDnsNamespace", "names").inputs["name"]
    group = graph.one("SecurityGroup", "prometheus").id
    jobs = yaml.safe_load(Path("docs/monitoring/prometheus-aws.yml").read_text())["scrape_configs"]
    found = {job["job_name"]: job["dns_sd_configs"] for job in jobs}
    assert set(found) == {service.name for service in SERVICES if service.runs is Runs.ALWAYS}
    for service in SERVICES:
        if service.runs is Runs.ALWAYS:
            (asked,) = found[service.name]
            assert (asked["names"], asked["port"]) == ([f"{service.name}.{domain}"], service.metrics)
            listens = [value for name, value in service.environment.items() if "METRICS_LISTEN" in name]
            assert listens == [f"0.0.0.0:{service.metrics}"]
            rule = graph.one(
                "SecurityGroupIngressRule", f"{service.name}-from-prometheus-tcp-{service.metrics}"
            )
            assert rule.inputs["referencedSecurityGroupId"] == group
    assert graph.outputs["group_of_prometheus"] == group


@needs_promtool
def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", "docs/monitoring/prometheus-aws.yml")


def test_only_names_of_settings_are_used_and_files_are_where_their_settings_say() -> None:
    signing_in = read("dev", settings_of("dev") | {"sign_in": SIGN_IN}).sign_in
    for service in with_sign_in(SERVICES, signing_in):
        assert {*service.environment, *service.secrets} <= KNOWN, service.name
        named = {value for value in service.environment.values() if value.startswith(FILES)}
        if FILES in service.command:
            named |= {f"{FILES}/{name}" for name in service.files}
            assert set(service.files) <= set(ROLES)
        assert named == {f"{FILES}/{name}" for name in service.files}, service.name


def test_a_service_is_added_by_one_entry() -> None:
    """It then has all that the others have, and the rules hold for it (test_policies.py)."""
    before, after = graphs()["dev"], graphs()["grown"]
    old = {one.urn for one in before.resources if one.type.startswith("aws:")}
    kinds = {one.kind for one in after.resources if one.urn not in old}
    assert {
        "TaskDefinition",
        "Service",
        "Role",
        "RolePolicy",
        "SecurityGroup",
        "LogGroup",
        "MetricAlarm",
        "Policy",
    } <= kinds
    assert old <= {one.urn for one in after.resources}
    with pytest.raises(ConfigError, match=r"there is no such service"):
        read("dev", settings_of("dev") | {"services": after.settings["services"]})


def test_what_runs_once_is_a_task_and_no_service() -> None:
    graph = graphs()["prod"]
    tasks, kept = (
        {one.name for one in graph.of("TaskDefinition")},
        {one.name for one in graph.of("ecs.Service")},
    )
    once = {service.name for service in SERVICES if service.runs is Runs.ONCE}
    assert tasks == {service.name for service in SERVICES}
    assert kept == tasks - once


def test_secrets_become_files_that_nobody_else_reads(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nwith lines\n"
    environment = os.environ | {f"FILE_{b'verifier.key'.hex()}": key, "FILES": "something else"}
    for _ in range(2):  # A task that starts anew finds the files of before.
        subprocess.run(
            [sys.executable, "-c", WRITE_FILES.format(folder=str(tmp_path))], env=environment, check=True
        )
    (written,) = tmp_path.iterdir()
    assert written.read_text() == key
    assert (written.name, oct(written.stat().st_mode & 0o777)) == ("verifier.key", "0o400")


def test_a_process_starts_after_its_files_are_written() -> None:
    for name, container in graphs()["prod"].containers():
        if container["name"] == name and any(service.files for service in SERVICES if service.name == name):
            assert container["dependsOn"] == [{"containerName": "files", "condition": "SUCCESS"}]
            mounted = {mount["containerPath"]: mount["readOnly"] for mount in container["mountPoints"]}
            assert mounted == {"/tmp": False, FILES: True}


def test_hosts_trust_certificates_for_their_kind_alone() -> None:
    graph = graphs()["prod"]
    for name, principal in (("hub", "splitplane-hub"), ("server-1", "splitplane-server")):
        header, _, text = graph.one("Instance", name).inputs["userData"].partition("\n")
        config = json.loads(text)
        files = {one["path"]: one["content"] for one in config["write_files"]}
        assert header == "#cloud-config"
        assert files["/etc/ssh/splitplane/principals/splitplane"] == f"{principal}\n"
        assert "AuthorizedKeysFile none" in files["/etc/ssh/sshd_config.d/00-splitplane.conf"]
        assert ("put_secret_value" in text) is (name == "hub")


def test_every_alarm_tells_somebody_and_is_drawn() -> None:
    for graph in graphs().values():
        topic = graph.one("Topic", "alarms").arn
        assert all(one.inputs["alarmActions"] == [topic] for one in graph.of("MetricAlarm"))
        widgets = json.loads(graph.one("Dashboard", "alarms").inputs["dashboardBody"])["widgets"]
        drawn = {widget["properties"]["title"] for widget in widgets}
        assert drawn == {one.name for one in graph.of("MetricAlarm")}
        metrics = {widget["properties"]["metrics"][0][1] for widget in widgets}
        assert metrics == {one.inputs["metricName"] for one in graph.of("MetricAlarm")}
        watched = {one.name for one in graph.of("ecs.Service")}
        assert {f"{name}-tasks" for name in watched} <= drawn
