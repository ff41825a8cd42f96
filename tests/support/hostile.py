"""Keys that anybody who may write to a bucket can make, to lead a reader's host astray."""

HOSTILE_KEYS = [
    "../../../../tmp/s3mount-escaped",
    "..",
    "a/../../b",
    "/etc/passwd",
    "//",
    "a\0b",
    "a\nb: [ERROR] forged",
    "\x1b]0;title\x07\x1b[31m",
    "\x9b31m",
    "-rf",
    "$(touch s3mount-escaped)",
    "x" * 1024,
    "\u202egnp.exe",
]
