"""What recognising costs: ratios measured in one run, because machines differ and are rarely idle.

    python benchmarks/recognize.py [--model FOLDER] [--checkpoint FILE] [--images 24] [--threads 2]

1. The exported network against the plain torch search, beam 10, left to right, one picture at a time, at the size of
   the shipped network and at the paper's. The plain search is what published code does: at each step every
   hypothesis gets its own copy of the features, and every equation is computed as it stands (`benchmarks/plain.py`).
   All read the same pictures, in turns and several rounds of which the fastest counts; times are divided by the steps
   of each search (a search without the grammar may take more), and the median of the ratios is printed.
2. Latency by area and by tokens.
3. Batches and `--jobs 2` against one picture at a time.
4. Cold start of `ink2tex recognize one.png` as a multiple of `python -c pass`, and what the process holds at most.

Without the CROHME archives (INK2TEX_CROHME) the pictures are drawn at random; random networks run to the length
limit, which is then set to 20 tokens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import plain
import torch
from PIL import Image

from ink2tex.image import scale_bitmap
from ink2tex.model.checkpoint import load_checkpoint
from ink2tex.model.decoders import RecurrentDecoder
from ink2tex.model.encoders import DenseNet
from ink2tex.model.network import Network
from ink2tex.model.stepper import TorchStepper
from ink2tex.raster import rasterise
from ink2tex.runtime.recognizer import DEFAULT_MODEL, Decode, Recognizer, load
from ink2tex.search import LengthLimit, SearchOptions, State, Stepper, search
from ink2tex.training.export import export
from ink2tex.training.recipe import read_recipe
from ink2tex.vocabulary import Vocabulary

ROOT = Path(__file__).parents[1]
BEAM = 10
ROUNDS = 3


def pictures(count: int) -> list[np.ndarray]:
    """Official bitmaps of the 2014 test set, evenly over its sizes, or scribbles."""
    folder = Path(os.environ.get("INK2TEX_CROHME", ROOT.parent / "shared" / "crohme"))
    archive = folder / "test2014_images.tar.xz"
    if archive.is_file():
        from ink2tex.data.readers import read_samples

        samples = read_samples(archive, folder / "test2014_caption.txt", align=False)
        found = sorted((s.image for s in samples if s.image is not None), key=lambda image: image.size)
        return found[:: max(1, len(found) // count)][:count]
    rng = np.random.default_rng(0)
    widths = np.linspace(60, 700, count)
    return [rasterise([(rng.random((12, 2)) * (30, 60) + (x, 0)) for x in range(0, int(w), 35)]) for w in widths]


def plain_search(network: Network, bitmap: np.ndarray, limit: int) -> int:
    """Beam search over one picture as research code writes it: a batch of copies, one equation after the other.

    Answers the number of steps, since it may stop earlier or later than the search it is compared with.
    """
    decoder = cast(RecurrentDecoder, network.branches[0])
    direction = network.directions[0]
    image = torch.from_numpy(bitmap).float()[None, None] / 255
    # The light encoder has no plain form; its own is used.
    whole = isinstance(network.encoder, DenseNet)
    features = plain.encode(network.encoder, image) if whole else network.encode(image)[0]
    tokens, scores, finished = [[direction.start]], torch.zeros(1), 0
    _, h, beta = plain.begin(decoder, features, None)
    steps = 0
    while steps <= limit:
        steps += 1
        # Published search code of this family hands k copies of the features to the decoder at each step, which
        # projects them (U_f F) again.
        picture, _, _ = plain.begin(decoder, features.repeat(len(tokens), 1, 1, 1), None)
        last = torch.tensor([sequence[-1] for sequence in tokens])
        rows, _, h, beta = plain.step(decoder, picture, h, beta, last)
        logp = torch.log_softmax(decoder.output(rows), 1)  # (k, K)
        best = (scores[:, None] + logp).flatten().topk(BEAM - finished)
        parents, words = best.indices // logp.shape[1], best.indices % logp.shape[1]
        grown = [[*tokens[p], w] for p, w in zip(parents.tolist(), words.tolist(), strict=True)]
        ended = words == direction.end
        finished += int(ended.sum())
        live = torch.nonzero(~ended)[:, 0]
        if not len(live) or finished >= BEAM:
            break
        tokens, scores = [grown[i] for i in live.tolist()], best.values[live]
        h, beta = h[parents[live]], beta[parents[live]]
    return steps


class Counted:
    """A stepper that counts its steps."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self.steps = 0
        self.direction, self.start, self.reorder, self.attention = (
            stepper.direction,
            stepper.start,
            stepper.reorder,
            stepper.attention,
        )

    def advance(self, state: State, tokens: np.ndarray) -> tuple[np.ndarray, State]:
        self.steps += 1
        return self._stepper.advance(state, tokens)


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def against_torch(
    name: str, network: Network, reader: Recognizer, maps: Sequence[np.ndarray], most: int | None
) -> None:
    """The first table: plain torch, our torch search and ONNX, in turns on each picture."""
    options = SearchOptions(beam=BEAM)
    limit = LengthLimit()
    threads = torch.get_num_threads()

    def plainly(small: np.ndarray, cap: int) -> int:
        return plain_search(network, small, cap)

    def on_torch(small: np.ndarray, cap: int) -> int:
        features, mask = network.encode(torch.from_numpy(small).float()[None, None] / 255)
        stepper = Counted(TorchStepper(network, 0, features, mask))
        search(stepper, network.vocabulary, np.array([cap]), options)
        return stepper.steps

    def on_onnx(small: np.ndarray, cap: int) -> int:
        encoded = reader.backend.encode([small], threads)
        stepper = Counted(encoded.stepper(network.directions[0], threads))
        search(stepper, network.vocabulary, np.array([cap]), options)
        return stepper.steps

    times = np.full((3, len(maps)), np.inf)  # of a step, encoding included; the best of the rounds
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for way, work in enumerate((plainly, on_torch, on_onnx)):
                time.sleep(0.5)  # threads of one library spin for a while before they leave the cores to the other
                for i, bitmap in enumerate(maps):
                    small = scale_bitmap(bitmap, network.config.input_scale)
                    cap = min(limit(*bitmap.shape), most or 1000)
                    times[way, i] = min(times[way, i], per_step(lambda w=work, s=small, c=cap: w(s, c)))
    a, b, c = times
    print(f"{name}: beam {BEAM}, left to right, {len(maps)} pictures one at a time; ms of a step, encoding included")
    print(f"  plain torch search   {1e3 * np.median(a):7.1f}   (median)")
    print(f"  this search on torch {1e3 * np.median(b):7.1f}   {np.median(a / b):5.2f} ×")
    print(f"  ONNX Runtime         {1e3 * np.median(c):7.1f}   {np.median(a / c):5.2f} ×")
    if most is None:
        together, steps = at_once(reader, Decode(network.directions[0].value, options), maps)
        print(f"  ONNX Runtime, all pictures given at once: {(a @ steps) / together:5.2f} × (time of all)")


