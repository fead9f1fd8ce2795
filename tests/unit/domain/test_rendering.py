"""The user data of a machine's first boot: the same bytes every time, and no key where it does not belong."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.rendering import CUSTOMER_USER, LOGIN_USER, BootOrder, user_data
from tests.support import golden

BOOT_FILE = Path("tests/golden/boot/user-data.yaml")
PRIVATE = "-----BEGIN TEST HOST KEY-----\nnot a key: two lines\n-----END TEST HOST KEY-----\n"
ORDER = BootOrder(PRIVATE, "ssh-ed25519 AAAAhost machine", "ssh-ed25519 AAAAlogin splitplane")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def test_the_boot_file_reads_as_reviewed() -> None:
    golden.check(BOOT_FILE, user_data(ORDER))


@given(TEXTS, TEXTS, TEXTS)
def test_the_same_order_gives_the_same_bytes_and_whatever_it_holds_is_quoted(
    private: str, public: str, login: str
) -> None:
    order = BootOrder(private, public, login)
    text = user_data(order)
    assert text == user_data(BootOrder(private, public, login))
    head, _, body = text.partition("\n")
    assert head == "#cloud-config"
    # JSON is YAML; one document, so nothing in a key can open another one.
    config = json.loads(body)
    assert config["ssh_keys"] == {"ed25519_private": private, "ed25519_public": public}
    assert config["users"][0]["ssh_authorized_keys"] == [login]


def test_passwords_and_root_are_locked_out_and_only_we_may_log_in_at_first() -> None:
    config = json.loads(user_data(ORDER).partition("\n")[2])
    assert (config["ssh_pwauth"], config["disable_root"], config["ssh_deletekeys"]) == (False, True, True)
    ours, customers = config["users"]
    assert (ours["name"], customers["name"]) == (LOGIN_USER, CUSTOMER_USER)
    assert ours["lock_passwd"]
    assert customers["lock_passwd"]
    assert "ssh_authorized_keys" not in customers


def test_the_private_host_key_is_not_in_what_a_log_would_show() -> None:
    assert "TEST HOST KEY" not in repr(ORDER)
    assert "AAAAhost" in repr(ORDER)
