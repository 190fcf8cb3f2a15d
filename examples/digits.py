"""Handwritten digits: how well a simple classifier reads them from a few features.

    python examples/digits.py

Features of scikit-learn's 1,797 images of 8 x 8 pixels are learned by PCA, LDA, GSFA and iGSFA, and one Gaussian per
class reads the digit from them. Five-fold cross-validation, repeated five times with other folds; everything, features
too, is fitted on the training part of a fold. The last column tells how much of the variance of held-out images is lost
when they are rebuilt from the features by linear regression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from higsfa import GSFA, IGSFA

REPEATS = 5
QUADRATIC = "identity | quadratic"


def methods() -> list[tuple[str, int, Any]]:
    """Name, number of features, transformer. Ten classes give LDA and GSFA nine useful features.

    All products of 64 pixels would be more variables than samples, so quadratic features start from 20 principal
    components.
    """
    return [
        ("PCA", 9, PCA(9)),
        ("LDA", 9, LinearDiscriminantAnalysis(n_components=9)),
        ("GSFA", 9, GSFA(9, graph="clustered")),
        (
            "LDA, quadratic",
            9,
            make_pipeline(
                PCA(20), PolynomialFeatures(2, include_bias=False), LinearDiscriminantAnalysis(n_components=9)
            ),
        ),
        ("GSFA, quadratic", 9, make_pipeline(PCA(20), GSFA(9, graph="clustered", expansion=QUADRATIC))),
        ("PCA", 20, PCA(20)),
        ("iGSFA", 20, IGSFA(20, graph="clustered", n_slow=9)),
        ("iGSFA, quadratic", 20, make_pipeline(PCA(20), IGSFA(20, graph="clustered", expansion=QUADRATIC, n_slow=9))),
    ]


def score(features: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> tuple[float, float]:
    """Accuracy, and fraction of the variance that is lost, on one fold."""
    features = clone(features).fit(X[train], y[train])
    seen, unseen = features.transform(X[train]), features.transform(X[test])
    accuracy = QuadraticDiscriminantAnalysis().fit(seen, y[train]).score(unseen, y[test])
    rebuilt = LinearRegression().fit(seen, X[train]).predict(unseen)
    lost = np.sum((X[test] - rebuilt) ** 2) / np.sum((X[test] - X[train].mean(axis=0)) ** 2)
    return accuracy, float(lost)


def main() -> None:
    """Print the table."""
    X, y = load_digits(return_X_y=True)
    folds = list(RepeatedStratifiedKFold(n_splits=5, n_repeats=REPEATS, random_state=0).split(X, y))
    print("| features | number | digits read correctly | variance lost |")
    print("| --- | ---: | ---: | ---: |")
    for name, number, features in methods():
        results = np.array([score(features, X, y, train, test) for train, test in folds])
        accuracy, lost = results.reshape(REPEATS, -1, 2).mean(axis=1).T
        print(f"| {name} | {number} | {accuracy.mean():.1%} ± {accuracy.std():.1%} | {lost.mean():.0%} |")


if __name__ == "__main__":
    main()
