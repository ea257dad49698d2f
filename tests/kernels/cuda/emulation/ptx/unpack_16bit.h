// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"
#include "ptx/mma_16bit.h"
#include "ptx/number_formats.h"

template <class Element>
float2 unpack_pair(uint32_t pair);
template <>
inline float2 unpack_pair<Bf16>(uint32_t pair) {
    return {emulation::bfloat(static_cast<uint16_t>(pair)), emulation::bfloat(static_cast<uint16_t>(pair >> 16))};
}
template <>
inline float2 unpack_pair<Fp16>(uint32_t pair) {
    return {emulation::half(static_cast<uint16_t>(pair)), emulation::half(static_cast<uint16_t>(pair >> 16))};
}
