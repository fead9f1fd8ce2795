"""The user data of a machine's first boot: the same bytes every time, and no key where it does not belong."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import rendering
from control_plane.domain.rendering import CUSTOMER_USER, LOGIN_USER, BootOrder, cloud_config
from data_plane.access import login
from data_plane.access.step import CUSTOMER
from tests.support import golden

BOOT_FILE = Path("tests/golden/boot/user-data.yaml")
PRIVATE = "-----BEGIN TEST HOST KEY-----\nnot a key: two lines\n-----END TEST HOST KEY-----\n"
AUTHORITIES = ("ssh-ed25519 AAAAsigning", "ssh-ed25519 AAAAnext")
ORDER = BootOrder(PRIVATE, "ssh-ed25519 AAAAhost machine", AUTHORITIES, "sp-0190c2d4-one")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def test_the_boot_file_reads_as_reviewed() -> None:
    golden.check(BOOT_FILE, cloud_config(ORDER))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_the_same_order_gives_the_same_bytes_and_whatever_it_holds_is_quoted(
    private: str, public: str, authority: str, principal: str
) -> None:
    order = BootOrder(private, public, [authority], principal)
    text = cloud_config(order)
    assert text == cloud_config(BootOrder(private, public, [authority], principal))
    head, _, body = text.partition("\n")
    assert head == "#cloud-config"
    # JSON is YAML; one document, so nothing in a key can open another one.
    config = json.loads(body)
    assert config["ssh_keys"] == {"ed25519_private": private, "ed25519_public": public}
    files = {each["path"]: each["content"] for each in config["write_files"]}
    assert files[rendering.AUTHORITIES] == f"{authority}\n"
    assert files[f"{rendering.PRINCIPALS}/{LOGIN_USER}"] == f"{principal}\n"


def test_passwords_and_root_are_locked_out_and_only_we_may_log_in_at_first() -> None:
    config = json.loads(cloud_config(ORDER).partition("\n")[2])
    assert (config["ssh_pwauth"], config["disable_root"], config["ssh_deletekeys"]) == (False, True, True)
    ours, customers = config["users"]
    assert (ours["name"], customers["name"]) == (LOGIN_USER, CUSTOMER_USER)
    assert ours["lock_passwd"]
    assert customers["lock_passwd"]
    assert "ssh_authorized_keys" not in {*ours, *customers, *config}, (
        "machines trust authorities, not lists of keys"
    )
    files = {each["path"]: each for each in config["write_files"]}
    assert f"{rendering.PRINCIPALS}/{CUSTOMER_USER}" not in files, "nobody was admitted yet"
    assert {(each["owner"], each["permissions"]) for each in files.values()} == {("root:root", "0644")}


def test_what_we_write_on_a_machine_later_is_what_its_user_data_has_sshd_read() -> None:
    assert (rendering.AUTHORITIES, rendering.PRINCIPALS, rendering.REVOKED) == (
        login.AUTHORITIES,
        login.PRINCIPALS,
        login.REVOKED,
    )
    assert rendering.CUSTOMER_USER == CUSTOMER


def test_the_private_host_key_is_not_in_what_a_log_would_show() -> None:
    assert "TEST HOST KEY" not in repr(ORDER)
    assert "AAAAhost" in repr(ORDER)
