"""From the body of a request to inputs that can be read, with every limit checked before memory is spent.

Nothing here follows a path or an address that a client names: inputs are the bytes of the body.
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Receive

from ink2tex.app.server.problems import Problem, invalid
from ink2tex.app.server.schemas import BatchInput, ImageInput, InkmlInput, JsonInput, LatexInput, StrokesInput
from ink2tex.app.server.settings import ServerSettings
from ink2tex.errors import ImageError
from ink2tex.image import read_picture
from ink2tex.ink import Ink, ink_from_points, read_inkml
from ink2tex.runtime.inputs import looks_like_xml
from ink2tex.runtime.recognizer import Ready, prepare_input

#: The decoders that are tried; Pillow has others, which start programs or were not made for strangers' files.
FORMATS: Final = ("PNG", "JPEG", "MPO", "BMP", "WEBP", "TIFF", "GIF")
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/bmp", "image/webp", "image/tiff", "image/gif")
INKML_TYPES: Final = ("application/inkml+xml", "application/xml", "text/xml")
JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "multipart/form-data"

_ONE: Final[TypeAdapter[JsonInput]] = TypeAdapter(JsonInput)
_SEVERAL: Final = TypeAdapter(BatchInput)
_LATEX: Final = TypeAdapter(LatexInput)
T = TypeVar("T")

Prepare = Callable[[], Ready]


class ClientGoneError(Exception):
    """The client has hung up."""


async def wait_for_hang_up(receive: Receive) -> None:
    """Return when the client has gone; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class BodyReader:
    """Receives bodies, each within a limit and all together within another."""

    def __init__(self, settings: ServerSettings) -> None:
        self._limit, self._all = settings.max_body, settings.max_bodies
        self._now = 0

    async def read(self, request: Request) -> bytes:
        """The body. A larger one is refused as soon as that is known."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                chunk = message.get("body", b"")
                size += len(chunk)
                self._now += len(chunk)
                if size > self._limit:
                    raise self._too_large()
                if self._now > self._all:
                    raise Problem("busy", "Too much is arriving at once; try again.", headers={"Retry-After": "2"})
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        finally:
            self._now -= size

    def _too_large(self) -> Problem:
        return Problem(
            "body_too_large",
            f"A request may have {self._limit / 2**20:.3g} MB; send a smaller picture.",
            headers={"Connection": "close"},
        )


@dataclass(frozen=True)
class Inputs:
    """Makes inputs of bodies. The methods `picture`, `inkml` and `strokes` do the work, so they belong in threads."""

    settings: ServerSettings

    def single(self, kind: str, body: bytes) -> Prepare:
        """What prepares the one input in a body of the media type `kind`; forms are for `form`."""
        if kind in IMAGE_TYPES or kind == "application/octet-stream":
            return lambda: self.picture(body)
        if kind in INKML_TYPES:
            return lambda: self.inkml(body)
        if kind == JSON_TYPE:
            return lambda: self.prepare(self._json(_ONE, body))
        raise unsupported(kind)

    def several(self, body: bytes) -> Sequence[Prepare]:
        """What prepares the inputs of a JSON batch; parsing happens here."""
        items = self._json(_SEVERAL, body).items
        self.check_count(len(items))
        return [self._later(item) for item in items]

    def _later(self, item: JsonInput) -> Prepare:
        return lambda: self.prepare(item)

    def latex(self, body: bytes) -> str:
        """The LaTeX of a body that has nothing else."""
        return self._json(_LATEX, body).latex

    def check_count(self, count: int) -> None:
        """A batch has at least one item, and not too many."""
        if count > self.settings.max_items:
            raise Problem("too_many_items", f"A batch may have {self.settings.max_items} items, this one has {count}.")

    async def form(self, request: Request, body: bytes, most: int) -> list[Prepare]:
        """What prepares the files of a multipart form."""

        async def stream() -> AsyncIterator[bytes]:
            yield body
            yield b""

        parser = MultiPartParser(request.headers, stream(), max_files=most + 1, max_fields=8)  # type: ignore[arg-type]
        try:
            form = await parser.parse()
        except MultiPartException as error:
            if error.message.startswith("Too many files"):
                self.check_count(most + 1)
            raise Problem("bad_multipart", f"The form cannot be read: {error.message}") from None
        except (ValueError, KeyError, UnicodeError, AssertionError) as error:
            raise Problem("bad_multipart", f"The form cannot be read ({type(error).__name__}).") from None
        try:
            files: list[bytes] = []
            for name, value in form.multi_items():
                if name != "file" or not isinstance(value, UploadFile):
                    raise Problem("invalid_request", "A form has parts 'file', each a picture or an InkML file.")
                files.append(await value.read())
        finally:
            await form.close()
        if not files:
            raise Problem("invalid_request", "The form has no part 'file'; send a picture or an InkML file in it.")
        return [self._file(data) for data in files]

    def _file(self, data: bytes) -> Prepare:
        return lambda: self.inkml(data) if looks_like_xml(data) else self.picture(data)

    def _json(self, adapter: TypeAdapter[T], body: bytes) -> T:
        # Every point opens a bracket: too many are refused before they become objects.
        if body.count(b"[") > self.settings.max_points + self.settings.max_strokes + self.settings.max_items + 8:
            raise self._too_many()
        try:
            return adapter.validate_json(body)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False, include_context=False)
            if errors[0]["type"] == "json_invalid":
                raise Problem("bad_json", f"The body is not JSON: {errors[0]['msg']}.") from None
            raise invalid(_closest(errors)) from None

    def prepare(self, item: BaseModel) -> Ready:
        """A JSON input, ready to be read."""
        if isinstance(item, StrokesInput):
            return self.strokes(item.strokes)
        if isinstance(item, InkmlInput):
            return self.inkml(item.inkml.encode("utf-8", "replace"))
        assert isinstance(item, ImageInput)
        try:
            return self.picture(base64.b64decode(item.image, validate=True))
        except (binascii.Error, ValueError):
            raise Problem("invalid_picture", "The picture is not in base64; encode the bytes of its file.") from None

    def strokes(self, strokes: Sequence[Sequence[Sequence[float]]]) -> Ready:
        """Pen strokes."""
        self._check_points(len(strokes), sum(map(len, strokes)))
        return self._draw(ink_from_points(strokes))

    def inkml(self, data: bytes) -> Ready:
        """An InkML file."""
        ink = read_inkml(data, name="the ink")
        self._check_points(len(ink.strokes), sum(map(len, ink.strokes)))
        return self._draw(ink)

    def _draw(self, ink: Ink) -> Ready:
        return prepare_input(ink)

    def picture(self, data: bytes) -> Ready:
        """A picture file."""
        if not data:
            raise ImageError("the picture is empty; send the bytes of a PNG or a JPEG")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                    width, height = opened.size  # the head of the file; no pixel is decoded
            except Image.DecompressionBombError:
                width = height = 2**20
            except UnidentifiedImageError:
                raise ImageError("this is not a PNG, JPEG, BMP, WebP, TIFF or GIF picture; send one of these") from None
            except Exception:  # decoders raise whatever they like on broken heads
                raise ImageError("the picture is damaged; save it again") from None
        if width * height > self.settings.max_pixels:
            raise Problem(
                "picture_too_large",
                f"The picture has more than {self.settings.max_pixels / 1e6:.3g} million pixels; crop or shrink it.",
            )
        return prepare_input(read_picture(data, "the picture"), "the picture")

    def _check_points(self, strokes: int, points: int) -> None:
        if strokes > self.settings.max_strokes or points > self.settings.max_points:
            raise self._too_many()

    def _too_many(self) -> Problem:
        return Problem(
            "too_many_points",
            f"A drawing may have {self.settings.max_strokes} strokes and {self.settings.max_points} points.",
        )


def _closest(errors: list) -> list:
    """Of the complaints of each kind of input the ones about the kind that was meant: those with the longest path."""
    missing = [error for error in errors if error["type"] not in ("missing", "extra_forbidden")]
    return missing or errors


def media_type(request: Request) -> str:
    """The media type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(kind: str, known: Sequence[str] = (*IMAGE_TYPES, INKML_TYPES[0], JSON_TYPE, FORM_TYPE)) -> Problem:
    """A media type that is not understood."""
    shown = f"'{kind[:60]}'" if kind else "no media type"
    return Problem(
        "unsupported_media_type",
        f"The request has {shown}; send {' or '.join(filter(None, (', '.join(known[:-1]), known[-1])))}.",
    )
