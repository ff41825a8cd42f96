"""The services of the AWS credential chain, on loopback: STS, the ECS container endpoint, EC2 instance metadata, SSO.

Each gives the keys of an `Issuer`, which numbers them, so that a request shows by its access key
who gave it and at which time of asking.
"""

import datetime
import json
import threading
from urllib.parse import parse_qs

from tests.support.proxy import error_answer
from tests.support.scripted import Call, Script, answer


class Issuer:
    """Gives out temporary credentials: NAME1, NAME2, …

    Attributes:
        lifetime_s: of what is given from now on.  botocore asks again at every use when less
            than ten minutes are left.
    """

    def __init__(self, name: str, lifetime_s: float = 3600.0) -> None:
        self.name = name
        self.lifetime_s = lifetime_s
        self.issued = 0
        self._lock = threading.Lock()

    @property
    def newest(self) -> str:
        return f"{self.name}{self.issued}"

    def issue(self) -> tuple[str, str, str, datetime.datetime]:
        """Access key, secret, session token, expiry."""
        with self._lock:
            self.issued += 1
            key = self.newest
        expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.lifetime_s)
        return key, secret_of(key), token_of(key), expiry

    def secret(self, access_key: str) -> str | None:
        """The secret of a key this issuer gave; None for any other."""
        number = access_key.removeprefix(self.name)
        is_ours = access_key.startswith(self.name) and number.isdigit() and 1 <= int(number) <= self.issued
        return secret_of(access_key) if is_ours else None


def secret_of(access_key: str) -> str:
    return f"secret of {access_key}"


def token_of(access_key: str) -> str:
    return f"token-of-{access_key}"


def iso(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def sts(issuer: Issuer, *, caller: str | None = None, web_token: str | None = None) -> Script:
    """AssumeRole for the access key `caller`, or AssumeRoleWithWebIdentity for `web_token`."""

    def script(call: Call) -> bytes:
        form = {name: values[0] for name, values in parse_qs(call.body.decode()).items()}
        action = form.get("Action", "")
        if action == "AssumeRole":
            is_allowed = caller is not None and f"Credential={caller}/" in call.headers.get("authorization", "")
        else:
            is_allowed = action == "AssumeRoleWithWebIdentity" and form.get("WebIdentityToken") == web_token
        if not is_allowed or not form.get("RoleArn", "").startswith("arn:aws:iam::"):
            return error_answer(403, "AccessDenied", "not authorized to assume the role")
        key, secret, token, expiry = issuer.issue()
        xml = (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
            f"<AssumedRoleUser><AssumedRoleId>ID:s</AssumedRoleId><Arn>{form['RoleArn']}</Arn></AssumedRoleUser>"
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{iso(expiry)}</Expiration></Credentials>"
            f"</{action}Result></{action}Response>"
        )
        return answer(200, xml.encode(), Content_Type="text/xml")

    return script


def container(issuer: Issuer, authorization: str) -> Script:
    """What ECS and EKS Pod Identity offer at AWS_CONTAINER_CREDENTIALS_FULL_URI."""

    def script(call: Call) -> bytes:
        if call.headers.get("authorization") != authorization:
            return answer(401)
        return answer(200, _metadata_document(issuer), Content_Type="application/json")

    return script


def instance_metadata(issuer: Issuer, role: str = "training-role") -> Script:
    """EC2 instance metadata, version 2: nothing without a session token from PUT."""

    def script(call: Call) -> bytes:
        if call.method == "PUT" and call.path == "/latest/api/token":
            return answer(200, b"session", x_aws_ec2_metadata_token_ttl_seconds="21600")
        if call.headers.get("x-aws-ec2-metadata-token") != "session":
            return answer(401)
        base = "/latest/meta-data/iam/security-credentials/"
        if call.path == base:
            return answer(200, role.encode())
        if call.path == base + role:
            return answer(200, _metadata_document(issuer), Content_Type="application/json")
        return answer(404)

    return script


def sso(issuer: Issuer, access_token: str) -> Script:
    """GetRoleCredentials of the SSO portal, for one access token."""

    def script(call: Call) -> bytes:
        if call.path != "/federation/credentials" or call.headers.get("x-amz-sso_bearer_token") != access_token:
            body = json.dumps({"message": "Session token not found or invalid"}).encode()
            return answer(401, body, x_amzn_ErrorType="UnauthorizedException", Content_Type="application/json")
        key, secret, token, expiry = issuer.issue()
        found = {
            "accessKeyId": key,
            "secretAccessKey": secret,
            "sessionToken": token,
            "expiration": int(expiry.timestamp() * 1000),
        }
        return answer(200, json.dumps({"roleCredentials": found}).encode(), Content_Type="application/json")

    return script


def _metadata_document(issuer: Issuer) -> bytes:
    key, secret, token, expiry = issuer.issue()
    found = {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": key,
        "SecretAccessKey": secret,
        "Token": token,
        "Expiration": iso(expiry),
        "LastUpdated": iso(datetime.datetime.now(datetime.UTC)),
    }
    return json.dumps(found).encode()
