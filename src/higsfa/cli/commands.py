"""The commands. Each is thin over `higsfa.experiments`.

Heavy imports are inside the commands, so that help and wrong usage answer at once.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer

from higsfa.cli import terminal
from higsfa.cli.terminal import Changes, Cropped, DataFolder, Eyes, Force, Json, Page, Pictures, RunFolder, WrongUsage

EXPERIMENTS, NEW, PAGES = "Experiments", "New pictures", "Pages"
MAX_SHOWN = 32  # most pictures on one sheet
FRAMES = 24  # pictures of an animation of a numeric label

app = typer.Typer(
    name="higsfa",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: higsfa demo. Errors are one line; --debug, or HIGSFA_DEBUG=1, shows where they happened.",
)


def _version(asked: bool) -> None:
    if asked:
        from higsfa import __version__

        print(f"higsfa {__version__}")
        raise typer.Exit


def command(panel: str | None, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, with examples at the end of its help."""

    def added(function: Callable[..., None]) -> Callable[..., None]:
        shown = "\n".join(f"  higsfa {example}" for example in examples)
        text = f"{getdoc(function)}\n\n\b\nExamples:\n{shown}"
        return app.command(rich_help_panel=panel, help=text)(function)

    return added


@app.callback()
def higsfa(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error happened; anywhere in the line.")] = False,
) -> None:
    """Slow feature analysis: supervised, hierarchical, information preserving.

    Learn to estimate labels of pictures, such as age, from examples; see what was learned; use it on new pictures.
    """


@command(None, "demo", "demo --out somewhere --force")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the results.")] = Path("demo"),
    force: Force = False,
    json: Json = False,
) -> None:
    """The whole story on synthetic faces, in at most two minutes.

    Draws faces that age, learns age, gender and race at once with HiGSFA, HGSFA, PCA and LDA, prints tables, and writes
    figures, report.html, explorer.html and the model.
    """
    terminal.free_folder(out, force)
    from higsfa.cli.demo import run_demo, tell

    with terminal.stages() as progress:
        results = run_demo(out, overwrite=force, progress=progress)
    terminal.answer(json, results, lambda: tell(results))
    terminal.note_about_faces(["age"])


@command(
    EXPERIMENTS,
    "train digits --out runs/digits",
    "train my.toml --out runs/mine --set network.n_components=80",
    "train my.toml --out runs/mine --resume",
)
def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A .toml file, or a name that higsfa configs lists.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="Folder for the results.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: Force = False,
    changes: Changes = None,
    data: DataFolder = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Train on the workers of this Dask scheduler.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", metavar="N", help="Threads; all by default.")] = None,
    json: Json = False,
) -> None:
    """Train and test what a config describes; all results go to one folder."""
    experiment = _experiment(config, data, changes, resume, force)
    if not resume:
        terminal.free_folder(out, force, "continue it with --resume, ")
    from higsfa import experiments

    with terminal.stages() as progress:
        run = experiments.train(
            experiment, out, resume=resume, overwrite=force, dask=dask, n_jobs=jobs, progress=progress
        )
    if not json:
        terminal.metrics_tables(run.metrics)
    terminal.answer(json, run.metrics, f"Written to {out}. Look at it with: higsfa report {out}")


def _experiment(config: str, data: Path | None, changes: list[str] | None, resume: bool, force: bool) -> Any:
    """The config as a command was given it."""
    if resume and force:
        raise WrongUsage("--resume continues what was begun and --force deletes it: give one of them")
    changed = dict(terminal.change(text) for text in changes or [])
    from higsfa import experiments

    experiment = experiments.load_config(config)
    if data is not None:
        experiment = experiments.with_paths(experiment, terminal.existing(data, "folder"))
    return experiments.with_values(experiment, changed)


