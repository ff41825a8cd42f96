"""Every way in which S3, botocore, the CRT and sockets report a failure becomes one of our own errors."""

import re
import socket
import string
from collections.abc import Iterator
from http.client import RemoteDisconnected

import pytest
from awscrt.exceptions import AwsCrtError
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from s3mount import errors
from s3mount.store import s3_errors
from s3mount.store.s3_errors import from_answer, from_botocore, from_crt, from_socket
from tests.support.proxy import error_answer

CONTEXT = {"bucket": "bucket", "key": "key", "operation": "GetObject"}

#: S3's codes, and a bare status where an answer has no body, by what a user can do about them.
EXPECTED: dict[type[errors.StoreError], str] = {
    errors.ObjectNotFound: "NoSuchKey NotFound 404 NoSuchVersion",
    errors.BucketNotFound: "NoSuchBucket InvalidBucketName NoSuchAccessPoint",
    errors.AccessDenied: "AccessDenied AllAccessDisabled AccountProblem Forbidden 403",
    errors.BadCredentials: "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidClientTokenId "
    "UnrecognizedClientException",
    errors.ExpiredCredentials: "ExpiredToken ExpiredTokenException RequestTimeTooSkewed RequestExpired",
    errors.ArchivedObject: "InvalidObjectState",
    errors.ObjectChanged: "PreconditionFailed 412 InvalidRange 416 InvalidWriteOffset",
    errors.StoreThrottled: "SlowDown ServiceUnavailable Throttling ThrottlingException TooManyRequests "
    "RequestLimitExceeded 503 429",
    errors.WrongRegion: "PermanentRedirect TemporaryRedirect AuthorizationHeaderMalformed "
    "IllegalLocationConstraintException 301",
    errors.StoreFailure: "InternalError RequestTimeout 408 ConditionalRequestConflict OperationAborted BadDigest "
    "IncompleteBody",
    errors.NotSupported: "NotImplemented 501",
    errors.UploadNotFound: "NoSuchUpload",
    errors.ObjectTooLarge: "EntityTooLarge TooManyParts",
    errors.KeyTooLong: "KeyTooLongError",
    errors.StorageFull: "InsufficientStorage QuotaExceeded XMinioStorageFull 507",
}
#: Codes that no table knows: what a server did wrong may pass, what it refuses will not.
UNKNOWN = {
    errors.StoreFailure: "500 502 504 599",
    errors.StoreError: "InvalidArgument InvalidPart EntityTooSmall 400 302 200",
}
KNOWN_CASES = [(code, kind) for kind, codes in EXPECTED.items() for code in codes.split()]
CASES = KNOWN_CASES + [(code, kind) for kind, codes in UNKNOWN.items() for code in codes.split()]

BOTO_EXPECTED: dict[type[Exception], type[errors.StoreError]] = {
    boto.SSLError: errors.StoreUnreachable,
    boto.ConnectTimeoutError: errors.StoreUnreachable,
    boto.EndpointConnectionError: errors.StoreUnreachable,
    boto.ProxyConnectionError: errors.StoreUnreachable,
    boto.NoCredentialsError: errors.NoCredentials,
    boto.PartialCredentialsError: errors.NoCredentials,
    boto.CredentialRetrievalError: errors.NoCredentials,
    boto.RefreshWithMFAUnsupportedError: errors.NoCredentials,
    boto.InfiniteLoopConfigError: errors.NoCredentials,
    boto.InvalidConfigError: errors.NoCredentials,
    boto.ProfileNotFound: errors.NoCredentials,
    boto.ConfigParseError: errors.NoCredentials,
    boto.TokenRetrievalError: errors.NoCredentials,
    boto.MetadataRetrievalError: errors.NoCredentials,
    boto.SSOTokenLoadError: errors.NoCredentials,
    boto.UnauthorizedSSOTokenError: errors.ExpiredCredentials,
    boto.ReadTimeoutError: errors.StoreFailure,
    boto.ConnectionClosedError: errors.StoreFailure,
    boto.ResponseStreamingError: errors.StoreFailure,
    boto.IncompleteReadError: errors.StoreFailure,
    boto.ParamValidationError: errors.StoreFailure,
    ResponseParserError: errors.NotS3,
}

