"""What an object has beside its content, in botocore's answers, as it may be sent again with what is made of it.

Of the expiry only a time that botocore can read: it refuses to send another.  An archive class is left out
(`ObjectStat.kept_class`).
"""

from collections.abc import Mapping
from email.header import Header
from typing import Any
from urllib.parse import quote, urlencode

from s3mount.store.s3 import stat_from_head
from s3mount.store.writing import STORAGE_CLASS, SYSTEM_HEADERS, TAGS, Attributes, Description


def described(key: str, answer: dict[str, Any]) -> Description:
    """Of a HeadObject; tags are not in it."""
    stat = stat_from_head(key, answer)
    headers = {name: answer[argument] for name, argument in SYSTEM_HEADERS.items() if answer.get(argument)}
    if "Expires" not in answer:
        headers.pop("expires", None)
    if stat.kept_class:
        headers[STORAGE_CLASS] = stat.kept_class
    metadata = {name: as_sent(value) for name, value in answer.get("Metadata", {}).items()}
    return Description(stat, Attributes(headers, metadata))


def tagged(found: Description, answer: Mapping[str, Any]) -> Description:
    """The same with the tags of a GetObjectTagging."""
    tags = urlencode([(each["Key"], each["Value"]) for each in answer["TagSet"]], quote_via=quote)
    attributes = found.attributes
    return Description(found.stat, Attributes({**attributes.headers, TAGS: tags}, attributes.metadata))


def as_sent(value: str) -> str:
    """A value of metadata as a header may have it: S3 sends what is not ASCII as RFC 2047 says, some servers do not."""
    return value.strip() if value.isascii() and value.isprintable() else Header(value, "utf-8").encode(maxlinelen=0)
