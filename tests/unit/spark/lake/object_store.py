"""An S3 server (moto's) with a bucket, and what of it a lake must be told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "ponds"
REGION = "us-east-1"
KEYS = {"access-key-id": "AKIDTIDELOG", "secret-access-key": "not a secret"}


@dataclass(frozen=True)
class ObjectStore:
    """A running server."""

    endpoint: str
    client: Any
    """Amazon's own."""

    @property
    def properties(self) -> dict[str, str]:
        """For PyIceberg."""
        keys = {f"s3.{name}": value for name, value in KEYS.items()}
        return {"s3.endpoint": self.endpoint, "s3.region": REGION, **keys}

    @property
    def options(self) -> list[str]:
        """The same for the command line, where no keys may be."""
        properties = {"s3.endpoint": self.endpoint, "s3.region": REGION}
        return [text for item in properties.items() for text in ("--lake-property", "=".join(item))]

    @property
    def environment(self) -> dict[str, str]:
        """The keys for Amazon's tools."""
        return {f"AWS_{name.upper().replace('-', '_')}": value for name, value in KEYS.items()}

    def objects(self, suffix: str = ".parquet") -> set[str]:
        """The locations of what is in the bucket, as its owner lists it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = (each["Key"] for page in pages for each in page.get("Contents", ()))
        return {f"s3://{BUCKET}/{key}" for key in keys if key.endswith(suffix)}


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a server; what was in an earlier one of this process is gone."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        keys = {f"aws_{name.replace('-', '_')}": value for name, value in KEYS.items()}
        client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, **keys)
        client.create_bucket(Bucket=BUCKET)
        yield ObjectStore(endpoint, client)
        for location in ObjectStore(endpoint, client).objects(""):
            client.delete_object(Bucket=BUCKET, Key=location.removeprefix(f"s3://{BUCKET}/"))
        client.delete_bucket(Bucket=BUCKET)
    finally:
        server.stop()
