"""Tar shards by webdataset, in the worker processes of a DataLoader.

usage: python -m benchmarks.readers.tars make FILE SIZE SAMPLE
       python -m benchmarks.readers.tars read SOURCE WORKERS KEY...
"""

import io
import os
import sys
import tarfile
import time
from collections.abc import Callable, Iterator

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source


def make(file: str, size: str, sample: str) -> None:
    content = os.urandom(int(sample))
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for index in range(int(size) // (int(sample) + 1024)):  # a header and the padding
            entry = tarfile.TarInfo(f"{index:06d}.jpg")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def read(text: str, workers: str, *keys: str) -> None:
    import_library(text)
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
    from webdataset.tariterators import group_by_keys, tar_file_expander

    class Shards(IterableDataset):
        """Samples of this worker's shards; the first of each worker says that it is up."""

        def __iter__(self) -> Iterator[int]:
            source, worker = open_source(text), get_worker_info()
            yield -1
            share = keys[worker.id :: worker.num_workers]
            streams = ({"url": key, "stream": source.open(key)} for key in share)
            for sample in group_by_keys(tar_file_expander(streams)):
                yield len(sample["jpg"])

    def make_reader(_: int) -> Callable[[], Figures]:
        def run() -> Figures:
            loader = iter(DataLoader(Shards(), batch_size=None, num_workers=int(workers), prefetch_factor=32))
            for _ in range(int(workers)):
                assert next(loader) == -1
            started, n_bytes, samples = time.perf_counter(), 0, 0
            for n in loader:
                n_bytes += n
                samples += 1
            return {"bytes": n_bytes, "samples": samples, "samples_per_s": samples / (time.perf_counter() - started)}

        return run

    report(read_in_processes(1, make_reader))


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](*sys.argv[2:])
