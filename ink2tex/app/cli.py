"""The command line. Each command imports what it needs when it runs, so recognising never loads torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ink2tex import __version__
from ink2tex.app.progress import progress
from ink2tex.errors import Ink2TexError

app = typer.Typer(
    help="Handwritten mathematics to LaTeX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Look at data sets.", no_args_is_help=True)
app.add_typer(data, name="data")

DataPath = Annotated[
    Path, typer.Option("--data", help="InkML or image folder, archive (tar, tar.xz, zip), or pickled dictionary.")
]
Captions = Annotated[
    Optional[Path],  # noqa: UP045  (typer reads annotations at run time)
    typer.Option("--captions", help="Caption file, 'uid TAB tokens'; labels come from the InkML when left out."),
]
ModelPath = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--model", "-m", help="A model folder or a checkpoint; the weights of the package when left out."),
]
DecodeMode = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--decode", help="l2r, r2l or joint; what suits the model when left out."),
]
Beam = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--beam", min=1, help="Hypotheses of the search; what suits the model when left out."),
]
InputScale = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=0.1, max=4, help="Scale at which pictures are read; often best a little above that of training."),
]
Views = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--views", min=1, max=3, help="Sizes at which answers are judged: more is slower, and may be right more often."
    ),
]
Grammar = Annotated[bool, typer.Option("--grammar/--no-grammar", help="Only write LaTeX that parses.")]
Processes = Annotated[int, typer.Option(min=1, help="Processes of a training on this machine, one thread each.")]
Cache = Annotated[Optional[Path], typer.Option(help="Folder that keeps parsed data.")]  # noqa: UP045
ValidCaptions = Annotated[Optional[Path], typer.Option(help="Caption file of --valid.")]  # noqa: UP045
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ink2tex {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def recognize(
    paths: Annotated[
        list[str],
        typer.Argument(help="Pictures, PDFs, InkML files, folders of them; '-' is standard input.", metavar="PATH..."),
    ],
    model: ModelPath = None,
    form: Annotated[str, typer.Option("--format", "-f", help="text, json, jsonl or tsv.")] = "text",
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="File to write.")] = None,  # noqa: UP045
    nbest: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Readings of each input, with their probabilities."),
    ] = None,
    decode: DecodeMode = None,
    beam: Beam = None,
    views: Views = None,
    grammar: Grammar = True,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes that read at the same time.")] = 1,
    threads: Annotated[Optional[int], typer.Option(min=1, help="Threads of each process.")] = None,  # noqa: UP045
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the output file of an earlier run.")] = False,
    debug_image: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write what the network saw: a PNG file, or a folder for several inputs."),
    ] = None,
) -> None:
    """Read pictures, PDFs and ink, and write LaTeX. Exit code 1: some inputs could not be read; 2: none."""
    from ink2tex.app.recognize import Settings, run

    settings = Settings(
        model=None if model is None else str(model),
        decode=decode,
        beam=beam,
        nbest=nbest,
        grammar=grammar,
        views=views,
        threads=threads,
        debug_image=None if debug_image is None else str(debug_image),
    )
    code = run(paths, settings, form, output, jobs, resume)
    if code:
        raise typer.Exit(code)


@app.command()
def serve(
    model: ModelPath = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes, each with the model.")] = 1,
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Cores of each process; its share of the machine when left out."),
    ] = None,
    decode: DecodeMode = None,
    beam: Beam = None,
    queue: Annotated[int, typer.Option(min=1, help="Inputs that may wait in each process.")] = 64,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 30.0,
    max_body: Annotated[float, typer.Option(min=0.001, help="Megabytes that a request may have.")] = 10.0,
    token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(envvar="INK2TEX_TOKEN", help="Whoever calls the API has to send it as a bearer token."),
    ] = None,
    cors: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="An origin whose pages may call the API, such as https://example.org; may be repeated."),
    ] = None,
) -> None:
    """Open a page to write on, with a REST API beside it."""
    from ink2tex.app.serve import run
    from ink2tex.app.server.settings import ServerSettings
    from ink2tex.runtime.recognizer import available_cores

    settings = ServerSettings(
        model=None if model is None else str(model),
        decode=decode,
        beam=beam,
        threads=threads or max(1, available_cores() // workers),
        queue=queue,
        deadline=deadline,
        max_body=int(max_body * 2**20),
        token=token or None,
        cors=tuple(cors or ()),
    )
    run(settings, host, port, workers)


@app.command()
def explain(
    picture: Annotated[str, typer.Argument(help="A picture, InkML or '-'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .gif, .png or .html file.")],
    model: ModelPath = None,
    beam: Beam = None,
    grammar: Grammar = True,
) -> None:
    """Draw where the network looked, token by token, in each direction."""
    from ink2tex.app.explain import write
    from ink2tex.app.files import expand
    from ink2tex.runtime.recognizer import load

    item = expand([picture])[0]
    write(load(model, beam=beam, grammar=grammar).explain(item.load(), item.name), output)
    typer.echo(f"wrote {output}")


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    precision: Annotated[
        str, typer.Option(help="How weights are stored: int8, float16, float24 (as good as float32) or float32.")
    ] = "float24",
    decode: DecodeMode = None,
    beam: Beam = None,
    calibrate: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Labelled data, not of the training, on which confidences are fitted."),
    ] = None,
    captions: Captions = None,
    input_scale: InputScale = None,
    views: Views = None,
) -> None:
    """Write a checkpoint as ONNX graphs that are recognised with without torch."""
    from ink2tex.runtime.bundle import DecodeDefaults
    from ink2tex.training.export import export_command

    way = DecodeDefaults(decode, beam, views=views or 1)
    for line in export_command(checkpoint, output, precision, way, calibrate, captions, input_scale):
        typer.echo(line)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/abm-lite.yaml.")],
    data: DataPath,
    captions: Captions = None,
    valid: Annotated[Optional[Path], typer.Option(help="Data to validate on.")] = None,  # noqa: UP045
    valid_captions: ValidCaptions = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run; an interrupted run there is continued.")] = Path(
        "runs/run"
    ),
    start_from: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Checkpoint or model folder whose weights a new run begins with."),
    ] = None,
    vocabulary: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Vocabulary file of 'ink2tex data vocab'; the published symbols when left out."),
    ] = None,
    processes: Processes = 1,
    minutes: Annotated[Optional[float], typer.Option(help="Stop (and save) after this long.")] = None,  # noqa: UP045
    cache: Cache = None,
) -> None:
    """Train a network, or go on training it. Start the same command again after an interruption."""
    from ink2tex.training import launch

    if launch.is_parent(processes):
        raise typer.Exit(launch.run_processes(processes, sys.argv[1:]))
    from ink2tex.training.recipe import read_recipe

    settings = read_recipe(recipe)  # before the data, so that a misspelt key shows at once
    launch.prepare_process()
    from ink2tex.data.readers import read_samples
    from ink2tex.training.run import train as run_training

    words = _vocabulary(vocabulary)
    samples = read_samples(data, captions, vocabulary=words, cache=cache)
    judged = read_samples(valid, valid_captions, align=False, cache=cache) if valid is not None else []
    run_training(settings, samples, judged, folder, words, start_from, minutes)


@app.command()
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="ablation, comparison, directions, edges, generality, lengths, kernels, lambda: tables; "
            "features: the figure of features."
        ),
    ],
    recipe: Annotated[Path, typer.Option(help="The recipe that is varied.")],
    data: DataPath,
    valid: Annotated[Path, typer.Option(help="Data to choose checkpoints on.")],
    test: Annotated[Path, typer.Option(help="Data to report on.")],
    captions: Captions = None,
    valid_captions: ValidCaptions = None,
    test_captions: Annotated[Optional[Path], typer.Option(help="Caption file of --test.")] = None,  # noqa: UP045
    folder: Annotated[Path, typer.Option(help="Folder of all variants; what is there is not done again.")] = Path(
        "runs/experiments"
    ),
    steps: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Length of each training; the recipe's own when left out."),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses of the search.")] = 10,
    processes: Processes = 1,
    cache: Cache = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="File for the table; for features the picture (.png, .svg, .pdf)."),
    ] = None,
) -> None:
    """Carry out an experiment of the paper: train its variants, read a test set, print its table beside the paper's."""
    from ink2tex.experiments import plan
    from ink2tex.experiments.run import Setting, best, carry_out, trained
    from ink2tex.training.recipe import read_recipe

    paths = (data, valid, test)
    labels = (captions, valid_captions, test_captions)
    setting = Setting(read_recipe(recipe), folder, *paths, *labels, cache, processes, steps, beam)

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    if name == "features":
        from ink2tex.data.readers import read_samples
        from ink2tex.experiments.features import draw

        pair = (("DWAP", "uni-l2r"), ("ABM", "abm"))
        named = [(label, best(trained(variant, setting, tell))) for label, variant in pair]
        picture = output or folder / "features.png"
        typer.echo("\n".join(draw(named, read_samples(test, test_captions, align=False), picture)))
        typer.echo(f"wrote {picture}")
        return
    table = carry_out(plan.experiment_of(name), setting, tell)
    typer.echo(table)
    if output is not None:
        output.write_text(table + "\n", encoding="utf-8")


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors) or a model folder of 'ink2tex export'.")],
    data: DataPath,
    captions: Captions = None,
    decode: DecodeMode = None,
    beam: Beam = None,
    alpha: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, help="Exponent of the length that scores are divided by."),
    ] = None,
    views: Views = None,
    grammar: Grammar = True,
    input_scale: InputScale = None,
    structural: Annotated[bool, typer.Option(help="Also compare structure, not only strings.")] = False,
    limit: Annotated[Optional[int], typer.Option(help="Only the first so many samples.")] = None,  # noqa: UP045
    predictions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write what was read, 'uid TAB tokens', to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a labelled set and compare: ExpRate, WER, by length, prefixes and suffixes.

    A model folder reads as it does for 'ink2tex recognize', a checkpoint as in validation (l2r, greedy), unless
    options say otherwise.
    """
    from ink2tex.data.readers import read_samples
    from ink2tex.metrics import score
    from ink2tex.search import SearchOptions

    if decode not in (None, "l2r", "r2l", "joint"):
        raise Ink2TexError(f"--decode is l2r, r2l or joint, not {decode!r}")
    read: Mapping[str, Sequence[str]]
    how: dict[str, str | int]
    if model.is_dir() or views not in (None, 1):
        from ink2tex.runtime.evaluation import Reader

        if not model.is_dir():
            decode, beam = decode or "l2r", beam or 1
        reader = Reader(model, decode, None, input_scale, views)  # type: ignore[arg-type]
        reader.change(beam, alpha, grammar)
        how = {"mode": reader.decode.mode, "beam": reader.decode.search.beam, "views": reader.decode.views}
        samples = read_samples(data, captions, align=False, limit=limit)
        with progress("reading", len(samples)) as advance:
            read = reader.read(samples, advance)
    else:
        from ink2tex.model.checkpoint import load_checkpoint
        from ink2tex.training.evaluation import read_samples_with

        network, _ = load_checkpoint(model)
        if input_scale is not None:
            network.config = replace(network.config, input_scale=input_scale)
        options = SearchOptions(beam=beam or 1, alpha=1.0 if alpha is None else alpha, grammar=grammar)
        decode = decode or "l2r"
        how = {"mode": decode, "beam": options.beam, "views": 1}
        samples = read_samples(data, captions, align=False, limit=limit)
        with progress("reading", len(samples)) as advance:
            read = read_samples_with(network, samples, decode, options, progress=advance)  # type: ignore[arg-type]
    if predictions is not None:
        lines = (f"{uid}\t{' '.join(tokens)}\n" for uid, tokens in sorted(read.items()))
        predictions.write_text("".join(lines), encoding="utf-8")
    references = {sample.uid: sample.tokens for sample in samples}
    _show(score(read, references, structural=structural), as_json, how)


@app.command()
def score(
    predictions: Annotated[Path, typer.Argument(help="'uid tokens…' on each line, or JSON lines.")],
    captions: Annotated[Path, typer.Argument(help="Caption file, 'uid TAB tokens'.")],
    structural: Annotated[bool, typer.Option(help="Also compare structure, not only strings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare anybody's output file with the captions, like 'evaluate'."""
    from ink2tex.data.readers import read_captions
    from ink2tex.metrics import read_predictions
    from ink2tex.metrics import score as compare

    references = read_captions(captions)
    _show(compare(read_predictions(predictions, references), references, structural=structural), as_json)


