"""What a user may write for BUCKET: a name, an access point ARN, or `s3://bucket/prefix/`.

Only the form is decided here; whether the bucket exists is S3's to say.
Sources: S3 User Guide, "General purpose bucket naming rules", "Access point ARNs", and "Directory bucket naming rules".
"""

import re
from dataclasses import dataclass

from s3mount.core.keys import MAX_KEY_BYTES, SEPARATOR
from s3mount.errors import BadOption

#: Letters, digits, dots and hyphens; upper case and underscores existed before 2018.
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_ACCESS_POINT_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):(?P<service>s3|s3-object-lambda|s3-outposts):"
    r"(?P<region>[a-z0-9-]*):(?P<account>[0-9]{12}):"
    r"(?P<resource>accesspoint[/:][a-z0-9-]+(?:\.mrap)?|outpost[/:][a-z0-9-]+[/:]accesspoint[/:][a-z0-9-]+)"
)
#: S3 Express One Zone: the id of the zone stands between the name and the suffix.
_DIRECTORY_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]*--(?P<region>[a-z0-9]+)(-[a-z0-9]+)?-az[0-9]+--x-s3")
_DIRECTORY_SUFFIX, _DIRECTORY_ACCESS_POINT_SUFFIX = "--x-s3", "--xa-s3"
#: The id of a region, as zones have it: use1 is us-east-1, apne1 ap-northeast-1.
_REGION_ID = re.compile(r"(?P<area>us|eu|ap|ca|sa|me|af|il|mx)(?P<side>[ns]?[ew]|[nsc])(?P<number>[0-9])")
_SIDES = {"n": "north", "s": "south", "e": "east", "w": "west", "c": "central"}


@dataclass(frozen=True)
class Location:
    """A bucket and the prefix in it that becomes the root directory.

    INVARIANT: `prefix` is empty or ends in `/`.
    """

    bucket: str
    prefix: str = ""

    @property
    def is_directory_bucket(self) -> bool:
        """Whether it is of S3 Express One Zone."""
        return self.bucket.endswith(_DIRECTORY_SUFFIX)

    @property
    def region(self) -> str | None:
        """Where a directory bucket is, by its name; None for others, and where the name does not tell.

        No answer of S3 can tell: in another region there is no host of that name.
        """
        match = _DIRECTORY_BUCKET.fullmatch(self.bucket)
        found = match and _REGION_ID.fullmatch(match["region"])
        if not found:
            return None
        return f"{found['area']}-{''.join(_SIDES[letter] for letter in found['side'])}-{found['number']}"

    @property
    def label(self) -> str:
        """What `mount` and `df` show as the source: the bucket and its prefix, nothing that splits options."""
        return re.sub(r"[\s,\\]", "_", f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket)


def parse_location(text: str, prefix: str | None = None) -> Location:
    """The location a user means.

    Args:
        text: BUCKET as typed.
        prefix: the value of `--prefix`, or None.

    Raises:
        BadOption: neither a bucket name nor an ARN we know, or an impossible prefix.
    """
    bucket, in_uri = text, ""
    if text.startswith("s3://"):
        bucket, _, in_uri = text.removeprefix("s3://").partition(SEPARATOR)
        if bucket.startswith("arn:"):
            raise BadOption("an ARN cannot stand in an s3:// address; give the ARN alone, and --prefix")
        if in_uri and prefix:
            raise BadOption(f"two prefixes were given: {in_uri!r} in the address and --prefix {prefix!r}")
    _check_bucket(bucket)
    chosen = prefix or in_uri
    _check_prefix(chosen)
    return Location(bucket, chosen)


def _check_bucket(bucket: str) -> None:
    if bucket.startswith("arn:"):
        match = _ACCESS_POINT_ARN.fullmatch(bucket)
        if match is None:
            raise BadOption(
                f"{bucket!r} is not an access point ARN "
                "(arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME); check it, or give the bucket's name"
            )
        if not match["region"]:
            raise BadOption("multi-region access points are not supported; give the access point of one region")
        return
    if bucket.endswith(_DIRECTORY_ACCESS_POINT_SUFFIX):
        raise BadOption("access points of directory buckets are not supported; give the bucket's name")
    if bucket.endswith(_DIRECTORY_SUFFIX) and _DIRECTORY_BUCKET.fullmatch(bucket) is None:
        raise BadOption(
            f"{bucket!r} is not the name of a directory bucket: NAME--ZONE--x-s3, as in data--use1-az4--x-s3"
        )
    if _BUCKET_NAME.fullmatch(bucket) is None:
        raise BadOption(f"{bucket!r} is not a bucket name; give a name, s3://NAME/PREFIX/, or an access point ARN")


def _check_prefix(prefix: str) -> None:
    if prefix and not prefix.endswith(SEPARATOR):
        raise BadOption(f"the prefix {prefix!r} must end with '/'; did you mean {prefix + SEPARATOR!r}?")
    try:
        raw = prefix.encode("utf-8")
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8 arrive as surrogates
        raise BadOption(f"the prefix {prefix!r} is not UTF-8, so no key can start with it") from None
    if "\0" in prefix or len(raw) > MAX_KEY_BYTES:
        raise BadOption("the prefix is longer than a key can be, or holds a NUL")
