"""The boot script does what the cloud-config does, quotes what it writes, and does nothing when it runs again."""

import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.boot_script import boot_script
from control_plane.domain.rendering import BootOrder, sshd_files
from control_plane.domain.user_data import UserDataKind, user_data
from tests.support import golden

SCRIPT = Path("tests/golden/boot/boot.sh")
PRIVATE = "-----BEGIN TEST HOST KEY-----\nnot a key: two lines\n-----END TEST HOST KEY-----\n"
ORDER = BootOrder(PRIVATE, "ssh-ed25519 AAAAhost machine", ("ssh-ed25519 AAAAsigning",), "sp-0190c2d4-one")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)


def test_the_boot_script_reads_as_reviewed() -> None:
    golden.check(SCRIPT, boot_script(ORDER))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_every_file_is_written_with_exactly_its_content(
    private: str, public: str, authority: str, principal: str
) -> None:
    order = BootOrder(private, public, [authority], principal)
    lexer = shlex.shlex(boot_script(order).partition("mkdir -p")[2], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    written = {words[at + 2]: words[at + 1] for at, word in enumerate(words) if word == "put"}
    for path, content in sshd_files(order).items():
        assert written[path] == content
    assert written["/etc/ssh/ssh_host_ed25519_key"] == private


def test_a_machine_is_done_before_its_sshd_restarts_and_a_second_run_ends_at_once() -> None:
    lines = boot_script(ORDER).splitlines()
    done = "/etc/ssh/splitplane/set-up"
    assert lines.index(f"if [ -e {done} ]; then exit 0; fi") < lines.index("umask 022")
    assert lines[-2] == f"touch {done}"
    assert lines[-1].startswith("systemctl restart ssh.service")


def test_each_provider_gets_the_form_that_it_takes() -> None:
    assert user_data(ORDER, UserDataKind.CLOUD_CONFIG).startswith("#cloud-config\n")
    assert user_data(ORDER, UserDataKind.SHELL_SCRIPT).startswith("#!/bin/sh\n")
