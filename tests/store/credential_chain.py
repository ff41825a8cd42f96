"""The credential chain, pointed at emulators: one function for each provider, and a bucket that verifies signatures.

The bucket is a scripted server that knows only the secrets of the world's issuer.
"""

import datetime
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.store.connect import Connection
from s3mount.store.session import S3Config
from tests.store.conftest import config
from tests.support import credential_servers as servers
from tests.support.credential_servers import Issuer, iso
from tests.support.scripted import Script, Scripted, ScriptedBucket, etag, is_from_crt, scripted, signature_of

CONTENT = b"0123456789"
WANTED = ObjectId("object", etag(CONTENT))
ROLE = "arn:aws:iam::123456789012:role/training"
HOUR = 3600.0


@dataclass
class World:
    """A bucket, an issuer that it trusts, and the means to point the chain at emulators."""

    monkeypatch: pytest.MonkeyPatch
    directory: Path
    stack: ExitStack
    issuer: Issuer
    bucket: ScriptedBucket = field(init=False)
    server: Scripted = field(init=False)

    def __post_init__(self) -> None:
        self.bucket = ScriptedBucket("bucket")
        self.bucket.objects["object"] = CONTENT
        self.bucket.secrets = self.issuer.secret
        self.server = self.stack.enter_context(scripted(self.bucket))

    @property
    def s3(self) -> S3Config:
        return config("bucket", self.server.url)

    def env(self, **variables: str) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    def serve(self, script: Script) -> str:
        return self.stack.enter_context(scripted(script)).url

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def configure(self, text: str) -> None:
        self.env(AWS_CONFIG_FILE=str(self.write("config", text)))

    def signers(self, *, crt: bool) -> list[tuple[str, str]]:
        """Access key and session token of each request that one of the clients sent."""
        found = []
        for call in self.server.calls:
            if is_from_crt(call) is crt:
                signature = signature_of(call)
                assert signature is not None
                found.append((signature.access_key, call.headers.get("x-amz-security-token", "")))
        return found


async def read_by_both(connection: Connection) -> None:
    """One GET by the CRT, one LIST by aiobotocore."""
    assert await connection.reader.get_range(WANTED, ByteRange(0, 10)) == CONTENT
    assert [each.key for each in (await connection.catalogue.list_page("")).objects] == ["object"]


# -- providers: each points the chain at its emulator -----------------------------------------


def environment(world: World) -> None:
    key, secret, token, _ = world.issuer.issue()
    world.env(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token)


def credentials_file(world: World) -> None:
    key, secret, token, _ = world.issuer.issue()
    text = (
        "[default]\naws_access_key_id = WRONG\naws_secret_access_key = wrong\n"
        f"[training]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
    )
    world.env(AWS_SHARED_CREDENTIALS_FILE=str(world.write("credentials", text)), AWS_PROFILE="training")


def process(world: World) -> None:
    """A program that asks an emulator, so that the issuer counts."""
    url = world.serve(servers.container(world.issuer, "process"))
    world.write("fetch.py", PROCESS)
    world.configure(f"[default]\ncredential_process = {sys.executable} {world.directory}/fetch.py {url}/\n")


PROCESS = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "process"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
found = json.load(opener.open(request))
print(json.dumps({
    "Version": 1, "AccessKeyId": found["AccessKeyId"], "SecretAccessKey": found["SecretAccessKey"],
    "SessionToken": found["Token"], "Expiration": found["Expiration"],
}))
"""


def assume_role(world: World) -> None:
    world.env(AWS_ENDPOINT_URL_STS=world.serve(servers.sts(world.issuer, caller="BASE")))
    world.configure(
        f"[profile base]\naws_access_key_id = BASE\naws_secret_access_key = base\n"
        f"[profile training]\nrole_arn = {ROLE}\nsource_profile = base\n"
    )
    world.env(AWS_PROFILE="training")


def web_identity(world: World) -> None:
    world.env(
        AWS_ENDPOINT_URL_STS=world.serve(servers.sts(world.issuer, web_token="web-token")),
        AWS_WEB_IDENTITY_TOKEN_FILE=str(world.write("token", "web-token")),
        AWS_ROLE_ARN=ROLE,
    )


def container(world: World) -> None:
    url = world.serve(servers.container(world.issuer, "Bearer pod"))
    world.env(
        AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/v1/credentials", AWS_CONTAINER_AUTHORIZATION_TOKEN="Bearer pod"
    )


def instance_metadata(world: World) -> None:
    world.monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    world.env(AWS_EC2_METADATA_SERVICE_ENDPOINT=world.serve(servers.instance_metadata(world.issuer)))


def sso(world: World) -> None:
    write_sso_token(world, lifetime_s=HOUR)
    world.env(AWS_ENDPOINT_URL_SSO=world.serve(servers.sso(world.issuer, "sso-token")), AWS_PROFILE="training")
    world.configure(
        "[profile training]\nsso_session = company\nsso_account_id = 123456789012\nsso_role_name = training\n"
        "[sso-session company]\nsso_region = us-east-1\nsso_start_url = https://company.awsapps.com/start\n"
    )


def write_sso_token(world: World, *, lifetime_s: float) -> None:
    """What `aws sso login` leaves; botocore reads HOME once, at import, so its class is told the directory."""
    expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=lifetime_s)
    token = {"accessToken": "sso-token", "expiresAt": iso(expiry), "startUrl": "https://company.awsapps.com/start"}
    name = hashlib.sha1(b"company").hexdigest() + ".json"
    world.write(name, json.dumps(token))
    for where in ("botocore.credentials.SSOProvider", "botocore.tokens.SSOTokenProvider"):
        world.monkeypatch.setattr(f"{where}._SSO_TOKEN_CACHE_DIR", str(world.directory))


Provider = Callable[[World], None]
PROVIDERS = [
    environment, credentials_file, process, assume_role, web_identity, container, instance_metadata, sso,
]  # fmt: skip
RENEWING = [process, assume_role, web_identity, container, sso]
