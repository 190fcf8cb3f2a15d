"""Images: normalised faces, distorted copies, and edges. :mod:`~higsfa.images.geometry` defines positions."""

from higsfa.images.distortion import Distortion
from higsfa.images.faces import FaceSampler, normalize_pose, sample_face
from higsfa.images.pixels import normalize_contrast, oriented_edges

__all__ = ["Distortion", "FaceSampler", "normalize_contrast", "normalize_pose", "oriented_edges", "sample_face"]
