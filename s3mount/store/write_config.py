"""What every object of a mount is written with."""

from dataclasses import dataclass

from s3mount.store.writing import STORAGE_CLASS


@dataclass(frozen=True)
class WriteConfig:
    """What S3 is told of each.

    Attributes:
        checksums: "crc32c" or "crc64nvme": S3 verifies each body and keeps the checksum; "off".
        storage_class: empty for the bucket's default.
        sse: aws:kms, aws:kms:dsse or AES256; empty for the bucket's default.
        sse_kms_key_id: empty for the account's default key.
    """

    checksums: str = "crc32c"
    storage_class: str = ""
    sse: str = ""
    sse_kms_key_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Of each request that makes an object."""
        named = {
            STORAGE_CLASS: self.storage_class,
            "x-amz-server-side-encryption": self.sse,
            "x-amz-server-side-encryption-aws-kms-key-id": self.sse_kms_key_id,
        }
        return {name: value for name, value in named.items() if value}
