// SPDX-License-Identifier: MIT
// How an operand of wgmma lies in shared memory: what the variants of wgmma_tile change. workbench/layout.py prints it.
#pragma once

#include <cstdint>

#include "ptx/wgmma.h"

constexpr int kSlice = 32;  // bytes of K of one product, whatever the type

/// Operands of kRow bytes in the swizzle of that name; 0 for none, whose rows are one product long.
template <int kSwizzle>
struct Layout {
    static constexpr int kRow = kSwizzle == 0 ? kSlice : kSwizzle;

    /// Where 16 bytes at byte `byte` of K of a row lie.
    static __device__ __forceinline__ uint32_t place(int row, int byte) {
        // Core matrices: eight rows of 16 bytes; here the two of a product are neighbours, and the next eight rows follow.
        if (kSwizzle == 0) return static_cast<uint32_t>(row / 8 * 256 + byte / 16 * 128 + row % 8 * 16);
        // Rows follow each other; the 16-byte pieces of a row change places by the number of 128-byte lines before it.
        const uint32_t address = static_cast<uint32_t>(row * kRow + byte);
        constexpr uint32_t kMask = kSwizzle / 16 - 1;
        return address ^ (address >> 7 & kMask) << 4;
    }
    static __device__ __forceinline__ uint64_t operand(uint32_t shared) {
        if (kSwizzle == 0) return wgmma_operand_plain(shared, 128, 256);
        if (kSwizzle == 32) return wgmma_operand_32(shared);
        if (kSwizzle == 64) return wgmma_operand_64(shared);
        return wgmma_operand(shared);
    }
};

/// kCount rows of kStep bytes of K: kRow bytes of each row, then the next ones.
template <int kSwizzle, int kStep, int kCount>
struct Panels {
    using Rows = Layout<kSwizzle>;
    static constexpr int kBytes = kCount * kStep;

    static __device__ __forceinline__ uint32_t place(int row, int byte) {
        return static_cast<uint32_t>(byte / Rows::kRow * kCount * Rows::kRow) + Rows::place(row, byte % Rows::kRow);
    }
    /// The operand of product `slice` of a step whose panels begin at `shared`.
    static __device__ __forceinline__ uint64_t operand(uint32_t shared, int slice) {
        constexpr int kPer = Rows::kRow / kSlice;
        return Rows::operand(
            shared + static_cast<uint32_t>(slice / kPer * kCount * Rows::kRow + slice % kPer * kSlice));
    }
};

/// The same transposed, for elements of 16 bits: rows are contiguous, k follows k. In the 128-byte swizzle a k has 64 rows in 128
/// bytes, and the next 64 rows follow behind the last k; without one, core matrices are eight k of eight rows.
template <int kSwizzle, int kStep, int kCount>
struct TransposedPanels {
    static_assert(kSwizzle == 0 || kSwizzle == 128, "the two that this file knows");
    static constexpr int kDepth = kStep / 2, kBoxes = (kCount + 63) / 64;
    static constexpr int kBytes = kSwizzle == 0 ? kCount * kStep : kBoxes * kDepth * 128;

    /// Where an element lies.
    static __device__ __forceinline__ uint32_t place(int row, int k) {
        if (kSwizzle == 0) return static_cast<uint32_t>(k / 8 * kCount * 16 + row / 8 * 128 + k % 8 * 16 + row % 8 * 2);
        const uint32_t address = static_cast<uint32_t>(row / 64 * kDepth * 128 + k * 128 + row % 64 * 2);
        return address ^ (address >> 7 & 7) << 4;
    }
    static __device__ __forceinline__ uint64_t operand(uint32_t shared, int slice) {
        if (kSwizzle == 0)
            return wgmma_operand_plain(shared + static_cast<uint32_t>(slice * kCount * 32), kCount * 16, 128);
        return wgmma_operand_transposed(shared + static_cast<uint32_t>(slice * 16 * 128), kDepth * 128);
    }
};
