"""What a name in the metadata cache costs, in a process that does nothing else.

usage: python -m benchmarks.cache_memory rss|tracemalloc N     prints one JSON object

`rss` is what the machine pays, `tracemalloc` what Python asked for; the second slows and swells the
first, so each has its own process.  Names come in directories of 1,000, as pages of LIST parsed by
`parse_list_page`: every string is a new one, as in the daemon.
"""

import gc
import json
import sys
import time
import tracemalloc
from pathlib import Path

from benchmarks.many_keys import KeySet, make_keys
from s3mount.cache.ages import MetadataConfig
from s3mount.cache.metadata import MetadataCache
from s3mount.core.entry_pages import EntryPages
from s3mount.core.listing import ListingFold
from s3mount.core.ttl import INDEFINITE
from s3mount.store.list_xml import parse_list_page
from s3mount.units import KIB

_EACH = 1000


def main(how: str, n: int) -> None:
    cache = MetadataCache(time.perf_counter, MetadataConfig(INDEFINITE, INDEFINITE))
    _put(cache, 0)  # what the first one imports and keeps is not a name's
    already = cache.statistics().listed_names
    if how == "tracemalloc":
        tracemalloc.start()
    gc.collect()
    before = _used(how)
    for index in range(1, n // _EACH):
        _put(cache, index)
    gc.collect()
    names = cache.statistics().listed_names - already
    print(json.dumps({"bytes_per_name": (_used(how) - before) / names, "names": names}))


def _put(cache: MetadataCache, index: int) -> None:
    directory = f"train/{index:06d}"
    key = directory + "/"
    page = parse_list_page(KeySet(make_keys("padded", directory, _EACH)).page({"prefix": key}))
    cache.listings.put(key, EntryPages(key, ListingFold(key).add(page)), cache.now())


def _used(how: str) -> int:
    if how == "tracemalloc":
        return tracemalloc.get_traced_memory()[0]
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * KIB


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
