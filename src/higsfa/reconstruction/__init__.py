"""From features back to inputs: linear and nonlinear reconstruction, morphing, and what a feature sees."""

from higsfa.reconstruction.gradients import extreme_inputs, feature_gradient, feature_template
from higsfa.reconstruction.linear import LinearReconstruction
from higsfa.reconstruction.morphing import morph
from higsfa.reconstruction.refinement import ImagePrior, Refinement, refine

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
