"""Caption files: one line per expression, its name and its tokens.

The published sets write `uid TAB tokens` (WAP, ABM), `uid tokens` (BTTR, CoMER, CAN) or `uid.jpg TAB tokens`
(HME100K); all are read here.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from ink2tex.errors import DataError

PICTURE_SUFFIXES: Final = frozenset({".bmp", ".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff", ".webp"})
INK_SUFFIXES: Final = frozenset({".inkml"})

#: How published sets call their caption files: caption.txt, train_caption.txt, train_labels.txt, …
_CAPTION_FILE: Final = re.compile(r"(^|[_\-.])(captions?|labels?)\.(txt|tsv)$", re.IGNORECASE)


class Caption(NamedTuple):
    """The label of one expression and where it was written, for error messages."""

    tokens: tuple[str, ...]
    where: str


def is_caption_file(name: str) -> bool:
    """Whether a file is called as caption files are."""
    return bool(_CAPTION_FILE.search(PurePosixPath(name).name))


def without_suffix(name: str) -> str:
    """`name` without the suffix of a picture or ink file (and only such: names may contain dots)."""
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in PICTURE_SUFFIXES | INK_SUFFIXES else path.name


def parse_captions(data: bytes, name: str) -> dict[str, Caption]:
    """The captions of a file's contents by uid, in the order of the file; errors begin with `name`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: a caption file is UTF-8 text, and this is not ({error})") from None
    captions: dict[str, Caption] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        key, *rest = line.split("\t", 1) if "\t" in line else line.split(None, 1)
        uid = without_suffix(key.strip())
        tokens = tuple(rest[0].split()) if rest else ()
        if not uid or not tokens:
            raise DataError(f"{where}: expected a name, a tab and tokens with spaces between, found {line[:60]!r}")
        if uid in captions:
            raise DataError(f"{where}: {uid!r} has a caption already ({captions[uid].where}); remove one of them")
        captions[uid] = Caption(tokens, where)
    if not captions:
        raise DataError(f"{name}: holds no caption; expected lines of a name, a tab and tokens")
    return captions


def load_captions(path: str | Path) -> dict[str, Caption]:
    """The captions of the file `path`."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read as a caption file ({error.strerror or error})") from None
    return parse_captions(data, str(path))


def read_captions(path: str | Path) -> dict[str, list[str]]:
    """Tokens by uid, in the order of the file."""
    return {uid: list(caption.tokens) for uid, caption in load_captions(path).items()}
