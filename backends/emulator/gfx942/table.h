// SPDX-License-Identifier: MIT
// The instruction table: all rows of ops/*.cpp, found by format and opcode.
#pragma once

#include <span>
#include <vector>

#include "instruction.h"

namespace emu {

// One list a file of ops/.
std::span<const Row> salu_rows();
std::span<const Row> salu_bits_rows();
std::span<const Row> salu_flow_rows();
std::span<const Row> smem_rows();
std::span<const Row> smem_atomic_rows();
std::span<const Row> vop_move_rows();
std::span<const Row> vop_int_rows();
std::span<const Row> vop_int16_rows();
std::span<const Row> vop_int64_rows();
std::span<const Row> vop_f32_rows();
std::span<const Row> vop_f16_rows();
std::span<const Row> vop_f64_rows();
std::span<const Row> vop_convert_rows();
std::span<const Row> vop_fp8_rows();
std::span<const Row> vop_transcendental_rows();
std::span<const Row> vop_cross_lane_rows();
std::span<const Row> vop_division_rows();
std::span<const Row> vop_sad_rows();
std::span<const Row> vop3p_rows();
std::span<const Row> vopc_int_rows();
std::span<const Row> vopc_float_rows();
std::span<const Row> mfma_rows();
std::span<const Row> smfmac_rows();
std::span<const Row> ds_rows();
std::span<const Row> ds_atomic_rows();
std::span<const Row> ds_cross_lane_rows();
std::span<const Row> flat_rows();
std::span<const Row> flat_atomic_rows();
std::span<const Row> buffer_rows();
std::span<const Row> buffer_format_rows();

/// The row of an opcode of a format, or null. VOP1/VOP2/VOPC rows are found by their own format only.
const Row* find_row(Format, u16 opcode);

const std::vector<const Row*>& all_rows();

/// Parsed once a row.
const Signature& signature(const Row&);

}  // namespace emu