CRT_EXPECTED = {
    "AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE": errors.UntrustedCertificate,
    "AWS_IO_DNS_INVALID_NAME": errors.StoreUnreachable,
    "AWS_IO_DNS_QUERY_FAILED": errors.StoreUnreachable,
    "AWS_IO_SOCKET_CONNECTION_REFUSED": errors.StoreUnreachable,
    "AWS_IO_SOCKET_NO_ROUTE_TO_HOST": errors.StoreUnreachable,
    "AWS_IO_SOCKET_TIMEOUT": errors.StoreUnreachable,
    "AWS_IO_SOCKET_CLOSED": errors.StoreFailure,
    "AWS_IO_TLS_NEGOTIATION_TIMEOUT": errors.StoreFailure,
    "AWS_ERROR_S3_SLOW_DOWN": errors.StoreThrottled,
    "AWS_ERROR_S3_REQUEST_TIME_TOO_SKEWED": errors.ExpiredCredentials,
    "AWS_ERROR_S3_OBJECT_MODIFIED": errors.ObjectChanged,
    "AWS_ERROR_S3_INTERNAL_ERROR": errors.StoreFailure,
    "AWS_ERROR_S3_INVALID_RESPONSE_STATUS": errors.StoreFailure,
    "AWS_ERROR_HTTP_CONNECTION_CLOSED": errors.StoreFailure,
    "AWS_ERROR_HTTP_RESPONSE_FIRST_BYTE_TIMEOUT": errors.StoreFailure,
    "AWS_AUTH_SIGNING_NO_CREDENTIALS": errors.NoCredentials,
    "AWS_AUTH_CREDENTIALS_PROVIDER_DELEGATE_FAILURE": errors.NoCredentials,
    "AWS_ERROR_UNKNOWN": errors.StoreFailure,
}


def subclasses(kind: type) -> Iterator[type]:
    """The class and all below it, without those of boto3, which s3mount never sees."""
    if kind.__module__.startswith(("botocore.", "aiobotocore.")):
        yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def make(kind: type[Exception]) -> Exception:
    """An instance, with something for every field of the exception's text."""
    if issubclass(kind, boto.HTTPClientError):
        return kind(error=OSError("broken"), endpoint_url="https://s3", proxy_url="https://proxy")
    if issubclass(kind, boto.WaiterError):
        return kind(name="waiter", reason="something", last_response={})
    if issubclass(kind, boto.BotoCoreError):
        fields = [name for _, name, _, _ in string.Formatter().parse(kind.fmt) if name]
        return kind(**dict.fromkeys(fields, "something"))
    return kind("something")


def client_error(code: str, status: int, headers: dict[str, str] | None = None, **error: str) -> boto.ClientError:
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}, "RequestId": "ID"}
    return boto.ClientError({"Error": {"Code": code, **error}, "ResponseMetadata": meta}, "GetObject")


def crt_error(name: str) -> AwsCrtError:
    return AwsCrtError(code=1, name=name, message="something")


# -- answers ----------------------------------------------------------------------------------


def test_every_code_of_the_table_is_expected_here() -> None:
    """A code that is added needs an expectation, and one that is dropped takes its expectation along."""
    assert set(s3_errors._BY_CODE) == {code for code, _ in KNOWN_CASES}


@pytest.mark.parametrize(("code", "kind"), CASES)
def test_both_clients_map_an_answer_to_the_same_class(code: str, kind: type[errors.StoreError]) -> None:
    """By the code in the body where there is one, else by the status."""
    status = int(code) if code.isdigit() else 400
    name = "" if code.isdigit() else code
    by_boto = from_botocore(client_error(code, status), **CONTEXT)
    body = error_answer(status, name, "why").partition(b"\r\n\r\n")[2] if name else b""
    by_crt = from_crt(crt_error("AWS_ERROR_S3_INVALID_RESPONSE_STATUS"), status, body, None, **CONTEXT)
    assert type(by_boto) is type(by_crt) is kind
    for error in (by_boto, by_crt):
        assert (error.bucket, error.key, error.operation) == ("bucket", "key", "GetObject")
        assert f"S3 answered {status}" in str(error)
    assert "why" in str(by_crt) or not name


