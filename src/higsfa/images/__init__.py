"""Images: distorted copies of them."""

from higsfa.images.distortion import Distortion

__all__ = ["Distortion"]
