"""Exit codes and the one line a failed start prints: a table, documented in docs/operations.md.

The line says what is wrong and what to do.  Codes are stable: scripts and units act on them.
"""

from enum import IntEnum
from typing import NamedTuple

from s3mount import errors


class ExitCode(IntEnum):
    """What the command's status says."""

    OK = 0
    #: A bug, or something nobody foresaw; the log has a traceback.
    INTERNAL = 1
    #: A flag or argument that cannot be meant (also click's own code).
    USAGE = 2
    #: The directory to mount on.
    MOUNT_POINT = 3
    #: FUSE is missing or not permitted.
    FUSE = 4
    #: The bucket does not exist, or is in another region than the user said.
    BUCKET = 5
    #: Credentials or permissions.
    ACCESS = 6
    #: The endpoint: no connection, no trust, or not S3.
    ENDPOINT = 7
    #: The mount was made but did not answer.
    NOT_ANSWERING = 8
    #: It was unmounted, and not all that was written is in S3; the log names it.
    NOT_SAVED = 9


class Verdict(NamedTuple):
    """An exit code, and what the user can do about it; empty where the message says it."""

    code: ExitCode
    advice: str


TABLE: dict[type[errors.S3MountError], Verdict] = {
    errors.S3MountError: Verdict(ExitCode.INTERNAL, "this is a bug; please report it with the log"),
    errors.BadOption: Verdict(ExitCode.USAGE, ""),
    errors.MountPointUnusable: Verdict(ExitCode.MOUNT_POINT, ""),
    errors.FuseUnavailable: Verdict(ExitCode.FUSE, ""),
    errors.MountNotAnswering: Verdict(ExitCode.NOT_ANSWERING, "look at the log; --foreground shows it here"),
    errors.BucketNotFound: Verdict(ExitCode.BUCKET, "check the name, the region and the endpoint"),
    errors.WrongRegion: Verdict(ExitCode.BUCKET, "leave --region out, or give the bucket's region"),
    errors.AccessDenied: Verdict(
        ExitCode.ACCESS,
        "the credentials need s3:ListBucket on the bucket (--prefix if only a prefix is allowed, "
        "--without-listing if nothing is) and s3:GetObject on its objects",
    ),
    errors.BadCredentials: Verdict(
        ExitCode.ACCESS, "check the access key and its secret (aws sts get-caller-identity shows who you are)"
    ),
    errors.ExpiredCredentials: Verdict(ExitCode.ACCESS, "renew the session or token, and check this host's clock"),
    errors.NoCredentials: Verdict(
        ExitCode.ACCESS,
        "run aws configure, set AWS_PROFILE or --profile, or mount a public bucket with --no-sign-request",
    ),
    errors.UntrustedCertificate: Verdict(
        ExitCode.ENDPOINT, "give the authority that signed it with --ca-bundle or AWS_CA_BUNDLE"
    ),
    errors.StoreUnreachable: Verdict(ExitCode.ENDPOINT, "check --endpoint-url, the network and proxy variables"),
    errors.NotS3: Verdict(ExitCode.ENDPOINT, "check --endpoint-url: something else answers there"),
    errors.StoreThrottled: Verdict(ExitCode.ENDPOINT, "the server is overloaded; try again later"),
    errors.StoreError: Verdict(ExitCode.ENDPOINT, "check --endpoint-url; the server may not be S3, or may be broken"),
}


def verdict_for(error: errors.S3MountError) -> Verdict:
    """The row of the nearest class in the table."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def line_for(error: errors.S3MountError) -> str:
    """The one line: what is wrong, then what to do."""
    advice = verdict_for(error).advice
    return " ".join(f"{error}; {advice}".split()) if advice else " ".join(str(error).split())
