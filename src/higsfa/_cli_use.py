"""Commands that use a trained network: transform, predict, reconstruct, morph, report, explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from higsfa._cli_errors import free_file
from higsfa._cli_options import Cropped, DataFolder, Eyes, Force, Json, Pictures, RunFolder, opened_run
from higsfa._cli_screen import note_about_faces, print_json, say, stages, table


def transform(
    run: RunFolder,
    images: Pictures,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to: .npy, or .csv with names.")],
    eyes: Eyes = None,
    cropped: Cropped = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Extract the features of new pictures: one row each.

    \b
    Examples:
      higsfa transform runs/mine photos/ -o features.npy
      higsfa transform runs/mine a.jpg b.jpg -o features.csv
    """
    from higsfa import _cli_pictures as pictures

    pictures.check_ending(out, (".npy", ".csv"))
    free_file(out, force)
    files, features = pictures.Given(images, eyes, cropped).features(opened_run(run))
    pictures.write_features(out, files, features)
    if json:
        print_json({"written": out, "shape": features.shape, "files": files})
    else:
        say(f"Features of {len(features):,} pictures, {features.shape[1]} each, written to {out}")


def predict(
    run: RunFolder,
    images: Pictures,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a .csv file.")] = None,
    eyes: Eyes = None,
    cropped: Cropped = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate the labels of new pictures.

    \b
    Examples:
      higsfa predict runs/mine photo.jpg
      higsfa predict runs/mine photos/ -o estimates.csv
    """
    from higsfa import _cli_pictures as pictures

    if out is not None:
        pictures.check_ending(out, (".csv",))
        free_file(out, force)
    opened = opened_run(run)
    from higsfa.experiments.run_folder import write_table

    files, features = pictures.Given(images, eyes, cropped).features(opened)
    columns = pictures.estimates(opened.head, features)
    if out is not None:
        write_table(out, {"file": files, **columns})
    if json:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        print_json([{"file": file, **row} for file, row in zip(files, rows, strict=True)])
    elif out is None:
        table(["file", *columns], pictures.cells(files, columns))
    else:
        say(f"Estimates for {len(features):,} pictures written to {out}")
    note_about_faces(columns)


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
    """Rebuild pictures from their features alone, beside the originals: what the network keeps of a picture.

    \b
    Example:
      higsfa reconstruct runs/mine photo.jpg -o rebuilt.png
    """
    from higsfa import _cli_pictures as pictures
    from higsfa._cli_decoder import RunData

    pictures.check_ending(out, (".png",))
    free_file(out, force)
    opened = opened_run(run)
    with stages() as progress:
        errors = pictures.reconstruct(
            opened, pictures.Given(photos, eyes, cropped), out, RunData(opened, progress, data)
        )
    if json:
        print_json({"written": out, "error": errors})
        return
    table(["rebuilt", "error (1: mean image)"], ([name, f"{error:.3f}"] for name, error in errors.items()))
    say(f"Written to {out}")


def morph(
    run: RunFolder,
    photo: Annotated[Path, typer.Argument(metavar="PHOTO", help="One picture.")],
    age: Annotated[str | None, typer.Option("--age", metavar="VALUES", help="Ages, such as 20,40,60.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME=VALUES", help="Another label, such as gender=M,F.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A strip, .png; morph.png by default.")
    ] = None,
    gif: Annotated[Path | None, typer.Option("--gif", metavar="FILE", help="An animation, .gif or .webp.")] = None,
    strength: Annotated[float, typer.Option("--strength", help="More than 1 exaggerates the change.")] = 1.0,
    eyes: Eyes = None,
    cropped: Cropped = False,
    data: DataFolder = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the same picture with another label: a face at other ages.

    \b
    Examples:
      higsfa morph runs/mine photo.jpg --age 20,60
      higsfa morph runs/mine photo.jpg --age 20,40,60 -o strip.png
      higsfa morph runs/mine photo.jpg --label gender=M,F -o strip.png
      higsfa morph runs/mine photo.jpg --age 20,40,60 --gif ages.gif
    """
    from higsfa import _cli_pictures as pictures
    from higsfa._cli_decoder import RunData

    if out is None and gif is None:
        out = Path("morph.png")
    for path, endings in ((out, (".png",)), (gif, (".gif", ".webp"))):
        if path is not None:
            pictures.check_ending(path, endings)
            free_file(path, force)
    name, values = pictures.wanted_values(age, label)
    opened = opened_run(run)
    with stages() as progress:
        context, given = RunData(opened, progress, data), pictures.Given([photo], eyes, cropped)
        found = pictures.morph_photo(opened, given, name, values, out, gif, context, strength)
    if json:
        print_json(found)
    else:
        say(f"Written to {' and '.join(str(path) for path in (out, gif) if path is not None)}")
    note_about_faces([name])


# ---------------------------------------------------------------------- pages


def report(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="RUN/report.html by default.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the results of a run as one HTML file, which opens without a server.

    \b
    Example:
      higsfa report runs/mine
    """
    from higsfa.report import write_report

    opened_run(run)
    target = free_file(run / "report.html" if out is None else out, force)
    _tell_written(write_report(run, target), json)


def explore(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="RUN/explorer.html by default.")
    ] = None,
    data: DataFolder = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a page on which features can be moved by hand, and the picture follows.

    \b
    Example:
      higsfa explore runs/mine
    """
    from higsfa._cli_decoder import RunData
    from higsfa._cli_views import explorer_page

    opened = opened_run(run)
    target = free_file(run / "explorer.html" if out is None else out, force)
    with stages() as progress:
        written = explorer_page(opened, RunData(opened, progress, data), target)
    _tell_written(written, json)
    note_about_faces(opened.head.label_names_)


def _tell_written(path: Path, json: bool) -> None:
    if json:
        print_json({"written": path, "bytes": Path(path).stat().st_size})
    else:
        say(f"Written to {path}. Open it in a browser.")