def at_once(reader: Recognizer, decode: Decode, maps: Sequence[np.ndarray]) -> tuple[float, np.ndarray]:
    """Seconds for all pictures, read as a folder is (those of similar size together), and the steps of each.

    The steps are those to the end of the answer: the least that the plain search would take for it.
    """
    best, steps = np.inf, np.zeros(len(maps))
    for _ in range(ROUNDS):
        time.sleep(0.5)
        began = time.perf_counter()
        for i, hypotheses in reader.read_all(maps, decode):
            steps[i] = len(hypotheses[0].tokens) + 1
        best = min(best, time.perf_counter() - began)
    return best, steps


def per_step(work: Callable[[], int]) -> float:
    """Seconds of a search divided by its steps."""
    began = time.perf_counter()
    steps = work()
    return (time.perf_counter() - began) / steps


def latency(reader: Recognizer, maps: Sequence[np.ndarray]) -> None:
    """The second table: a thousand pixels and a token at a time."""
    rows = []
    for bitmap in maps:
        result = reader.recognize(bitmap)
        rows.append((bitmap.size / 1000, len(result.tokens), 1e3 * result.timing.encode, 1e3 * result.timing.search))
    table = np.array(rows)
    print(f"latency of {reader.decode.mode}, beam {reader.decode.search.beam} (ms, medians)")
    print("  thousand px   tokens   encode   search    total")
    for part in np.array_split(np.argsort(table[:, 0]), 4):
        area, tokens, encode, decode = np.median(table[part], axis=0)
        print(f"  {area:11.0f}   {tokens:6.0f}   {encode:6.1f}   {decode:6.1f}   {encode + decode:6.1f}")
    per_token = table[:, 3] / np.maximum(table[:, 1], 1)
    per_area = table[:, 2] / table[:, 0]
    print(f"  search per token {np.median(per_token):.2f}, encoding per thousand px {np.median(per_area):.2f}")


