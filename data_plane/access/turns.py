"""Parts of scripts by which workers take turns on a machine, and by which what a stalled one brings is refused."""

BUSY = 75
"""The exit status of a step that waited for its turn in vain."""
OUTDATED = 69
"""The exit status of what a worker brings after a later one was there."""


def alone(lock: str, what: str, seconds: int) -> str:
    """Goes on when no other script holds this lock, and holds it to its end. Gives up after so many seconds.

    `lock` and `what`, such as `change of this node`, stand in double quotes, so they may name variables of the script.
    """
    return f"""
exec 9> "{lock}"
flock -w {seconds} 9 || {{ echo "another {what} is running" >&2; exit {BUSY}; }}
"""


def fenced(file: str, refusal: str) -> str:
    """Defines `keep_fence FENCE`, which refuses a lower fence than any that was seen; `-` is none.

    `file` keeps the highest one, in a folder that exists, and may name variables of the script as well.
    """
    return f"""
keep_fence() {{
  [ "$1" != - ] || return 0
  seen=$(grep -xE '[0-9]{{1,18}}' "{file}" 2>/dev/null || echo 0)
  [ "$1" -ge "$seen" ] || {{ echo '{refusal}' >&2; exit {OUTDATED}; }}
  printf '%s\\n' "$1" > "{file}.new"
  mv -f "{file}.new" "{file}"
}}
"""
