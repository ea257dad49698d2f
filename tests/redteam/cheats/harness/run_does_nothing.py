# SPDX-License-Identifier: MIT
# class: harness
# problem: matmul
# device: any
# idea: replaces the contestant's run and finish, so that a call is nothing at all
# source: own: the worker's source is public
# expect: rejected
import gc

for item in gc.get_objects():
    if isinstance(item, type) and item.__name__ == "PythonSubmission":
        item.run = lambda self, slot, workspace: None
        item.finish = lambda self, slot: None
        item.commits = lambda self, slot: [(t.data_ptr(), t.data_ptr(), slot.sizes[n]) for n, t in slot.outputs.items()]


def custom_kernel(data):
    return data[3]
