// SPDX-License-Identifier: MIT
// The small floating-point formats as bits: both fp8 e4m3 flavours, bf16 and fp16, to and from float.
//
// Plain integer and float arithmetic, the same on host and device, for code paths where speed does not matter or where
// no instruction exists. All conversions from float round to nearest, ties to even.
//
//   format     exponent bias  largest  smallest normal  NaN                 infinity
//   e4m3fn     7              448      2^-6             0x7f, 0xff          none
//   e4m3fnuz   8              240      2^-7             0x80 (no -0)        none
//   bf16       127            3.4e38   2^-126           as float            as float
//   fp16       15             65504    2^-14            exponent all ones   exponent all ones
#pragma once

#include <stdint.h>

#include "ceil_div.h"  // WARPWAVE_HOST_DEVICE

WARPWAVE_HOST_DEVICE inline float float_from_bits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

WARPWAVE_HOST_DEVICE inline uint32_t bits_from_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

/// Value of a code of a format with 1 sign, 4 exponent and 3 fraction bits; its NaN codes are the caller's business.
template <int BIAS>
WARPWAVE_HOST_DEVICE inline float e4m3_magnitude(uint32_t code) {
    const uint32_t exponent = (code >> 3) & 15u, fraction = code & 7u;
    if (exponent == 0)
        return static_cast<float>(fraction) * float_from_bits((127u - BIAS - 2u) << 23);  // · 2^(-2-bias)
    return float_from_bits(((exponent + 127u - BIAS) << 23) | (fraction << 20));
}

WARPWAVE_HOST_DEVICE inline float e4m3fn_to_float(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return float_from_bits(0x7fc00000u);
    const float magnitude = e4m3_magnitude<7>(code);
    return code & 0x80 ? -magnitude : magnitude;
}

WARPWAVE_HOST_DEVICE inline float e4m3fnuz_to_float(uint8_t code) {
    if (code == 0x80) return float_from_bits(0x7fc00000u);
    const float magnitude = e4m3_magnitude<8>(code);
    return code & 0x80 ? -magnitude : magnitude;
}

/// Code of |value|, rounded; values beyond the largest code saturate to it. `value` is not NaN.
template <int BIAS, int LARGEST>
WARPWAVE_HOST_DEVICE inline uint32_t e4m3_code(float value) {
    const uint32_t bits = bits_from_float(value) & 0x7fffffffu;
    uint32_t code;
    if (bits < (128u - BIAS) << 23) {
        // Below the smallest normal, 2^(1-bias): adding 2^(21-bias) leaves steps of 2^(-2-bias) as the last bits of the sum.
        const uint32_t magic = (127u + 21u - BIAS) << 23;
        code = bits_from_float(float_from_bits(bits) + float_from_bits(magic)) - magic;
    } else {
        const uint32_t rounded = bits + 0x7ffffu + ((bits >> 20) & 1u);
        code = (rounded >> 20) - ((127u - BIAS) << 3);
    }
    return code < LARGEST ? code : LARGEST;
}

/// NaN becomes NaN, anything beyond ±448 (infinities too) becomes ±448.
WARPWAVE_HOST_DEVICE inline uint8_t float_to_e4m3fn(float value) {
    if (value != value) return 0x7f;
    return static_cast<uint8_t>(e4m3_code<7, 0x7e>(value) | (bits_from_float(value) >> 24 & 0x80u));
}

/// NaN becomes NaN, anything beyond ±240 (infinities too) becomes ±240; there is one zero.
WARPWAVE_HOST_DEVICE inline uint8_t float_to_e4m3fnuz(float value) {
    if (value != value) return 0x80;
    const uint32_t code = e4m3_code<8, 0x7f>(value);
    return static_cast<uint8_t>(code == 0 ? 0 : code | (bits_from_float(value) >> 24 & 0x80u));
}

/// The flavour of the target this is compiled for: e4m3fnuz with HIP (gfx942), e4m3fn elsewhere.
WARPWAVE_HOST_DEVICE inline float fp8_to_float(uint8_t code) {
#if defined(__HIP__) || defined(__HIPCC__)
    return e4m3fnuz_to_float(code);
#else
    return e4m3fn_to_float(code);
#endif
}

WARPWAVE_HOST_DEVICE inline uint8_t float_to_fp8(float value) {
#if defined(__HIP__) || defined(__HIPCC__)
    return float_to_e4m3fnuz(value);
#else
    return float_to_e4m3fn(value);
#endif
}

WARPWAVE_HOST_DEVICE inline float bf16_to_float(uint16_t code) {
    return float_from_bits(static_cast<uint32_t>(code) << 16);
}

WARPWAVE_HOST_DEVICE inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = bits_from_float(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // quiet, so that it stays NaN when cut
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

WARPWAVE_HOST_DEVICE inline float fp16_to_float(uint16_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
    const uint32_t exponent = (code >> 10) & 31u, fraction = code & 1023u;
    uint32_t bits;
    if (exponent == 31u) bits = 0x7f800000u | fraction << 13;
    else if (exponent != 0u) bits = (exponent + 112u) << 23 | fraction << 13;
    else bits = bits_from_float(static_cast<float>(fraction) * float_from_bits(103u << 23));  // · 2^-24
    return float_from_bits(sign | bits);
}

WARPWAVE_HOST_DEVICE inline uint16_t float_to_fp16(float value) {
    const uint32_t bits = bits_from_float(value) & 0x7fffffffu;
    const uint32_t sign = bits_from_float(value) >> 16 & 0x8000u;
    uint32_t code;
    if (bits > 0x7f800000u) code = 0x7e00u;
    else if (bits >= 0x477ff000u) code = 0x7c00u;  // 65520 and up round to infinity
    else if (bits < 0x38800000u) {                 // below 2^-14: steps of 2^-24, as above
        code = bits_from_float(float_from_bits(bits) + 0.5f) - 0x3f000000u;
    } else {
        code = ((bits + 0xfffu + ((bits >> 13) & 1u)) >> 13) - (112u << 10);
    }
    return static_cast<uint16_t>(sign | code);
}
