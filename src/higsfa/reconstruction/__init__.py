"""From features back to inputs: linear and nonlinear reconstruction, morphing, and what a feature sees.

See :class:`LinearReconstruction` for the paper's global linear map, :func:`refine` for images with given features,
:func:`morph` for the same photograph with another label, and :func:`feature_template`, :func:`feature_gradient` and
:func:`extreme_inputs` for what a feature sees.
"""

from higsfa.reconstruction.linear import LinearReconstruction
from higsfa.reconstruction.morphing import morph
from higsfa.reconstruction.refinement import ImagePrior, Refinement, refine
from higsfa.reconstruction.views import extreme_inputs, feature_gradient, feature_template

__all__ = [
    "ImagePrior",
    "LinearReconstruction",
    "Refinement",
    "extreme_inputs",
    "feature_gradient",
    "feature_template",
    "morph",
    "refine",
]
