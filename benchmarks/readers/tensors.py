"""Model files: slices of safetensors by many processes, and files that are loaded whole.

usage: python -m benchmarks.readers.tensors make safetensors|torch FILE BYTES
       python -m benchmarks.readers.tensors slices PROCESSES THREADS FILE...
       python -m benchmarks.readers.tensors load safetensors|torch SOURCE KEY

`slices` is tensor parallelism: each process takes its part of every tensor, rows of one and columns of the next; its
threads share the files' tensors.  Memory of a loaded file is touched: a mapping that nobody looked at was not read.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source

_WIDTH = 1024
_ROWS = 4096  # of 1,024 float32: 16 MiB a tensor


def make(kind: str, file: str, n_bytes: str) -> None:
    import torch
    from safetensors.torch import save_file

    rows = min(_ROWS, int(n_bytes) // (4 * _WIDTH * 4))
    n = int(n_bytes) // (rows * _WIDTH * 4)
    one = torch.randn(rows, _WIDTH)  # a file repeats it; S3 does not compress
    tensors = {f"layer.{index:04d}.weight": one.clone() for index in range(n)}
    save_file(tensors, file) if kind == "safetensors" else torch.save(tensors, file)


def slices(processes: str, threads: str, *files: str) -> None:
    import numpy  # noqa: F401  shared by the processes
    from safetensors import safe_open

    def make_reader(rank: int) -> Callable[[], Figures]:
        def take(opened: tuple[object, str, int]) -> int:
            file, name, number = opened
            tensor = file.get_slice(name)
            rows, columns = tensor.get_shape()
            if number % 2:
                step = columns // int(processes)
                return tensor[:, rank * step : (rank + 1) * step].nbytes
            step = rows // int(processes)
            return tensor[rank * step : (rank + 1) * step].nbytes

        def run() -> Figures:
            opened = [safe_open(file, framework="numpy") for file in files]
            work = [(file, name, number) for file in opened for number, name in enumerate(sorted(file.keys()))]
            with ThreadPoolExecutor(int(threads)) as pool:
                return {"bytes": sum(pool.map(take, work))}

        return run

    report(read_in_processes(int(processes), make_reader))


def load(kind: str, text: str, key: str) -> None:
    import torch
    from safetensors.torch import load_file

    import_library(text)

    def make_reader(_: int) -> Callable[[], Figures]:
        source, directory = open_source(text), text.removeprefix("path:")
        is_file = directory != text

        def run() -> Figures:
            started = time.perf_counter()
            if kind == "safetensors":
                tensors = load_file(f"{directory}/{key}")
            else:
                tensors = torch.load(f"{directory}/{key}" if is_file else source.open(key))
            call_s = time.perf_counter() - started
            for tensor in tensors.values():
                tensor.view(-1)[::_WIDTH].sum()  # one element of each page
            return {"bytes": sum(tensor.nbytes for tensor in tensors.values()), "call_s": call_s}

        return run

    report(read_in_processes(1, make_reader))


if __name__ == "__main__":
    {"make": make, "slices": slices, "load": load}[sys.argv[1]](*sys.argv[2:])
