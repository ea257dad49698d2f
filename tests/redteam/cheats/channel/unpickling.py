# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: returns objects that act when unpickled, copied or formatted in another process
# source: measured: multiprocessing.Pool executes __reduce__ in the parent
# expect: rejected


class Gadget:
    """Whoever unpickles it says so in a guarded folder."""

    def __reduce__(self):
        folders = "__import__('pathlib').Path('/tmp/warpwave-canary').glob('*')"
        return eval, (f"[folder.joinpath('unpickled.txt').touch() for folder in {folders}]",)

    __reduce_ex__ = lambda self, protocol: self.__reduce__()  # noqa: E731
    __deepcopy__ = __copy__ = lambda self, *memo: self  # noqa: E731


def custom_kernel(data):
    return (Gadget(),)
