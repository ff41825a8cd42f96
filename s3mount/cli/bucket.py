"""Flags and environment → `S3Config`: which bucket, and how to reach it."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import click

from s3mount.core.location import Location
from s3mount.errors import BadOption
from s3mount.store.session import S3Config

#: AWS_MAX_ATTEMPTS where it is not set: Mountpoint's choice, twice that of the SDKs, because a
#: training job cannot retry.
_DEFAULT_MAX_ATTEMPTS = 10

#: In the order --help shows them.
BUCKET_FLAGS = [
    click.option("--prefix", metavar="PREFIX", help="Mount only the keys under this prefix; it must end with /."),
    click.option("--region", metavar="REGION", help="Region of the bucket.  [default: found out from the bucket]"),
    click.option("--endpoint-url", metavar="URL", help="An S3-compatible server, or another endpoint of AWS."),
    click.option("--force-path-style", is_flag=True, help="Address the bucket in the path, not in the host name."),
    click.option("--profile", metavar="NAME", help="Profile of the AWS configuration files."),
    click.option("--no-sign-request", is_flag=True, help="Send unsigned requests: for public buckets."),
    click.option("--requester-pays", is_flag=True, help="Accept to pay for the requests."),
    click.option("--expected-bucket-owner", metavar="ACCOUNT", help="Fail unless this account owns the bucket."),
    click.option("--without-listing", is_flag=True,
         help="The credentials may read objects but not list the bucket: known paths open, listing says EACCES."),
    click.option("--ca-bundle", type=click.Path(exists=True, dir_okay=False), help="PEM file of trusted authorities."),
]  # fmt: skip


def s3_config(location: Location, flags: Mapping[str, Any], environ: Mapping[str, str]) -> S3Config:
    """What flags and environment say of the bucket.

    Raises:
        BadOption: they contradict each other, or cannot be meant.
    """
    if flags["no_sign_request"] and flags["profile"]:
        raise BadOption("--no-sign-request and --profile exclude each other")
    for name in ("no_sign_request", "requester_pays"):
        if flags[name] and location.is_directory_bucket:
            raise BadOption(f"--{name.replace('_', '-')}: a directory bucket (S3 Express One Zone) does not have that")
    ca_bundle = flags["ca_bundle"] or environ.get("AWS_CA_BUNDLE") or None
    if ca_bundle is not None and not os.path.isfile(ca_bundle):
        raise BadOption(f"AWS_CA_BUNDLE names {ca_bundle!r}, which is not a file")
    return S3Config(
        location=location,
        region=flags["region"],
        inferred_region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None,
        endpoint_url=_endpoint_url(flags, environ),
        force_path_style=flags["force_path_style"],
        profile=flags["profile"],
        is_anonymous=flags["no_sign_request"],
        requester_pays=flags["requester_pays"],
        expected_bucket_owner=flags["expected_bucket_owner"],
        ca_bundle=os.path.abspath(ca_bundle) if ca_bundle else None,  # the background changes directory
        max_attempts=_max_attempts(environ),
        may_list=not flags["without_listing"],
    )


def _endpoint_url(flags: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    sources = [("--endpoint-url", flags["endpoint_url"])]
    sources += [(name, environ.get(name)) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
    for name, url in sources:
        if url is None or (not url and name != "--endpoint-url"):
            continue
        if not _is_url(url):
            raise BadOption(f"{name} {url!r} is not a URL; write https://HOST or http://HOST:PORT")
        if "@" in urlsplit(url).netloc:
            raise BadOption(f"{name} has a user or a password in it, which others could read; S3 knows neither")
        return str(url)
    return None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an address in brackets that is none, or an impossible port
        return False


def _max_attempts(environ: Mapping[str, str]) -> int:
    text = environ.get("AWS_MAX_ATTEMPTS", str(_DEFAULT_MAX_ATTEMPTS))
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"AWS_MAX_ATTEMPTS is {text!r}; it must be a whole number of at least 1")
    return int(text)
