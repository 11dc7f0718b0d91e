#!/usr/bin/env python3
"""Builds stand-ins of the CUDA libraries for a wheel of torch, from the symbols that its libraries import.

    generate.py --torch FOLDER --out FOLDER --cc CC --cxx CXX [--include FOLDER]... OBJECTS...

OBJECTS are those of the simulated driver; they become sim-cudart.so, together with stubs for missing functions. The file
OUT/preload lists all stand-ins in load order.

Each stand-in has the SONAME and the version node of the original library, but another file name: torch looks for
the text "libcudart.so" among its mappings.
"""

import argparse
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent

# The prefix of a SONAME, and the prefix of its functions if it has no version node.
LIBRARIES = {
    "libcublas": None, "libcublasLt": None, "libcudnn": None, "libcufft": None, "libcusparse": None, "libcusolver": None,
    "libcupti": None, "libnvrtc": None, "libnvshmem_host": None,
    "libnccl": "nccl", "libcusparseLt": "cusparseLt", "libcufile": "cuFile", "libcurand": "curand", "libcuda": None,
    "libnvidia-ml": None,
}  # fmt: skip
LOOKED_UP = {"libnvidia-ml": ("libnvidia-ml.so.1", "nvml")}  # opened by their SONAMEs, functions found by name
# These only queue work on a stream. Their functions without results can succeed without any effect.
QUEUING = {"libcublas", "libcublasLt", "libcudnn", "libcufft", "libcusparse", "libcusolver"}
ASKS = re.compile(r"Get|Query|[Ss]ize|Version|Estimate")

STUB_HEAD = """void simulated_cuda_unknown(const char*);
void* simulated_cuda_count(const char*);
void simulated_cuda_called(void*);
void* simulated_cuda_handle(void);
"""
UNKNOWN = 'long {name}(void) {{ simulated_cuda_unknown("{name}"); return 0; }}\n'
SUCCEEDS = """long {name}(void** first) {{
  static void* count;
  if (!count) count = simulated_cuda_count("{name}");
  simulated_cuda_called(count);
  {creates}return 0;
}}
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr[:4000]}")
    return done.stdout


def symbols(file, *options):
    return [line.split()[-1] for line in run("nm", *options, file).splitlines() if line.strip() and not line.endswith(":")]


def stub(library, name):
    if library not in QUEUING or ASKS.search(name):
        return UNKNOWN.format(name=name)
    creates = "if (first) *first = simulated_cuda_handle();\n  " if "Create" in name else ""
    return SUCCEEDS.format(name=name, creates=creates)


def names_in(library, prefix):
    """Functions that a library looks up by name: their names are strings in it."""
    pattern = rb"\0(%s[A-Z][a-z][A-Za-z0-9_]{2,})(?=\0)" % prefix.encode()
    return {text.decode() for text in re.findall(pattern, library.read_bytes())}


class Generator:
    def __init__(self, options):
        self.options = options
        self.out, self.parts = options.out, options.out / "parts"
        self.includes = [f"-I{folder}" for folder in options.include]
        libraries = sorted((options.torch / "lib").glob("*.so"))
        self.imported = {name for library in libraries for name in symbols(library, "-D", "--undefined-only")}
        needed = {
            line.split("[")[1].rstrip("]")
            for library in libraries
            for line in run("readelf", "-d", library).splitlines()
            if "NEEDED" in line
        }
        self.sonames = {name.split(".so")[0]: name for name in needed}
        self.looked_up = {
            prefix: set().union(*(names_in(library, prefix) for library in libraries)) for prefix in ("cu", "nvml")
        }
        self.sonames |= {library: soname for library, (soname, _) in LOOKED_UP.items()}

    def of_node(self, node):
        return {name.split("@")[0] for name in self.imported if name.endswith("@" + node)}

    def node_of(self, soname):
        """The version node that torch's imports from a library name, if there is one."""
        for node in (soname, "NVSHMEM" if "nvshmem" in soname else None):
            if node and self.of_node(node):
                return node
        return None

    def link(self, library, names, *, objects=(), others=()):
        """others: stand-ins that the library needs."""
        soname = self.sonames[library]
        place = self.out / f"sim-{library[3:]}.so"
        node = self.node_of(soname)
        own = [self.compile(file) for file in (HERE / "answers").glob(f"{library[3:]}.c")]
        answered = {name for file in (*own, *objects) for name in symbols(file, "--defined-only")}
        stubs = self.parts / f"{library[3:]}_stubs.c"
        stubs.write_text(STUB_HEAD + "".join(stub(library, name) for name in sorted(names - answered)))
        versions = []
        if node:
            script = self.parts / f"{library[3:]}.map"
            script.write_text(f"{node} {{ global: *; }};\n")
            versions = [f"-Wl,--version-script={script}"]
        run(self.options.cxx, "-shared", "-o", place, self.compile(stubs), *own, *objects, f"-Wl,-soname,{soname}",
            "-Wl,-Bsymbolic-functions", "-Wl,--no-as-needed", *others, *versions, "-ldl", "-lpthread")  # fmt: skip
        return place

    def compile(self, source):
        target = self.parts / f"{source.parent.name}_{source.stem}.o"
        run(self.options.cc, "-O1", "-w", "-fPIC", *self.includes, "-c", source, "-o", target)
        return target

    def all(self):
        self.parts.mkdir(parents=True, exist_ok=True)
        driver = {name for name in self.imported if re.match(r"cu[A-Z](?!File)", name) and "@" not in name}
        driver = {name for name in driver | self.looked_up["cu"] if not name.startswith(("cuFile", "cuFFT"))}
        runtime = self.of_node(self.sonames["libcudart"])
        cudart = self.link("libcudart", runtime | driver, objects=self.options.objects)
        places = [cudart]
        for library, prefix in LIBRARIES.items():
            if library not in self.sonames:
                continue
            node = self.node_of(self.sonames[library])
            names = self.of_node(node) if node else set()
            if library in LOOKED_UP:
                names = self.looked_up[LOOKED_UP[library][1]]
            if prefix:
                names |= {name for name in self.imported if name.startswith(prefix) and "@" not in name}
            places.append(self.link(library, names, others=[cudart]))
        (self.out / "preload").write_text(":".join(map(str, places)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=pathlib.Path, required=True, help="folder of the package torch")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--include", action="append", default=[], help="folder with headers of CUDA or cuDNN")
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    Generator(parser.parse_args()).all()
