"""What a server saw: the lines of an nginx log, added up."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Attributes: requests by kind, bytes of content sent, the largest GET, GETs at once at most."""

    gets: int
    heads: int
    lists: int
    n_bytes: int
    largest: int
    at_once: int


def add_up(lines: Iterable[str]) -> Traffic:
    """The traffic of log lines: method, status, bytes, uri, range, time of the end and duration in seconds."""
    heads = lists = 0
    sizes: list[int] = []
    edges: list[tuple[float, int]] = []
    for line in lines:
        method, _, n_bytes, uri, *_, ended, took = line.split(" ")
        if method == "HEAD":
            heads += 1
        elif "list-type=" in uri or "prefix=" in uri or "location" in uri:
            lists += 1
        elif method == "GET":
            sizes.append(int(n_bytes))
            # One that ends in the millisecond in which another begins is not beside it.
            edges += [(float(ended) - float(took) + 0.0005, 1), (float(ended), -1)]
    now = at_once = 0
    for _, change in sorted(edges):
        now += change
        at_once = max(at_once, now)
    return Traffic(len(sizes), heads, lists, sum(sizes), max(sizes, default=0), at_once)
