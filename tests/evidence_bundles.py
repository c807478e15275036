"""Evidence bundles as tests take them apart and put them together: archives and manifests are written here from
docs/formats.md, not by the program under test."""

import hashlib
import json
import struct
import zlib

import evidence_reports as evidence

FILE_MODE = 0o100644
LINK_MODE = 0o120777


class Entry:
    """Of an archive: as an export writes it, but for the mode, for what is deflated (`packed`, or all of them with
    `deflated`), and for what its headers say: both (`fields`), or the one before its content alone (`local`)."""

    def __init__(self, name, content=b"", mode=FILE_MODE, deflated=False, packed=None, fields=None, local=None):
        self.name = name if isinstance(name, bytes) else name.encode()
        self.content, self.mode = content, mode
        self.packed = deflate([content]) if deflated else packed
        self.fields, self.local = fields or {}, local or {}

    def parts(self, offset):
        """The entry where it lies, and as the directory has it."""
        data = self.content if self.packed is None else self.packed
        fields = {"method": 0 if self.packed is None else 8, "crc": zlib.crc32(self.content), "packed": len(data),
                  "size": len(self.content), "name": self.name, **self.fields}

        def common(method, crc, packed, size, name):
            return struct.pack("<HHHHHIIIHH", 20, 0x800, method, 0, 0x21, crc, packed, size, len(name), 0)

        local = {**fields, **self.local}
        where = b"PK\3\4" + common(**local) + local["name"] + data
        listed = (b"PK\1\2" + struct.pack("<H", 0x314) + common(**fields) +
                  struct.pack("<HHHII", 0, 0, 0, self.mode << 16, offset) + self.name)
        return where, listed


def deflate(pieces):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def archive(entries):
    data, directory = b"", b""
    for entry in entries:
        where, listed = entry.parts(len(data))
        data += where
        directory += listed
    count = len(entries)
    return data + directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(data), 0)


def entries_of(files):
    return [Entry(name, content) for name, content in sorted(files.items())]


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def manifest_of(files, profile="smoke", members=None):
    """The bytes of manifest.json that is right of these files, but for `members`."""
    records = [json.loads(line) for line in files["index.jsonl"].splitlines()]
    document = evidence.sealed({
        "schema": "nano-mooncake/bundle/v1", "profile": profile,
        "files": [{"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                  for path, content in sorted(files.items()) if path != "manifest.json"],
        "records": [record["record_digest"] for record in records],
        "reports": [{key: record[key] for key in ("run_id", "path", "report_digest")} for record in records],
        **(members or {})}, "manifest_digest")
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
