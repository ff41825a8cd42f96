"""Programs that read, as training jobs do: through a mount, or by a library that needs none.

Each is a process of its own and prints one JSON object.  They run in the interpreter that has the
peers' libraries (`benchmarks/peers.txt`), so nothing here imports the project, and a library is imported where
it is used: what reads through a mount needs none of them, unless the library is the workload.
"""