@app.command()
def average(
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoints of one network.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint to write.")],
    share: Annotated[
        Optional[list[float]],  # noqa: UP045
        typer.Option(help="How much a checkpoint counts, once for each in their order; all the same when left out."),
    ] = None,
) -> None:
    """Write the mean of the weights of several checkpoints, such as the ends of runs that began with the same."""
    from ink2tex.model.checkpoint import averaged, save_checkpoint

    network, notes = averaged(checkpoints, share)
    save_checkpoint(network, output, notes)
    typer.echo(f"wrote {output}, the mean of {len(checkpoints)}")


@app.command(name="import-abm")
def import_abm(
    released: Annotated[Path, typer.Argument(help="The released state dict (.pkl).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint to write.")],
) -> None:
    """Convert weights of the released ABM network; nothing in the file is executed."""
    from ink2tex.model.checkpoint import save_checkpoint
    from ink2tex.model.released import import_abm as convert

    save_checkpoint(convert(released), output, {"source": released.name})
    typer.echo(f"wrote {output}")


@data.command()
def vocab(
    path: Annotated[Path, typer.Argument(help="InkML or image folder, archive, or pickled dictionary.")],
    captions: Captions = None,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="File to write.")] = None,  # noqa: UP045
) -> None:
    """List the symbols of a data set, one a line: the vocabulary for 'ink2tex train --vocabulary'."""
    from ink2tex.data.readers import vocabulary_of

    text = "\n".join(vocabulary_of(path, captions).symbols) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


