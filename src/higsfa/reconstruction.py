"""From features back to inputs: linear and nonlinear reconstruction, morphing, and what a feature sees.

See :class:`LinearReconstruction` for the paper's global linear map, :func:`refine` for images with given features,
:func:`morph` for the same photograph with another label, and :func:`feature_template`, :func:`feature_gradient` and
:func:`extreme_inputs` for three answers to what a feature sees.
"""

from higsfa._reconstruction_linear import LinearReconstruction
from higsfa._reconstruction_morph import morph
from higsfa._reconstruction_prior import ImagePrior
from higsfa._reconstruction_refine import Refinement, refine
from higsfa._reconstruction_sight import extreme_inputs, feature_gradient, feature_template

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
