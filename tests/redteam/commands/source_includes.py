# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a native kernel includes a root-only file: the compiler's message shows its lines
# source: own
# needs: sandbox
from pathlib import Path

from tests.redteam.shell import JSON, kernel

SOURCE = '''
#include <cstdio>
#include <cstdlib>

#include "kernel.h"
#include "{secret}"
#define TELL (void)0

extern "C" int toy(const float*, float*, int, float, void*, size_t, void*) {
    TELL;
    return 0;
}
'''


def attack(folder: Path, secret: Path) -> list[str]:
    secret.chmod(0o600)
    return [*JSON, *kernel(folder, "cpu", SOURCE.replace("{secret}", str(secret)))]
