"""The settings of every process: what is refused, in one sentence that names the variable and tells no secret."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from control_plane import settings as api
from control_plane.domain.funding import StopTimes
from data_plane.proof.verifier.service import settings as verifier
from environment.reading import SettingsError
from providers.emulators import settings as emulators
from reconciler import settings as reconciler
from tests.support.cases import case
from tracing import settings as traces

DATABASE = {"SPLITPLANE_DATABASE_URL": "postgresql://u:planted@h/d"}
REACH = DATABASE | {
    "SPLITPLANE_PROVIDER_ACCOUNTS": "local, lambda_cloud/research,",
    "SPLITPLANE_HUB": "hub:22",
    "SPLITPLANE_HUB_HOST_KEY": "ssh-ed25519 AAAA hub",
}
SERVICE = {"SPLITPLANE_VERIFIER_PLAINTEXT": "yes"}
READERS: Mapping[str, tuple[Callable[[Mapping[str, str]], object], Mapping[str, str]]] = {
    "API": (api.read, DATABASE),
    "reconciler": (reconciler.read, DATABASE),
    "reach": (reconciler.read_reach, REACH),
    "verifier": (lambda environ: verifier.read_server(environ, cores=2), SERVICE),
    "caller": (verifier.read_client, {}),
    "emulators": (emulators.images, {}),
    "traces": (traces.read, {}),
}


def test_every_process_refuses_a_variable_that_none_reads_and_names_the_nearest() -> None:
    for name, (read, environ) in READERS.items():
        with case(name):
            read(environ)
            with pytest.raises(SettingsError) as refused:
                read({**environ, "SPLITPLANE_HBU_HOST_KEY": "planted"})
            assert str(refused.value) == (
                "SPLITPLANE_HBU_HOST_KEY is not a setting of Splitplane; did you mean SPLITPLANE_HUB_HOST_KEY?"
            )


def test_a_process_accepts_the_variables_of_the_others() -> None:
    everything = {
        **REACH,
        "SPLITPLANE_URL": "http://h",
        "SPLITPLANE_IMAGES": "/images",
        "PROVIDER_X_KEY": "k",
    }
    for name, (read, environ) in READERS.items():
        with case(name):
            read({**everything, **environ})


def test_a_setting_that_cannot_be_used_is_named_in_one_sentence() -> None:
    url = "SPLITPLANE_DATABASE_URL"
    cases = (
        ("API", {url: ""}, f"{url} is not set: the PostgreSQL database, `postgresql://...`; may hold a password"),
        ("reconciler", {url: " "}, f"{url} is not set: the PostgreSQL database"),
        ("API", {url: "planted"}, f"{url} names no PostgreSQL database: it must begin with postgresql://"),
        ("API", {"SPLITPLANE_LISTEN": "8080"}, "SPLITPLANE_LISTEN must be a host and a port, such as 127.0.0.1:8080"),
        (
            "API",
            {"SPLITPLANE_STREAMS_MAX": "planted"},
            "SPLITPLANE_STREAMS_MAX cannot be used: input should be a valid integer",
        ),
        ("API", {"SPLITPLANE_REQUESTS_PER_SECOND": "0"}, "greater than or equal to 1"),
        ("API", {"SPLITPLANE_LOG_LEVEL": "planted"}, "input should be 'debug', 'info', 'warning' or 'error'"),
        ("reach", {"SPLITPLANE_ORPHANS_DRY_RUN": "planted"}, "SPLITPLANE_ORPHANS_DRY_RUN cannot be used: "),
        ("reach", {"SPLITPLANE_HUB": ""}, "SPLITPLANE_HUB is not set: the mesh hub's SSH endpoint, host and port"),
        ("API", {"SPLITPLANE_KMS_KEY": "planted"}, "SPLITPLANE_KMS_KEY must be the ARN of a key in AWS KMS"),
        ("reach", {"SPLITPLANE_DATA_KEY_DAYS": "0"}, "SPLITPLANE_DATA_KEY_DAYS cannot be used: "),
        ("reach", {"SPLITPLANE_STOP_BELOW_MINUTES": "31"}, "SPLITPLANE_STOP_BELOW_MINUTES cannot be used: "),
        ("verifier", {"SPLITPLANE_VERIFIER_WORKERS": "0"}, "SPLITPLANE_VERIFIER_WORKERS cannot be used: "),
    )  # fmt: skip
    for name, variables, sentence in cases:
        with case(name, variables):
            read, environ = READERS[name]
            with pytest.raises(SettingsError) as refused:
                read({**environ, **variables})
            assert sentence in str(refused.value)
            assert "\n" not in str(refused.value)
            assert "planted" not in str(refused.value)


def test_values_get_their_types_and_no_settings_show_a_password() -> None:
    given = api.read(
        DATABASE
        | {"SPLITPLANE_LISTEN": "[::1]:80", "SPLITPLANE_LOG_LEVEL": "DEBUG", "SPLITPLANE_STREAMS_MAX": "7"}
    )
    assert (given.listen, given.log_level, given.streams_max) == (api.Address("::1", 80), "debug", 7)
    assert (given.requests_burst, str(given.metrics_listen)) == (200, "127.0.0.1:9090")
    reached = reconciler.read_reach(REACH | {"SPLITPLANE_PROOF_DRY_RUN": "yes"})
    assert reached.accounts == ("local", "lambda_cloud/research")
    assert (reached.proof_dry_run, reached.orphans_dry_run) == (True, False)
    assert reached.money.stop_times == StopTimes()
    money = reconciler.read_money({"SPLITPLANE_DATA_KEPT_HOURS": "24"})
    assert money.stop_times.data_kept == timedelta(days=1)
    assert reached.hub is not None
    assert (reached.hub.address, reached.hub.ssh_port) == ("hub", 22)
    simulated = reconciler.read_reach(REACH | {"SPLITPLANE_SIMULATED_MACHINES": "yes", "SPLITPLANE_HUB": ""})
    assert simulated.hub is None
    assert "planted" not in f"{given!r} {reconciler.read(DATABASE)!r}"


def test_the_images_of_machines_are_in_the_cache_of_the_user_unless_a_folder_is_named() -> None:
    assert emulators.images({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/splitplane/images")
    assert emulators.images({"SPLITPLANE_IMAGES": "/images"}) == Path("/images")


def test_traces_are_off_unless_the_standard_variables_turn_them_on() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    cases: tuple[tuple[Mapping[str, str], bool], ...] = (
        ({}, False),
        (
            {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_ENDPOINT": ""},
            False,
        ),
        (endpoint, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        (endpoint | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (endpoint | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (endpoint | {"OTEL_SDK_DISABLED": "false"}, True),
        (endpoint | {"OTEL_SDK_DISABLED": "1"}, True),  # As specified: only "true" is true.
    )
    for environ, on in cases:
        with case(str(environ)):
            assert traces.read(environ).on is on


def test_what_traces_do_not_support_is_refused_and_no_header_is_told() -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=planted"}
    assert "planted" not in repr(traces.read(headers))
    for name, value in (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "jaeger")):
        with case(name), pytest.raises(SettingsError) as refused:
            traces.read({**headers, name: value})
        assert str(refused.value).startswith(f"{name} cannot be used: input should be")
        assert "planted" not in str(refused.value)
