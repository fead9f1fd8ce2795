"""The page of errors, docs/errors.md, from the table of `errors.py`."""

from control_plane.api.errors import KINDS, TITLES


def page() -> str:
    """In Markdown."""
    lines = [
        "# Errors",
        "",
        "Every error is `application/problem+json` (RFC 9457). `code` is stable, so that programs can branch on it.",
        "`title` is the phrase of the HTTP status; `detail` is a sentence that says what happened. `errors` names the",
        "fields or parameters at fault, where there are any, and `permission` the permission that an API key lacks.",
        "`request_id` finds the request in our logs. Where several rules decide, as on a new lease, the code is that",
        "of the first refusal, and `refusals` lists all of them.",
        "",
        "A quote that would be refused is an answer and not an error: its status is 200, and its verdict has one of",
        "the codes below.",
        "",
        "| Status | Title | Code | What to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {kind.status} | {TITLES[kind.status]} | `{code}` | {kind.remedy} |"
        for code, kind in sorted(KINDS.items(), key=lambda item: (item[1].status, item[0]))
    ]
    return "\n".join(lines) + "\n"
