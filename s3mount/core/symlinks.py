"""Symbolic links as objects: the link NAME is the object NAME + `SUFFIX`, and its content is the target.

S3 has no links.  What a listing says is a key, a size, a time and an ETag, so only the key can say that an object is a
link at no request per ordinary file.  The suffix begins with a character that sorts before nearly every other: the
LIST of a look-up for NAME, which asks for what starts with NAME, has the link close behind (core.listing.judge).

An ordinary object of the same name hides a link, and a directory hides both.  No file or directory can have a name that
ends in the suffix.
"""

#: `!` is one of the characters that S3's documentation calls safe in keys; only controls and the blank sort before it.
SUFFIX = "!s3mount-symlink"
#: Linux: a target is shorter than PATH_MAX.
MAX_TARGET = 4095


def link_key(path: str) -> str:
    """The key of a link's object."""
    return path + SUFFIX


def is_link_key(key: str) -> bool:
    """Whether an object is a link."""
    return key.endswith(SUFFIX)


def shown_name(name: str) -> str:
    """The name that a key's last component is shown under."""
    return name.removesuffix(SUFFIX)
