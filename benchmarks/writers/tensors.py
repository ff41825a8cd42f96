"""Checkpoints: one file by torch.save, and one directory by the ranks of a job.

usage: python -m benchmarks.writers.tensors save SINK NAME BYTES
       python -m benchmarks.writers.tensors dcp-save|dcp-load SINK NAME BYTES RANKS

The tensors are made before the clock starts.
"""

import os
import sys
import tempfile
from collections.abc import Callable

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.writers.sinks import open_sink

_ROW = 4 << 20  # float32: 16 MiB a tensor


def _tensors(n_bytes: int, prefix: str) -> dict[str, object]:
    import torch

    one = torch.randn(min(_ROW, n_bytes // 4))
    return {f"{prefix}layer.{index:04d}": one + index for index in range(n_bytes // (one.numel() * 4))}


def save(text: str, name: str, n_bytes: str) -> None:
    import torch

    def make_writer(_: int) -> Callable[[], Figures]:
        sink, tensors = open_sink(text), _tensors(int(n_bytes), "")

        def run() -> Figures:
            with sink.writer(name) as file:
                torch.save(tensors, file)
            return {"bytes": int(n_bytes)}

        return run

    report(read_in_processes(1, make_writer))


def distributed(call: str, text: str, name: str, n_bytes: str, ranks: str) -> None:
    meeting = tempfile.mktemp()  # torch makes it

    def make_rank(rank: int) -> Callable[[], Figures]:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=int(ranks))
        sink, tensors = open_sink(text), _tensors(int(n_bytes) // int(ranks), f"rank{rank}.")

        def run() -> Figures:
            if call == "dcp-save":
                dcp.save(tensors, **sink.storage_writer(name))
            else:
                dcp.load(tensors, **sink.storage_reader(name))
            dist.barrier()
            return {"bytes": int(n_bytes) // int(ranks)}

        return run

    report(read_in_processes(int(ranks), make_rank))
    os.unlink(meeting)


if __name__ == "__main__":
    save(*sys.argv[2:]) if sys.argv[1] == "save" else distributed(*sys.argv[1:])
