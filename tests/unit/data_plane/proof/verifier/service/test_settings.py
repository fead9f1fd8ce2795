"""What the verifier and its callers start with: certificates, or plaintext that cannot leave the machine."""

from pathlib import Path

import pytest

from data_plane.proof.verifier.service.settings import SettingsError, read_client, read_server
from data_plane.proof.verifier.service.tls import TlsFiles

SERVER = {
    "SPLITPLANE_VERIFIER_CERTIFICATE": "/etc/tls/certificate.pem",
    "SPLITPLANE_VERIFIER_KEY": "/etc/tls/key.pem",
    "SPLITPLANE_VERIFIER_CLIENT_CA": "/etc/tls/ca.pem",
}
CLIENT = {
    "SPLITPLANE_VERIFIER_ADDRESS": "verifier.internal:7443",
    "SPLITPLANE_VERIFIER_CALLER_CERTIFICATE": "/etc/tls/certificate.pem",
    "SPLITPLANE_VERIFIER_CALLER_KEY": "/etc/tls/key.pem",
    "SPLITPLANE_VERIFIER_CA": "/etc/tls/ca.pem",
}
FILES = TlsFiles(Path("/etc/tls/certificate.pem"), Path("/etc/tls/key.pem"), Path("/etc/tls/ca.pem"))
PLAINTEXT = {"SPLITPLANE_VERIFIER_PLAINTEXT": "yes"}


def test_the_service_starts_with_certificates_and_one_worker_per_core() -> None:
    settings = read_server(SERVER, cores=12)
    assert settings.tls == FILES
    assert settings.workers == 12
    assert settings.listen == "127.0.0.1:7443"
    assert settings.metrics_listen == ("127.0.0.1", 9466)


def test_jobs_are_checked_in_process_where_no_address_is_set() -> None:
    assert read_client({}) is None
    assert read_client({"SPLITPLANE_VERIFIER_ADDRESS": " "}) is None


def test_a_caller_has_certificates_and_takes_the_name_from_the_address() -> None:
    settings = read_client(CLIENT)
    assert settings is not None
    assert (settings.addresses, settings.tls, settings.name) == (("verifier.internal:7443",), FILES, None)


@pytest.mark.parametrize("missing", sorted(SERVER))
def test_a_service_without_a_certificate_does_not_start_and_says_what_to_set(missing: str) -> None:
    environ = {name: value for name, value in SERVER.items() if name != missing}
    with pytest.raises(SettingsError, match=rf"{missing} is not set.*SPLITPLANE_VERIFIER_PLAINTEXT=yes"):
        read_server(environ, cores=1)


@pytest.mark.parametrize("listen", ["127.0.0.1:7443", "127.9.9.9:1", "[::1]:7443", "unix:/run/verifier.sock"])
def test_plaintext_stays_on_this_machine(listen: str) -> None:
    assert read_server(PLAINTEXT | {"SPLITPLANE_VERIFIER_LISTEN": listen}, cores=1).tls is None
    client = read_client(PLAINTEXT | {"SPLITPLANE_VERIFIER_ADDRESS": listen})
    assert client is not None
    assert client.tls is None


@pytest.mark.parametrize(
    "address", ["0.0.0.0:7443", "[::]:7443", "10.0.0.4:7443", "verifier:7443", "localhost:7443"]
)
def test_plaintext_beyond_this_machine_is_refused(address: str) -> None:
    """`localhost` as well: what a name means is up to whoever answers for it."""
    with pytest.raises(SettingsError, match="is not on this machine"):
        read_server(PLAINTEXT | {"SPLITPLANE_VERIFIER_LISTEN": address}, cores=1)
    for addresses in (address, "127.0.0.1:1," + address):
        with pytest.raises(SettingsError, match=r"is not on this machine|must be an IP address"):
            read_client(PLAINTEXT | {"SPLITPLANE_VERIFIER_ADDRESS": addresses})


def test_several_addresses_are_of_ips_and_need_the_name_in_the_certificate() -> None:
    several = {**CLIENT, "SPLITPLANE_VERIFIER_ADDRESS": "10.0.0.4:7443, 10.0.0.5:7443"}
    with pytest.raises(SettingsError, match="SPLITPLANE_VERIFIER_NAME is not set"):
        read_client(several)
    settings = read_client(several | {"SPLITPLANE_VERIFIER_NAME": "verifier.internal"})
    assert settings is not None
    assert settings.addresses == ("10.0.0.4:7443", "10.0.0.5:7443")
    for mixed in ("one:7443,other:7443", "10.0.0.4:7443,[fd00::4]:7443"):
        with pytest.raises(SettingsError, match="each must be an IP address"):
            read_client({**CLIENT, "SPLITPLANE_VERIFIER_ADDRESS": mixed})
    with pytest.raises(SettingsError, match="SPLITPLANE_VERIFIER_NAME is not set"):
        read_client({**CLIENT, "SPLITPLANE_VERIFIER_ADDRESS": "unix:/run/verifier.sock"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPLITPLANE_VERIFIER_LISTEN", "7443"),
        ("SPLITPLANE_VERIFIER_LISTEN", "host:https"),
        ("SPLITPLANE_VERIFIER_LISTEN", "::1:7443"),
        ("SPLITPLANE_VERIFIER_LISTEN", "unix:relative"),
        ("SPLITPLANE_VERIFIER_METRICS_LISTEN", "unix:/run/metrics.sock"),
        ("SPLITPLANE_VERIFIER_METRICS_LISTEN", "127.0.0.1:99999"),
        ("SPLITPLANE_VERIFIER_WORKERS", "0"),
        ("SPLITPLANE_VERIFIER_WORKERS", "many"),
        ("SPLITPLANE_VERIFIER_QUEUE", "127"),
        ("SPLITPLANE_VERIFIER_BATCH_SECONDS", "-1"),
        ("SPLITPLANE_VERIFIER_DRAIN_SECONDS", "99999999999"),
        ("SPLITPLANE_VERIFIER_PLAINTEXT", "maybe"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        read_server(SERVER | {variable: value}, cores=1)


@pytest.mark.parametrize("value", ["7443", "a:1,", "unix:/run/v.sock,127.0.0.1:1"])
def test_an_address_that_cannot_be_called_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match="SPLITPLANE_VERIFIER_ADDRESS"):
        read_client({**CLIENT, "SPLITPLANE_VERIFIER_ADDRESS": value})