@command(
    EXPERIMENTS,
    "tune my.toml --out tuned --minutes 60",
    "tune my.toml --out tuned --only shrinkage,copies",
    "tune my.toml --out tuned --vary network.delta_threshold=[1.9,1.96]",
    "train tuned/best.toml --out runs/mine",
)
def tune(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A .toml file, or a name that higsfa configs lists.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the results.")],
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", help="Time on the clock.")] = 30.0,
    candidates: Annotated[int, typer.Option("--candidates", metavar="N", help="Try at most so many.")] = 27,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAMES", help="Settings to choose, such as shrinkage,copies.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="KEY=VALUES", help="Also try values of a key; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the split and the candidates.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted search.")] = False,
    force: Force = False,
    changes: Changes = None,
    data: DataFolder = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", metavar="N", help="Threads; all by default.")] = None,
    json: Json = False,
) -> None:
    """Choose settings on a held-out part of the training data; the best becomes a config for train."""
    experiment = _experiment(config, data, changes, resume, force)
    varied = dict(terminal.change(text, "--vary", "network.delta_threshold=[1.9,1.96]") for text in vary or [])
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if not resume:
        terminal.free_folder(out, force, "continue it with --resume, ")
    from higsfa import experiments

    with terminal.stages() as progress:
        found = experiments.tune(
            experiment,
            out,
            minutes=minutes,
            n_candidates=candidates,
            only=names,
            vary=varied,
            seed=seed,
            resume=resume,
            overwrite=force,
            n_jobs=jobs,
            progress=progress,
        )
    if not json:
        terminal.tuning_table(found)
    line = f"The best is in {out / 'best.toml'}. Train it with: higsfa train {out / 'best.toml'} --out RUN"
    chosen = {"best": found.best, "config": out / "best.toml", "seconds": found.seconds, "results": found.results}
    terminal.answer(json, chosen, line)


@command(EXPERIMENTS, "evaluate runs/mine", "evaluate runs/mine --data /media/disk/pictures")
def evaluate(run: RunFolder, data: DataFolder = None, json: Json = False) -> None:
    """Test a trained network again, on the test data of its config."""
    opened = terminal.opened_run(run, data)
    found, labels = opened.evaluate(), opened.metrics["labels"]
    rows = [(found["method"], found["labels"])]
    title = f"{opened.metrics['title']}: {found['n_test']:,} unseen samples"
    terminal.answer(json, found, lambda: terminal.scores_table(labels, rows, title))


@command(EXPERIMENTS, "compare runs/small runs/large")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Folders that higsfa train wrote.")],
    json: Json = False,
) -> None:
    """Put the results of several runs into one table."""
    opened = [terminal.opened_run(run) for run in runs]
    from higsfa import experiments

    found = experiments.compare(opened)
    rows = [(f"{row['run']}, {row['method']}", row["scores"]) for row in found["rows"]]
    title = "Estimates for unseen samples"
    terminal.answer(json, found, lambda: terminal.scores_table(found["labels"], rows, title))


