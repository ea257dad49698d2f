# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a native kernel embeds a root-only file with .incbin and prints it
# source: own
# needs: sandbox
from pathlib import Path

from tests.redteam.shell import JSON, kernel

SOURCE = '''
#include <cstdio>
#include <cstdlib>

#include "kernel.h"
asm(".section .rodata\\nstolen: .incbin \\"{secret}\\"\\n.byte 0\\n.text");
extern "C" const char stolen[];
#define TELL fputs(stolen, stderr), abort()

extern "C" int toy(const float*, float*, int, float, void*, size_t, void*) {
    TELL;
    return 0;
}
'''


def attack(folder: Path, secret: Path) -> list[str]:
    secret.chmod(0o600)
    return [*JSON, *kernel(folder, "cpu", SOURCE.replace("{secret}", str(secret)))]
