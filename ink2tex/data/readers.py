"""Data sets of every published kind, read into `Sample`s.

- ink: InkML files in a folder or an archive, labelled by a caption file or by the truth in the files;
- pictures in a folder or an archive with a caption file, beside them or given: WAP and ABM (`<uid>_0.bmp`),
  BTTR and CoMER (`data/<split>/…/<uid>.bmp` with `caption.txt`), CAN and HME100K (`<uid>.jpg`);
- pickled pictures with a caption file, as ABM and CAN publish them.

What a set holds is found out by looking at it. A picture without a caption, a caption without a picture, two
files of one name and a token that the vocabulary lacks are errors that name the culprits: nothing is dropped
without being told to.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from ink2tex.data import cache as sample_cache
from ink2tex.data.archive import Archive
from ink2tex.data.captions import (
    INK_SUFFIXES,
    PICTURE_SUFFIXES,
    Caption,
    is_caption_file,
    load_captions,
    parse_captions,
    read_captions,
    without_suffix,
)
from ink2tex.data.pickles import read_picture_pickle
from ink2tex.data.sample import Sample
from ink2tex.errors import DataError, LatexError
from ink2tex.ink import Ink, read_inkml
from ink2tex.latex import truth_tokens
from ink2tex.raster import official_scale, scale_strokes
from ink2tex.vocabulary import Vocabulary

__all__ = ["read_captions", "read_samples", "sample_from_ink", "vocabulary_of"]

#: What to do about captions without a picture and pictures without a caption.
Missing = Literal["error", "skip"]

#: WAP numbers its pictures: `<uid>_0.bmp`.
_NUMBER: Final = "_0"
_PICKLE_SUFFIXES: Final = frozenset({".pkl", ".pickle"})
_MAX_PIXELS: Final = 40_000_000
#: How many names an error message lists.
_SHOWN: Final = 5


def read_samples(
    path: str | Path,
    captions: str | Path | None = None,
    *,
    vocabulary: Vocabulary | None = None,
    limit: int | None = None,
    align: bool = True,
    split: str | None = None,
    missing: Missing = "error",
    cache: str | Path | None = None,
) -> list[Sample]:
    """All expressions of a set, in the order of its captions (without captions: of their names).

    `vocabulary` checks every token. `limit` reads only the first so many. `align` finds the strokes of each token
    (ink only). `split` takes only the files below a folder of that name, for archives that hold several sets.
    `cache` is a folder where parsed samples are kept for the next time.
    """
    source = Path(path)
    given = None if captions is None else Path(captions)
    kept = None
    if cache is not None and source.exists():
        key = sample_cache.digest_of([source, *([given] if given and given.is_file() else [])], align, split, missing)
        kept = Path(cache) / f"{key}.npz"
    loaded = sample_cache.load(kept) if kept else None
    if loaded is None:
        loaded = _read(source, given, limit, align, split, missing)
        if kept and limit is None:
            sample_cache.save(kept, *loaded)
    samples, places = loaded[0][:limit], loaded[1][:limit]
    if vocabulary is not None:
        for sample, place in zip(samples, places, strict=True):
            vocabulary.encode(sample.tokens, place)
    return samples


def sample_from_ink(ink: Ink, tokens: Iterable[str], align: bool = True) -> Sample:
    """The sample of an ink with its label: strokes in official pixels and, if wanted, the strokes of each token."""
    label = tuple(tokens)
    token_strokes = None
    if align and ink.symbols:
        from ink2tex.data.alignment import align as align_tokens

        token_strokes = align_tokens(label, ink)
    strokes = scale_strokes(ink.strokes, official_scale(ink.strokes))
    return Sample(ink.uid, label, strokes=strokes, token_strokes=token_strokes)


def vocabulary_of(path: str | Path, captions: str | Path | None = None, *, split: str | None = None) -> Vocabulary:
    """The vocabulary of a set's labels; `path` may be a caption file itself."""
    if captions is None and Path(path).is_file() and Path(path).suffix.lower() in (".txt", ".tsv"):
        captions = path
    if captions is not None:
        return Vocabulary.from_captions(read_captions(captions).values())
    return Vocabulary.from_captions(sample.tokens for sample in read_samples(path, split=split, align=False))


@dataclass(frozen=True)
class _Entry:
    """One expression of a set: its uid, the file (or pickle key) that holds it, and its label if there is one."""

    uid: str
    name: str
    caption: Caption | None


def _read(
    path: Path, captions: Path | None, limit: int | None, align: bool, split: str | None, missing: Missing
) -> tuple[list[Sample], list[str]]:
    """The samples and, for each, where its label stands."""
    if path.is_file() and path.suffix.lower() in _PICKLE_SUFFIXES:
        return _read_pickle(path, captions, limit, missing)
    archive = Archive(path)
    names = [n for n in archive.names() if split is None or split in PurePosixPath(n).parts[:-1]]
    inks = [n for n in names if PurePosixPath(n).suffix.lower() in INK_SUFFIXES]
    pictures = [n for n in names if PurePosixPath(n).suffix.lower() in PICTURE_SUFFIXES]
    if inks and pictures:
        raise DataError(
            f"{path}: holds both InkML ({inks[0]}) and pictures ({pictures[0]}); point to the folder of one kind"
        )
    if not (inks or pictures):
        below = f" below a folder {split!r}" if split else ""
        raise DataError(f"{path}: holds no InkML files and no pictures{below}")
    found = load_captions(captions) if captions else _captions_inside(archive, names)
    if pictures and found is None:
        raise DataError(f"{path}: these pictures have no labels; give the caption file of the set")
    entries = _pair(path, inks or pictures, found, missing)[:limit]
    read = _ink_samples(archive, entries, align) if inks else _picture_samples(archive, entries)
    by_name = dict(read)
    samples = [by_name[e.name] for e in entries]
    return samples, [e.caption.where if e.caption else f"{path}: {e.name}" for e in entries]