@command(EXPERIMENTS, "configs", "configs folder", "configs folder -o my.toml")
def configs(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Copy it to a file.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """List the experiments that come with the library, show one, or copy one to change it."""
    from higsfa.experiments.interface import shipped_configs, shipped_text
    from higsfa.io import write_atomically

    known = shipped_configs()
    if name is None:
        if out is not None:
            raise WrongUsage("name the config to copy: higsfa configs NAME -o FILE")
        terminal.answer(json, known, lambda: terminal.table(["name", "what it does"], known.items(), n_texts=2))
        return
    if name not in known:
        raise WrongUsage(f"there is no shipped config {name!r}: use one of {', '.join(known)}")
    text = shipped_text(name)
    if out is not None:
        write_atomically(terminal.free_file(out, force), text.encode())
    written = f"Written to {out}. Change it, then: higsfa train {out} --out RUN"
    shown = written if out is not None else lambda: print(text, end="")
    terminal.answer(json, {"name": name, "text": text, "written": out}, shown)


@command(EXPERIMENTS, "info runs/mine", "info runs/mine/model.higsfa")
def info(
    path: Annotated[Path, typer.Argument(metavar="RUN_OR_MODEL", help="A run folder or a model file.")],
    json: Json = False,
) -> None:
    """Show what is in a run folder or a model file."""
    if terminal.existing(path, "run folder or model file").is_dir():
        _run_info(path, json)
    else:
        _model_info(path, json)


def _run_info(path: Path, json: bool) -> None:
    run = terminal.opened_run(path)
    sizes = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
    network, metrics = str(run.network), run.metrics

    def shown() -> None:
        terminal.say(f"{path}: a run of {metrics.get('created')} with higsfa {metrics.get('higsfa')}")
        terminal.metrics_tables(metrics)
        terminal.say(f"{network}\n")
        terminal.table(["file", "bytes"], ([name, f"{size:,}"] for name, size in sizes.items()))

    terminal.answer(json, {"kind": "run", "path": path, "files": sizes, "network": network, "metrics": metrics}, shown)


def _model_info(path: Path, json: bool) -> None:
    import higsfa as library

    try:
        model = library.load(path)
    except library.ModelFileError as error:
        raise WrongUsage(f"{path} is not a model: {error}") from error
    size, kind, labels = path.stat().st_size, type(model).__name__, list(getattr(model, "label_names_", []))
    line = f"{path}: {kind}, {size:,} bytes" + (f", labels {', '.join(map(str, labels))}" if labels else "")
    found = {"kind": kind, "path": path, "bytes": size, "labels": labels, "text": str(model)}
    terminal.answer(json, found, f"{line}\n{model}")


@command(NEW, "transform runs/mine photos/ -o features.npy", "transform runs/mine a.jpg b.jpg -o features.csv")
def transform(
    run: RunFolder,
    images: Pictures,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to: .npy, or .csv with names.")],
    eyes: Eyes = None,
    cropped: Cropped = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Extract the features of new pictures: one row each."""
    terminal.free_file(out, force, ".npy", ".csv")
    opened = terminal.opened_run(run)
    source = opened.pictures(images, eyes=eyes, cropped=cropped)
    features = opened.transform(source)
    files = [str(path) for path in source.paths]
    if out.suffix.lower() == ".csv":
        from higsfa.experiments.run import write_table

        write_table(out, {"file": files, **{f"feature{j}": column for j, column in enumerate(features.T)}})
    else:
        import numpy as np

        from higsfa.io import replacing

        with replacing(out) as file:
            np.save(file, features, allow_pickle=False)
    line = f"Features of {len(features):,} pictures, {features.shape[1]} each, written to {out}"
    terminal.answer(json, {"written": out, "shape": features.shape, "files": files}, line)


@command(NEW, "predict runs/mine photo.jpg", "predict runs/mine photos/ -o estimates.csv")
def predict(
    run: RunFolder,
    images: Pictures,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a .csv file.")] = None,
    eyes: Eyes = None,
    cropped: Cropped = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate the labels of new pictures."""
    if out is not None:
        terminal.free_file(out, force, ".csv")
    opened = terminal.opened_run(run)
    columns = {name: values.tolist() for name, values in opened.predict(images, eyes=eyes, cropped=cropped).items()}
    rows = list(zip(*columns.values(), strict=True))
    if out is not None:
        from higsfa.experiments.run import write_table

        write_table(out, columns)
    line = f"Estimates for {len(rows):,} pictures written to {out}"
    cells = ([f"{value:.2f}" if isinstance(value, float) else str(value) for value in row] for row in rows)
    shown = line if out is not None else lambda: terminal.table(list(columns), cells)
    terminal.answer(json, [dict(zip(columns, row, strict=True)) for row in rows], shown)
    terminal.note_about_faces(columns)


@command(NEW, "reconstruct runs/mine photo.jpg -o rebuilt.png")
def reconstruct(
    run: RunFolder,
    photos: Pictures,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to: .png.")],
    eyes: Eyes = None,
    cropped: Cropped = False,
    data: DataFolder = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Rebuild pictures from their features alone, beside the originals: what the network keeps of them."""
    terminal.free_file(out, force, ".png")
    with terminal.stages() as progress:
        opened = terminal.opened_run(run, data, progress)
        source = opened.pictures(photos, eyes=eyes, cropped=cropped)
        if len(source) > MAX_SHOWN:
            raise WrongUsage(f"{len(source)} pictures do not fit on one sheet: give at most {MAX_SHOWN}")
        found = opened.reconstruct(source)
    from higsfa.cli import sheet

    rows = [sheet.as_bytes(pictures, opened.pixel_range) for pictures in (found.originals, *found.pictures.values())]
    sheet.write_picture(out, sheet.sheet(rows, ["original", *found.pictures]))
    if not json:
        errors = ([name, f"{error:.3f}"] for name, error in found.errors.items())
        terminal.table(["rebuilt", "error (1: mean image)"], errors)
    terminal.answer(json, {"written": out, "error": found.errors}, f"Written to {out}")


@command(
    NEW,
    "morph runs/mine photo.jpg --age 20,60",
    "morph runs/mine photo.jpg --age 20,40,60 -o strip.png",
    "morph runs/mine photo.jpg --label gender=M,F -o strip.png",
    "morph runs/mine photo.jpg --age 20,40,60 --gif ages.gif",
)
def morph(
    run: RunFolder,
    photo: Annotated[Path, typer.Argument(metavar="PHOTO", help="One picture.")],
    age: Annotated[str | None, typer.Option("--age", metavar="VALUES", help="Ages, such as 20,40,60.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="NAME=VALUES", help="Such as gender=M,F.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="morph.png by default.")] = None,
    gif: Annotated[Path | None, typer.Option("--gif", metavar="FILE", help="An animation, .gif or .webp.")] = None,
    strength: Annotated[float, typer.Option("--strength", help="More than 1 exaggerates the change.")] = 1.0,
    eyes: Eyes = None,
    cropped: Cropped = False,
    data: DataFolder = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the same picture with another label: a face at other ages."""
    if out is None and gif is None:
        out = Path("morph.png")
    if out is not None:
        terminal.free_file(out, force, ".png")
    if gif is not None:
        terminal.free_file(gif, force, ".gif", ".webp")
    name, texts = terminal.label_and_values(age, label)
    with terminal.stages() as progress:
        opened = terminal.opened_run(run, data, progress)
        values = opened.label_values(name, texts)
        picture = opened.photo(photo, eyes=eyes, cropped=cropped)
        import numpy as np

        from higsfa.cli import sheet

        if out is not None:
            frames = (picture, *opened.morph(picture, {name: values}, strength=strength))
            strip = [sheet.as_bytes(frame, opened.pixel_range) for frame in frames]
            captions = ["photograph", *(f"{name} {text}" for text in texts)]
            sheet.write_picture(out, sheet.sheet([strip], captions=captions))
        if gif is not None:
            steps = np.linspace(min(values), max(values), FRAMES) if opened.head.is_numeric_[name] else values
            moving = opened.morph(picture, {name: steps}, strength=strength)
            sheet.write_animation(gif, sheet.as_bytes(moving, opened.pixel_range))
    written = [path for path in (out, gif) if path is not None]
    found = {"label": name, "values": values, "written": written}
    terminal.answer(json, found, f"Written to {' and '.join(map(str, written))}")
    terminal.note_about_faces([name])


@command(PAGES, "report runs/mine")
def report(run: RunFolder, out: Page = None, force: Force = False, json: Json = False) -> None:
    """Write the results of a run as one HTML file, which opens without a server."""
    opened = terminal.opened_run(run)
    target = terminal.free_file(run / "report.html" if out is None else out, force)
    _tell_written(opened.report(target), json)


@command(PAGES, "card runs/mine")
def card(run: RunFolder, out: Page = None, force: Force = False, json: Json = False) -> None:
    """Write a model card: data, figures, limits and use of a run, in Markdown."""
    opened = terminal.opened_run(run)
    written = opened.card(terminal.free_file(run / "README.md" if out is None else out, force))
    terminal.answer(json, {"written": written, "bytes": written.stat().st_size}, f"Written to {written}")


@command(PAGES, "explore runs/mine")
def explore(
    run: RunFolder, out: Page = None, data: DataFolder = None, force: Force = False, json: Json = False
) -> None:
    """Write a page on which features can be moved by hand, and the picture follows."""
    with terminal.stages() as progress:
        opened = terminal.opened_run(run, data, progress)
        written = opened.explore(terminal.free_file(run / "explorer.html" if out is None else out, force))
    _tell_written(written, json)
    terminal.note_about_faces(opened.head.label_names_)


def _tell_written(path: Path, json: bool) -> None:
    found = {"written": path, "bytes": path.stat().st_size}
    terminal.answer(json, found, f"Written to {path}. Open it in a browser.")
