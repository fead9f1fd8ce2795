"""The option `--by`, by which commands add up usage."""

from collections.abc import Sequence

from control_plane.cli.errors import usage

LABEL = "label"


def grouping(text: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """By what is added up, and the key of a label as a parameter of a query. Raises CliError for anything else.

    `known` are the words that are taken beside `label:KEY`.
    """
    what, _, key = text.partition(":")
    if what == LABEL and key:
        return what, {"label_key": key}
    if text not in known:
        raise usage(f"--by: {text!r} is none of {', '.join(known)} and label:KEY.")
    return text, {}
