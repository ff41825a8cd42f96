"""The writing numbers: ours, its peers and the raw client, against one server in one run.

usage: python -m benchmarks.write [--repeats N] [--only NAME,...] [--json FILE] [--quick] [--without-peers]

Needs root, /dev/fuse, what `.ci/prepare test,bench` installs, and 16 GiB of memory.  The server is on the same machine,
once as it is and once 20 ms away, and keeps its objects in memory, or it would be a disk that is measured; the ratios
are what to look at.
"""

from benchmarks.reading.program import Parts, run
from benchmarks.writing.many import appends, files
from benchmarks.writing.names import remove, rename
from benchmarks.writing.saves import distributed, save

_PARTS: Parts = {
    "save": save, "dcp": distributed, "files": files, "appends": appends, "rename": rename, "remove": remove,
}  # fmt: skip

if __name__ == "__main__":
    run("benchmarks.write", _PARTS, in_memory=True)
