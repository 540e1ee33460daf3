"""Write the measured part of docs/model-card.md: everything between its two marks.

    python scripts/model_card.py ../shared/crohme --run ~/runs/lite [--model ink2tex/weights]

The 2013 set is what everything was chosen on, the 2014 set is only reported. Every expression of a set counts.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from ink2tex.data.readers import read_samples
from ink2tex.data.sample import Sample
from ink2tex.metrics import Report, score
from ink2tex.runtime.bundle import read_manifest
from ink2tex.runtime.calibration import calibration_error
from ink2tex.runtime.evaluation import Reader
from ink2tex.runtime.recognizer import DEFAULT_MODEL, Mode
from ink2tex.search import Hypothesis, SearchOptions

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- measured by scripts/model_card.py -->", "<!-- end of what was measured -->"


class Way(NamedTuple):
    """One way of reading."""

    mode: Mode
    beam: int
    grammar: bool = True
    views: int = 1

    def __str__(self) -> str:
        more = "" if self.views == 1 else f", {self.views} views"
        return f"{self.mode}, beam {self.beam}" + more + ("" if self.grammar else ", no grammar")


#: DEFAULT is how the bundled weights read by default, and what their confidence was fitted for.
L2R, JOINT, DEFAULT = Way("l2r", 10), Way("joint", 10), Way("joint", 5)
WAYS = (
    Way("l2r", 1),
    L2R,
    Way("l2r", 10, grammar=False),
    Way("r2l", 10),
    DEFAULT,
    JOINT,
    Way("joint", 5, views=2),
)
Row = Sequence[object]


def table(head: Row, rows: Sequence[Row]) -> str:
    """Rows in Markdown; numbers to two digits."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(
        "| " + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line) + " |"
        for line in lines
    )


class Set:
    """A labelled set and what a model reads in it."""

    def __init__(self, name: str, samples: Sequence[Sample], model: Path) -> None:
        self.name, self.samples, self.model = name, samples, model

    def read(self, way: Way) -> tuple[Report, list[Hypothesis], list[list[str]]]:
        """The report, the answers and their tokens."""
        options = SearchOptions(beam=way.beam, nbest=min(5, way.beam), grammar=way.grammar)
        reader = Reader(self.model, way.mode, options, views=way.views)
        answers = reader.answers(self.samples)
        words = reader.recognizer.backend.vocabulary
        tokens = [list(words.decode(answer.tokens)) for answer in answers]
        found = {sample.uid: read for sample, read in zip(self.samples, tokens, strict=True)}
        report = score(found, {sample.uid: sample.tokens for sample in self.samples})
        print(f"{self.name}: {way}: {report.exprate:.2f} / {report.le1:.2f} / {report.le2:.2f}", flush=True)
        return report, answers, tokens


def confusions(samples: Sequence[Sample], read: Sequence[Sequence[str]], most: int = 24) -> str:
    """The most frequent exchanges of one symbol for another, and how often the symbol occurs."""
    exchanged: Counter[tuple[str, str]] = Counter()
    written = Counter(token for sample in samples for token in sample.tokens)
    for sample, tokens in zip(samples, read, strict=True):
        truth = list(sample.tokens)
        for edit in Levenshtein.editops(truth, list(tokens)):
            if edit.tag == "replace":
                exchanged[truth[edit.src_pos], tokens[edit.dest_pos]] += 1
    parts = [f"`{a}` as `{b}` {n} of {written[a]}" for (a, b), n in exchanged.most_common(most)]
    return ", ".join(parts).replace("|", "\\|") + "."


def curve(folder: Path, most: int = 16) -> str:
    """The validations of a run, thinned out."""
    with open(folder / "valid.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = rows[:: -max(1, -(-len(rows) // most))][::-1]  # the last one is always there
    return table(
        ("step", "images seen", "hours", "ExpRate", "≤ 1", "≤ 2", "WER"),
        [
            (r["step"], f"{int(r['images']):,}", *(float(r[key]) for key in ("hours", "exprate", "le1", "le2", "wer")))
            for r in rows
        ],
    )


def measured(crohme: Path, model: Path, run: Path | None) -> Iterator[str]:
    """All paragraphs."""
    notes = read_manifest(model).notes
    sets = [
        Set("2013 ink", read_samples(crohme / "test2013_inkml.tar.xz", None, align=False), model),
        Set(
            "2014 images",
            read_samples(crohme / "test2014_images.tar.xz", crohme / "test2014_caption.txt", align=False),
            model,
        ),
        Set(
            "2014 ink",
            read_samples(crohme / "test2014_inkml.tar.xz", crohme / "test2014_caption.txt", align=False),
            model,
        ),
    ]
    yield f"Checkpoint: step {notes.get('step')}, {notes.get('images')} images seen, {notes.get('hours')} hours."
    if run is not None:
        yield "### The curve (2013 ink, greedy, left to right, averaged weights)"
        yield curve(run)
    rows: list[Row] = []
    read: dict[Way, dict[str, tuple[Report, list[Hypothesis], list[list[str]]]]] = {}
    for one in sets:
        for way in WAYS if one.name != "2014 ink" else (L2R,):
            found = one.read(way)
            read.setdefault(way, {})[one.name] = found
            report = found[0]
            rows.append((f"{one.name} ({len(one.samples)})", way, report.exprate, report.le1, report.le2, report.wer))
    yield "### Results"
    yield table(("set", "decoding", "ExpRate", "≤ 1", "≤ 2", "WER"), rows)
    joint = read[JOINT]
    yield "### By length in tokens (joint, beam 10; ExpRate and number of expressions)"
    yield table(
        ("set", *joint["2013 ink"][0].lengths),
        [
            (name, *(f"{tally.exprate:.2f} ({tally.total})" for tally in report.lengths.values()))
            for name, (report, _, _) in joint.items()
        ],
    )
    yield "### Both ends of an expression (joint, beam 10)"
    edges = tuple(joint["2013 ink"][0].edges)
    yield table(("set", *edges), [(name, *(r.edge(edge) for edge in edges)) for name, (r, _, _) in joint.items()])
    line = read_manifest(model).calibration.get("joint")
    if line is not None:
        yield f"### Calibration (expected calibration error in points, ten bins, {DEFAULT})"
        one = sets[1]
        _, answers, tokens = read[DEFAULT][one.name]
        said = np.array([line(answer.logprob) for answer in answers])
        right = np.array([tuple(t) == s.tokens for t, s in zip(tokens, one.samples, strict=True)])
        errors = [("2013 ink, cross-validated", 100 * line.error), (one.name, 100 * calibration_error(said, right))]
        yield table(("set", "error"), errors)
    yield "### Symbols read as others (2013 ink, joint, beam 10)"
    yield confusions(sets[0].samples, joint["2013 ink"][2])


def main() -> None:
    """Fill in the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("crohme", type=Path)
    parser.add_argument("--run", type=Path, help="folder of the training run, for its curve")
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--card", type=Path, default=ROOT / "docs" / "model-card.md")
    arguments = parser.parse_args()
    found = "\n\n".join(measured(arguments.crohme, arguments.model, arguments.run))
    before, rest = arguments.card.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    arguments.card.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
