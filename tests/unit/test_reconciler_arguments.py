"""The reconciler's command line: which wings a process runs."""

import pytest

from reconciler import registry
from reconciler.__main__ import parse


def test_a_process_runs_every_wing_or_those_that_are_named_each_once() -> None:
    assert parse(["run"]).only == registry.wings()
    parsed = parse(["run", "--only", "money", "--only", "leases", "--only", "money"])
    assert (parsed.command, parsed.only) == ("run", ("money", "leases"))


def test_a_list_of_wings_and_an_unknown_wing_are_refused_with_what_to_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for word, said in (
        ("money,leases", "give --only once for each wing"),
        ("mony", f"there is no wing 'mony'; one of {', '.join(registry.wings())}"),
    ):
        with pytest.raises(SystemExit) as ended:
            parse(["run", "--only", word])
        assert ended.value.code == 2, word
        shown = capsys.readouterr().err
        assert said in shown, word
        assert "[--only WING]..." in shown, word
