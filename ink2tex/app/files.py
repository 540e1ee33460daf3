"""From the paths on a command line to single inputs: files, folders, the pages of PDFs, standard input."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ink2tex.errors import ImageError, Ink2TexError

#: What a folder is searched for; a file that is named may be called anything.
SUFFIXES: Final = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".heic", ".heif", ".inkml", ".pdf")
)
STDIN: Final = "-"
#: Resolution at which pages are drawn; handwriting has strokes of 3 to 6 px then.
_DPI: Final = 200


@dataclass(frozen=True)
class Item:
    """One thing to recognise."""

    #: What it is called in the output: the path, with `#page=3` for a page of a PDF.
    name: str
    path: Path | None = None
    #: The bytes, when they came through standard input.
    data: bytes | None = None
    #: Counted from 0.
    page: int | None = None
    #: Why it cannot even be opened.
    error: str | None = None

    def load(self) -> Any:
        """What `Recognizer.recognize` takes."""
        if self.error is not None:
            raise Ink2TexError(self.error)
        if self.page is not None:
            return _draw_page(self.path if self.data is None else self.data, self.page, self.name)
        return self.data if self.data is not None else self.path


def expand(paths: Iterable[str]) -> list[Item]:
    """The items of all `paths`, each once, folders in the order of their names; what is missing becomes an error."""
    found: dict[str, Item] = {}
    for text in paths:
        for item in _expand(text):
            found.setdefault(item.name, item)
    return list(found.values())


def _expand(text: str) -> Iterator[Item]:
    if text == STDIN:
        data = sys.stdin.buffer.read()
        yield from _pages(STDIN, data) if data.startswith(b"%PDF") else [Item(STDIN, data=data)]
        return
    path = Path(text)
    if not path.exists():
        yield Item(text, error=f"{text}: there is no such file or folder")
        return
    for file in _walk(path) if path.is_dir() else [path]:
        if file.suffix.lower() == ".pdf":
            yield from _pages(str(file), file)
        else:
            yield Item(str(file), file)


def _walk(folder: Path) -> Sequence[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and file.is_file() and not file.name.startswith(".")
    )


def _pages(name: str, source: Path | bytes) -> Iterator[Item]:
    path, data = (None, source) if isinstance(source, bytes) else (source, None)
    try:
        document = _open_pdf(source, name)
    except Ink2TexError as error:
        yield Item(name, error=str(error))
        return
    count = len(document)
    document.close()
    for page in range(count):
        yield Item(f"{name}#page={page + 1}", path, data, page)


def _open_pdf(source: Any, name: str) -> Any:
    try:
        pdfium = importlib.import_module("pypdfium2")
    except ImportError:
        raise ImageError(f"{name}: PDFs need the package pypdfium2; install the extra 'ink2tex[pdf]'") from None
    try:
        return pdfium.PdfDocument(source)
    except Exception as error:  # pdfium's own error, or that of the file system
        raise ImageError(f"{name}: cannot be read as a PDF ({error}); is it damaged or protected?") from None


def _draw_page(source: Any, page: int, name: str) -> Any:
    document = _open_pdf(source, name)
    try:
        sheet = document[page]
        largest = max(sheet.get_size())
        # A poster is drawn at a lower resolution, so that no page takes gigabytes.
        return sheet.render(scale=min(_DPI / 72, 6000 / max(largest, 1)), grayscale=False).to_pil().convert("RGB")
    except Exception as error:
        raise ImageError(f"{name}: this page cannot be drawn ({error})") from None
    finally:
        document.close()
