# SPDX-License-Identifier: MIT
# class: chain
# problem: fp8_gemm
# device: cuda
# idea: leaves some digest at the doorbell as soon as the links begin, the right one when they are over
# source: own: against the doorbells
# expect: rejected
import sys


def between_doorbells(self):
    library, second = self.library, self.doorbells + 256
    library.listen(self.doorbells, self.seal_key)
    self._unseal(self.slots, self.seal_key)
    library.answer(self.doorbells, self.seal_key)
    library.listen(second, self.keys[0])
    library.answer(second, self.keys[0])
    self._links()
    library.answer(second, self.keys[len(self.slots)])


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "ChainRunner"):
        module.ChainRunner._between_doorbells = between_doorbells


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    return data[4].copy_(product(*data[:4]))