@data.command()
def audit(
    path: Annotated[Path, typer.Argument(help="InkML folder or archive.")],
    captions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="Published labels to compare with, 'uid TAB tokens'."),
    ] = None,
) -> None:
    """Compare the truth in ink files with published labels, and say why they differ."""
    from ink2tex.data.audit import audit as compare
    from ink2tex.data.audit import read_inks, table
    from ink2tex.data.captions import read_captions

    typer.echo(table(compare(read_inks(path), None if captions is None else read_captions(captions))))


def _vocabulary(path: Path | None) -> Any:
    from ink2tex.vocabulary import Vocabulary

    if path is None:
        return Vocabulary()
    try:
        return Vocabulary(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise Ink2TexError(f"{path}: cannot be read as a vocabulary ({error})") from None


def _show(report: Any, as_json: bool, how: Mapping[str, str | int] | None = None) -> None:
    """A report, and how the answers were found if this program found them."""
    if as_json:
        typer.echo(json.dumps({"decode": how, **report.to_json()} if how else report.to_json(), indent=2))
        return
    from rich.console import Console

    from ink2tex.metrics import render

    Console().print(render(report))
    if how:
        search = "greedy" if how["beam"] == 1 else f"a beam of {how['beam']}"
        typer.echo(
            f"Read {how['mode']}, {search}" + (f", judged at {how['views']} sizes." if how["views"] != 1 else ".")
        )


def main() -> None:
    """Run the command line; an error that a person can mend is one sentence and exit code 2."""
    try:
        app()
    except Ink2TexError as error:
        from ink2tex.training.launch import let_the_first_speak

        let_the_first_speak()
        typer.echo(f"ink2tex: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
