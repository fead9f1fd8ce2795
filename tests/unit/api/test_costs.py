"""What requests cost, by the one table."""

from control_plane.api.costs import APART, ROWS_PER_TOKEN, TOKENS, cost


def test_a_request_costs_one_token_unless_the_table_says_more() -> None:
    assert cost("getLease", b"") == 1
    assert cost(None, b"") == 1
    assert all(cost(operation, b"") == tokens > 1 for operation, tokens in TOKENS.items())
    assert not APART & TOKENS.keys()


def test_a_long_list_costs_a_token_for_each_fifty_rows() -> None:
    assert [cost("listLeases", f"limit={rows}".encode()) for rows in (1, 50, 51, 100, 200)] == [1, 1, 2, 2, 4]
    assert cost("listUsage", b"limit=200&since=x") == TOKENS["listUsage"] + 200 // ROWS_PER_TOKEN - 1


def test_a_query_that_will_be_refused_costs_no_more_than_a_right_one() -> None:
    for query in (
        b"limit=",
        b"limit=-1",
        b"limit=x",
        b"limit=9999",
        b"limit=1&limit=200",
        b"limit=\xff",
        b"%ff",
    ):
        assert cost("listLeases", query) == 1, query
    assert cost("listLeases", b"&".join([b"limit=200"] * 40)) == 1
