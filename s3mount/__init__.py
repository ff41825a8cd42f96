"""Mount an S3 bucket as a directory that training programs read at network speed."""

__version__ = "0.1.0"
