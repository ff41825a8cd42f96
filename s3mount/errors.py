"""The one exception tree, named by fact.

No errno and no HTTP status lives here: `fuse.boundary` maps these classes to errno and log
level, `daemon.exits` maps them to exit codes and advice, `store.s3_errors` makes them from
what S3 answered.  Everything this program raises on purpose derives from `S3MountError`; any
other exception is a bug and is caught only by `fuse.boundary`.
"""


class S3MountError(Exception):
    """Root of everything this program raises on purpose."""

    #: Set by the first place that logs it: many readers may have waited for one request.
    logged: bool = False


def sole_cause(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, as nurseries raise them; else the error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def printable(text: str) -> str:
    """Text with everything escaped that would break a log line: S3's own words are not trusted either."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


# -- what the caller of the file system did -------------------------------------------------


class FileSystemError(S3MountError):
    """The request cannot be answered as asked; nothing went wrong in S3."""


class InvalidName(FileSystemError):
    """A name that no object key can have as a component, or that is not UTF-8."""


class NameNotFound(FileSystemError):
    """No object and no key below that name; the kernel may believe it for `ttl_s` without asking."""

    ttl_s: float = 0.0


class NotADirectory(FileSystemError):
    """A directory operation on a file."""


class IsADirectory(FileSystemError):
    """A file operation on a directory."""


class DirectoryNotEmpty(FileSystemError):
    """A directory that is to be removed or replaced has something in it."""


class ReadOnlyMount(FileSystemError):
    """An open for writing on a mount that only reads."""


class BadHandle(FileSystemError):
    """A file or directory handle this daemon did not give out, or already released."""


class StaleInode(FileSystemError):
    """The bucket no longer has that content under that name; the kernel looks it up again by itself."""


class NotAllowed(FileSystemError):
    """The mount was made without the switch that lets it change this."""


class NotKept(FileSystemError):
    """Bytes of a file being written that are in S3 already, inside an upload that nobody can read, and not here."""


class SpoolFull(FileSystemError):
    """The spool's disk has no room that may be used."""


class SpoolFailed(FileSystemError):
    """The spool's disk failed."""


# -- what S3 answered -----------------------------------------------------------------------


class StoreError(S3MountError):
    """A request to S3 did not give what was asked; of no kind below, it would not the next time either.

    Args:
        message: what happened, in words for the person on call.
        bucket, key, operation: what was asked for; empty where unknown.
        request_id: S3's own id of the answer; empty when there was no answer.
    """

    def __init__(
        self, message: str, *, bucket: str = "", key: str = "", operation: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.bucket = bucket
        self.key = key
        self.operation = operation
        self.request_id = request_id

    def locate(self, bucket: str, key: str, operation: str) -> None:
        """Fill in what the place that raised did not know."""
        self.bucket = self.bucket or bucket
        self.key = self.key or key
        self.operation = self.operation or operation

    def __str__(self) -> str:
        """One line; keys and S3's messages may hold newlines and terminal codes, which are escaped."""
        facts = [
            f"operation={self.operation}" if self.operation else "",
            f"bucket={self.bucket}" if self.bucket else "",
            f"key={self.key!r}" if self.key else "",
            f"request-id={self.request_id}" if self.request_id else "",
        ]
        context = " ".join(fact for fact in facts if fact)
        return printable(f"{self.message} ({context})" if context else self.message)


class ObjectNotFound(StoreError):
    """No object under that key."""


class ObjectChanged(StoreError):
    """The object under that key is no longer the version asked for (If-Match failed, or gone)."""

    is_in_doubt = False  # an earlier attempt, not answered, may have made it what it is


class AlreadyExists(StoreError):
    """There is an object under a key that was to be a new one (If-None-Match failed)."""


class UploadNotFound(StoreError):
    """No such multipart upload: it was completed, aborted, or never there."""


class ObjectTooLarge(StoreError):
    """Larger than the server takes."""


class KeyTooLong(StoreError):
    """The key has more bytes than the server takes (S3: 1,024)."""


class StorageFull(StoreError):
    """The server's disks or the account's quota are full."""


class NotSupported(StoreError):
    """The server does not have that operation, header or condition."""


class ArchivedObject(StoreError):
    """The object is in an archive storage class and has not been restored."""


class BucketNotFound(StoreError):
    """No such bucket, or a name that no bucket can have."""


class AccessDenied(StoreError):
    """The credentials are good, the permission is missing."""


class BadCredentials(AccessDenied):
    """S3 does not know the access key, or the signature does not match the secret."""


class ExpiredCredentials(AccessDenied):
    """The session token is out of date, or this host's clock is wrong."""


class NoCredentials(AccessDenied):
    """No provider of the credential chain gave credentials."""


class WrongRegion(StoreError):
    """The bucket is in another region.

    Args:
        region: where the bucket says it is; empty when the answer did not say.
    """

    def __init__(self, message: str, *, region: str = "", **context: str) -> None:
        super().__init__(message, **context)
        self.region = region


class StoreUnreachable(StoreError):
    """No connection to the endpoint: DNS, refused, connect time-out."""


class UntrustedCertificate(StoreUnreachable):
    """The endpoint's certificate is not signed by a trusted authority."""


class NotS3(StoreError):
    """Something answered, but not in the S3 protocol."""


class StoreThrottled(StoreError):
    """S3 asked to slow down."""


class StoreFailure(StoreError):
    """S3 or the way to it failed: a 5xx, an answer that broke off; the next attempt may be answered."""


class StoreTimeout(StoreError):
    """The total deadline of the call passed."""


# -- what stops the start -------------------------------------------------------------------


class StartupError(S3MountError):
    """The mount cannot be made; the message says what is wrong and what to do."""


class BadOption(StartupError):
    """A flag or argument that cannot be meant."""


class MountPointUnusable(StartupError):
    """The directory to mount on is missing, is not a directory, or is taken."""


class FuseUnavailable(StartupError):
    """FUSE cannot be used here by this user."""


class MountNotAnswering(StartupError):
    """The mount was made, but did not answer in time."""
