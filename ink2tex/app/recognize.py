"""`ink2tex recognize`: files in, LaTeX out; one bad file never stops the others."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from ink2tex.app.files import Item, expand
from ink2tex.app.progress import progress
from ink2tex.errors import Ink2TexError, did_you_mean

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

FORMATS: Final = ("text", "json", "jsonl", "tsv")
#: Items that are read together; what a killed run may have to read again.
_CHUNK: Final = 16

Record: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the command line says; plain values, so that they can be sent to other processes."""

    model: str | None = None
    decode: str | None = None
    beam: int | None = None
    #: Answers to each input; what suits the search when left out.
    nbest: int | None = None
    grammar: bool = True
    views: int | None = None
    threads: int | None = None
    #: Where what the network saw is written: a file for one input, a folder for several.
    debug_image: str | None = None
    several: bool = False


def run(
    paths: Sequence[str], settings: Settings, form: str, output: Path | None, jobs: int = 1, resume: bool = False
) -> int:
    """Recognise everything in `paths`; the exit code: 0, or 1 if some input could not be read, 2 if none could."""
    _check(form, output, resume)
    items = expand(paths)
    if not items:
        raise Ink2TexError(f"{', '.join(paths)}: there is nothing to recognise in it")
    done = _already_written(output, form) if resume and output is not None else set()
    left = [item for item in items if _escaped(item.name) not in done]
    several = len(items) > 1
    settings = replace(settings, several=several)
    failed = 0
    writer = _Writer(form, output, settings.nbest or 1, several, append=bool(done))
    try:
        with progress("recognising", len(items), len(items) - len(left)) as advance:
            for record in _records(left, settings, jobs):
                writer.write(record)
                failed += "error" in record
                advance(1)
    finally:
        writer.close()
    return 0 if not failed else 2 if failed == len(items) else 1


def _check(form: str, output: Path | None, resume: bool) -> None:
    if form not in FORMATS:
        raise Ink2TexError(f"--format is one of {', '.join(FORMATS)}, not {form!r}{did_you_mean(form, FORMATS)}")
    if resume and (output is None or form not in ("jsonl", "tsv")):
        raise Ink2TexError("--resume goes on with the lines of a file: give --output and --format jsonl or tsv")
    if output is not None and not output.parent.is_dir():
        raise Ink2TexError(f"{output}: its folder does not exist; make it first")


def _already_written(output: Path, form: str) -> set[str]:
    """The names (escaped) on the whole lines of an output file; a line that was cut short is removed from it."""
    if not output.exists():
        return set()
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    names = set()
    try:
        for number, line in enumerate(whole.decode("utf-8").split("\n")[:-1]):
            if form == "jsonl":
                names.add(_escaped(str(json.loads(line)["path"])))
            elif number:  # behind the heading
                names.add(line.split("\t")[0])
    except (ValueError, KeyError, TypeError):
        raise Ink2TexError(
            f"{output}: line {number + 1} was not written by 'ink2tex recognize --format {form}'; "
            "give another --output, or leave out --resume"
        ) from None
    if len(whole) < len(content):
        with output.open("r+b") as file:
            file.truncate(len(whole))
    return names


def _records(items: Sequence[Item], settings: Settings, jobs: int) -> Iterator[Record]:
    """The answer to each item, in order."""
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
    if jobs <= 1 or len(chunks) <= 1:
        worker = _Worker(settings)
        for chunk in chunks:
            yield from worker(chunk)
        return
    yield from _in_processes(chunks, settings, min(jobs, len(chunks)))


