"""What an experiment may say: the tables of its TOML file, their keys, defaults and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["Config", "DataTable", "LabelTable"]

MAX_PIXELS = 2**34
"""Most pixels of synthetic faces, which are held in memory."""

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Side = Annotated[int, Field(ge=4, le=1024)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
NFeatures = Literal["cv"] | Count
Skip = Literal["raise", "skip"]


class Table(BaseModel):
    """A table of the file; keys that are not listed are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, arbitrary_types_allowed=False)


# ---------------------------------------------------------------------------------------------- data


class AnyData(Table):
    """What all kinds of data share."""

    labels: list[Name] | None = Field(default=None, min_length=1, max_length=100)
    max_samples: Count | None = None


class FacesData(AnyData):
    """Synthetic faces, drawn on the spot."""

    kind: Literal["faces"]
    n_train: Count = 2000
    n_test: Count = 500
    size: Annotated[int, Field(ge=16, le=512)] = 64
    seed: Seed = 0
    images_per_person: Annotated[int, Field(ge=1, le=1000)] = 1
    races: list[Literal["B", "W", "A", "H"]] = Field(default=["B", "W"], min_length=1, max_length=4)


class DigitsData(AnyData):
    """The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn."""

    kind: Literal["digits"]


class ToyData(AnyData):
    """The four toy signals of the paper's section on information loss."""

    kind: Literal["toy"]
    n_train: Count = 10_000
    n_test: Count = 5_000
    seed: Seed = 0


class NpzData(AnyData):
    """Arrays in a .npz file."""

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
            raise ValueError(f"pixel_range = {self.pixel_range} must be the values of black and white, such as [0, 1]")
        return self


class FileData(AnyData):
    """What all data sets of image files share."""

    folder: Path
    size: Side = 96
    normalise_contrast: bool = True
    on_bad_file: Skip = "raise"


class Morph2Data(FileData):
    """MORPH-II: a folder of photographs and its table."""

    kind: Literal["morph2"]
    csv: Path
    eyes: Path | None = None


class FgnetData(FileData):
    """FG-NET: the folder with `images` and `points`."""

    kind: Literal["fgnet"]


class UtkfaceData(FileData):
    """UTKFace: a folder of photographs whose names hold the labels."""

    kind: Literal["utkface"]


class FairfaceData(FileData):
    """FairFace: a folder, and one table each for training and test."""

    kind: Literal["fairface"]
    csv: Path
    test_csv: Path | None = None


class FolderData(FileData):
    """Pictures of your own and a table with their labels."""

    kind: Literal["folder"]
    csv: Path
    path_column: Name = "file"
    split_column: Name | None = None
    train: Name = "train"
    test: Name = "test"
    person_column: Name | None = None
    eye_columns: list[Name] | None = Field(default=None, min_length=4, max_length=4)


DataTable = Annotated[
    FacesData | DigitsData | ToyData | NpzData | Morph2Data | FgnetData | UtkfaceData | FairfaceData | FolderData,
    Field(discriminator="kind"),
]


class LabelTable(Table):
    """What a label means."""

    kind: Literal["auto", "numeric", "categorical"] = "auto"
    unit: Annotated[str, Field(max_length=50)] | None = None
    names: list[Name] | None = Field(default=None, min_length=1, max_length=1000)


class DistortionTable(Table):
    """Distorted copies of the training images; amplitudes as in `higsfa.images.Distortion`."""

    copies: Annotated[int, Field(ge=1, le=1000)] = 1
    supervised_copies: Annotated[int, Field(ge=1, le=1000)] = 1
    shift: Annotated[float, Field(ge=0, le=100)] = 1.4
    rotation: Annotated[float, Field(ge=0, le=180)] = 2.0
    scale: Annotated[float, Field(ge=0, le=0.9)] = 0.04
    mirror: bool = False
    brightness: Annotated[float, Field(ge=0, le=1)] = 0.0
    contrast: Annotated[float, Field(ge=0, le=1)] = 0.0
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    interpolation: Literal["cubic", "linear"] = "cubic"
    seed: Seed = 0


# ---------------------------------------------------------------------------------------------- learning


