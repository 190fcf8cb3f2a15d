"""Images: faces made comparable, distorted copies of them, and their edges.

:mod:`~higsfa.images.geometry` says how places count.
"""

from higsfa.images.contrast import normalize_contrast
from higsfa.images.distortion import Distortion
from higsfa.images.edges import oriented_edges
from higsfa.images.faces import FaceSampler, normalize_pose, sample_face

__all__ = ["Distortion", "FaceSampler", "normalize_contrast", "normalize_pose", "oriented_edges", "sample_face"]