def _captions_inside(archive: Archive, names: Iterable[str]) -> dict[str, Caption] | None:
    """The captions that lie beside the pictures; None if there are none."""
    inside = [name for name in names if is_caption_file(name)]
    if len(inside) > 1:
        raise DataError(
            f"{archive.path}: holds several sets ({_some(inside)}); name the folder of one with 'split', "
            "or give the caption file"
        )
    for name, data in archive.read(inside):
        return parse_captions(data, f"{archive.path}: {name}")
    return None


def _pair(path: Path, names: Iterable[str], captions: Mapping[str, Caption] | None, missing: Missing) -> list[_Entry]:
    """Files and captions that belong together, in the order of the captions."""
    by_stem: dict[str, str] = {}
    for name in names:
        stem = without_suffix(name)
        if stem in by_stem:
            raise DataError(f"{path}: {by_stem[stem]} and {name} have the same name; remove or rename one of them")
        by_stem[stem] = name
    if captions is None:
        return [_Entry(stem, name, None) for stem, name in sorted(by_stem.items())]
    # Whether the files, the captions or neither carry WAP's number is a property of the set: a uid may end in
    # `_0` by itself (18_em_0), so it cannot be told from one name.
    plain = {stem.removesuffix(_NUMBER): stem for stem in by_stem}
    ways: list[dict[str, tuple[str, str]]] = [
        {uid: (uid, uid) for uid in captions if uid in by_stem},
        {uid: (uid, plain[uid]) for uid in captions if uid in plain},
        {uid: (stem, stem) for uid in captions if (stem := uid.removesuffix(_NUMBER)) in by_stem and stem != uid},
    ]
    pairs = max(ways, key=len)
    without_file = [uid for uid in captions if uid not in pairs]
    used = {stem for _, stem in pairs.values()}
    without_caption = [stem for stem in by_stem if stem not in used]
    if not pairs:
        raise DataError(
            f"{path}: no file has a caption; files are called like {_some(by_stem)}, captions like {_some(captions)}"
        )
    if missing == "error" and (without_file or without_caption):
        parts = []
        if without_file:
            parts.append(f"{len(without_file)} captions have no file ({_some(without_file)})")
        if without_caption:
            parts.append(f"{len(without_caption)} files have no caption ({_some(without_caption)})")
        raise DataError(f"{path}: {' and '.join(parts)}; complete the set, or skip them with missing='skip'")
    return [_Entry(uid, by_stem[stem], captions[key]) for key, (uid, stem) in pairs.items()]


def _ink_samples(archive: Archive, entries: Iterable[_Entry], align: bool) -> Iterator[tuple[str, Sample]]:
    by_name = {entry.name: entry for entry in entries}
    for name, data in archive.read(by_name):
        ink = read_inkml(data, name)
        caption = by_name[name].caption
        if caption is None:
            try:
                tokens = tuple(truth_tokens(ink))
            except LatexError as error:
                raise LatexError(f"{archive.path}: {name}: {error}") from error
        else:
            tokens = caption.tokens
        yield name, sample_from_ink(replace(ink, uid=by_name[name].uid), tokens, align)


def _picture_samples(archive: Archive, entries: Iterable[_Entry]) -> Iterator[tuple[str, Sample]]:
    by_name = {entry.name: entry for entry in entries}
    pictures = {name: _picture(data, f"{archive.path}: {name}") for name, data in archive.read(by_name)}
    yield from _white_on_black(by_name, pictures)


def _read_pickle(
    path: Path, captions: Path | None, limit: int | None, missing: Missing
) -> tuple[list[Sample], list[str]]:
    if captions is None:
        raise DataError(f"{path}: pickled pictures have no labels; give the caption file of the set")
    pictures = read_picture_pickle(path)
    entries = _pair(path, pictures, load_captions(captions), missing)[:limit]
    by_name = dict(_white_on_black({e.name: e for e in entries}, pictures))
    return [by_name[e.name] for e in entries], [e.caption.where if e.caption else str(path) for e in entries]


def _picture(data: bytes, name: str) -> np.ndarray:
    """(H, W) uint8, as it is."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > _MAX_PIXELS:
                raise DataError(f"{name}: {picture.width} × {picture.height} pixels are too many")
            return np.array(picture.convert("L"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name}: cannot be read as a picture ({error})") from None


def _white_on_black(entries: Mapping[str, _Entry], pictures: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Sample]]:
    """Samples of pictures by file name, turned to white ink on black if most of the set is dark ink on light.

    The set decides, not each picture: a small picture may be more ink than paper.
    """
    light = sum(float(pictures[name].mean()) > 127 for name in entries)
    invert = light * 2 > len(entries)
    for name, entry in entries.items():
        tokens = entry.caption.tokens if entry.caption else ()
        image = 255 - pictures[name] if invert else pictures[name]
        yield name, Sample(entry.uid, tokens, image=image)


def _some(names: Iterable[str]) -> str:
    """The first few of `names` for an error message."""
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")
