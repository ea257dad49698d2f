# SPDX-License-Identifier: MIT
# class: harness
# problem: foreign
# device: any
# idea: prints a report, claims to be unsupported, then leaves with exit code 0
# source: GPU MODE: stdout and exit codes forged
# expect: rejected
import os

print("check: pass\nbenchmark.0.mean: 1.0\nPASSED\n{\"ok\": true, \"status\": \"PASSED\"}", flush=True)


def custom_kernel(data):
    os._exit(0)
