"""What requests are signed with: the same object until the credentials change."""

from botocore.credentials import ReadOnlyCredentials

from s3mount.store.signing import CredentialSource, Signer


class Chain:
    """What botocore's chain gives: frozen anew at each question, as it does with keys that never expire."""

    method = "env"

    def __init__(self) -> None:
        self.key = "KEY1"

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return ReadOnlyCredentials(self.key, "secret", "token")


async def test_a_signing_configuration_lasts_as_long_as_its_credentials() -> None:
    """Credentials that the chain renewed sign the next request; until then all share one signing configuration."""
    chain = Chain()
    signer = Signer(CredentialSource(chain), "eu-west-1")
    first = await signer.config()
    assert await signer.config() is first
    assert first.region == "eu-west-1"
    chain.key = "KEY2"
    second = await signer.config()
    assert second is not first
    assert await signer.config() is second
