"""One process puts an object, another reads it: run `writer`, then `reader --key` with the key that it prints.

The writer's segment holds the object, so it has to live until the reader is done. MASTER_ADDR, METADATA_URL and
LOCAL_HOST in the environment say where the master and its metadata are, and by which name this host is reached.
"""

import argparse
import hashlib
import os
import time
import uuid

from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
PAYLOAD = bytes(range(256)) * (MIB // 256)


def put(store, key):
    code = store.put(key, PAYLOAD)
    if code != 0:
        raise RuntimeError(f"put failed: {code}")
    print(f"key={key}", flush=True)
    print(f"bytes={len(PAYLOAD)} sha256={hashlib.sha256(PAYLOAD).hexdigest()}", flush=True)
    input("Press Enter when the reader is done: ")


def get(store, key):
    began = time.perf_counter()
    data = store.get(key)
    elapsed_ms = (time.perf_counter() - began) * 1000
    if data != PAYLOAD:
        raise RuntimeError("the object is missing, or isn't what was put")
    print(f"bytes={len(data)} sha256={hashlib.sha256(data).hexdigest()}")
    print(f"get elapsed_ms={elapsed_ms:.3f}")
    print(f"bytes over TCP: {store.counters()['tcp']['bytes_received']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("writer", "reader"))
    parser.add_argument("--key", help="default of the writer: a new one")
    arguments = parser.parse_args()
    if arguments.role == "reader" and not arguments.key:
        parser.error("the reader needs --key, which the writer prints")

    store = MooncakeDistributedStore()
    try:
        code = store.setup(
            os.environ.get("LOCAL_HOST", "127.0.0.1"),
            os.environ.get("METADATA_URL", "http://127.0.0.1:8080/metadata"),
            64 * MIB,
            16 * MIB,
            "tcp",
            "",
            os.environ.get("MASTER_ADDR", "127.0.0.1:50051"),
        )
        if code != 0:
            raise RuntimeError(f"setup failed: {code}")
        if arguments.role == "writer":
            put(store, arguments.key or f"study/{uuid.uuid4().hex}")
        else:
            get(store, arguments.key)
    finally:
        store.close()


if __name__ == "__main__":
    main()
