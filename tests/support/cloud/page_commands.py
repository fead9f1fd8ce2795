"""The commands in the pages about installing, deploying and operating, as a shell would read them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.cloud.aws_commands import PLACEHOLDER

PAGES = ("deploying", "installing", "runbooks", "operating")
CODE = re.compile(
    r"^```sh[^\n]*\n(.*?)^```$|((?:^ {4,}\S[^\n]*\n)(?:^ {4,}[^\n]*\n|^\n(?= {4}))*)",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`([^`]+)`")
FUNCTION = re.compile(r"^ *\w+\(\) \{.*?^ *\}$", re.MULTILINE | re.DOTALL)
"""test_page_tasks.py runs it."""


@dataclass(frozen=True)
class Command:
    page: str
    words: tuple[str, ...]
    whole: bool
    """Whether it stands in a block, to be typed as it is; otherwise it may be a mention of a command."""

    def __str__(self) -> str:
        return f"{self.page}.md: {shlex.join(self.words)}"


def commands_of_pages() -> Iterator[Command]:
    for page in PAGES:
        text = FUNCTION.sub("", Path(f"docs/{page}.md").read_text())
        for block in CODE.finditer(text):
            yield from of_text(page, block[1] or block[2], whole=True)
        for span in INLINE.finditer(CODE.sub("", text)):
            if "..." not in span[1]:
                yield from of_text(page, " ".join(span[1].split()), whole=False)


def of_text(page: str, text: str, *, whole: bool) -> Iterator[Command]:
    text = re.sub(r"-c '[^'\n]*'", f"-c {PLACEHOLDER}", text.replace("\\\n", " "))
    while inner := re.search(r"\$\(([^()]*)\)", text):
        text = text.replace(inner[0], PLACEHOLDER)
        yield from of_text(page, inner[1], whole=whole)
    for line in text.splitlines():
        try:
            yield from (Command(page, words, whole) for words in _split(line))
        except ValueError:  # A quotation that goes over lines belongs to no command that is looked at.
            continue


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line of shell, without what comes before them: `for`, `do`, variables."""
    scanner = shlex.shlex(line, posix=True, punctuation_chars=True)
    scanner.whitespace_split = True
    words: list[str] = []
    for token in [*scanner, ";"]:
        if set(token) <= set("();<>|&"):
            if words:
                yield tuple(words)
            words = []
        elif words or not (token in ("do", "if", "then", "until") or re.match(r"[A-Za-z_]+=", token)):
            words.append(token)