def _in_processes(chunks: Sequence[Sequence[Item]], settings: Settings, jobs: int) -> Iterator[Record]:
    from concurrent.futures.process import BrokenProcessPool

    from ink2tex.runtime.recognizer import available_cores

    threads = settings.threads or max(1, available_cores() // jobs)
    settings = replace(settings, threads=threads)
    _Worker(settings)  # what is wrong with the model shows here, as one sentence
    pool = _pool(settings, jobs)
    waiting: deque[tuple[Sequence[Item], Future[list[Record]]]] = deque()
    try:
        for chunk in [*chunks, *[()] * (2 * jobs)]:  # the empty ones push the last answers out
            if chunk:
                waiting.append((chunk, pool.submit(_work, list(chunk))))
            if waiting and (not chunk or len(waiting) > 2 * jobs):  # answers come in order: nobody runs far ahead
                items, future = waiting.popleft()
                try:
                    yield from future.result()
                except BrokenProcessPool:  # a process was killed, perhaps by one of these pictures
                    yield from _one_by_one(items, settings)
                    pool.shutdown(cancel_futures=True)
                    pool = _pool(settings, jobs)
                    waiting = deque((items, pool.submit(_work, list(items))) for items, _ in waiting)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _pool(settings: Settings, jobs: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker, (settings,))


def _one_by_one(items: Sequence[Item], settings: Settings) -> Iterator[Record]:
    """Each item in a process of its own; an item that kills its process is answered with an error."""
    from concurrent.futures.process import BrokenProcessPool

    for item in items:
        with _pool(settings, 1) as pool:
            try:
                yield from pool.submit(_work, [item]).result()
            except BrokenProcessPool:
                yield {"path": item.name, "error": f"{item.name}: reading it ended the process; leave it out"}


_worker: _Worker | None = None


def _start_worker(settings: Settings) -> None:
    global _worker
    _worker = _Worker(settings)


def _work(chunk: list[Item]) -> list[Record]:
    assert _worker is not None
    return list(_worker(chunk))


class _Worker:
    """A recogniser that answers items with records."""

    def __init__(self, settings: Settings) -> None:
        from ink2tex.runtime.recognizer import load

        self.settings = settings
        try:
            self.recognizer = load(
                settings.model,
                settings.threads,
                decode=settings.decode,  # type: ignore[arg-type]
                beam=settings.beam,
                nbest=settings.nbest,
                grammar=settings.grammar,
                views=settings.views,
            )
        except ValueError as error:
            raise Ink2TexError(str(error)) from None

    def __call__(self, items: Sequence[Item]) -> Iterator[Record]:
        prepared = [self._prepared(item) for item in items]
        answers = self.recognizer.try_many(ready for ready in prepared if not isinstance(ready, Exception))
        for item, ready in zip(items, prepared, strict=True):
            answer = ready if isinstance(ready, Exception) else next(answers)
            if isinstance(answer, Exception):
                yield {"path": item.name, "error": str(answer)}
            else:
                yield {"path": item.name, **answer.to_dict()}

    def _prepared(self, item: Item) -> Any:
        from ink2tex.runtime.recognizer import prepare_input

        try:
            ready = prepare_input(item.load(), item.name)
            if self.settings.debug_image is not None:
                self._write_debug_image(ready.prepared, item)
        except Ink2TexError as error:
            return error
        except MemoryError:
            return Ink2TexError(f"{item.name}: there is not enough memory to read it; give a smaller picture")
        except Exception as error:  # a bug of ours or of a decoder must not stop a folder of a hundred thousand
            return Ink2TexError(f"{item.name}: cannot be read ({type(error).__name__}: {error})")
        return ready

    def _write_debug_image(self, prepared: Any, item: Item) -> None:
        from PIL import Image

        from ink2tex.image import scale_bitmap

        path = Path(str(self.settings.debug_image))
        if self.settings.several:
            path.mkdir(parents=True, exist_ok=True)
            path = path / (item.name.strip("./").replace(os.sep, "_").replace("#", "_") + ".png")
        try:
            Image.fromarray(scale_bitmap(prepared.bitmap, self.recognizer.backend.input_scale)).save(path)
        except (OSError, ValueError) as error:
            raise Ink2TexError(f"{path}: the debug image cannot be written ({error}); name a .png file") from None


class _Writer:
    """Writes records as they come, a whole line at a time."""

    def __init__(self, form: str, output: Path | None, nbest: int, several: bool, append: bool) -> None:
        self.form, self.nbest, self.several = form, nbest, several
        try:
            self.file: TextIO = (
                sys.stdout if output is None else output.open("a" if append else "w", encoding="utf-8", newline="\n")
            )
        except OSError as error:
            raise Ink2TexError(f"{output}: cannot be written ({error.strerror})") from None
        self.owns = output is not None
        self.all: list[Record] = []
        if form == "tsv" and not append:
            names = [f"{what}{i + 1}" for i in range(1, nbest) for what in ("latex", "probability")]
            self._line("\t".join(("path", "latex", "confidence", "error", *names)))

    def write(self, record: Record) -> None:
        """Write one answer."""
        if self.form == "json":
            self.all.append(record)
        elif self.form == "jsonl":
            self._line(json.dumps(record, ensure_ascii=False))
        elif self.form == "tsv":
            self._line("\t".join(_escaped(text) for text in self._columns(record)))
        else:
            self._text(record)

    def close(self) -> None:
        """Write what is only written as a whole."""
        if self.form == "json":
            self._line(json.dumps(self.all, ensure_ascii=False, indent=2))
        if self.owns:
            self.file.close()

    def _columns(self, record: Record) -> list[str]:
        columns = [record["path"], record.get("latex", ""), str(record.get("confidence", "")), record.get("error", "")]
        for other in record.get("alternatives", [])[: self.nbest - 1]:
            columns += [other["latex"], str(other["probability"])]
        return columns

    def _text(self, record: Record) -> None:
        if "error" in record:
            print(f"ink2tex: {record['error']}", file=sys.stderr, flush=True)
            return
        before = f"{record['path']}\t" if self.several else ""
        for warning in record["warnings"]:
            print(f"ink2tex: {record['path']}: {warning}", file=sys.stderr, flush=True)
        for reading in [record, *record["alternatives"]][: self.nbest]:
            sure = reading.get("confidence", reading.get("probability"))
            self._line(f"{before}{reading['latex']}" + (f"\t{sure:.3f}" if self.nbest > 1 else ""))

    def _line(self, text: str) -> None:
        self.file.write(text + "\n")
        self.file.flush()


def _escaped(text: str) -> str:
    """Without tabs and line ends, which no cell may hold; LaTeX has none, file names might."""
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
