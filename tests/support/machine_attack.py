"""Runs `attack_from_machine.py` on a machine of a test, and reads the tables of docs/security.md that have to agree."""

import re
from pathlib import Path

from tests.support import attack_from_machine
from tests.support.machines import Machine

_ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| (yes|no) \|", re.MULTILINE)
OF_MACHINES = "What the files of a machine open"
_PROGRAM = Path(attack_from_machine.__file__).read_bytes()
Results = dict[tuple[str, str], bool]
"""Whether each attempt works, by what it is made with and what is attempted."""


def _read(text: str) -> Results:
    return {(by, what): said == "yes" for by, what, said in _ROW.findall(text)}


def on_page(section: str = OF_MACHINES) -> Results:
    return _read(Path("docs/security.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0])


async def attacked(machine: Machine, *options: str) -> Results:
    """What works on the machine, with options as on the script's command line."""
    async with machine.connected() as connection:
        done = await connection.run(
            f"sudo python3 -I - {' '.join(options)}", input=_PROGRAM, encoding=None, check=True
        )
    assert isinstance(done.stdout, bytes)
    return _read(done.stdout.decode())
