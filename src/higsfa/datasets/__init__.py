"""Synthetic data sets, and readers for data sets on disk."""

from higsfa.datasets.faces import draw_faces, face_parameters, make_faces, with_age
from higsfa.datasets.patches import make_moving_patches
from higsfa.datasets.rat import RatBox, make_rat_views
from higsfa.datasets.readers import ImageSet, read_fairface, read_fgnet, read_folder, read_morph2, read_utkface
from higsfa.datasets.toy import make_toy
from higsfa.evaluation.protocols import (
    Split,
    binary_race,
    cross_database,
    leave_persons_out,
    random_splits,
    s1_s2_s3,
    summarise,
)

__all__ = [
    "ImageSet",
    "RatBox",
    "Split",
    "binary_race",
    "cross_database",
    "draw_faces",
    "face_parameters",
    "leave_persons_out",
    "make_faces",
    "make_moving_patches",
    "make_rat_views",
    "make_toy",
    "random_splits",
    "read_fairface",
    "read_fgnet",
    "read_folder",
    "read_morph2",
    "read_utkface",
    "s1_s2_s3",
    "summarise",
    "with_age",
]
