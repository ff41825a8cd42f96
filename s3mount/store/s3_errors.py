"""What botocore, the CRT and sockets say → `errors.*`, in one table.

The code in S3's answer decides, and the HTTP status where there is no code (a HEAD has no body).
Source of the codes: Amazon S3 API Reference, "Error responses".
"""

import re
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus

from awscrt.exceptions import AwsCrtError
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from s3mount import errors

_BY_CODE: Mapping[str, type[errors.StoreError]] = {
    "NoSuchKey": errors.ObjectNotFound,
    "NotFound": errors.ObjectNotFound,
    "404": errors.ObjectNotFound,
    "NoSuchVersion": errors.ObjectNotFound,
    "NoSuchBucket": errors.BucketNotFound,
    "InvalidBucketName": errors.BucketNotFound,
    "NoSuchAccessPoint": errors.BucketNotFound,
    "AccessDenied": errors.AccessDenied,
    "AllAccessDisabled": errors.AccessDenied,
    "AccountProblem": errors.AccessDenied,
    "Forbidden": errors.AccessDenied,
    "403": errors.AccessDenied,
    "InvalidAccessKeyId": errors.BadCredentials,
    "SignatureDoesNotMatch": errors.BadCredentials,
    "InvalidToken": errors.BadCredentials,
    "InvalidClientTokenId": errors.BadCredentials,
    "UnrecognizedClientException": errors.BadCredentials,
    "ExpiredToken": errors.ExpiredCredentials,
    "ExpiredTokenException": errors.ExpiredCredentials,
    "RequestTimeTooSkewed": errors.ExpiredCredentials,
    "RequestExpired": errors.ExpiredCredentials,
    "InvalidObjectState": errors.ArchivedObject,
    "PreconditionFailed": errors.ObjectChanged,
    "InvalidWriteOffset": errors.ObjectChanged,
    "TooManyParts": errors.ObjectTooLarge,
    "412": errors.ObjectChanged,
    "ConditionalRequestConflict": errors.StoreFailure,
    "OperationAborted": errors.StoreFailure,
    "NoSuchUpload": errors.UploadNotFound,
    "EntityTooLarge": errors.ObjectTooLarge,
    "KeyTooLongError": errors.KeyTooLong,
    "InsufficientStorage": errors.StorageFull,
    "QuotaExceeded": errors.StorageFull,
    "XMinioStorageFull": errors.StorageFull,
    "507": errors.StorageFull,
    "BadDigest": errors.StoreFailure,
    "IncompleteBody": errors.StoreFailure,
    "InvalidRange": errors.ObjectChanged,
    "416": errors.ObjectChanged,
    "SlowDown": errors.StoreThrottled,
    "ServiceUnavailable": errors.StoreThrottled,
    "Throttling": errors.StoreThrottled,
    "ThrottlingException": errors.StoreThrottled,
    "TooManyRequests": errors.StoreThrottled,
    "RequestLimitExceeded": errors.StoreThrottled,
    "503": errors.StoreThrottled,
    "InternalError": errors.StoreFailure,
    "RequestTimeout": errors.StoreFailure,
    "408": errors.StoreFailure,
    "NotImplemented": errors.NotSupported,
    "501": errors.NotSupported,
    "429": errors.StoreThrottled,
    "PermanentRedirect": errors.WrongRegion,
    "TemporaryRedirect": errors.WrongRegion,
    "AuthorizationHeaderMalformed": errors.WrongRegion,
    "IllegalLocationConstraintException": errors.WrongRegion,
    "301": errors.WrongRegion,
}

