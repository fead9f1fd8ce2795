"""What a machine printed, made safe: bounded, without control characters, without private keys. And who may ask when."""

from control_plane.domain.console import BLANKED, BYTES_MAX, RECENT_MAX, Printed, printed, refusal
from control_plane.domain.lease import LeaseState
from control_plane.domain.refusal import Refused

KEY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
BEGIN, END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"


def lines(raw: str) -> tuple[str, ...]:
    return printed(raw).lines


def test_a_console_becomes_lines_without_escape_sequences_and_control_characters() -> None:
    cases: dict[str, tuple[str, tuple[str, ...]]] = {
        "colours of systemd": (
            "[\x1b[0;32m  OK  \x1b[0m] Started sshd.\r\n",
            ("[  OK  ] Started sshd.",),
        ),
        "a title, ended in either way": ("a\x1b]0;owned\x07b\x1b]2;owned\x1b\\c", ("abc",)),
        "a title that does not end": ("a\x1b]0;owned\nb", ("a", "b")),
        "sequences of one byte": ("a\x9b2Jb\x9d0;owned\x9cc", ("abc",)),
        "character sets and resets": ("\x1b(Ba\x1bcb", ("ab",)),
        "lines of serial consoles": ("a\r\r\nb\rc\n\n \n", ("a", "b", "c")),
        "what cannot be printed": ("a\x00\x08\u202eb\ud800", ("a\ufffd\ufffd\ufffdb\ufffd",)),
        "tabulators": ("a\tb", ("a       b",)),
        "nothing": ("\x1b[2J\r\n", ()),
    }
    for name, (raw, expected) in cases.items():
        assert lines(raw) == expected, name
        assert all(line.isprintable() for line in lines(raw)), name


def test_the_end_is_kept_and_is_never_longer_than_the_bound() -> None:
    for raw in ("0123456789\n" * 20_000, "\u00e9" * 200_000, "x" * BYTES_MAX, "\x01" * 100_000):
        found = printed(f"first\n{raw}\nlast" if "\n" in raw else raw)
        size = len("\n".join(found.lines).encode())
        assert BYTES_MAX - 16 < size <= BYTES_MAX
        assert found.is_cut
    assert printed("first\n" + "0123456789\n" * 20_000 + "last").lines[-1] == "last"
    assert printed("a\nb") == Printed(("a", "b"), is_cut=False)


def test_no_line_of_a_private_key_is_kept() -> None:
    prefix = "2026-11-23T10:00:00 box cloud-init[7]: "
    cases = {
        "whole": ("a", BEGIN, KEY, KEY, END, "b"),
        "below the prefix of a journal": ("a", prefix + BEGIN, prefix + KEY, prefix + END, "b"),
        "in one line": ("a", f"{BEGIN}\\n{KEY}\\n{END}", "b"),
        "in colours": (
            "a",
            "-----BEGIN \x1b[1mRSA\x1b[0m PRIVATE KEY-----",
            KEY,
            "-----END RSA PRIVATE KEY-----",
            "b",
        ),
        "with four dashes": (
            *("a", "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----", KEY),
            *("---- END SSH2 ENCRYPTED PRIVATE KEY ----", "b"),
        ),
        "of PGP": (
            "a",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----",
            KEY,
            "-----END PGP PRIVATE KEY BLOCK-----",
            "b",
        ),
        "of PuTTY": ("a", "PuTTY-User-Key-File-3: ssh-ed25519", KEY, "Private-MAC: 00", "b"),
    }
    for name, text in cases.items():
        assert lines("\n".join(text)) == ("a", BLANKED, "b"), name
    assert lines(f"{KEY}\n{END}\nb") == (BLANKED, "b"), "its beginning is lost"
    assert lines(f"a\n{BEGIN}\n{KEY}\n{KEY}") == ("a", BLANKED), "its end is not printed yet"
    public = "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 AAAA\n-----END SSH HOST KEY KEYS-----"
    assert lines(public) == tuple(public.split("\n")), "public keys are no secret"


def test_a_key_whose_beginning_is_cut_off_is_not_kept() -> None:
    body = f"{KEY}\n" * 200
    for padding in (0, BYTES_MAX // 2, BYTES_MAX - len(body) // 2):
        raw = f"old\n{BEGIN}\n{body}{END}\n" + ("y" * 63 + "\n") * (padding // 64)
        assert KEY not in "\n".join(lines(raw)), padding


def test_an_ended_lease_and_impatience_are_refused() -> None:
    for state in LeaseState:
        refused = refusal(state, 0)
        over = state in (LeaseState.ENDING, LeaseState.ENDED)
        assert (refused.code if refused else None) == ("state_conflict" if over else None), state
    assert refusal(LeaseState.READY, RECENT_MAX - 1) is None
    refused = refusal(LeaseState.READY, RECENT_MAX)
    assert isinstance(refused, Refused)
    assert refused.code == "consoles_too_many"
