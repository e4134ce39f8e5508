"""Finds images in observations of Gymnasium, and writes them as PNG files."""

from __future__ import annotations

import struct
import zlib
from typing import Any, List, Tuple

from .values import UnusableValue, image, plain

SMALLEST_PART = 32
"""The fewest pixels of each side of an image within a Dict or Tuple; smaller arrays there are often symbols, as in
minigrid."""
_CHANNELS = {1: 0, 3: 2, 4: 6}
"""PNG's color type, by the number of channels."""


def is_image(space: Any, part: bool = False) -> bool:
    """Return whether a space holds images: uint8 from 0 to 255 of (height, width), with 1, 3, 4 or no channels.

    Args:
        space: the space.
        part: whether it is a part of another space.
    """
    shape = getattr(space, "shape", None) or ()
    if str(getattr(space, "dtype", "")) != "uint8" or not _has_pixels(shape) or not hasattr(space, "low"):
        return False
    if part and min(shape[:2]) < SMALLEST_PART:
        return False
    return int(space.low.min()) == 0 and int(space.high.max()) == 255


def has_images(space: Any, part: bool = False) -> bool:
    """Return whether a space, or a part of it, holds images."""
    return is_image(space, part) or any(has_images(one, True) for _, one in _parts(space))


def without_images(space: Any, observation: Any, part: bool = False) -> Tuple[Any, List[Any]]:
    """Return an observation as JSON with names in the places of its images, and the images as content.

    An observation that is one image has None in its place.
    """
    images: List[Any] = []
    return _without(space, observation, part, images), images


def _without(space: Any, observation: Any, part: bool, images: List[Any]) -> Any:
    shape, kind = getattr(observation, "shape", ()), str(getattr(observation, "dtype", ""))
    if is_image(space, part) and kind == "uint8" and _has_pixels(shape):
        images.append(image(png(observation)))
        return f"[image {len(images)}]" if part else None
    parts = dict(_parts(space))
    if isinstance(observation, dict) and parts:
        return {
            str(name): _without(parts[name], value, True, images) if name in parts else plain(value, str(name))
            for name, value in observation.items()
        }
    if isinstance(observation, (tuple, list)) and len(parts) == len(observation):
        return [_without(parts[number], value, True, images) for number, value in enumerate(observation)]
    return plain(observation, "the observation")


def _parts(space: Any) -> List[Tuple[Any, Any]]:
    spaces: Any = getattr(space, "spaces", None)
    if hasattr(spaces, "items"):
        return list(spaces.items())
    return list(enumerate(spaces)) if isinstance(spaces, (tuple, list)) else []


def _has_pixels(shape: Any) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNELS)


def png(pixels: Any) -> bytes:
    """Return an image of the type uint8 and the shape (height, width) or (height, width, channels) as a PNG file.

    Raises:
        UnusableValue: it has another shape or type.
    """
    shape, kind = getattr(pixels, "shape", None), str(getattr(pixels, "dtype", type(pixels).__name__))
    if shape is None or not _has_pixels(shape) or kind != "uint8":
        raise UnusableValue(f"the environment rendered {kind} of the shape {shape}, not uint8 of (height, width, 3)")
    color = _CHANNELS[shape[2] if len(shape) == 3 else 1]
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(shape[0]))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", shape[1], shape[0], 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
