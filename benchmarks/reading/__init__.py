"""The rows of `benchmarks.read`: what is read, by whom, at what distance, and what it should give.

A row measures all its contenders in one run against the same server; ratios are of that run.  Every contender
starts cold: a mount of its own, nothing in the page cache.
"""