class GraphPart(Table):
    """One recipe of `higsfa.graphs`."""

    kind: Literal["serial", "clustered", "mixed", "window", "sequence"]
    label: Name | None = None
    n_groups: Annotated[int, Field(ge=2, le=100_000)] | None = None
    half_width: Annotated[int, Field(ge=1, le=100_000)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0

    @model_validator(mode="after")
    def _fits_its_kind(self) -> GraphPart:
        if self.kind == "sequence" and self.label is not None:
            raise ValueError("a part of kind 'sequence' joins samples in time order and takes no label")
        if self.kind != "sequence" and self.label is None:
            raise ValueError(f'a part of kind {self.kind!r} needs a label: add label = "..."')
        if self.n_groups is not None and self.kind not in ("serial", "mixed"):
            raise ValueError(f"n_groups is for parts of kind 'serial' and 'mixed', not {self.kind!r}; leave it out")
        if self.half_width is not None and self.kind != "window":
            raise ValueError(f"half_width is for parts of kind 'window', not {self.kind!r}; leave it out")
        return self


class GraphTable(Table):
    """How labels become similarities: a sum of parts, or "auto"."""

    parts: Literal["auto"] | list[GraphPart] = Field(default="auto", max_length=100)


Sizes = Annotated[int, Field(ge=1, le=4096)] | list[Annotated[int, Field(ge=1, le=4096)]]


class LayerTable(Table):
    """One layer, as in `higsfa.Layer`."""

    field: Sizes
    stride: Sizes | None = None
    n_components: Annotated[int, Field(ge=1, le=10_000)] = 20
    expansion: Annotated[str, Field(max_length=1000)] = "identity | power0.8"
    pca: Annotated[int, Field(ge=1, le=10_000)] | None = None
    n_slow: Annotated[int, Field(ge=0, le=10_000)] | None = None
    shared: bool = False
    pad: bool = False


Preset = Literal["pyramid", "single", "higsfa_g3", "hgsfa_g3", "higsfa_g3_hgsfa_parameters", "higsfa_g1", "higsfa_lopo"]


class NetworkTable(Table):
    """The network that reduces the images to features."""

    preset: Preset = "pyramid"
    kind: Literal["HiGSFA", "HGSFA"] = "HiGSFA"
    n_components: Annotated[int, Field(ge=1, le=10_000)] = 60
    expansion: Annotated[str, Field(max_length=1000)] = "identity | power0.8"
    layers: list[LayerTable] | None = Field(default=None, min_length=1, max_length=100)
    delta_threshold: Annotated[float, Field(gt=0, le=4)] | None = None
    dtype: Literal["float32", "float64"] | None = None
    n_jobs: Annotated[int, Field(ge=-1024, le=1024)] = -1
    memory: Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*[kKMGT]?i?B?\s*$")] | None = None


class HeadTable(Table):
    """The supervised step on top of the features."""

    n_features: NFeatures | dict[Name, NFeatures] = "cv"
    n_classes: dict[Name, Annotated[int, Field(ge=2, le=10_000)]] = {}
    integer: list[Name] = []


class ProtocolTable(Table):
    """Which samples are for training and which for testing."""

    kind: Literal["split", "random", "s1s2s3", "leave_persons_out", "cross_database"] = "split"
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    by_person: bool = False
    n_persons: Count = 2000
    sizes: dict[Literal["MB", "MW", "FB", "FW"], Count] | None = None
    ages: Annotated[list[Annotated[int, Field(ge=0, le=150)]], Field(min_length=2, max_length=2)] = [16, 77]
    binary_race: bool = False
    seed: Seed = 0


Method = Literal["hgsfa", "higsfa_hgsfa_parameters", "pca", "lda", "chance"]


class ComparisonTable(Table):
    """What to compare the network with."""

    methods: list[Method] = ["chance"]
    n_features: dict[Method, NFeatures | dict[Name, NFeatures]] = {}
    sensitivity: list[Annotated[float, Field(gt=0, le=4)]] = Field(default=[], max_length=100)


class OutputTable(Table):
    """What is kept for figures."""

    examples: Annotated[int, Field(ge=0, le=16)] = 16


class Config(Table):
    """An experiment. Read one with `load_config`.

    Attributes
    ----------
    title : str
    data, test_data : tables
        Where samples come from; `test_data` only for the protocol "cross_database".
    labels : dict of tables
        What labels mean, by name.
    distortion : table or None
    graph, network, head, protocol, comparison, output : tables
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
        if (self.test_data is not None) != (self.protocol.kind == "cross_database"):
            raise ValueError('a table [test_data] goes with [protocol] kind = "cross_database", and only with it')
        if "higsfa_hgsfa_parameters" in self.comparison.methods and self.network.preset != "higsfa_g3":
            raise ValueError("comparison.methods: 'higsfa_hgsfa_parameters' is for network.preset = \"higsfa_g3\" only")
        if "hgsfa" in self.comparison.methods and (self.network.kind == "HGSFA" or self.network.preset == "hgsfa_g3"):
            raise ValueError("comparison.methods: the network is HGSFA already; leave 'hgsfa' out")
        data = self.data
        if isinstance(data, FacesData) and data.n_train % data.images_per_person:
            raise ValueError(
                "data.n_train must be a multiple of data.images_per_person, so that no person is in both sets"
            )
        if isinstance(data, FacesData) and (data.n_train + data.n_test) * data.size**2 > MAX_PIXELS:
            raise ValueError(f"data: more than {MAX_PIXELS:,} pixels of faces are drawn; take fewer or smaller ones")
        return self

    def plain(self) -> dict[str, Any]:
        """All values as dictionaries, lists, texts and numbers; what is None is left out."""
        return self.model_dump(mode="json", exclude_none=True)
