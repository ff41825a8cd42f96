#!/usr/bin/env python3
"""Train a classifier on a directory of class folders with PNG files: DIRECTORY/CLASS/NAME.png.

An ordinary training script: it reads files and knows nothing of where they come from.
It ends with 0 when the classifier is good enough on files it has not seen.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def load(path: Path) -> tuple[np.ndarray, str]:
    """One sample: the pixels as a row of numbers, and its class."""
    with Image.open(path) as image:
        return np.asarray(image.convert("L"), dtype=np.float32).ravel(), path.parent.name


def load_all(directory: Path, n_workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Every sample, read by worker processes; prints how long that took."""
    started_at = time.perf_counter()
    paths = sorted(directory.glob("*/*.png"))
    if not paths:
        sys.exit(f"no files match {directory}/*/*.png")
    pixels, classes = [], []
    with ProcessPoolExecutor(n_workers) as workers:
        for row, name in workers.map(load, paths, chunksize=16):
            if not pixels:
                print(f"first sample after {time.perf_counter() - started_at:.2f} s")
            pixels.append(row)
            classes.append(name)
    elapsed_s = time.perf_counter() - started_at
    print(f"{len(paths)} samples in {elapsed_s:.2f} s, {len(paths) / elapsed_s:.0f} samples/s")
    return np.stack(pixels), np.array(classes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="holds one folder of PNG files for each class")
    parser.add_argument("--workers", type=int, default=4, help="processes that read (default: %(default)s)")
    parser.add_argument("--min-accuracy", type=float, default=0.9, help="fail below this (default: %(default)s)")
    options = parser.parse_args()

    pixels, classes = load_all(options.directory, options.workers)
    seen, unseen, seen_classes, unseen_classes = train_test_split(
        pixels, classes, test_size=0.25, stratify=classes, random_state=0
    )
    classifier = make_pipeline(StandardScaler(), SVC()).fit(seen, seen_classes)
    accuracy = classifier.score(unseen, unseen_classes)
    print(f"accuracy {accuracy:.3f} on {len(unseen)} samples it has not seen")
    return 0 if accuracy >= options.min_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
