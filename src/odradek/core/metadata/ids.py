"""Ids as people see them: 16 bytes in base64 for URLs, without padding, as Kafka prints and writes them."""

import base64


def id_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def id_bytes(text: str) -> bytes:
    """ValueError when the text is no id."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is no id")
    return value
