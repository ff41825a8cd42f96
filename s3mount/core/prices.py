"""What requests cost, roughly: for a sense of proportion, not for a bill.

The prices are those of S3 Standard in us-east-1 (aws.amazon.com/s3/pricing, requests and data retrievals): LIST and all
that writes, PUT, COPY, POST, cost 5 dollars a million; GET, HEAD and the rest 40 cents; DELETE nothing.  Other classes,
regions and servers have others; what transfer costs is not in it.
"""

from collections.abc import Mapping

_WRITE = 5.0e-6
_READ = 0.4e-6
#: By kind of request, in US dollars each.
USD = {
    "list": _WRITE, "put": _WRITE, "part": _WRITE, "copy": _WRITE, "rename": _WRITE, "other": _WRITE,
    "head": _READ, "get": _READ,
    "delete": 0.0,
}  # fmt: skip


def cost_usd(requests: Mapping[str, int]) -> float:
    """Of requests by kind, in US dollars.

    Raises:
        KeyError: a kind that has no price.
    """
    return sum(USD[kind] * count for kind, count in requests.items())
