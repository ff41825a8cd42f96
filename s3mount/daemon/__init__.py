"""The process around the file system: composition, signals, readiness, logs, exit codes."""