def test_the_code_counts_more_than_the_status() -> None:
    """403 is four different things, and 404 two."""
    assert type(from_answer("InvalidObjectState", "", 403)) is errors.ArchivedObject
    assert type(from_answer("ExpiredToken", "", 400)) is errors.ExpiredCredentials
    assert type(from_answer("NoSuchBucket", "", 404)) is errors.BucketNotFound
    assert type(from_answer("NeverHeardOf", "", 404)) is errors.ObjectNotFound
    assert type(from_answer("NeverHeardOf", "", 418)) is errors.StoreError
    assert type(from_answer("InternalError", "", 200)) is errors.StoreFailure


def test_a_list_that_finds_nothing_is_about_the_bucket() -> None:
    """No key was asked for; and S3 always names the reason of a LIST, so a bare 404 is another server's."""
    assert type(from_answer("NoSuchKey", "", 404, operation="ListObjectsV2")) is errors.BucketNotFound
    assert type(from_answer("", "", 404, operation="ListObjectsV2")) is errors.NotS3
    assert type(from_answer("404", "", 404, operation="ListObjectsV2")) is errors.NotS3


def test_an_empty_message_is_none() -> None:
    """botocore makes None of an empty element, which is no word for the log."""
    details = {"Error": {"Code": "InternalError", "Message": None}, "ResponseMetadata": {"HTTPStatusCode": 500}}
    found = from_botocore(boto.ClientError(details, "GetObject"), **CONTEXT)
    assert found.message == "S3 answered 500 InternalError"


def test_an_archived_object_says_what_to_do() -> None:
    """The message names the way out."""
    assert "restore" in str(from_answer("InvalidObjectState", "", 403))


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_wrong_region_names_the_right_one(where: str) -> None:
    """S3 says it in a header or in the body."""
    headers = {"x-amz-bucket-region": "eu-west-3"} if where == "header" else {}
    details = {"Region": "eu-west-3"} if where == "body" else {}
    found = from_botocore(client_error("AuthorizationHeaderMalformed", 400, headers, **details), **CONTEXT)
    assert isinstance(found, errors.WrongRegion)
    assert found.region == "eu-west-3"


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_wrong_region_from_the_crt_names_the_right_one(where: str) -> None:
    """The same two places, in the CRT's terms."""
    headers = [("X-Amz-Bucket-Region", "eu-west-3")] if where == "header" else []
    region = "<Region>eu-west-3</Region>" if where == "body" else ""
    body = f"<Error><Code>AuthorizationHeaderMalformed</Code>{region}</Error>".encode()
    found = from_crt(None, 400, body, headers, **CONTEXT)
    assert isinstance(found, errors.WrongRegion)
    assert found.region == "eu-west-3"


def test_the_request_id_is_kept() -> None:
    """AWS support asks for it."""
    assert from_botocore(client_error("SlowDown", 503), **CONTEXT).request_id == "ID"
    found = from_crt(None, 503, b"", [("x-amz-request-id", "ID")], **CONTEXT)
    assert found.request_id == "ID"
    assert "request-id=ID" in str(found)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>504 Gateway Time-out</body></html>",
        b"<Error><Code></Code></Error>",
        b"<Error><Code>" + b"x" * 10_000 + b"</Code></Error>",
        b"<Error><Code>NoSuchKey",
        b'{"code": "NoSuchKey"}',
        b"\xff\xfe<Code>\xff</Code>",
        b"<Code>Unheard\nOf</Code><Message>\x1b[31m</Message>",
        b"\0" * 100,
    ],
)
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_odd_bodies_fall_back_to_the_status(body: bytes, status: int) -> None:
    """A proxy or load balancer in between answers in its own way."""
    by_status = {400: errors.StoreError, 403: errors.AccessDenied, 404: errors.ObjectNotFound}
    found = from_crt(crt_error("AWS_ERROR_S3_INVALID_RESPONSE_STATUS"), status, body, None, **CONTEXT)
    assert type(found) is by_status.get(status, errors.StoreFailure)
    assert len(str(found)) < 1000
    assert str(found).isprintable()


