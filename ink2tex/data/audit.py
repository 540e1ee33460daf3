"""How well the truth read from ink files agrees with a file of published labels, and why it does not.

python -m ink2tex.data.audit ../shared/crohme/train_inkml.tar.xz ../shared/crohme/train_caption.txt
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ink2tex.data.alignment import align
from ink2tex.data.archive import Archive
from ink2tex.data.captions import read_captions
from ink2tex.errors import Ink2TexError, LatexError
from ink2tex.ink import Ink, read_inkml
from ink2tex.latex import normalise, truth_tokens
from ink2tex.latex.inked import ink_classes
from ink2tex.vocabulary import Vocabulary


@dataclass
class Audit:
    """What was counted."""

    compared: bool = True
    labels: int = 0
    equal: int = 0
    inked: int = 0
    aligned: int = 0
    #: cause -> (uid, ours, published)
    mismatches: dict[str, list[tuple[str, str, str]]] = field(default_factory=lambda: defaultdict(list))
    #: token outside the vocabulary -> uids
    unknown: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def match_rate(self) -> float:
        """The share of labels that are equal token by token."""
        return self.equal / self.labels if self.labels else 0.0

    @property
    def alignment_rate(self) -> float:
        """The share of inked tokens whose strokes are known."""
        return self.aligned / self.inked if self.inked else 0.0


def read_inks(source: str | Path) -> Iterator[Ink]:
    """The ink of every `.inkml` file of a folder (at any depth) or an archive."""
    archive = Archive(source)
    for name, data in archive.read([name for name in archive.names() if name.endswith(".inkml")]):
        yield read_inkml(data, name=name)


def audit(inks: Iterable[Ink], captions: Mapping[str, Sequence[str]] | None = None) -> Audit:
    """Compare the truth of each ink with its published label; without captions, only count and align."""
    report = Audit(compared=captions is not None)
    known = Vocabulary()
    for ink in inks:
        try:
            tokens = truth_tokens(ink)
        except LatexError as error:
            report.labels += 1
            report.mismatches["truth cannot be read"].append((ink.uid, str(error), ""))
            continue
        for token in {t for t in tokens if t not in known}:
            report.unknown[token].append(ink.uid)
        published = list(captions[ink.uid]) if captions and ink.uid in captions else None
        if captions is not None and published is None:
            continue
        report.labels += 1
        report.equal += published is None or tokens == published
        if published is not None and tokens != published:
            report.mismatches[cause(tokens, published, ink)].append((ink.uid, " ".join(tokens), " ".join(published)))
        label = published or tokens
        report.inked += sum(c is not None for c in ink_classes(label))
        report.aligned += sum(bool(strokes) for strokes in align(label, ink))
    return report


def cause(ours: Sequence[str], published: Sequence[str], ink: Ink) -> str:
    """Why the label we read is not the published one, in words for a table."""
    try:
        again: list[str] | None = normalise(" ".join(published))
    except LatexError:
        again = None
    if again == list(ours):
        return "published label has the superscript first"
    if sorted(ours) == sorted(published):
        return "published label has the same tokens in another order"
    if _number(ours) is not None and _number(ours) == _number(published):
        return "published label rounds the number that was written"
    if "_ { , }" in " ".join(published):
        return "published label takes a comma for a subscript"
    try:
        annotated: list[str] | None = normalise(ink.truth) if ink.truth else None
    except LatexError:
        annotated = None
    if annotated is None:
        return "annotation is broken, ours is from the MathML"
    if annotated == list(ours):
        return "published label differs from the annotation"
    return "annotation contradicts the ink, ours is from the MathML"


def _number(tokens: Sequence[str]) -> float | None:
    text = "".join(tokens)
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def table(report: Audit) -> str:
    """The report as text: the rates, then each cause with its cases."""
    lines = [
        f"labels equal to the published ones: {report.equal} of {report.labels} ({report.match_rate:.2%})"
        if report.compared
        else f"labels: {report.labels}",
        f"inked tokens with strokes: {report.aligned} of {report.inked} ({report.alignment_rate:.3%})",
    ]
    for token, uids in sorted(report.unknown.items()):
        lines.append(f"outside the vocabulary: {token} in {', '.join(uids)}")
    for name, cases in sorted(report.mismatches.items(), key=lambda item: -len(item[1])):
        lines += ["", f"{len(cases):5d}  {name}"]
        for uid, ours, published in cases:
            lines += [f"       {uid}", f"           ours       {ours}", f"           published  {published}"]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """`ARCHIVE_OR_DIRECTORY [CAPTIONS]`; the exit code is 2 for a mistake of the caller."""
    if len(arguments) not in (1, 2):
        print("usage: python -m ink2tex.data.audit ARCHIVE_OR_DIRECTORY [CAPTIONS]", file=sys.stderr)
        return 2
    try:
        captions = read_captions(arguments[1]) if len(arguments) == 2 else None
        print(table(audit(read_inks(arguments[0]), captions)))
    except Ink2TexError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