#: botocore's exceptions when there was no usable answer; the first that matches counts.
_BY_BOTO: tuple[tuple[type[Exception], type[errors.StoreError], str], ...] = (
    (boto.SSLError, errors.StoreUnreachable, "the server does not speak TLS, or not as we do; is it http://?"),
    (boto.ConnectTimeoutError, errors.StoreUnreachable, "no connection within the time-out"),
    (boto.EndpointConnectionError, errors.StoreUnreachable, "no connection"),
    (boto.ProxyConnectionError, errors.StoreUnreachable, "no connection to the proxy"),
    (boto.NoCredentialsError, errors.NoCredentials, "no credentials were found"),
    (boto.PartialCredentialsError, errors.NoCredentials, "the credentials are incomplete"),
    (boto.UnauthorizedSSOTokenError, errors.ExpiredCredentials, "the SSO session has ended; run aws sso login"),
    (boto.SSOTokenLoadError, errors.NoCredentials, "there is no SSO session; run aws sso login"),
    (boto.TokenRetrievalError, errors.NoCredentials, "the SSO session cannot be renewed; run aws sso login"),
    (boto.CredentialRetrievalError, errors.NoCredentials, "a credential provider failed"),
    (boto.RefreshWithMFAUnsupportedError, errors.NoCredentials, "the role needs an MFA token at each renewal"),
    (boto.MetadataRetrievalError, errors.NoCredentials, "the container's credential endpoint failed"),
    (boto.InvalidConfigError, errors.NoCredentials, "the AWS configuration is not complete"),
    (boto.ProfileNotFound, errors.NoCredentials, "the AWS configuration has no such profile"),
    (boto.ConfigParseError, errors.NoCredentials, "the AWS configuration cannot be read"),
    (ResponseParserError, errors.NotS3, "the answer is not in the S3 protocol"),
    (boto.HTTPClientError, errors.StoreFailure, "the connection broke"),
    (boto.BotoCoreError, errors.StoreFailure, "the request failed"),
)

#: CRT error names when there was no HTTP answer; prefixes, the first that matches counts.
_BY_CRT_NAME: tuple[tuple[str, type[errors.StoreError], str], ...] = (
    ("AWS_IO_TLS_ERROR_NEGOTIATION", errors.UntrustedCertificate, "the server's certificate is not trusted"),
    ("AWS_IO_DNS", errors.StoreUnreachable, "the host name cannot be resolved"),
    ("AWS_IO_SOCKET_CONNECTION_REFUSED", errors.StoreUnreachable, "the connection was refused"),
    ("AWS_IO_SOCKET_NO_ROUTE", errors.StoreUnreachable, "there is no route to the server"),
    ("AWS_IO_SOCKET_TIMEOUT", errors.StoreUnreachable, "no connection within the time-out"),
    ("AWS_ERROR_S3_SLOW_DOWN", errors.StoreThrottled, "S3 asks to slow down"),
    ("AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED", errors.ExpiredCredentials, "this host's clock is wrong"),
    ("AWS_ERROR_S3_OBJECT_MODIFIED", errors.ObjectChanged, "the object was replaced while it was read"),
    ("AWS_ERROR_S3_INTERNAL_ERROR", errors.StoreFailure, "S3 reports an internal error"),
    ("AWS_AUTH", errors.NoCredentials, "the request could not be signed"),
    ("AWS_ERROR_HTTP", errors.StoreFailure, "the connection broke"),
    ("AWS_IO", errors.StoreFailure, "the connection broke"),
)

#: What sockets and the standard library's HTTP raise; the first that matches counts.
_BY_SOCKET: tuple[tuple[type[Exception], type[errors.StoreError], str], ...] = (
    (ssl.SSLCertVerificationError, errors.UntrustedCertificate, "the server's certificate is not trusted"),
    (socket.gaierror, errors.StoreUnreachable, "the host name cannot be resolved"),
    (ConnectionRefusedError, errors.StoreUnreachable, "the connection was refused"),
    (AwsCrtError, errors.NoCredentials, "the request could not be signed"),
    (Exception, errors.StoreFailure, "the connection broke"),
)

_XML_CODE = re.compile(rb"<Code>([^<]{1,128})</Code>")
_XML_MESSAGE = re.compile(rb"<Message>([^<]{0,512})</Message>")
_XML_REGION = re.compile(rb"<Region>([a-z0-9-]{1,64})</Region>")


