"""The tables of a config file: their keys, defaults and limits.

Keys that are parameters of an estimator, a graph or a distortion are read off its signature, see `table.follows`.
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from higsfa import HiGSFA, LabelHead, Layer
from higsfa.experiments.table import Table, Text, follows
from higsfa.graphs import (
    ClusteredGraph,
    CodeGraph,
    GraphRecipe,
    LabelGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    UniformGraph,
    WindowGraph,
)
from higsfa.images import Distortion

AUTO_SAMPLES, MAX_AUTO_COPIES = 60_000, 8
"""How many samples copies = "auto" makes, and the most copies of one."""
AUTO_VIEWS = 5  # of a picture, to estimate labels from
AUTO_MEMBERS, MAX_MEMBERS = 3, 16
"""The most networks whose estimates are averaged: by themselves, and that may be asked for."""
MAX_PIXELS = 2**34  # most pixels of synthetic faces, which are held in memory
RENAMED = {"memory": "memory_limit", "n_features": "n_used_features", "regularization": "covariance"}
"""Old and new names of keys, for files of earlier versions and for messages."""
RECIPES: dict[str, type[GraphRecipe]] = {
    "serial": SerialGraph,
    "clustered": ClusteredGraph,
    "mixed": MixedGraph,
    "window": WindowGraph,
    "sequence": SequenceGraph,
    "label": LabelGraph,
    "code": CodeGraph,
    "uniform": UniformGraph,
}

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Threshold = Annotated[float, Field(gt=0, le=4)]
Copies = Annotated[int, Field(ge=1, le=1000)]
Size = Annotated[int, Field(ge=1, le=4096)]
Memory = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*[kKMGT]?i?B?\s*$")]
Mixture = Literal["auto", "shared", "separate"] | Annotated[float, Field(ge=0, le=1)]
ByLabel = Literal["cv"] | Count | dict[Name, Literal["cv"] | Count]


class AnyData(Table):
    labels: list[Name] | None = Field(default=None, min_length=1, max_length=100)
    max_samples: Count | None = None


class FacesData(AnyData):
    kind: Literal["faces"]
    n_train: Count = 2000
    n_test: Count = 500
    size: Annotated[int, Field(ge=16, le=512)] = 64
    seed: Seed = 0
    images_per_person: Annotated[int, Field(ge=1, le=1000)] = 1
    races: list[Literal["B", "W", "A", "H"]] = Field(default=["B", "W"], min_length=1, max_length=4)


class DigitsData(AnyData):
    kind: Literal["digits"]


class ToyData(AnyData):
    kind: Literal["toy"]
    n_train: Count = 10_000
    n_test: Count = 5_000
    seed: Seed = 0


Rate = Annotated[float, Field(ge=0, le=1000)]


class RatData(AnyData):
    """Views of a rat in a box; its movement is that of `datasets.make_rat_views`."""

    kind: Literal["rat"]
    n_train: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    n_test: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    seed: Seed = 0
    speed: Rate = 0.06
    turn: Rate = 0.5
    persistence: Rate = 10.0
    turn_persistence: Rate = 2.0


class NpzData(AnyData):
    kind: Literal["npz"]
    file: Path
    images: Name = "images"
    pixel_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    split: Name | None = None
    train: Name = "train"
    test: Name = "test"

    @model_validator(mode="after")
    def _white_is_above_black(self) -> NpzData:
        if self.pixel_range is not None and not -1e9 <= self.pixel_range[0] < self.pixel_range[1] <= 1e9:
            raise ValueError(f"pixel_range = {self.pixel_range} must be [black, white] within 1e9, such as [0, 1]")
        return self


class FileData(AnyData):
    folder: Path
    size: Annotated[int, Field(ge=4, le=1024)] = 96
    colour: bool | Literal["auto"] = False
    normalise_contrast: bool = True
    on_bad_file: Literal["raise", "skip"] = "raise"


class Morph2Data(FileData):
    kind: Literal["morph2"]
    csv: Path
    eyes: Path | None = None


class NamedFilesData(FileData):
    """Pictures with labels in their names: UTKFace, or FG-NET (the folder with `images` and `points`)."""

    kind: Literal["fgnet", "utkface"]


class FairfaceData(FileData):
    kind: Literal["fairface"]
    csv: Path
    test_csv: Path | None = None


class FolderData(FileData):
    kind: Literal["folder"]
    colour: bool | Literal["auto"] = "auto"  # if any picture has colours
    csv: Path
    path_column: Name = "file"
    split_column: Name | None = None
    train: Name = "train"
    test: Name = "test"
    person_column: Name | None = None
    eye_columns: list[Name] | None = Field(default=None, min_length=4, max_length=4)


DataTable = Annotated[
    FacesData | DigitsData | ToyData | RatData | NpzData | Morph2Data | NamedFilesData | FairfaceData | FolderData,
    Field(discriminator="kind"),
]


class LabelTable(Table):
    kind: Literal["auto", "numeric", "categorical"] = "auto"
    unit: Annotated[str, Field(max_length=50)] | None = None
    names: list[Name] | None = Field(default=None, min_length=1, max_length=1000)


@follows(
    Distortion,
    types={
        "seed": Seed,
        "shift": Annotated[float, Field(ge=0, le=100)],
        "rotation": Annotated[float, Field(ge=0, le=180)],
        "scale": Annotated[float, Field(ge=0, le=0.9)],
        **dict.fromkeys(("brightness", "contrast", "noise"), Annotated[float, Field(ge=0, le=1)]),
    },
)
class DistortionTable(Table):
    """Distorted copies of the training images; the other keys are those of `higsfa.images.Distortion`."""

    copies: Copies | Literal["auto"] = 1
    supervised_copies: Copies | Literal["auto"] = 1

    def n_copies(self, n_samples: int) -> tuple[int, int]:
        """Copies for networks and for the supervised step; "auto": about 60,000 samples, at most 8 of each, and 1."""
        usual = min(max(1, round(AUTO_SAMPLES / max(1, n_samples))), MAX_AUTO_COPIES)
        network = usual if self.copies == "auto" else self.copies
        return network, 1 if self.supervised_copies == "auto" else self.supervised_copies


Steps = Annotated[int, Field(ge=1, le=100_000)]


@follows(
    *RECIPES.values(),
    types={
        "n_groups": Annotated[int, Field(ge=2, le=100_000)],
        "half_width": Steps,
        "lag": Steps | Annotated[list[Steps], Field(min_length=1, max_length=1000)],
        "node_weights": Literal["degree"],
        "n_harmonics": Annotated[int, Field(ge=0, le=1000)],
        "n_features": Annotated[int, Field(ge=1, le=100_000)],
        "label_range": Annotated[list[float], Field(min_length=2, max_length=2)],
        "deltas": Annotated[list[Annotated[float, Field(ge=0, le=2)]], Field(max_length=1001)],
    },
    optional=True,
)
class GraphPart(Table):
    """One recipe of `higsfa.graphs`, with its parameters as keys."""

    kind: Literal["serial", "clustered", "mixed", "window", "sequence", "label", "code", "uniform"]
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    label: Name | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> GraphPart:
        for key in self.given():
            kinds = [kind for kind, recipe in RECIPES.items() if key in signature(recipe).parameters]
            if self.kind not in kinds:
                raise ValueError(f"{key} is for parts of kind {', '.join(kinds)}, not {self.kind!r}; leave it out")
        if self.label is None and "label" in signature(RECIPES[self.kind]).parameters:
            raise ValueError(f'a part of kind {self.kind!r} needs a label: add label = "..."')
        return self

    def given(self) -> dict[str, Any]:
        """The parameters of the recipe that the file names."""
        return self.model_dump(exclude={"kind", "weight"}, exclude_none=True)


class GraphTable(Table):
    """How labels become similarities: a sum of recipes, or "auto"."""

    parts: Literal["auto"] | list[GraphPart] = Field(default="auto", max_length=100)


@follows(Layer, types={"field": Size | list[Size], "stride": Size | list[Size] | None, "expansion": Text})
class LayerTable(Table):
    """One layer, as in `higsfa.Layer`."""


@follows(Layer, types={"expansion": Text}, leave_out=("field", "stride"), optional=True)
class EveryLayerTable(Table):
    """Parameters of `higsfa.Layer` for all layers of the network."""


PaperPreset = Literal["higsfa_g3", "hgsfa_g3", "higsfa_g3_hgsfa_parameters", "higsfa_g1", "higsfa_lopo"]


@follows(
    HiGSFA,
    # Graph, kinds and shape come from other tables, the engine from an option; the run shows progress itself.
    leave_out=("graph", "label_kinds", "input_shape", "engine", "verbose"),
    types={"memory_limit": Memory | None},
)
class NetworkTable(Table):
    """The network; the other keys are parameters of `higsfa.HiGSFA`."""

    preset: Literal["pyramid", "single", "photographs", PaperPreset] = "pyramid"
    kind: Literal["HiGSFA", "HGSFA"] = "HiGSFA"
    n_components: Annotated[int, Field(ge=1, le=10_000)] = 60
    width: Annotated[float, Field(gt=0, le=10)] = 1.0  # factor of the features of all layers below the top
    expansion: Text = "identity | power0.8"
    layers: list[LayerTable] | None = Field(default=None, min_length=1, max_length=100)
    layer_params: EveryLayerTable = EveryLayerTable()
    delta_threshold: Threshold | None = None
    dtype: Literal["float32", "float64"] | None = None
    members: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] | Literal["auto"] = "auto"
    """Networks that share the copies, and whose estimates are averaged; "auto": for two copies or three one network, 3
    at most, if copies are left to the library (distortion.copies = "auto"), else 1."""
    n_jobs: Annotated[int, Field(ge=-1024, le=1024)] = -1
    front: Literal["auto", "edges", "none"] = "auto"


@follows(
    LabelHead,
    types={
        "covariance": Mixture | dict[Name, Mixture],
        "cv": Annotated[int, Field(ge=2, le=1000)],
        "candidates": Annotated[list[Count], Field(min_length=1, max_length=1000)] | None,
    },
    leave_out=("regressor", "label_kinds"),  # an object; kinds are in [labels]
)
class HeadTable(Table):
    """The supervised step on top of the features, a `higsfa.LabelHead`."""

    n_classes: dict[Name, Annotated[int, Field(ge=2, le=10_000)]] = {}
    integer: list[Name] = []
    n_used_features: ByLabel = "cv"
    mirror: bool | Literal["auto"] = "auto"
    """Whether labels are estimated from means over mirror images; "auto": if copies are mirrored."""
    views: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = "auto"
    """Views of a picture, itself and distorted copies, whose mean features labels are estimated from; "auto": 5, if
    copies are left to the library (distortion.supervised_copies = "auto"), else 1."""


class ProtocolTable(Table):
    kind: Literal["split", "random", "s1s2s3", "leave_persons_out", "cross_database"] = "split"
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    repeats: Copies = 1
    by_person: bool = False
    n_persons: Count = 2000
    sizes: dict[Literal["MB", "MW", "FB", "FW"], Count] | None = None
    ages: Annotated[list[Annotated[int, Field(ge=0, le=150)]], Field(min_length=2, max_length=2)] = [16, 77]
    binary_race: bool = False
    seed: Seed = 0


Method = Literal["hgsfa", "higsfa_hgsfa_parameters", "pca", "lda", "gsfa", "chance"]


class ComparisonTable(Table):
    """What to compare the network with; `n_used_features` is that of [head], by method."""

    methods: list[Method] = ["chance"]
    sensitivity: list[Threshold] = Field(default=[], max_length=100)
    n_used_features: dict[Method, ByLabel] = {}


class OutputTable(Table):
    examples: Annotated[int, Field(ge=0, le=16)] = 16


class Config(Table):
    """An experiment, with one attribute per table of its file. Read one with `load_config`.

    Examples
    --------
    >>> from higsfa.experiments import load_config
    >>> config = load_config("digits")  # a Config
    >>> config.title, config.data.kind
    ('Handwritten digits', 'digits')
    """

    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=2000)] = ""
    data: DataTable
    test_data: DataTable | None = None
    labels: dict[Name, LabelTable] = {}
    distortion: DistortionTable | None = None
    graph: GraphTable = GraphTable()
    network: NetworkTable = NetworkTable()
    head: HeadTable = HeadTable()
    protocol: ProtocolTable = ProtocolTable()
    comparison: ComparisonTable = ComparisonTable()
    output: OutputTable = OutputTable()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        data, methods, preset = self.data, self.comparison.methods, self.network.preset
        if (self.test_data is not None) != (self.protocol.kind == "cross_database"):
            raise ValueError('[test_data] and [protocol] kind = "cross_database" need each other; add or remove both')
        if "higsfa_hgsfa_parameters" in methods and preset != "higsfa_g3":
            raise ValueError("comparison.methods: 'higsfa_hgsfa_parameters' needs network.preset = \"higsfa_g3\"")
        if "hgsfa" in methods and self.is_hgsfa:
            raise ValueError("comparison.methods: the network is HGSFA already; leave 'hgsfa' out")
        if isinstance(data, FacesData) and data.n_train % data.images_per_person:
            raise ValueError("data.n_train must be a multiple of data.images_per_person, so that no person is in both")
        if isinstance(data, FacesData) and (data.n_train + data.n_test) * data.size**2 > MAX_PIXELS:
            raise ValueError(f"data: more than {MAX_PIXELS:,} pixels of faces; draw fewer or smaller ones")
        return self

    @property
    def is_hgsfa(self) -> bool:
        return self.network.kind == "HGSFA" or self.network.preset == "hgsfa_g3"

    @property
    def averages_mirror_images(self) -> bool:
        """Whether labels are estimated from the mean features of a picture and its mirror image."""
        if self.head.mirror == "auto":
            return self.distortion is not None and bool(getattr(self.distortion, "mirror"))  # noqa: B009  of Distortion
        return self.head.mirror

    @property
    def n_views(self) -> int:
        """Views of a picture, without mirror images, whose mean features labels are estimated from."""
        if self.head.views == "auto":
            table = self.distortion
            return AUTO_VIEWS if table is not None and table.supervised_copies == "auto" else 1
        return self.head.views

    def n_members(self, n_samples: int) -> int:
        """Networks that are trained on so many samples, each on its share of the copies."""
        table = self.distortion
        if self.network.members != "auto":
            return self.network.members
        if table is None or table.copies != "auto":
            return 1
        return min(AUTO_MEMBERS, (table.n_copies(n_samples)[0] + 1) // 2)

    def n_copies(self, n_samples: int) -> tuple[int, int]:
        """Copies of each sample, for all networks together and for the supervised step; "auto" gives all as many."""
        if self.distortion is None:
            return 1, 1
        copies, supervised = self.distortion.n_copies(n_samples)
        members = self.n_members(n_samples)
        if self.distortion.copies == "auto":
            copies = members * max(1, round(copies / members))
        return copies, supervised

    def plain(self) -> dict[str, Any]:
        """All values but None, as JSON has them."""
        return self.model_dump(mode="json", exclude_none=True)
