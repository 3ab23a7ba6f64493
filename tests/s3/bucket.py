"""A bucket as a capture tool sees it: put, upload in parts, remove, list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakeward.storage.landing import Landing, open_landing

if TYPE_CHECKING:
    from types import TracebackType

    from lakeward.config.services import S3Settings
    from tests.servers.s3 import S3Server

# S3 takes no smaller part but the last.
PART_BYTES = 5 << 20


@dataclass
class Bucket:
    """One bucket, and a client that is closed with it."""

    name: str
    client: Any
    settings: S3Settings

    @classmethod
    def create(cls, server: S3Server, name: str, settings: S3Settings) -> Self:
        client = server.client()
        client.create_bucket(Bucket=name)
        return cls(name, client, settings)

    def put(self, key: str, data: bytes = b"x") -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        body = self.client.get_object(Bucket=self.name, Key=key)["Body"]
        with body:
            return body.read()

    def put_in_parts(self, key: str, data: bytes) -> None:
        """Upload as tools do with large files: the ETag is then no hash of the content."""
        upload = self.client.create_multipart_upload(Bucket=self.name, Key=key)["UploadId"]
        where = {"Bucket": self.name, "Key": key, "UploadId": upload}
        parts = []
        for number, start in enumerate(range(0, len(data), PART_BYTES), 1):
            body = data[start : start + PART_BYTES]
            answer = self.client.upload_part(**where, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self.client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})

    def remove(self, *keys: str) -> None:
        for key in keys:
            self.client.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        """All keys, however many."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def storage(self, prefix: str = "") -> Landing:
        return open_landing(f"s3://{self.name}/{prefix}", self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
