// SPDX-License-Identifier: MIT
// What nvcc puts into a program for its GPUs: PTX and machine code of several architectures.
//
// The layout was read off programs of CUDA 13.0; NVIDIA does not document it.
#pragma once

#include <string>
#include <vector>

namespace emu::cuda {

struct Image {
    bool ptx = false;
    int arch = 0;         // 89
    std::string text;     // of PTX
    std::string problem;  // why it cannot be read, "" if it can
};

std::vector<Image> images(const void* fat_binary);

}  // namespace emu::cuda
