"""Handwritten digits: how well a simple classifier reads them from a few features.

    python examples/digits.py

Features of the 8 x 8 images of scikit-learn (1,797 samples) are learned by PCA, LDA, GSFA and iGSFA; a Gaussian per
class reads the digit from them. Everything, the features too, is fitted on the training part of each fold: five times
five-fold cross-validation. The last column says how much of the image's variance is lost when it is rebuilt linearly from
the features of held-out images.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline

from higsfa import GSFA, IGSFA

# LDA has at most nine features for ten classes; the others get as many, and iGSFA also a few more.
QUADRATIC = {"expansion": "identity | quadratic", "shrinkage": 0.03}
METHODS = {
    "PCA": (9, PCA(9)),
    "LDA": (9, LinearDiscriminantAnalysis(n_components=9)),
    "GSFA": (9, GSFA(9, graph="clustered")),
}


def reader() -> QuadraticDiscriminantAnalysis:
    """One Gaussian per class; a little regularisation for covariances from few samples."""
    return QuadraticDiscriminantAnalysis(reg_param=0.01)
