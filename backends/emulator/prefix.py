# SPDX-License-Identifier: MIT
"""A folder that passes for a ROCm installation where build systems and programs look for one: the emulator's library
under all names that programs are linked to, hipcc under the names that Makefiles and CMake start, CMake's packages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

MARK = "# warpwave: not ROCm's own"        # in the scripts, so that nobody takes them for another compiler
ROOT = Path(__file__).resolve().parents[2]
_VERSIONS = (6, 7)                          # of the interface; programs name the one they were linked with
_LIBRARIES = ("libamdhip64.so", "libhiprtc.so")     # one file has both interfaces

# CMake takes no hipcc as the compiler of its language HIP: clang++ is the same driver, for which C++ is C++.
_DRIVER = f"""#!/bin/sh
{MARK}
program="import sys; sys.path.insert(0, '{{root}}')
from backends.emulator.hipcc import main
sys.exit(main(hip={{hip}}))"
exec {{python}} -c "$program" "$@"
"""
_HIPCONFIG = f"""#!/bin/sh
{MARK}
case "$1" in
    --version|-v) echo "{{version}}" ;;
    --platform|-P) echo amd ;;
    --compiler|-c) echo clang ;;
    --runtime|-r) echo rocclr ;;
    --hipclangpath|-l) echo "{{folder}}/bin" ;;
    --cpp_config|-C) echo " -D__HIP_PLATFORM_AMD__= -I{{headers}}" ;;
    *) echo "{{folder}}" ;;
esac
"""
_AGENTS = f"#!/bin/sh\n{MARK}\necho gfx942\n"
_TARGETS = """\
if(NOT TARGET hip::amdhip64)
  add_library(hip::amdhip64 SHARED IMPORTED GLOBAL)
  set_target_properties(hip::amdhip64 PROPERTIES
    IMPORTED_LOCATION "{folder}/lib/libamdhip64.so"
    INTERFACE_INCLUDE_DIRECTORIES "{headers};{ours}"
    INTERFACE_COMPILE_DEFINITIONS "__HIP_PLATFORM_AMD__=1")
  add_library(hip::host INTERFACE IMPORTED GLOBAL)
  set_target_properties(hip::host PROPERTIES INTERFACE_LINK_LIBRARIES hip::amdhip64)
  add_library(hip::device INTERFACE IMPORTED GLOBAL)
  set_target_properties(hip::device PROPERTIES INTERFACE_LINK_LIBRARIES hip::host)
  add_library(hiprtc::hiprtc SHARED IMPORTED GLOBAL)
  set_target_properties(hiprtc::hiprtc PROPERTIES
    IMPORTED_LOCATION "{folder}/lib/libhiprtc.so" INTERFACE_INCLUDE_DIRECTORIES "{headers};{ours}")
endif()
"""
_HIP_PACKAGE = _TARGETS + """\
set(HIP_FOUND TRUE)
set(hip_FOUND TRUE)
set(HIP_PLATFORM amd)
set(HIP_COMPILER clang)
set(HIP_RUNTIME rocclr)
set(HIP_ROOT_DIR "{folder}")
set(HIP_HIPCC_EXECUTABLE "{folder}/bin/hipcc")
set(hip_INCLUDE_DIRS "{headers}")
set(hip_LIBRARIES hip::host)
"""
# hipcc links the runtime itself.
_LANGUAGE_PACKAGE = """\
if(NOT TARGET hip-lang::device)
  add_library(hip-lang::device INTERFACE IMPORTED GLOBAL)
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
"""
_VERSION_FILE = """\
set(PACKAGE_VERSION "{version}")
set(PACKAGE_VERSION_COMPATIBLE TRUE)
"""


def furnish(folder: Path, library: Path, headers: Path, version: str) -> None:
    """Makes what is not yet in ``folder``; ``headers`` are AMD's, of HIP ``version``. Raises ``OSError``."""
    for place in ("bin", "lib/cmake/hip", "lib/cmake/hip-lang", "lib/cmake/hiprtc"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for name in _LIBRARIES:
        for link in (name, *(f"{name}.{number}" for number in _VERSIONS)):
            _link(folder / "lib" / link, library)
    _link(folder / "include", headers)
    facts = {"folder": folder, "headers": headers, "ours": ROOT / "backends" / "emulator" / "include",
             "version": version, "python": sys.executable, "root": ROOT}
    for path, text in _files(facts).items():
        target = folder / path
        if not target.is_file() or target.read_text() != text:
            part = target.with_name(f".{target.name}.part")
            part.write_text(text)
            part.chmod(0o755 if path.startswith("bin/") else 0o644)
            part.replace(target)


def _files(facts: Mapping[str, object]) -> dict[str, str]:
    package = _HIP_PACKAGE.format(**facts)
    version = _VERSION_FILE.format(**facts)
    return {
        "bin/hipcc": _DRIVER.format(**facts, hip=True),
        "bin/clang++": _DRIVER.format(**facts, hip=False),
        "bin/clang": _DRIVER.format(**facts, hip=False),
        "bin/hipconfig": _HIPCONFIG.format(**facts),
        "bin/rocm_agent_enumerator": _AGENTS,
        "lib/cmake/hip/hip-config.cmake": package,
        "lib/cmake/hip/hip-config-version.cmake": version,
        "lib/cmake/hip-lang/hip-lang-config.cmake": _LANGUAGE_PACKAGE,
        "lib/cmake/hiprtc/hiprtc-config.cmake": _TARGETS.format(**facts),
        "lib/cmake/hiprtc/hiprtc-config-version.cmake": version,
    }


def _link(path: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.symlink_to(target)
