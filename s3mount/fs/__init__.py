"""The file system in its own types: trio yes; pyfuse3 and botocore no."""
