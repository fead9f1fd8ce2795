"""Texts of others, such as the name of a client, before they are stored or shown."""


def cleaned(text: str, length: int) -> str:
    """The text without control characters, cut to a length."""
    return "".join(character if character.isprintable() else " " for character in text[:length]).strip()
