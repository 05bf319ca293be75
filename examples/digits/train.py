#!/usr/bin/env python3
"""Trains the example's MLP, 64-128-128-10, in f32 on scikit-learn's handwritten digits, and writes
weights.bin, calibrate.bin and test.bin. Needs numpy and scikit-learn; run again only to change the
model. The digits: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI), 8 x 8 pixels
of 0 .. 16.

  weights.bin    for each layer: int32 out, int32 in, out x in f32 (PyTorch's [N, K]), out f32 biases
  *.bin images   int32 count, count x 64 u8 pixels, count u8 labels
"""
import pathlib

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(1)
images, labels = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(images.astype(np.float32), labels, test_size=450, random_state=1, stratify=labels)

sizes = [64, 128, 128, 10]
w = [(rng.standard_normal((o, i)) * np.sqrt(2 / i)).astype(np.float32) for i, o in zip(sizes, sizes[1:])]
w[0] /= 8
b = [np.zeros(o, np.float32) for o in sizes[1:]]
velocity = [np.zeros_like(p) for p in w + b]


def forward(a):
    keep = [a]
    for i in range(3):
        a = a @ w[i].T + b[i]
        if i < 2:
            a = np.maximum(a, 0)
        keep.append(a)
    return keep


for epoch in range(200):
    order = rng.permutation(len(x))
    for at in range(0, len(x), 32):
        i = order[at:at + 32]
        keep = forward(x[i])
        e = np.exp(keep[3] - keep[3].max(1, keepdims=True))
        g = e / e.sum(1, keepdims=True)
        g[np.arange(len(i)), y[i]] -= 1
        g /= len(i)
        gw, gb = [None] * 3, [None] * 3
        for l in (2, 1, 0):
            gw[l], gb[l] = g.T @ keep[l] + 3e-4 * w[l], g.sum(0)
            if l:
                g = (g @ w[l]) * (keep[l] > 0)
        for p, v, d in zip(w + b, velocity, gw + gb):
            v *= 0.9
            v -= 0.01 * (1 - epoch / 200) * d
            p += v

with open(here / "weights.bin", "wb") as f:
    for i in range(3):
        np.array(w[i].shape, "<i4").tofile(f)
        w[i].astype("<f4").tofile(f)
        b[i].astype("<f4").tofile(f)
for name, xs, ys in (("calibrate.bin", x[:256], y[:256]), ("test.bin", x_test, y_test)):
    with open(here / name, "wb") as f:
        np.array([len(xs)], "<i4").tofile(f)
        xs.astype(np.uint8).tofile(f)
        ys.astype(np.uint8).tofile(f)
print("test accuracy", (forward(x_test)[3].argmax(1) == y_test).mean())
