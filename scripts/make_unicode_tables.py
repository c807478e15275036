#!/usr/bin/env python3
"""Writes src/model/unicode_tables.cc: the character classes that pre-tokenizers split by.

  python3 -m pip install unicodedata2==16.0.0 tokenizers==0.23.3
  scripts/make_unicode_tables.py > src/model/unicode_tables.cc

Version 16 is what the regular expressions of the `tokenizers` package use; Python's own unicodedata is older, so it
isn't a fallback. A property is the index of a general category in NAMES with bits of \\s and \\w; an entry of the table
is the first code point of a range with the property of the whole range, which ends where the next entry begins.

The normal forms of the package are older, of Unicode 9: it is asked which characters it doesn't know the marks and
compositions of, and those have a bit too.
"""
import sys

import unicodedata2 as unicodedata
from tokenizers import normalizers

NAMES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
SPACE, WORD, INERT = 0x20, 0x40, 0x80  # kProperty... of unicode.h
# White_Space outside of the separator categories.
CONTROLS_THAT_ARE_SPACE = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}
# \w is Alphabetic, marks, decimal digits, connectors and the two joiners. Alphabetic characters outside of letters,
# marks and letter numbers are these circled and squared letters.
ALPHABETIC_SYMBOLS = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
JOINERS = {0x200C, 0x200D}


NFD, NFKD = normalizers.NFD(), normalizers.NFKD()


def is_known_to_package(code):
    """Whether the package moves it as a mark, if it is one, and takes it apart, if it has parts."""
    char = chr(code)
    if unicodedata.combining(char) not in (0, 240) and NFD.normalize_str("a\u0345" + char) == "a\u0345" + char:
        return False
    is_hangul = 0xAC00 <= code <= 0xD7A3
    return is_hangul or not unicodedata.decomposition(char) or NFKD.normalize_str(char) != char


def find_inert():
    inert = {code for code in range(0x110000) if not 0xD800 <= code < 0xE000 and not is_known_to_package(code)}
    # What composes to one of them is as new.
    for code in list(inert):
        parts = unicodedata.decomposition(chr(code)).split()
        if parts and not parts[0].startswith("<"):
            inert.update(part for part in (int(part, 16) for part in parts) if part >= 0x10000)
    return inert


INERT_CODES = find_inert()


def property_of(code):
    category = unicodedata.category(chr(code))
    bits = NAMES.index(category)
    if category[0] == "Z" or code in CONTROLS_THAT_ARE_SPACE:
        bits |= SPACE
    if (category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code in JOINERS
            or any(low <= code <= high for low, high in ALPHABETIC_SYMBOLS)):
        bits |= WORD
    return bits | (INERT if code in INERT_CODES else 0)


def ranges():
    last = None
    for code in range(0x110000):
        bits = property_of(code)
        if bits != last:
            yield code, bits
            last = bits


def main():
    entries = [f"0x{code << 8 | bits:x}" for code, bits in ranges()]
    version = unicodedata.unidata_version
    print(f"// Written by scripts/make_unicode_tables.py from Unicode {version}; not edited by hand.")
    print('// clang-format off\n#include "model/unicode.h"\n')
    print("namespace nmc::model {\n")
    print("const std::array<std::uint32_t, kUnicodeRanges> kUnicodeTable = {")
    for i in range(0, len(entries), 10):
        print("    " + ", ".join(entries[i:i + 10]) + ",")
    print("};\n\n}  // namespace nmc::model")
    print(f"kUnicodeRanges: {len(entries)}", file=sys.stderr)


if __name__ == "__main__":
    main()
