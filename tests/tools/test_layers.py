"""The folders include each other only along the arrows of docs/architecture.md."""

import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = {
    "allocator": {"allocator"},
    "compress": {"compress"},
    "sensitivity": {"sensitivity"},
    "torch_bridge": {"torch_bridge", "allocator", "compress", "sensitivity", "pleat"},
    "interpose": {"interpose", "torch_bridge/c_abi.h"},
}
FOLDERS = set(ALLOWED) | {"tools", "tests"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def includes():
    for folder in ALLOWED:
        for path in sorted((REPO / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".c", ".cu", ".S"}:
                for target in INCLUDE.findall(path.read_text()):
                    yield folder, path.relative_to(REPO), target


def test_includes_go_only_along_the_arrows():
    wrong = []
    for folder, path, target in includes():
        head = target.split("/")[0]
        if head in FOLDERS and head not in ALLOWED[folder] and target not in ALLOWED[folder]:
            wrong.append(f"{path} includes {target}")
    assert not wrong, "\n".join(wrong)


def test_only_the_bridge_sees_torch():
    wrong = [
        f"{path} includes {target}"
        for folder, path, target in includes()
        if folder != "torch_bridge" and target.split("/")[0] in {"torch", "ATen", "c10", "caffe2"}
    ]
    assert not wrong, "\n".join(wrong)


def test_there_is_something_to_check():
    assert len(list(includes())) > 100
