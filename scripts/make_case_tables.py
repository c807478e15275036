#!/usr/bin/env python3
"""Writes src/model/unicode_case_tables.cc: upper, lower and title case, and what repr() prints as it is.

  scripts/make_case_tables.py > src/model/unicode_case_tables.cc

They are those of the Python that runs this (3.11, Unicode 14), because chat templates are written for Python's strings.
A run is (first code point, count, step between code points, what to add); characters that become several are listed
one by one.
"""
import sys
import textwrap
import unicodedata

CASES = {"Lower": str.lower, "Upper": str.upper, "Title": str.title}


def simple_runs(pairs):
    """Runs of (code, mapped code) with one step and one difference."""
    runs = []
    for code, mapped in pairs:
        delta = mapped - code
        if runs:
            first, count, step, old = runs[-1]
            gap = code - (first + (count - 1) * step)
            if old == delta and (gap == step or (count == 1 and gap <= 2)):
                runs[-1] = (first, count + 1, gap, delta)
                continue
        runs.append((code, 1, 1, delta))
    return runs


def printable_starts():
    """Code points at which being printable turns on or off, from "off" before 0."""
    last = False
    for code in range(0x110000):
        now = chr(code).isprintable()
        if now != last:
            yield code
            last = now


def rows(items):
    for line in textwrap.wrap(", ".join(item.replace(" ", "~") for item in items), width=110):
        print("    " + line.rstrip(",").replace("~", " ") + ",")


def main():
    print(f"// Written by scripts/make_case_tables.py from Unicode {unicodedata.unidata_version}; not edited by hand.")
    print('// clang-format off\n#include "model/unicode_case.h"\n\nnamespace nmc::model {\n')
    for name, change in CASES.items():
        changed = [(chr(c), change(chr(c))) for c in range(0x110000) if change(chr(c)) != chr(c)]
        runs = simple_runs([(ord(c), ord(text)) for c, text in changed if len(text) == 1])
        longer = [(c, text) for c, text in changed if len(text) > 1]
        print(f"const std::array<CaseRun, k{name}Runs> k{name}RunTable = {{{{")
        rows([f"{{0x{first:x}, {count}, {step}, {delta}}}" for first, count, step, delta in runs])
        print("}};\n")
        print(f"const std::array<CaseExpansion, k{name}Expansions> k{name}ExpansionTable = {{{{")
        rows([f"{{0x{ord(c):x}, {{{', '.join(f'0x{ord(x):x}' for x in text)}}}}}" for c, text in longer])
        print("}};\n")
        print(f"k{name}Runs = {len(runs)}; k{name}Expansions = {len(longer)};", file=sys.stderr)
    starts = [f"0x{code:x}" for code in printable_starts()]
    print("const std::array<std::uint32_t, kPrintableEdges> kPrintableEdgeTable = {{")
    rows(starts)
    print("}};\n\n}  // namespace nmc::model")
    print(f"kPrintableEdges = {len(starts)};", file=sys.stderr)


if __name__ == "__main__":
    main()
