"""Programs that write, as training jobs do: through a mount, or by a library that needs none; rules as `readers`."""
