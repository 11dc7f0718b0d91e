"""Pleat's build files as a packager or an outer project uses them: configuration only, nothing is compiled."""

import json
import re
import subprocess

import pytest

from conftest import REPOSITORY, clean_environment

OUTER = """cmake_minimum_required(VERSION 3.22)
project(Outer LANGUAGES C CXX)
add_subdirectory({pleat} pleat)
message(STATUS "outer: type '${{CMAKE_BUILD_TYPE}}' flags '${{CMAKE_CXX_FLAGS}}' launcher '${{CMAKE_CXX_COMPILER_LAUNCHER}}'")
foreach(name PLEAT_BUILD_TESTS PLEAT_BUILD_BENCHMARKS PLEAT_CCACHE pleat allocator_test pleat_codec_bench)
  if(TARGET ${{name}} OR ${{name}})
    message(STATUS "outer: has ${{name}}")
  endif()
endforeach()
"""


def configure(source, folder, *arguments, **variables):
    command = ["cmake", "-S", source, "-B", folder, "-DPLEAT_BUILD_BRIDGE=OFF", "-DPLEAT_CUDA=OFF",
               "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *arguments]  # fmt: skip
    environment = {name: value for name, value in clean_environment().items() if name not in ("CFLAGS", "CXXFLAGS")}
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands_of(folder, part):
    """The compiler's command lines of the units whose path has `part`."""
    units = json.loads((folder / "compile_commands.json").read_text())
    found = [unit["command"] for unit in units if part in unit["file"]]
    assert found
    return found


def test_a_subproject_leaves_the_outer_project_its_settings(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(OUTER.format(pleat=REPOSITORY))
    printed = re.findall(r"outer: (.+)", configure(tmp_path, tmp_path / "build"))
    assert printed == ["type '' flags '' launcher ''", "has pleat"]


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """Configured as a distribution does: its own flags, folders by the GNU names."""
    folder = tmp_path_factory.mktemp("packaged")
    configure(REPOSITORY, folder, "-DPLEAT_BUILD_TESTS=OFF", "-DPLEAT_BUILD_BENCHMARKS=OFF", "-DCMAKE_BUILD_TYPE=None",
              "-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_INSTALL_LIBDIR=lib/tuple", "-DCMAKE_INSTALL_MANDIR=manual",
              CFLAGS="-O2 -g", CXXFLAGS="-O2 -g")  # fmt: skip
    return folder


def test_a_packagers_optimisation_flags_are_kept_for_the_command(packaged):
    assert all(re.findall(r" -O\w*", command) == [" -O2"] for command in commands_of(packaged, "tools/CMakeFiles/pleat.dir/"))


def test_ccache_is_no_launcher_unless_asked_for(packaged):
    assert not any("ccache" in command for command in commands_of(packaged, ""))


def test_files_are_installed_by_the_gnu_names(packaged):
    scripts = "".join(path.read_text() for path in packaged.rglob("cmake_install.cmake"))
    folders = set(re.findall(r'DESTINATION "\$\{CMAKE_INSTALL_PREFIX\}/([^"]+)"', scripts))
    assert folders <= {"bin", "lib/tuple", "manual", "share", "share/pleat"} and {"bin", "lib/tuple", "manual"} <= folders
