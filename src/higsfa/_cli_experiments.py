"""Commands about experiments: train, configs, evaluate, compare, info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from higsfa._cli_errors import WrongUsage, existing, free_file, free_folder, wrong_usage
from higsfa._cli_options import DataFolder, Force, Jobs, Json, RunFolder, opened_run
from higsfa._cli_screen import metrics_tables, print_json, say, scores_table, stages, table
from higsfa.io import write_atomically


def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A .toml file, or a name that higsfa configs lists.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="Folder for the results.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    force: Force = False,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the config; repeatable.")
    ] = None,
    data: DataFolder = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Train on the workers of this Dask scheduler.")
    ] = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Train and test what a config describes; all results go into one folder.

    \b
    Examples:
      higsfa train digits --out runs/digits
      higsfa train my.toml --out runs/mine --set network.n_components=80
      higsfa train my.toml --out runs/mine --resume
    """
    if resume and force:
        raise WrongUsage("--resume goes on with a run and --force throws it away: give one of them")
    changed = dict(_change(text) for text in changes or [])
    from higsfa import experiments

    with wrong_usage():
        experiment = experiments.load_config(config)
        if data is not None:
            experiment = experiments.with_paths(experiment, existing(data, "folder"))
        experiment = experiments.with_values(experiment, changed)
    if not resume:
        free_folder(out, force, "go on with it with --resume, ")
    with wrong_usage(), stages() as progress:
        run = experiments.train(
            experiment, out, resume=resume, overwrite=force, dask=dask, n_jobs=jobs, progress=progress
        )
    if json:
        print_json(run.metrics)
        return
    metrics_tables(run.metrics)
    say(f"Written to {out}. Look at it with: higsfa report {out}")


def _change(text: str) -> tuple[str, Any]:
    """A key and a value from KEY=VALUE; the value as TOML has it, else as text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise WrongUsage(f"--set {text}: write it as KEY=VALUE, such as network.n_components=80")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def configs(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Copy it to a file.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """List the experiments that come with the library, show one, or copy one to change it.

    \b
    Examples:
      higsfa configs
      higsfa configs folder
      higsfa configs folder -o my.toml
    """
    from importlib import resources

    from higsfa.experiments import shipped_configs

    known = shipped_configs()
    if name is None:
        if out is not None:
            raise WrongUsage("name the config to copy: higsfa configs NAME -o FILE")
        if json:
            print_json(known)
        else:
            table(["name", "what it does"], known.items(), n_texts=2)
        return
    if name not in known:
        raise WrongUsage(f"there is no shipped config {name!r}: use one of {', '.join(known)}")
    text = (resources.files("higsfa.experiments") / "configs" / f"{name}.toml").read_text(encoding="utf-8")
    if out is not None:
        write_atomically(free_file(out, force), text.encode())
    if json:
        print_json({"name": name, "text": text, "written": out})
    elif out is None:
        print(text, end="")
    else:
        say(f"Written to {out}. Change it, then: higsfa train {out} --out RUN")


def evaluate(run: RunFolder, data: DataFolder = None, json: Json = False) -> None:
    """Test a trained network again, on the test data of its config.

    \b
    Example:
      higsfa evaluate runs/mine
      higsfa evaluate runs/mine --data /media/disk/pictures
    """
    opened = opened_run(run)
    from higsfa import experiments

    with wrong_usage():
        found = experiments.evaluate(opened, folder_of_data=data)
    if json:
        print_json(found)
        return
    title = f"{opened.metrics['title']}: {found['n_test']:,} unseen samples"
    scores_table(opened.metrics["labels"], [(found["method"], found["labels"])], title)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Folders that higsfa train wrote.")],
    json: Json = False,
) -> None:
    """Put the results of several runs into one table.

    \b
    Example:
      higsfa compare runs/small runs/large
    """
    opened = [opened_run(run) for run in runs]
    from higsfa import experiments

    with wrong_usage():
        found = experiments.compare(opened)
    if json:
        print_json(found)
        return
    rows = [(f"{row['run']}, {row['method']}", row["scores"]) for row in found["rows"]]
    scores_table(found["labels"], rows, "Estimates for unseen samples")


def info(
    path: Annotated[Path, typer.Argument(metavar="RUN_OR_MODEL", help="A run folder or a model file.")],
    json: Json = False,
) -> None:
    """Say what is in a run folder or a model file.

    \b
    Examples:
      higsfa info runs/mine
      higsfa info runs/mine/model.higsfa
    """
    if existing(path, "run folder or model file").is_dir():
        _info_of_run(path, json)
    else:
        _info_of_model(path, json)


def _info_of_run(path: Path, json: bool) -> None:
    run = opened_run(path)
    sizes = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
    if json:
        print_json({"kind": "run", "path": path, "files": sizes, "network": str(run.network), "metrics": run.metrics})
        return
    say(f"{path}: a run of {run.metrics.get('created')} with higsfa {run.metrics.get('higsfa')}")
    metrics_tables(run.metrics)
    say(f"{run.network}\n")
    table(["file", "bytes"], ([name, f"{size:,}"] for name, size in sizes.items()))


def _info_of_model(path: Path, json: bool) -> None:
    import higsfa as library

    try:
        model = library.load(path)
    except library.ModelFileError as error:
        raise WrongUsage(f"{path} is not a model: {error}") from error
    size, kind, labels = path.stat().st_size, type(model).__name__, list(getattr(model, "label_names_", []))
    if json:
        print_json({"kind": kind, "path": path, "bytes": size, "labels": labels, "text": str(model)})
        return
    say(f"{path}: {kind}, {size:,} bytes" + (f", labels {', '.join(map(str, labels))}" if labels else ""))
    say(str(model))
