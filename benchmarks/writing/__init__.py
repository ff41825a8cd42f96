"""Parts of the writing benchmark: each makes rows of one table from what programs of `benchmarks.writers` report."""
