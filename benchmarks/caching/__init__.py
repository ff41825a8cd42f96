"""The parts of `benchmarks.cache`."""