@pytest.mark.parametrize("response", [{}, {"Error": {}}, {"ResponseMetadata": {}}, {"Error": {"Code": "x"}}])
def test_a_client_error_with_parts_missing_is_an_error_of_ours(response: dict[str, dict[str, str]]) -> None:
    """botocore promises no field of an answer."""
    assert type(from_botocore(boto.ClientError(response, "GetObject"), **CONTEXT)) is errors.StoreError


def test_only_a_certificate_that_is_not_trusted_is_called_so() -> None:
    """OpenSSL has one exception for both, and its text tells them apart."""
    failures = {
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate": "not trusted",
        "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:992)": "does not speak TLS",
    }
    for text, meaning in failures.items():
        found = from_botocore(boto.SSLError(endpoint_url="https://s3", error=text), **CONTEXT)
        assert isinstance(found, errors.UntrustedCertificate) == (meaning == "not trusted")
        assert meaning in str(found)
        assert text in str(found)


# -- no answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*subclasses(boto.BotoCoreError), ResponseParserError, ValueError, OSError])
def test_every_exception_of_botocore_becomes_ours(kind: type[Exception]) -> None:
    """With the expected class where one is known, and the original's text in any case."""
    original = make(kind)
    found = from_botocore(original, **CONTEXT)
    assert isinstance(found, errors.StoreError)
    assert (found.bucket, found.key, found.operation) == ("bucket", "key", "GetObject")
    assert str(original) in found.message
    if kind in BOTO_EXPECTED:
        assert type(found) is BOTO_EXPECTED[kind]


def test_the_botocore_table_has_no_row_behind_a_broader_one() -> None:
    """The first row that matches counts, so a subclass must come before its base."""
    kinds = [kind for kind, _, _ in s3_errors._BY_BOTO]
    for number, kind in enumerate(kinds):
        assert not [earlier for earlier in kinds[:number] if issubclass(kind, earlier)]


def test_the_botocore_table_and_the_expectations_agree() -> None:
    """Every exception with a meaning of its own is expected above, itself or by a subclass."""
    for kind, ours, _ in s3_errors._BY_BOTO:
        expected = {BOTO_EXPECTED[each] for each in BOTO_EXPECTED if issubclass(each, kind)}
        assert ours in expected


@pytest.mark.parametrize(("name", "kind"), CRT_EXPECTED.items())
def test_names_of_the_crt_without_an_answer(name: str, kind: type[errors.StoreError]) -> None:
    """The name tells what happened, and stays in the message."""
    for status in (None, 0):
        found = from_crt(crt_error(name), status, None, None, **CONTEXT)
        assert type(found) is kind
        assert name in str(found)


def test_every_row_of_the_crt_table_can_match() -> None:
    """No prefix hides a longer one below it, and each has a name above."""
    prefixes = [prefix for prefix, _, _ in s3_errors._BY_CRT_NAME]
    for number, prefix in enumerate(prefixes):
        assert not [earlier for earlier in prefixes[:number] if prefix.startswith(earlier)]
        assert [name for name in CRT_EXPECTED if name.startswith(prefix)]


def test_a_foreign_exception_from_the_crt_is_a_failure() -> None:
    """A callback that broke, for example; its text is kept."""
    found = from_crt(ValueError("odd"), None, None, None, **CONTEXT)
    assert type(found) is errors.StoreFailure
    assert "odd" in str(found)


def test_what_sockets_raise() -> None:
    """Each has a kind and says what it was, with its class where it has no words of its own."""
    expected = {
        socket.gaierror(-2, "Name or service not known"): (errors.StoreUnreachable, "cannot be resolved"),
        ConnectionRefusedError(111, "Connection refused"): (errors.StoreUnreachable, "was refused"),
        TimeoutError("timed out"): (errors.StoreFailure, "broke: timed out"),
        RemoteDisconnected(): (errors.StoreFailure, r"broke \(RemoteDisconnected\)"),
        crt_error("AWS_AUTH_SIGNING_NO_CREDENTIALS"): (errors.NoCredentials, "could not be signed"),
    }
    for error, (kind, text) in expected.items():
        found = from_socket(error)
        assert type(found) is kind
        assert re.search(text, str(found))
