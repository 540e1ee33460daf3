"""The command line. Each command imports what it needs when it runs, so recognising never loads torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ink2tex import __version__
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
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/abm-lite.yaml.")],
    data: DataPath,
    captions: Captions = None,
    valid: Annotated[Optional[Path], typer.Option(help="Data to validate on.")] = None,  # noqa: UP045
    valid_captions: Annotated[Optional[Path], typer.Option(help="Its caption file.")] = None,  # noqa: UP045
    folder: Annotated[Path, typer.Option(help="Folder of the run; an interrupted run there is continued.")] = Path(
        "runs/run"
    ),
    start_from: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Checkpoint whose weights a new run begins with."),
    ] = None,
    vocabulary: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Vocabulary file of 'ink2tex data vocab'; the published symbols when left out."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes on this machine, one thread each.")] = 1,
    minutes: Annotated[Optional[float], typer.Option(help="Stop (and save) after this long.")] = None,  # noqa: UP045
    cache: Annotated[Optional[Path], typer.Option(help="Folder that keeps parsed data.")] = None,  # noqa: UP045
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
def evaluate(
    model: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors).")],
    data: DataPath,
    captions: Captions = None,
    decode: Annotated[str, typer.Option(help="l2r, r2l or joint.")] = "l2r",
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses of the search; 1 is greedy.")] = 1,
    grammar: Annotated[bool, typer.Option(help="Only write LaTeX that parses.")] = True,
    structural: Annotated[bool, typer.Option(help="Also compare structure, not only strings.")] = False,
    limit: Annotated[Optional[int], typer.Option(help="Only the first so many samples.")] = None,  # noqa: UP045
    predictions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write what was read, 'uid TAB tokens', to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a labelled set and compare: ExpRate, WER, by length, prefixes and suffixes."""
    from ink2tex.data.readers import read_samples
    from ink2tex.metrics import score
    from ink2tex.model.checkpoint import load_checkpoint
    from ink2tex.search import SearchOptions
    from ink2tex.training.evaluation import read_samples_with

    if decode not in ("l2r", "r2l", "joint"):
        raise Ink2TexError(f"--decode is l2r, r2l or joint, not {decode!r}")
    network, _ = load_checkpoint(model)
    samples = read_samples(data, captions, align=False, limit=limit)
    with _progress("reading", len(samples)) as advance:
        read = read_samples_with(
            network,
            samples,
            decode,  # type: ignore[arg-type]
            SearchOptions(beam=beam, grammar=grammar),
            progress=advance,
        )
    if predictions is not None:
        lines = (f"{uid}\t{' '.join(tokens)}\n" for uid, tokens in sorted(read.items()))
        predictions.write_text("".join(lines), encoding="utf-8")
    references = {sample.uid: sample.tokens for sample in samples}
    _show(score(read, references, structural=structural), as_json)


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


def _vocabulary(path: Path | None) -> Any:
    from ink2tex.vocabulary import Vocabulary

    if path is None:
        return Vocabulary()
    try:
        return Vocabulary(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise Ink2TexError(f"{path}: cannot be read as a vocabulary ({error})") from None


def _show(report: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
        return
    from rich.console import Console

    from ink2tex.metrics import render

    Console().print(render(report))


class _progress:  # noqa: N801  (reads as a function)
    """A bar with rate and ETA on a terminal, nothing in a pipe."""

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(what, total=total)

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda count: self._bar.advance(self._task, count)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def main() -> None:
    """Run the command line; an error that a person can mend is one sentence and exit code 2."""
    try:
        app()
    except Ink2TexError as error:
        typer.echo(f"ink2tex: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
