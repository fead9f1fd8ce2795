"""Labels on the command line."""

from collections.abc import Sequence

from control_plane.cli.errors import usage


def labels(given: Sequence[str], name: str = "--label") -> dict[str, str]:
    """The labels given as KEY=VALUE. Raises a usage error that calls the argument by its name."""
    made: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not (sign and key) or key in made:
            raise usage(f"{name}: {text!r} is not KEY=VALUE with a key of its own.")
        made[key] = value
    return made
