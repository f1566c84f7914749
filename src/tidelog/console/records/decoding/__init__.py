"""Fields of records that are no text: their formats, the schema registry, and a process that decodes.

Avro is fastavro, CBOR cbor2, MsgPack msgspec. Protobuf is Google's library; the descriptors that it needs are
made of the .proto text, which every registry sends, by proto-schema-parser (pure Python). The other ways:
grpcio-tools brings gRPC along and binds Protobuf's version; not every registry has ``?format=serialized``.
HTTP is httpx. About 5 MB to download (most of it fastavro), so all are in ``tidelog[console]``.
"""
