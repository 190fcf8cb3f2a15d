"""What docstrings say of the parameters of estimators and of `fit`, each said once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

PARAMETERS = r"""
n_components : int, optional
    Number of features; all of them by default.
layers : list of Layer, optional
    The layers, bottom up; by default a pyramid for the shape of the input (see :func:`higsfa.presets.pyramid`).
graph : recipe or str, default="auto"
    How labels become similarities: a recipe of :mod:`higsfa.graphs` or one of "clustered", "serial", "mixed",
    "window", "sequence", "label", "code", "uniform". "auto" is clustered for labels that name classes; for
    numbers it is a label graph of ranks.
label_kinds : dict from labels to "categorical" or "numeric", or one of these for a single label, optional
    What labels are, where the guess of ``graph="auto"`` is wrong or unsure: text, booleans and a pandas Categorical are
    classes; so are at most 20 different whole numbers that repeat, and codes 0, 1, 2, ... without a gap that repeat.
    Labels are named as in y: columns, keys, or numbers of columns. Other graphs say it themselves. After `fit`,
    `label_kinds_` has what labels were taken for.
front : {"auto", "edges"}, OrientedEdges or None
    What comes before the layers: "edges" describes pictures by the strength of edges in cells, see
    :class:`higsfa.OrientedEdges`. "auto", the default for labelled networks: edges, if the network designs itself
    (`layers` is None) and samples are pictures of at least 16 x 16 pixels with at most 4 channels.
expansion : str, Expansion or callable, default="identity"
    Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
    :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
lag : int or list of int, default=1
    Number of time steps between the samples that are compared; of several, all pairs count alike.
delays : int, default=0
    Number of earlier samples that are put beside each sample as further features (delay embedding); see
    :class:`higsfa.DelayEmbedding`. Samples at the beginning of a recording, which have not enough past, take no part
    in `fit`; in `transform` the first sample of the recording stands for those before it.
node_weights : {"degree"}, optional
    Weight of a sample in mean and variance: 1 by default; "degree" counts it as often as it is in a pair of samples
    that are compared, as TICA does.
delta_threshold : float, default=1.96
    Features with a smaller Delta form the slow part; noise has Delta 2. Negative: no slow part, which is PCA.
    4 or more: slow features only.
n_slow : int or "auto", optional
    Number of slow features, instead of `delta_threshold`; "auto" takes those that are slower than noise on samples that
    were left out of training.
scaling : {"sensitivity", "qr"}, default="sensitivity"
    How slow features get amplitudes that match the reconstructive ones: by the norm of their column of M, without
    mixing them, or by the QR decomposition of M.
min_scale : float, default=1e-3
    Lower bound on the scales, relative to the largest amplitude.
weighted : bool, default=False
    Whether regression and PCA use the vertex weights of the graph as well.
shrinkage : float or "auto", default=0.0
    Against overfitting: solve as if white noise with this fraction of its variance were added to every expanded
    variable. Features are sorted by Delta with that noise, so their own Delta values need not ascend. "auto" takes the
    value that makes features slowest on samples that were left out of training (see `cv`), and 0 where none can be left
    out: in `partial_fit`, with a graph that was built beforehand or given by its edges, for a single recording.
clip_range : bool, default=True
    Clip inputs to their range in the training data before a nonlinear expansion, so that unseen data cannot blow up
    (in a network, from layer to layer). It changes nothing on the training data.
center : array-like of shape (n_features,), optional
    What to subtract from the input before the expansion; the mean by default. If given, `partial_fit` also works
    with nonlinear expansions.
cv : int, splitter of scikit-learn or iterable, default=5
    Folds on which "auto" is decided, or their number. Samples of a group (see `groups` in `fit`) and copies of a
    sample stay together, and folds hold all labels in like proportions. One pass serves all folds.
input_shape : tuple of int, optional
    Shape of a sample: (length,), (height, width) or (depth, height, width), followed by the number of channels if
    there are several. Taken from X by default; flat X without it is a one-dimensional signal.
n_jobs : int, optional
    Number of threads; -1 for all cores. The result is the same, to the bit.
memory_limit : int or str, optional
    Memory for what is kept between passes, such as "2 GiB"; half of the available memory by default. With less,
    features go to disk instead (see `spill`). The result is the same.
spill : str, path or False, optional
    Folder for features that do not fit into memory; the system's temporary folder by default, if it is on a disk.
    False: write nothing, and compute such features again in every pass.
engine : {"threads", "dask"}, default="threads"
    Where passes run: on threads of this process, or on the workers of the active `distributed.Client` (without one, of
    a cluster of `n_jobs` processes on this machine). The result is the same, to the bit.
verbose : int, default=0
    1 shows a progress bar.
"""
LABELS = """
y : array-like of shape (n_samples,) or (n_samples, n_labels), DataFrame or dict of arrays, optional
    Labels. Missing values take a sample out of the graph of that label only."""
NO_LABELS = "\ny : ignored; `groups` tells recordings apart"
FIT = """
X : array-like of shape (n_samples, n_features), source, zarr or dask array, list of pictures or of their files
    Samples; networks take them in the shape of an input, too. A list may hold arrays, tensors, PIL images or
    paths of picture files, all of one size; pictures are in colour if any of them is, else grey. `SFA` and `ISFA` take
    a list of recordings (n_samples, n_features) of any lengths, too, or a stack (n_recordings, n_samples, n_features)
    of equal ones. Gaps in the time index of a DataFrame (steps that are more than half of the median step off) and
    samples with missing values cut a recording, and a warning says so.
graph : recipe, TrainingGraph or str, optional
    Used instead of the parameter `graph`.
sample_weight : array-like of shape (n_samples,), optional
    Weight w counts a sample w times. In time series it multiplies the weight of a sample in mean and variance, not
    that of pairs.
