"""Photos, scans and screenshots from life: what the network sees of each, and what it reads.

    python benchmarks/wild.py [FOLDER] [--model CHECKPOINT|FOLDER|default] [--output FOLDER]

FOLDER holds pictures and `labels.tsv` with the columns file, category and label (tokens); the default is
`INK2TEX_WILD`, or `../shared/wild` beside the repository. Printed for each picture: the sizes of the picture and
of its bitmap, the time, warnings and, with a model, what was read; at the end the number of exact answers.
`--output` writes the bitmaps as PNG.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

from PIL import Image
from reader import load_reader

from ink2tex.errors import ImageError
from ink2tex.image import prepare, read_picture
from ink2tex.metrics import edit_distance

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("INK2TEX_WILD") or ROOT.parent / "shared" / "wild")
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    parser.add_argument("--model", help="checkpoint, folder of exported weights, or 'default'")
    parser.add_argument("--output", type=Path, help="folder for the bitmaps")
    arguments = parser.parse_args()
    with (arguments.folder / "labels.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    reader = load_reader(arguments.model)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
    exact = 0
    for row in rows:
        name, label = row["file"], row["label"].split()
        try:
            start = time.perf_counter()
            picture = read_picture(arguments.folder / name)
            middle = time.perf_counter()
            prepared = prepare(picture)
            end = time.perf_counter()
        except ImageError as error:
            print(f"{name:26s} {error}")
            continue
        height, width = picture.shape[:2]
        rows_, columns = prepared.bitmap.shape
        print(
            f"{name:26s} {row['category']:6s} {width:4d} × {height:4d} → {columns:3d} × {rows_:3d}  "
            f"read {1000 * (middle - start):4.0f} ms, prepare {1000 * (end - middle):4.0f} ms"
        )
        for warning in prepared.warnings:
            print(f"    warning: {warning}")
        if arguments.output:
            Image.fromarray(prepared.bitmap).save(arguments.output / f"{Path(name).stem}.png")
        if reader:
            read = reader([prepared.bitmap])[0]
            errors = edit_distance(read, label)
            exact += not errors
            print(f"    {'exact' if not errors else f'{errors} errors'}: {' '.join(read)}")
            if errors:
                print(f"    label: {' '.join(label)}")
    if reader:
        print(f"{exact} of {len(rows)} exact")


if __name__ == "__main__":
    main()
