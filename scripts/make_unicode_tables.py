#!/usr/bin/env python3
"""Writes src/model/unicode_tables.cc: the character classes that pre-tokenizers split by.

  python3 -m pip install unicodedata2==16.0.0
  scripts/make_unicode_tables.py > src/model/unicode_tables.cc

Version 16 is what the regular expressions of the `tokenizers` package use; Python's own unicodedata is older, so it
isn't a fallback. A class is a bit, an entry of the table is the first code point of a range with the bits of the whole
range, which ends where the next entry begins.
"""
import sys

import unicodedata2 as unicodedata

LETTER, NUMBER, SPACE, WORD = 1, 2, 4, 8  # CharClass of unicode.h
# White_Space outside of the separator categories.
CONTROLS_THAT_ARE_SPACE = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}
# \w is Alphabetic, marks, decimal digits, connectors and the two joiners. Alphabetic characters outside of letters,
# marks and letter numbers are these circled and squared letters.
ALPHABETIC_SYMBOLS = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
JOINERS = {0x200C, 0x200D}


def classes(code):
    category = unicodedata.category(chr(code))
    bits = 0
    if category[0] == "L":
        bits |= LETTER
    if category[0] == "N":
        bits |= NUMBER
    if category[0] == "Z" or code in CONTROLS_THAT_ARE_SPACE:
        bits |= SPACE
    if (category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code in JOINERS
            or any(low <= code <= high for low, high in ALPHABETIC_SYMBOLS)):
        bits |= WORD
    return bits


def ranges():
    last = None
    for code in range(0x110000):
        bits = classes(code)
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