pair_weight : array-like of shape (n_samples,) or (n_samples, n_lags), optional
    Weight of the pair that begins with each sample; entries of samples without a later one are not used.
groups : array-like of shape (n_samples,), optional
    The recording of each sample, for graphs in time order: no transition is made from one recording to the next. With
    other graphs what samples belong to (a person, say): where "auto" is decided, a group is never divided.
forgetting : float, default=1.0
    Factor on the weight of all earlier samples, for streams that drift; 1 forgets nothing.
checkpoint : path, optional
    Folder for finished layers. An interrupted fit of the same data, labels and settings continues from there, to the
    same bits.
"""
NODE = r"""
Attributes
----------
delta_values_ : array
    Delta values, slowest first.
n_slow_ : int
    Number of slow features; they are the first columns of the output.
n_components_ : int
    Number of features.
rank_ : int
    Rank of the covariance of the expanded data.
shrinkage_ : float
    The shrinkage that was used.
held_out_delta_values_ : array or None
    Delta values on samples that were left out of training, means over folds; None if there were no folds.
held_out_ : HeldOut or None
    How all values of the shrinkage did: `ladder`, `slowness`, `delta_values`, `training_delta_values`.
mean_ : array of shape (n_features,)
    What is subtracted from the input.
timescales_ : array
    `SFA` and `ISFA`: time scales of the features, -lag / ln(1 - Delta / 2); NaN for those that are faster than noise.
statistics_ : Statistics
    The sums behind the fit; see `fit_from_statistics`. Those of time series, classes and label graphs add and subtract:
    ``a.statistics_ + b.statistics_``.
n_features_in_ : int
    Number of inputs.
"""
NETWORK = r"""
Attributes
----------
layers_ : list
    The trained layers: `delta_values`, `n_slow` and `rank` of every node, and the nodes themselves.
n_components_ : int
    Number of features.
n_slow_ : int or None
    Size of the slow part of the top node, if there is one top node.
delta_values_ : array or None
    Delta values of the slow features of the top node.
shrinkage_ : list of float
    The shrinkage of each layer.
held_out_ : list of HeldOut or None
    How all values of the shrinkage did in each layer, on samples that a network trained on others had not seen;
    None where a number was given.
input_shape_ : tuple of int
    Shape of a sample.
front_ : OrientedEdges or None
    What comes before the layers.

{igsfa_paper}
"""
SHARED = {
    "preserving": r"""
The features have two parts. The slow part :math:`s'` holds the slow features with :math:`\Delta` below
`delta_threshold`. They predict the input, :math:`x' \approx M s' + b`, and the reconstructive part holds the first
principal components of what is left, :math:`u = x' - M s' - b`. Slow features are scaled to
:math:`y' = \Lambda s'` (or :math:`R s'`), so that a change of a feature changes the reconstruction by as much.
`inverse_transform` rebuilds the input: :math:`\tilde x = M \Lambda^{-1} y' + b + W^T h + \bar x`.
The paper writes a lower-case i; independent SFA is another method.
""",
    "hierarchy": """
Each node sees a small receptive field of the layer below, so the cost is linear in the size of the input and in the
number of samples. Training is closed form, with one pass per layer plus one over the raw input.
""",
    "igsfa_paper": """
References
----------
Escalante-B., A. N. and Wiskott, L. (2020). Improved graph-based SFA: information preservation complements the
slowness principle. Machine Learning 109, 999-1037.
""",
    "digits": """
Examples
--------
>>> from sklearn.datasets import load_digits
>>> from higsfa import {name}, Layer
>>> images, digit = load_digits(return_X_y=True)
>>> layers = [Layer(field=(4, 4), stride=(2, 2), n_components=8), Layer(field=(3, 3), n_components=12)]
>>> net = {name}(layers, input_shape=(8, 8)).fit(images, digit)
>>> net.transform(images).shape
(1797, 12)
>>> net.layers_[0].shape
(3, 3)
""",
    "toy": """
Examples
--------
>>> import numpy as np
>>> from higsfa import {name}, Layer
>>> from higsfa.datasets import make_toy
>>> X, signals = make_toy(4000)
>>> options = {"n_slow": 1, "expansion": "identity | quadratic"}
>>> net = {name}([Layer(2, n_components={width}, **options), Layer(2, n_components=1, **options)])
>>> found = net.fit_transform(X)[:, 0]
>>> bool(abs(np.corrcoef(found, signals["s1"])[0, 1]) > 0.99)
""",
}
T = TypeVar("T", bound=Any)


def _fill(thing: T, described: str, end: str, values: dict[str, Any]) -> T:
    """Fill in a docstring: {parameters}, in the order of the signature, and the texts of SHARED."""
    texts = {entry.split(" :")[0]: entry for entry in re.split(r"\n(?=\w)", described.strip())}
    own = "\n".join(texts[name] for name in inspect.signature(thing).parameters if name != "self")
    doc = inspect.cleandoc(thing.__doc__ or "")
    tables = f"Parameters\n----------\n{own}\n\n{end.strip()}"
    for name, text in {"parameters": tables, **SHARED, "name": thing.__name__, **values}.items():
        doc = doc.replace(f"{{{name}}}", str(text).strip())
    thing.__doc__ = doc
    return thing


def documented(attributes: str, **values: Any) -> Callable[[T], T]:
    """Class decorator: fill in the docstring of an estimator, with values for the texts of SHARED."""
    return lambda estimator: _fill(estimator, PARAMETERS, attributes, values)


def fit_documented(y: str) -> Callable[[T], T]:
    """Decorator of `fit` and `partial_fit`, given what to say about y: fill in the docstring."""
    return lambda method: _fill(method, FIT.rstrip() + y, "Returns\n-------\nself", {})
