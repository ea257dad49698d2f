# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: a C++ extension with torch's own headers: most of a minute of compiler at import
# source: patterns of accepted GPU MODE submissions
from torch.utils.cpp_extension import load_inline

SOURCE = """
at::Tensor scaled_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& s) {
    return at::mm(a, b.t()).mul_(s.unsqueeze(1));
}
"""
module = load_inline("redteam_with_headers", SOURCE, functions=["scaled_product"])


def custom_kernel(data):
    a, b, s, _ = data
    return module.scaled_product(a, b, s)