def throughput(model: Path, maps: Sequence[np.ndarray], rounds: int = 3) -> None:
    """The third table."""
    for decode, beam in (("l2r", 1), ("l2r", 10), ("joint", 5)):
        reader = load(model, decode=decode, beam=beam)  # type: ignore[arg-type]
        if decode == "joint" and len(reader.backend.directions) < 2:
            continue
        ratios = []
        for _ in range(rounds):
            alone = seconds(lambda r=reader: [r.recognize(bitmap) for bitmap in maps])
            ratios.append(alone / seconds(lambda r=reader: list(r.recognize_many(maps))))
        print(
            f"  {decode:5} beam {beam:2}: {len(maps) / alone:6.1f} pictures/s alone, batches {np.median(ratios):.2f} ×"
        )


def ink2tex(*arguments: object) -> list[str]:
    """The command line of a run of the program."""
    return [sys.executable, "-m", "ink2tex.app.cli", "recognize", *(str(argument) for argument in arguments)]


def jobs(model: Path, maps: Sequence[np.ndarray]) -> None:
    """`--jobs 2` against one job, in whole runs of the program over a folder."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(max(64, len(maps))):
            Image.fromarray(maps[i % len(maps)]).save(Path(folder) / f"{i:04}.png")
        runs = {}
        for count in (1, 2):
            command = ink2tex(folder, "-m", model, "-f", "jsonl", "-o", os.devnull, "--threads", 1, "--jobs", count)
            runs[count] = seconds(lambda c=command: subprocess.run(c, check=True))
    print(f"  --jobs 2 against --jobs 1, one thread each, start included: {runs[1] / runs[2]:.2f} ×")


def cold_start(model: Path, bitmap: np.ndarray, rounds: int = 5) -> None:
    """The fourth table."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "one.png"
        Image.fromarray(bitmap).save(picture)
        bare, whole, imports = [], [], []
        for _ in range(rounds):
            bare.append(seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)))
            imports.append(seconds(lambda: subprocess.run([sys.executable, "-c", "import ink2tex"], check=True)))
            command = ink2tex(picture, "-m", model, "-o", os.devnull)
            whole.append(seconds(lambda c=command: subprocess.run(c, check=True)))
        memory = _peak(ink2tex(picture, "-m", model, "-o", os.devnull))
    base = statistics.median(bare)
    importing = statistics.median(imports) - base
    print(f"cold start: python -c pass {1e3 * base:.0f} ms, import ink2tex {1e3 * importing:+.0f} ms")
    print(
        f"  ink2tex recognize one.png {1e3 * statistics.median(whole):.0f} ms, {statistics.median(whole) / base:.1f} ×"
    )
    print(f"  peak memory {memory:.0f} MB")


def _peak(command: list[str]) -> float:
    """Megabytes that a command holds at most: asked in a process whose only child it is."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code, *command], capture_output=True, check=True).stdout)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="model folder; the weights of the package, or random ones")
    parser.add_argument("--checkpoint", type=Path, help="its checkpoint, for the comparison with torch")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--paper-images", type=int, default=8, help="pictures for the network of the paper's size")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    maps = pictures(arguments.images)
    sizes = [bitmap.size for bitmap in maps]
    print(f"{len(maps)} pictures of {min(sizes):,} to {max(sizes):,} px, {arguments.threads} threads")
    with tempfile.TemporaryDirectory() as scratch:
        model, most = arguments.model, None
        if model is None and (DEFAULT_MODEL / "model.json").is_file():
            model = DEFAULT_MODEL
        if arguments.checkpoint is not None:
            network = load_checkpoint(arguments.checkpoint)[0]
        else:
            network, most = random_network("abm-lite"), 20
        if model is None:
            model = Path(scratch) / "lite"
            export(network, model)
        if arguments.checkpoint is not None or model.parent == Path(scratch):
            reader = load(model, threads=arguments.threads)
            against_torch("shipped size", network, reader, maps, most)
        paper = random_network("abm")
        export(paper, Path(scratch) / "paper")
        few = maps[:: max(1, len(maps) // max(1, arguments.paper_images))]
        against_torch("paper's size", paper, load(Path(scratch) / "paper", threads=arguments.threads), few, 20)
        latency(load(model, threads=arguments.threads), maps)
        print("throughput")
        throughput(model, maps)
        jobs(model, maps)
        cold_start(model, maps[len(maps) // 2])


def random_network(recipe: str) -> Network:
    """An untrained network of a recipe's size."""
    torch.manual_seed(0)
    settings = read_recipe(ROOT / "recipes" / f"{recipe}.yaml")
    return Network(settings.network, Vocabulary()).eval()


if __name__ == "__main__":
    main()
