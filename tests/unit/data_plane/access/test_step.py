"""What is kept of the errors of a step on a machine."""

from data_plane.access.step import DETAIL_CHARACTERS_MAX, detail_of

SECRET = "K10-0123456789abcdef"


def test_the_end_of_what_a_machine_says_is_kept_in_one_line_of_printable_characters() -> None:
    assert detail_of(b"\x1b[2J first\r\n\n second \xe2\x80\xae\n") == "[2J first second"
    assert detail_of(b"x" * 5_000 + b" the end") == ("x" * 5_000 + " the end")[-DETAIL_CHARACTERS_MAX:]


def test_a_secret_is_taken_out_before_the_text_is_cut_in_its_middle() -> None:
    for after in range(DETAIL_CHARACTERS_MAX - len(SECRET), DETAIL_CHARACTERS_MAX + 1):
        detail = detail_of(f"{SECRET}{'x' * after}".encode(), [SECRET])
        assert not any(piece in detail for piece in (SECRET[:6], SECRET[-6:])), after
        assert len(detail) <= DETAIL_CHARACTERS_MAX


def test_of_two_secrets_the_one_that_contains_the_other_is_taken_out_whole() -> None:
    assert detail_of(f"token {SECRET} and {SECRET[4:]}".encode(), [SECRET[4:], SECRET]) == "token ... and ..."
