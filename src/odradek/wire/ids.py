"""Ids as people see them: 16 bytes in base64 for URLs, without padding, as Kafka prints and writes them."""

import base64
import re


def id_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def id_bytes(text: str) -> bytes:
    """ValueError when the text is no id."""
    if re.fullmatch("[A-Za-z0-9_-]{22}", text) is None:
        raise ValueError(f"{text!r} is no id: it has 22 letters, digits, _ and -")
    return base64.urlsafe_b64decode(text + "==")
