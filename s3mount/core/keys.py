"""Object key ↔ file name.

The rules (documented as promises in docs/semantics.md):

* `/` separates; every other character is ordinary, the backslash too.
* A component is a file name iff it is non-empty, is neither `.` nor `..`, has no NUL, and does not end as
  the objects of symbolic links do (core.symlinks).
  A key with any other component is hidden from that component on: the kernel could not ask
  for it, or would take it for something else.
* Names are UTF-8.  The kernel may ask for any bytes; what is not UTF-8 cannot be a key.
* A directory is a key prefix that ends in `/`; the root is the mount's prefix, possibly empty.

Keys are `str`, names from and to the kernel are `bytes`.
"""

from s3mount.core.symlinks import is_link_key
from s3mount.errors import InvalidName

#: S3 User Guide, "Naming Amazon S3 objects": a key is at most 1,024 bytes of UTF-8.
MAX_KEY_BYTES = 1024

SEPARATOR = "/"

#: Sorts after nearly every other; the two behind it are no characters.
_LAST_CHARACTER = "\U0010fffd"


def is_legal_component(component: str) -> bool:
    """Whether a part of a key between two slashes can be a file name."""
    return component not in ("", ".", "..") and "\0" not in component and not is_link_key(component)


def name_from_kernel(name: bytes) -> str:
    """The component a kernel request names.

    Raises:
        InvalidName: not UTF-8, or not a legal component, so that no request is needed.
    """
    try:
        component = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidName(f"the name {name!r} is not UTF-8, so no object can have it") from error
    if not is_legal_component(component) or SEPARATOR in component:
        raise InvalidName(f"the name {component!r} cannot be a component of a key")
    return component


def name_to_kernel(component: str) -> bytes:
    """The bytes the kernel gets for a component."""
    return component.encode("utf-8")


def is_directory_key(key: str) -> bool:
    """Whether a key names a directory: it ends in the separator, or is the empty root."""
    return key == "" or key.endswith(SEPARATOR)


def child_key(directory_key: str, component: str) -> str:
    """The key of a file in a directory; add the separator for a sub-directory."""
    return directory_key + component


def is_text(path: str) -> bool:
    """Whether a path has characters only, and not bytes that are no UTF-8, as `os.fsdecode` keeps them."""
    return path.isascii() or not any(0xD800 <= ord(each) <= 0xDFFF for each in path)


def fits_in_key(key: str) -> bool:
    """Whether S3 can hold a key at all; a longer one exists nowhere and costs no request."""
    return len(key.encode("utf-8")) <= MAX_KEY_BYTES


def split_key(path: str) -> tuple[str, str]:
    """The key of the directory that a path (without a trailing slash) is in, and its name there."""
    parent, separator, name = path.rpartition(SEPARATOR)
    return parent + separator, name


def paths_above(path: str) -> list[str]:
    """The paths of the directories that a path is in, the outermost first, without slashes at their ends."""
    parts = path.removesuffix(SEPARATOR).split(SEPARATOR)
    return [SEPARATOR.join(parts[:depth]) for depth in range(1, len(parts))]


def is_below(key: str, path: str) -> bool:
    """Whether a key is a path itself or below it; an empty path, or one that ends in a slash, is a directory's key."""
    return key.startswith(path) and (is_directory_key(path) or key[len(path) : len(path) + 1] in ("", SEPARATOR))


def just_before(key: str) -> str:
    """A string that sorts before a key, with next to nothing between the two: for S3's StartAfter.

    Args:
        key: not empty.
    """
    last = ord(key[-1]) - 1
    if 0xD800 <= last <= 0xDFFF:  # no character
        last = 0xD7FF
    return key[:-1] + chr(last) + _LAST_CHARACTER if last >= 0 else key[:-1]
