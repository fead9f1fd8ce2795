"""What a provider tells about its limits is read, and what cannot be read is left out."""

from hypothesis import given
from hypothesis import strategies as st

from providers.base import ToldLimit
from providers.limit_headers import told_limits

POLICY = '"project";q=500;w=60, "endpoint";q=60;w=60'


def test_the_example_of_verda_reads_as_its_specification_says() -> None:
    headers = {"RateLimit-Policy": POLICY, "RateLimit": '"project";r=486;t=37, "endpoint";r=0;t=37'}
    assert told_limits(headers) == (
        ToldLimit("project", 500, 60.0, 486, 37.0),
        ToldLimit("endpoint", 60, 60.0, 0, 37.0),
    )


def test_half_of_the_two_headers_is_nothing() -> None:
    for headers in (
        {},
        {"RateLimit-Policy": POLICY},
        {"RateLimit": '"project";r=486;t=37'},
        {"RateLimit-Policy": POLICY, "RateLimit": '"other";r=1;t=1'},
        {"RateLimit-Policy": '"project";q=0;w=60', "RateLimit": '"project";r=0;t=1'},
        {"RateLimit-Policy": '"project";q=-5;w=60', "RateLimit": '"project";r=0;t=1'},
    ):
        assert told_limits(headers) == (), headers


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_header_breaks_the_reader(policy: str, state: str) -> None:
    told_limits({"RateLimit-Policy": f'"a";q=5;w=6{policy}', "RateLimit": f'"a";r=1;t=2{state}'})
