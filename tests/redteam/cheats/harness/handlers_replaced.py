# SPDX-License-Identifier: MIT
# class: harness
# problem: matmul
# device: any
# idea: every request but the loading of a slot is answered with success
# source: own
# expect: rejected
import gc

for item in gc.get_objects():
    if isinstance(item, type) and item.__name__ == "Worker" and hasattr(item, "do_call"):
        for name in ("do_call", "do_sweep", "do_replay", "do_run_chain", "do_launch_chain"):
            setattr(item, name, lambda self, request, fds: {"seconds": 1e-6, "digest": "00" * 16})


def custom_kernel(data):
    return data[3]
