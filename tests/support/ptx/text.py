"""PTX text as values: entries with their parameters, registers and instructions."""

import re
from dataclasses import dataclass, field


class PtxError(Exception):
    """The text is not what this reader knows, or does what it must not."""


@dataclass(frozen=True)
class Instruction:
    opcode: str
    operands: tuple[str, ...]
    """As written; a vector is one operand, braces and all."""
    guard: str | None = None
    """The predicate register without which a lane does nothing."""


@dataclass
class Entry:
    name: str
    threads: int
    parameters: tuple[tuple[str, str], ...]
    """Name and type (`u32`, `u64`), in order."""
    registers: dict[str, str] = field(default_factory=dict)
    """From name to kind: `b32`, `b64`, `f32` or `pred`."""
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


_ENTRY = re.compile(
    r"\.visible \.entry (\w+)\(\n((?:    \.param \.u(?:32|64) \w+,?\n)+)\)\n"
    r"\.reqntid (\d+)\n\.minnctapersm \d+\n\{\n(.*?)\n\}\n",
    re.DOTALL,
)
_HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"
_REGISTERS = re.compile(r"\.reg \.(b32|b64|f32|pred) (%[\w<>%, ]+);")
_INSTRUCTION = re.compile(r"(?:@(%\w+) )?([a-z][\w.]*)(?: (.+))?;")
_LABEL = re.compile(r"(\w+):")
_OPERAND = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+)\s*(?:,|$)")


def read(text: bytes) -> dict[str, Entry]:
    """All entries by name. Every byte of the text is accounted for."""
    content = text.decode("ascii")
    if not content.startswith(_HEAD):
        raise PtxError("another version or target")
    entries: dict[str, Entry] = {}
    rest = content[len(_HEAD) :]
    while rest.strip():
        found = _ENTRY.match(rest.lstrip("\n"))
        if not found:
            raise PtxError(f"not an entry: {rest.strip()[:80]!r}")
        entry = _entry(*found.groups())
        entries[entry.name] = entry
        rest = rest.lstrip("\n")[found.end() :]
    return entries


def _entry(name: str, parameters: str, threads: str, body: str) -> Entry:
    declared = re.findall(r"\.param \.(u32|u64) (\w+)", parameters)
    entry = Entry(name, int(threads), tuple((one, width) for width, one in declared))
    for line in (line.strip() for line in body.splitlines()):
        if found := _LABEL.fullmatch(line):
            if found[1] in entry.labels:
                raise PtxError(f"label {found[1]} twice")
            entry.labels[found[1]] = len(entry.instructions)
        elif found := _REGISTERS.fullmatch(line):
            _declare(entry, found[1], found[2])
        elif found := _INSTRUCTION.fullmatch(line):
            entry.instructions.append(Instruction(found[2], _operands(found[3] or ""), found[1]))
        else:
            raise PtxError(f"not an instruction: {line!r}")
    return entry


def _declare(entry: Entry, kind: str, names: str) -> None:
    for name in names.split(", "):
        family = re.fullmatch(r"(%\w+)<(\d+)>", name)
        each = [f"{family[1]}{at}" for at in range(int(family[2]))] if family else [name]
        if any(one in entry.registers for one in each):
            raise PtxError(f"register {name} twice")
        entry.registers.update(dict.fromkeys(each, kind))


def _operands(text: str) -> tuple[str, ...]:
    found, at = [], 0
    while at < len(text):
        one = _OPERAND.match(text, at)
        if not one:
            raise PtxError(f"not operands: {text!r}")
        found.append(one[1].strip())
        at = one.end()
    return tuple(found)
