"""The example of docs/tenancy.md is typed as it stands, by people with a browser, into a running cloud."""

import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from control_plane.cli import main
from control_plane.cli.terminal import Terminal
from tests.integration.cli.conftest import City
from tests.support.cases import case

pytestmark = [pytest.mark.database, pytest.mark.xdist_group("cli")]
PAGE = Path("docs/tenancy.md")
HEADING = "## From an empty cloud"
PRINTED = ("URL", "OPERATOR", "FINANCE")
"""The variables that hold what `make up` prints."""
REFUSED = re.compile(r"# refused: (\w+)$")
IN_A_BROWSER = re.compile(r"# in .*browser: (\S+@\S+)$")
INNER = re.compile(r"\$\(([^()]+)\)")
SECONDS_MAX = 60


def _lines(page: str) -> Iterator[str]:
    """The commands, with their comments; one that ends with a pipe or a backslash goes on in the next line."""
    _, _, rest = page.partition(HEADING)
    text = re.sub(r"(\||\\)\n\s+", lambda end: end[1].strip("\\") + " ", rest.partition("\n## ")[0])
    return (line.strip() for line in text.splitlines() if line.startswith("    "))


@dataclass
class Ran:
    code: int
    out: str
    err: str


@dataclass
class Person:
    """Types into a shell that knows pipes, variables, `$(...)`, `echo` and our command."""

    city: City
    home: Path

    def type(self, line: str) -> Ran:
        who = IN_A_BROWSER.search(line)
        command, _, _ = line.partition("  #")
        command = INNER.sub(lambda inner: self._pipeline(inner[1], None).out.strip(), command)
        return self._pipeline(command, who[1] if who else None)

    def _pipeline(self, command: str, who: str | None) -> Ran:
        ran = Ran(0, "", "")
        for part in command.split(" | "):
            words = [self._known(word) for word in shlex.split(part)]
            ran = Ran(0, f"{words[1]}\n", "") if words[0] == "echo" else self._run(words, ran.out, who)
        return ran

    def _known(self, word: str) -> str:
        values = (self.city.url, self.city.operator_key, self.city.finance_key)
        return dict(zip((f"${name}" for name in PRINTED), values, strict=True)).get(word, word)

    def _run(self, words: Sequence[str], stdin: str, who: str | None) -> Ran:
        assert words[0] == "splitplane"
        out, err = io.StringIO(), io.StringIO()
        terminal = Terminal(
            environ=self.city.environ(HOME=str(self.home)),
            stdin=io.StringIO(stdin),
            stdout=out,
            stderr=err,
            open_url=lambda url: _confirm(url, who),
        )
        code = main.main(words[1:], terminal)
        return Ran(code, out.getvalue(), err.getvalue())


def _confirm(url: str, email: str | None) -> bool:
    """Sign in at the page that the terminal opens, as this person, and confirm the terminal."""
    assert email is not None, "the page does not say who signs in"
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=SECONDS_MAX) as browser:
        issuer = browser.get(url)
        page = browser.post(str(issuer.url), data={"sub": email})
        fields = dict(re.findall(r'name="(\w+)"[^>]*value="([^"]*)"', page.text))
        done = browser.post(url.partition("?")[0], data=fields | {"action": "confirm"})
        assert "Your terminal is signed in" in done.text, done.text
    return True


def test_the_example_leads_from_an_empty_cloud_to_a_team_and_each_refusal_is_the_one_it_names(
    city: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    for email in ("ada@example.com", "grace@example.com"):
        city.issuer.user(email, email=email, email_verified=True)
    person, typed = Person(city, tmp_path), 0
    for line in _lines(page):
        if re.match(rf"(export PATH|{'|'.join(PRINTED)})=", line):
            continue
        typed += 1
        with case(line):
            ran, refused = person.type(line), REFUSED.search(line)
            assert ran.code == (0 if refused is None else 1), ran.out + ran.err
            assert refused is None or f"error: {refused[1]}:" in ran.err, ran.err
    assert typed > 30
