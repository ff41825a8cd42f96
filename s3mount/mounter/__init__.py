"""The small process that mounts, keeps the descriptor, and starts the daemon again; standard library only."""
