"""Files of a folder, a tar (plain, gz, bz2, xz) or a zip archive, read one by one and never unpacked to disk.

Because nothing is written, names that point outside of the archive do no harm; what remains to be guarded
against is size, and every member and their sum are limited.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from ink2tex.errors import DataError

MAX_MEMBER_BYTES: Final = 64 * 2**20
MAX_TOTAL_BYTES: Final = 8 * 2**30
MAX_MEMBERS: Final = 2_000_000

_BROKEN: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)


class Archive:
    """The files below `path`, whatever kind of container it is; a single file contains itself."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise DataError(f"{self.path}: there is no such file or folder")
        self._kind = self._detect()

    def _detect(self) -> str:
        if self.path.is_dir():
            return "folder"
        with self._guard():
            if zipfile.is_zipfile(self.path):
                return "zip"
            if tarfile.is_tarfile(self.path):
                return "tar"
        if self.path.suffix.lower() in (".zip", ".tar", ".xz", ".gz", ".bz2", ".tgz", ".txz"):
            raise DataError(f"{self.path}: this is not a complete tar or zip archive; fetch or pack it again")
        return "file"

    def names(self) -> list[str]:
        """The names of all files (with `/`, relative to `path`), sorted; hidden and system files are left out."""
        with self._guard():
            if self._kind == "folder":
                found = [p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if p.is_file()]
            elif self._kind == "zip":
                with zipfile.ZipFile(self.path) as archive:
                    found = [info.filename for info in archive.infolist() if not info.is_dir()]
            elif self._kind == "tar":
                with tarfile.open(self.path) as archive:
                    found = []
                    for member in archive:
                        if member.isfile():
                            found.append(member.name)
                        if len(found) > MAX_MEMBERS:
                            break
            else:
                found = [self.path.name]
        if len(found) > MAX_MEMBERS:
            raise DataError(f"{self.path}: holds more than {MAX_MEMBERS:,} files; split it up")
        return sorted(name for name in found if not _hidden(name))

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """(name, contents) of the files called `names`, in the order that suits the container."""
        wanted = set(names)
        total = 0
        with self._guard():
            for name, data in self._contents(wanted):
                total += len(data)
                if len(data) > MAX_MEMBER_BYTES or total > MAX_TOTAL_BYTES:
                    raise DataError(
                        f"{self.path}: {name} is too large (the limit is {MAX_MEMBER_BYTES >> 20} MB for a file "
                        f"and {MAX_TOTAL_BYTES >> 30} GB for all); leave it out"
                    )
                yield name, data

    def _contents(self, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
        # One byte more than allowed is enough to know that a file is too large.
        if self._kind == "zip":
            with zipfile.ZipFile(self.path) as archive:
                for name in sorted(wanted):
                    with archive.open(name) as file:
                        yield name, file.read(MAX_MEMBER_BYTES + 1)
        elif self._kind == "tar":
            left = set(wanted)
            with tarfile.open(self.path) as archive:
                for member in archive:
                    if member.name in left and member.isfile() and (data := archive.extractfile(member)):
                        left.discard(member.name)
                        yield member.name, data.read(MAX_MEMBER_BYTES + 1)
                        if not left:
                            break
        else:
            for name in sorted(wanted):
                with (self.path / name if self._kind == "folder" else self.path).open("rb") as plain:
                    yield name, plain.read(MAX_MEMBER_BYTES + 1)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever a broken container throws becomes one `DataError`."""
        try:
            yield
        except _BROKEN as error:
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{self.path}: cannot be read to its end ({reason}); it may be truncated: fetch or pack it again"
            ) from error


def _hidden(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or parts[-1].startswith(".")