def from_botocore(error: Exception, *, bucket: str, key: str, operation: str) -> errors.StoreError:
    """Our error for an exception of botocore; the caller raises it from the original."""
    if isinstance(error, boto.ClientError):
        answer = error.response
        meta = answer.get("ResponseMetadata", {})
        headers = meta.get("HTTPHeaders", {})
        details = answer.get("Error", {})
        return from_answer(
            str(details.get("Code", "")),
            str(details.get("Message") or ""),  # an empty element is None
            int(meta.get("HTTPStatusCode", 0)),
            region=str(details.get("Region", "") or headers.get("x-amz-bucket-region", "")),
            bucket=bucket,
            key=key,
            operation=operation,
            request_id=str(meta.get("RequestId", "") or headers.get("x-amz-request-id", "")),
        )
    if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        message = f"the server's certificate is not trusted: {error}"
        return errors.UntrustedCertificate(message, bucket=bucket, key=key, operation=operation)
    for kind, ours, meaning in _BY_BOTO:
        if isinstance(error, kind):
            return ours(f"{meaning}: {error}", bucket=bucket, key=key, operation=operation)
    return errors.StoreError(f"the request failed: {error!r}", bucket=bucket, key=key, operation=operation)


def from_provider(error: Exception) -> errors.StoreError:
    """Our error for a credential provider that failed, whatever it raised."""
    found = from_botocore(error, bucket="", key="", operation="credentials")
    if isinstance(error, boto.BotoCoreError):
        return found
    kind: type[errors.StoreError] = errors.NoCredentials
    if isinstance(error, boto.ClientError) and isinstance(found, errors.AccessDenied):
        kind = type(found)
    elif isinstance(error, RuntimeError):
        kind = errors.ExpiredCredentials
    text = str(error) if isinstance(error, (boto.ClientError, RuntimeError)) else repr(error)
    return kind(f"a credential provider failed: {text}", operation="credentials", request_id=found.request_id)


def from_crt(
    error: BaseException | None,
    status: int | None,
    body: bytes | None,
    headers: list[tuple[str, str]] | None,
    **context: str,
) -> errors.StoreError:
    """Our error for a request that the CRT reports as failed.

    Args:
        status, body, headers: of the answer; None where there was none.
        context: bucket, key and operation.
    """
    by_name = {name.lower(): value for name, value in headers or ()}
    if status:
        code = _XML_CODE.search(body or b"")
        message = _XML_MESSAGE.search(body or b"")
        region = _XML_REGION.search(body or b"")
        return from_answer(
            code[1].decode("utf-8", "replace") if code else "",
            message[1].decode("utf-8", "replace") if message else "",
            status,
            region=region[1].decode("ascii") if region else by_name.get("x-amz-bucket-region", ""),
            request_id=by_name.get("x-amz-request-id", ""),
            **context,
        )
    name = error.name if isinstance(error, AwsCrtError) else repr(error)
    for prefix, ours, meaning in _BY_CRT_NAME:
        if name.startswith(prefix):
            return ours(f"{meaning} ({name})", **context)
    return errors.StoreFailure(f"the request failed ({name})", **context)


def from_socket(error: Exception) -> errors.StoreError:
    """Our error for what sockets raised in place of an answer."""
    ours, meaning = next((ours, meaning) for kind, ours, meaning in _BY_SOCKET if isinstance(error, kind))
    return ours(f"{meaning}: {error}" if str(error) else f"{meaning} ({type(error).__name__})")


def from_answer(code: str, message: str, status: int, *, region: str = "", **context: str) -> errors.StoreError:
    """Our error for an S3 error answer: its code decides, else the HTTP status."""
    unknown = errors.StoreFailure if status >= HTTPStatus.INTERNAL_SERVER_ERROR else errors.StoreError
    kind = _BY_CODE.get(code) or _BY_CODE.get(str(status)) or unknown
    if kind is errors.ObjectNotFound and context.get("operation") == "ListObjectsV2":
        # A LIST asks for no object; S3 says NoSuchBucket, and a web server says nothing.
        kind = errors.BucketNotFound if code and not code.isdigit() else errors.NotS3
    if code == "ConditionalRequestConflict" and context.get("operation") == "CompleteMultipartUpload":
        kind = errors.ObjectChanged  # S3 API: another write won, and this upload cannot be completed any more
    text = f"S3 answered {status} {code}".rstrip() + (f": {message}" if message else "")
    if kind is errors.WrongRegion:
        return errors.WrongRegion(text, region=region, **context)
    if kind is errors.ArchivedObject:
        text += "; the object is archived: restore it before reading (aws s3api restore-object)"
    return kind(text, **context)
