"""Texts of others, fit to be shown."""


def cut(text: str, most_bytes: int) -> str:
    """The beginning of a text."""
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


def printable(text: str) -> str:
    """The text with a space for each character that would move the cursor or change colours."""
    return "".join(char if char.isprintable() else " " for char in text)
