"""Bodies that nobody means well with: broken, huge, deep, of the wrong kind. Endless, and the same for a seed."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

Body = tuple[str, bytes]


def bodies(seed: int = 0) -> Iterator[Body]:
    """(media type, body), without end."""
    rng = random.Random(seed)
    makers = (_truncated, _flipped, _bomb, _numbers, _deep_json, _wrong_types, _xml, _deep_xml, _noise, _form, _many)
    while True:
        yield rng.choice(makers)(rng)


def _picture(rng: random.Random, form: str) -> bytes:
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (40, 60), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


_FORMS = {"PNG": "image/png", "JPEG": "image/jpeg", "BMP": "image/bmp", "GIF": "image/gif", "TIFF": "image/tiff"}


def _truncated(rng: random.Random) -> Body:
    form = rng.choice(list(_FORMS))
    data = _picture(rng, form)
    return _FORMS[form], data[: rng.randrange(len(data) // 2)]


def _flipped(rng: random.Random) -> Body:
    """A picture whose head is damaged."""
    form = rng.choice(list(_FORMS))
    data = bytearray(_picture(rng, form))
    for place in range(8):
        data[place] = rng.randrange(256)
    return _FORMS[form], bytes(data)


def _bomb(rng: random.Random) -> Body:
    """A PNG of a few bytes that says it has up to 2^31 pixels a side."""
    side = rng.choice((9_000, 30_000, 60_000, 2**31 - 1))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(200_000))), (b"IEND", b"")):
        parts += [struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(kind + data))]
    return "image/png", b"".join(parts)


def _numbers(rng: random.Random) -> Body:
    bad = rng.choice(("NaN", "Infinity", "-Infinity", "1e999", "1e10", '"1"', "null", "true", "1" * 5000, "0x1", "--1"))
    return "application/json", f'{{"strokes": [[[0, 0], [{bad}, 5]]]}}'.encode()


def _deep_json(rng: random.Random) -> Body:
    depth = rng.choice((100, 10_000, 300_000))
    return "application/json", b'{"strokes": ' + b"[" * depth + b"]" * depth + b"}"


def _wrong_types(rng: random.Random) -> Body:
    value = rng.choice(
        (None, 1, "x", [], {}, [[]], {"strokes": {}}, {"strokes": [[]]}, {"strokes": [[[]]]}, {"strokes": [[1, 2]]},
         {"inkml": 5}, {"inkml": ""}, {"image": "*"}, {"image": "QUJD"}, {"path": "/etc/passwd"}, {"url": "http://x/"},
         {"strokes": [[["a", "b"]]]}, {"inkml": "\ud800"}, {"strokes": [[[1, 2]]], "inkml": "<ink/>"})
    )  # fmt: skip
    return "application/json", json.dumps(value).encode()


def _xml(rng: random.Random) -> Body:
    body = rng.choice(
        (
            b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><ink><trace>&b;</trace></ink>',
            b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><ink><trace>&a;</trace></ink>',
            b"<ink><trace>1 nan, 2 3</trace></ink>",
            b"<ink><trace>1 inf, 2 3</trace></ink>",
            b"<ink><trace>1, 2, 3</trace></ink>",
            b"<ink><trace>1 2, 3 4</trace>",
            b"<ink/>",
            b"<svg/>",
            b"\xff\xfe<ink/>",
            b"<?xml version='1.0' encoding='utf-7'?><ink/>",
            b"<ink><trace id='a'>1 2</trace><trace id='a'>1 2</trace></ink>",
            b"<ink><trace>" + b"9" * 400 + b" 2</trace></ink>",
        )
    )
    return "application/inkml+xml", body


def _deep_xml(rng: random.Random) -> Body:
    depth = rng.choice((500, 20_000, 200_000))
    return "text/xml", b"<ink>" + b"<g>" * depth + b"</g>" * depth + b"</ink>"


def _noise(rng: random.Random) -> Body:
    kind = rng.choice((*_FORMS.values(), "application/json", "application/inkml+xml", "text/html", "", "a/b; c=\\"))
    return kind, rng.randbytes(rng.randrange(3000))


def _form(rng: random.Random) -> Body:
    part = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="../../x"\r\n\r\n%s\r\n'
    field = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
    inner = rng.choice(
        (b"", b"x", b"--b\r\n", field, part % (b"file", b"<ink/>") + b"--b--\r\n", part % (b"f", b"") * 60)
    )
    return rng.choice(
        ("multipart/form-data; boundary=b", "multipart/form-data", "multipart/form-data; boundary=")
    ), inner


def _many(rng: random.Random) -> Body:
    """More strokes, points or bytes than anybody writes."""
    return rng.choice(
        (
            ("application/json", json.dumps({"strokes": [[[i, i]] for i in range(3000)]}).encode()),
            ("application/json", b'{"strokes": [[' + b"[1,2]," * 150_000 + b"[1,2]]]}"),
            ("application/inkml+xml", b"<ink>" + b"<trace>1 2</trace>" * 2500 + b"</ink>"),
            ("image/png", bytes(11 * 2**20)),
        )
    )
