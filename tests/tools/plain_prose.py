"""Counts clauses that begin with "what", "whoever", "nobody" or "nothing" in comments and pages: each hides the noun that
it is about.

    plain_prose.py [--list] [PATH...]   a count for each top folder, or every clause with its place; default: all tracked

Read are comments of C, C++ and CUDA, comments and docstrings of Python, comments of shell and CMake, and Markdown outside
of code blocks. Strings are not read.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import subprocess
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A clause begins with a sentence, behind a mark, or behind a word that joins clauses.
CLAUSE = re.compile(
    r"(?:^|[.;:,(|]\s+|\b(?:and|but|or|so|that|if|where|when|because|than|then)\s+)(what|whoever|nobody|nothing)\s+[a-z]",
    re.IGNORECASE,
)
# "What does it cost?" is a question, and "what follows" points at the next line; neither hides a noun.
QUESTION = re.compile(r"\?\s*$")


def c_comments(text):
    """(line, comment) of each run of comment lines, joined, as a sentence runs on over lines."""
    run, start = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        own = re.match(r"\s*(?://+|\*)\s?(.*)$", line)
        if own:
            if not run:
                start = number
            run.append(own[1])
            continue
        if run:
            yield start, " ".join(run)
            run = []
        behind = re.search(r"(?<!:)//\s?(.*)$", re.sub(r'"(?:\\.|[^"\\])*"', '""', line))
        if behind:
            yield number, behind[1]
    if run:
        yield start, " ".join(run)


def hash_comments(text):
    run, start = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        own = re.match(r"\s*#+\s?(.*)$", line)
        if own:
            start = start if run else number
            run.append(own[1])
        elif run:
            yield start, " ".join(run)
            run = []


def python_comments(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node)
            if words:
                for paragraph in words.split("\n\n"):
                    yield getattr(node, "lineno", 1), " ".join(paragraph.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def paragraphs(text):
    """Of Markdown: paragraphs, list items and rows of tables, without what is set as code."""
    in_code, run, start = False, [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        plain = not in_code and not fence and line.strip() and not line.startswith("    ")
        begins = line.lstrip().startswith(("|", "-", "*", "#"))
        if run and (not plain or begins):
            yield start, " ".join(run)
            run = []
        if fence:
            in_code = not in_code
        if plain:
            start = start if run else number
            run.append(re.sub(r"`[^`]*`", "code", line.strip()))
    if run:
        yield start, " ".join(run)


READERS = (
    ({".c", ".h", ".cpp", ".cu", ".cuh", ".S"}, c_comments),
    ({".py"}, python_comments),
    ({".md"}, paragraphs),
    ({".sh", ".cmake", ".txt"}, hash_comments),
)


# file_table.py copies sentences of headers, which are read where they are written.
GENERATED = re.compile(r"<!-- files: .*?<!-- end of files -->", re.S)


def texts(path):
    for suffixes, parts in READERS:
        if path.suffix in suffixes:
            text = path.read_text(encoding="utf-8")
            return parts(GENERATED.sub(lambda table: "\n" * table[0].count("\n"), text))
    return ()


def clauses(path):
    """(line, clause) of each clause in a file."""
    for line, text in texts(path):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\"(])", text):
            if QUESTION.search(sentence):
                continue
            for match in CLAUSE.finditer(sentence):
                yield line, sentence[match.start(1) : match.start(1) + 60]


def tracked(paths):
    names = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--", *paths], check=True, capture_output=True, text=True
    ).stdout
    for name in names.split("\0"):
        if name and not name.startswith(("tests/fuzz/corpus", "tools/bench/results")) and (ROOT / name).is_file():
            yield ROOT / name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="every clause with its place")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    arguments = parser.parse_args()
    counts = collections.Counter()
    for path in tracked(arguments.paths):
        name = path.relative_to(ROOT)
        for line, clause in clauses(path):
            counts[name.parts[0] if len(name.parts) > 1 else "."] += 1
            if arguments.list:
                print(f"{name}:{line}: {clause}")
    for folder, count in sorted(counts.items()):
        print(f"{count:6} {folder}")
    print(f"{sum(counts.values()):6} in all")


if __name__ == "__main__":
    main()
