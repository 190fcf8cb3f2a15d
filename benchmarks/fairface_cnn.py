"""A small convolutional network for age, gender and race, trained for a given processor time; see fairface.py.

    python3 -m venv /tmp/torchenv
    /tmp/torchenv/bin/pip install torch==2.13.0 numpy
    python benchmarks/fairface.py --cnn-python /tmp/torchenv/bin/python

It needs torch and numpy only, and runs in an environment of its own, because the library does not depend on torch.
DATA.npz holds `copies` (n, k, 64, 64), k distorted copies of each training image, `test` (m, 64, 64), both uint8, and
labels `age`, `gender`, `race` and `test_age`, `test_gender`, `test_race`. Prints one line of JSON.
"""

import argparse
import json
import time
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N_RACES = 7
YEARS = 20.0
"""Age is learnt in units of so many years."""


def block(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)
    )


class Net(nn.Module):
    """Five blocks of convolution, normalisation and pooling, then one linear map to all labels."""

    def __init__(self, width=16):
        super().__init__()
        sizes = [1, width, 2 * width, 3 * width, 4 * width, 6 * width]
        self.blocks = nn.Sequential(*(block(a, b) for a, b in pairwise(sizes)))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(4 * sizes[-1], 1 + 1 + N_RACES))

    def forward(self, x):
        return self.head(self.blocks(x))


def loss(out, age, gender, race):
    """Errors of the three labels, each of the order of 1."""
    return (
        F.l1_loss(out[:, 0], age)
        + F.binary_cross_entropy_with_logits(out[:, 1], gender)
        + F.cross_entropy(out[:, 2:], race)
    )


def standardised(images):
    x = torch.from_numpy(images).float().unsqueeze(1).to(memory_format=torch.channels_last)
    return (x - x.mean((2, 3), keepdim=True)) / (x.std((2, 3), keepdim=True) + 5)


def train(net, data, seconds, batch, seed):
    """Adam with a rate that rises and falls once over the time allowed; returns epochs and time on the clock."""
    rng = np.random.default_rng(seed)
    copies = data["copies"]
    n, k = copies.shape[:2]
    middle = float(data["age"].mean())
    age = torch.from_numpy((data["age"].astype(np.float32) - middle) / YEARS)
    gender, race = torch.from_numpy(data["gender"].astype(np.float32)), torch.from_numpy(data["race"].astype(np.int64))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    start, clock, done = time.process_time(), time.perf_counter(), 0
    net.train()
    while True:
        order = rng.permutation(n)
        for lo in range(0, n - batch + 1, batch):
            share = (time.process_time() - start) / seconds
            if share >= 1:
                return done / n, time.perf_counter() - clock, middle
            for group in optimizer.param_groups:
                group["lr"] = 4e-3 * min(share / 0.2 + 0.02, (1 - share) / 0.8)
            rows = order[lo : lo + batch]
            out = net(standardised(copies[rows, rng.integers(k, size=batch)]))
            value = loss(out, age[rows], gender[rows], race[rows])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            done += batch


def predict(net, images):
    """Mean output for images and their mirror images."""
    net.eval()
    with torch.no_grad():
        parts = [images[lo : lo + 500] for lo in range(0, len(images), 500)]
        sides = [torch.cat([net(standardised(side(part))) for part in parts]) for side in (np.asarray, mirrored)]
    return (sides[0] + sides[1]) / 2


def mirrored(images):
    return np.ascontiguousarray(images[:, :, ::-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--seconds", type=float, required=True, help="processor time for training")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with np.load(args.data, allow_pickle=False) as file:
        data = dict(file)
    net = Net().to(memory_format=torch.channels_last)
    epochs, seconds, middle = train(net, data, args.seconds, args.batch, args.seed)
    out = predict(net, data["test"])
    age = (YEARS * out[:, 0] + middle).numpy()
    row = {
        "age_mae": float(np.abs(age - data["test_age"]).mean()),
        "gender_rate": float(((out[:, 1] > 0).numpy() == data["test_gender"]).mean()),
        "race_rate": float((out[:, 2:].argmax(1).numpy() == data["test_race"]).mean()),
        "epochs": epochs,
        "n_parameters": sum(p.numel() for p in net.parameters()),
        "seconds": seconds,
        "cpu_seconds": args.seconds,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
