"""O_DIRECT: threads that read slices of one object by large preadv, and check both ends of each.

usage: python -m benchmarks.readers.direct DIRECTORY KEY THREADS SLICE CONTENT

CONTENT is a local file whose bytes, repeated, are the object's.  The last slice ends where the object does.
"""

import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.readers.processes import Figures, read_in_processes, report

#: All bytes are compared in the tests; here that would take the time that is measured.
_CHECKED = 1 << 20


def main(directory: str, key: str, threads: str, slice_: str, content: str) -> None:
    step, piece = int(slice_), Path(content).read_bytes()
    if step != len(piece):
        raise ValueError("a slice is the content once")

    def make_reader(_: int) -> Callable[[], Figures]:
        descriptor = os.open(f"{directory}/{key}", os.O_RDONLY | os.O_DIRECT)
        size = os.fstat(descriptor).st_size
        buffers = [mmap.mmap(-1, step) for _ in range(int(threads))]
        for buffer in buffers:
            buffer.write(bytes(step))  # memory is there before the clock starts

        def read(index: int) -> int:
            wrong = 0
            for offset in range(index * step, size, step * len(buffers)):
                wanted, done = min(step, size - offset), 0
                while done < wanted:
                    n = os.preadv(descriptor, [memoryview(buffers[index])[done:]], offset + done)
                    if n == 0:
                        break
                    done += n
                head, tail = min(done, _CHECKED), max(done - _CHECKED, 0)
                is_right = buffers[index][:head] == piece[:head] and buffers[index][tail:done] == piece[tail:done]
                wrong += not (is_right and done == wanted)
            return wrong

        def run() -> Figures:
            with ThreadPoolExecutor(len(buffers)) as pool:
                return {"bytes": size, "wrong_slices": sum(pool.map(read, range(len(buffers))))}

        return run

    report(read_in_processes(1, make_reader))


if __name__ == "__main__":
    main(*sys.argv[1:])
