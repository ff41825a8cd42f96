"""Numbers: timed comparisons, all contenders in one run, medians and ratios.  Never part of the tests."""
