"""The table of files in docs/architecture.md: each folder's files with the first sentence of their first comment.

    file_table.py            writes the table between the page's markers
    file_table.py --check    exit code 1 if the page is not what would be written
    file_table.py --missing  files without a sentence of at most 120 characters

A header, its inside (NAME_impl.h) and NAME.cpp are one row, with the header's sentence. A file without a sentence has no row:
it implements a part of another header.
"""

import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "architecture.md"
BEGIN, END = "<!-- files: written by tests/tools/file_table.py -->\n", "<!-- end of files -->\n"
FOLDERS = ["allocator", "compress", "sensitivity", "torch_bridge", "interpose", "tools/pleat"]
# The row's sentence and name are those of the first of these that the unit has.
SUFFIXES = [".h", ".cuh", ".cpp", ".c", ".cu", ".S"]
MOST = 120


def comment_of(text):
    """The words of the comment before a file's first line of code."""
    begun = re.match(r"\s*(?:#pragma once\s*)?((?:(?://|# )[^\n]*\n)+|/\*.*?\*/)", text, re.S)
    lines = begun[1].splitlines() if begun else []
    return " ".join(re.sub(r"^\s*(?://|#|/?\*+)|\*/", "", line).strip() for line in lines).strip()


def sentence_of(comment):
    """The first sentence, and whether it is short enough to stand whole; a longer one is cut after its first clause."""
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`\"/<])", comment, maxsplit=1)[0].rstrip(".")
    if len(sentence) <= MOST:
        return sentence, bool(sentence)
    cuts = [cut.start() for cut in re.finditer(r"[;:,] ", sentence) if 20 < cut.start() <= MOST]
    return (sentence[: cuts[0]] if cuts else sentence[:MOST].rsplit(" ", 1)[0] + " ..."), False


def units():
    """(folder, file, sentence, whole) of each unit, folder by folder."""
    for top in FOLDERS:
        for folder in sorted({path.parent for path in (REPOSITORY / top).rglob("*") if path.suffix in SUFFIXES}):
            stems = {}
            for path in folder.iterdir():
                if path.suffix in SUFFIXES:
                    stem = path.stem.removesuffix("_impl")
                    stems.setdefault(stem, []).append((path.stem != stem, SUFFIXES.index(path.suffix), path))
            for _, files in sorted(stems.items()):
                path = min(files)[-1]
                yield folder.relative_to(REPOSITORY), path, *sentence_of(comment_of(path.read_text()))


def tables():
    text, last = "", None
    for folder, path, sentence, _ in units():
        if folder != last:
            text += f"\n`{folder}/`\n\n| file | holds |\n|---|---|\n"
            last = folder
        if sentence:
            text += f"| `{path.name}` | {sentence.replace('|', '&#124;')} |\n"
    return text + "\n"


def written(page):
    before, rest = page.split(BEGIN)
    return before + BEGIN + tables() + END + rest.split(END)[1]


def main():
    if "--missing" in sys.argv:
        for _, path, sentence, whole in units():
            if not whole:
                print(f"{path.relative_to(REPOSITORY)}: {sentence}")
        return 0
    page = PAGE.read_text()
    if "--check" in sys.argv:
        return int(written(page) != page)
    PAGE.write_text(written(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
