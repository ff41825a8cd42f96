"""Pure decisions: no I/O, no clock, no logging, no randomness.  import-linter proves it."""
