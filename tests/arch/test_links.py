"""Links between our pages lead to a file that exists, and to a heading that it has."""

import re
from pathlib import Path

PAGES = (Path("README.md"), Path("ARCHITECTURE.md"), Path("CHANGELOG.md"), *Path("docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


def _fault(page: Path, link: str) -> str | None:
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    if not target.exists():
        return "there is no such file"
    if anchor and anchor not in map(_anchor, HEADING.findall(target.read_text())):
        return "there is no such heading"
    return None


def test_every_link_between_our_pages_leads_somewhere() -> None:
    links = [
        (page, link)
        for page in PAGES
        for link in LINK.findall(page.read_text())
        if not link.startswith(("http://", "https://"))
    ]
    assert len(links) > 500
    assert [(str(page), link, fault) for page, link in links if (fault := _fault(page, link))] == []
