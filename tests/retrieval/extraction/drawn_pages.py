"""Pictures for web pages that hold them."""

from __future__ import annotations

import base64
import io

from PIL import Image


def drawn(size: tuple[int, int] = (200, 120), kind: str = "PNG", mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise(size, 60).convert(mode).save(buffer, kind)
    return buffer.getvalue()


MILL = drawn()


def data_address(data: bytes = MILL, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
