// SPDX-License-Identifier: MIT
// Products of 16-bit matrices on CDNA3 whose second operand has K outermost: tiles of up to 256 rows by 256 columns, eight
// waves, one K block (64 values) in LDS, which is filled while it is read.
//
// A tile is one to four units of 64 rows; a wave has 16 rows of each unit and 128 columns, so waves are equally long whatever
// the number of units is. Columns are two halves of 128 each, which lie where the caller says: side by side, or in two
// matrices. A lane's results are 16 consecutive columns of either half.
//
// Four waves, one on every SIMD, are a barrier behind the other four: while one of a SIMD reads from LDS, stores to it and
// asks for what comes, the other one multiplies. Each group transposes one half of B, four values of k by eight columns a
// thread; both copy A. What of LDS both groups have read is free two barriers later, and takes the next block's values then:
//
//   turn  reads              stores                        asks for
//   0     A, columns 0, 1    –                             A of the next block
//   1     columns 2, 3       late group: its half of B     B of the next block
//   2     columns 4, 5       A of the next block           –
//   3     columns 6, 7       early group: its half of B    –
//
// Tiles of one or two units take two turns of four columns each: shorter ones would not cover the other group's reads.
// Workgroups stay and go from tile to tile: the next one's first block comes in while the last of this one is multiplied.
#pragma once

#include <type_traits>

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/fp8_panel.h"
#include "tile/half.h"
#include "tile/transpose.h"

constexpr int kPanelK = kBlockK / 2;  // values of K per panel
constexpr int kUnitRows = 64, kUnits = 4;
constexpr int kTileRows = kUnits * kUnitRows, kTileColumns = 256, kTileHalf = kTileColumns / 2;
constexpr int kTileThreads = 512;

struct TileLds {
    Fp8Panel<kTileRows> a;
    Fp8Panel<kTileColumns> b;  // rows are columns of the tile: 64 of the first half, 64 of the second, twice
};

/// The waves that are a barrier behind, and transpose the second half of B.
__device__ __forceinline__ bool is_late() { return wave_id() >= 4; }

/// Where a tile's values come from. `there` is false behind the last tile: then nothing is read.
struct TileOperands {
    BufferResource a;
    const uint16_t* b;  // first column of this wave's half, k = 0
    int columns;        // of it, any sign
    int units;
    bool there;
};

/// This thread's share of the K block that is on its way.
class TileParts {
    static constexpr int kQuad = 4;  // values of k a thread transposes

    u32x4 a_[kUnits], b_[kQuad];  // a pass over A is a unit, eight lanes to a row
    int load_a_[kUnits];
    int load_b_, store_b_;
    BufferResource rows_;
    const uint16_t* columns_;
    int bytes_b_, units_;
    const int pitch_b_;  // bytes

    // All of it is computed where it is needed: a loop over K has no registers for it.
    static __device__ __forceinline__ int thread() { return computed_here(static_cast<int>(threadIdx.x)); }
    static __device__ __forceinline__ int row() { return thread() / 8; }
    static __device__ __forceinline__ int chunk() { return thread() % 8; }
    // Eight columns and four values of k of half a panel. Sixteen lanes, which LDS serves together, have the four keys of
    // Fp8Rows that there are in a half, and the four places of eight bytes that a key leaves.
    static __device__ __forceinline__ int columns() {
        const int lane = thread() % kWaveSize;
        return (lane >> 4 & 1) | (lane & 3) << 1 | lane >> 5 << 3;
    }
    static __device__ __forceinline__ int quad() {
        const int lane = thread() % kWaveSize;
        return (lane >> 2 & 1) | (wave_id() & 3) << 1 | (lane >> 3 & 1) << 3;
    }

public:
    /// `pitch_b`: elements from one k to the next.
    __device__ __forceinline__ explicit TileParts(int pitch_b) : pitch_b_(pitch_b * 2) {
        const int first = columns() / 8 * 128 + is_late() * 64 + columns() % 8 * 8;
        store_b_ = Fp8Rows::offset(first, quad() / 2) + quad() % 2 * 8;
    }

    /// From now on load this tile. `row_offset(row)`: the byte where a row begins in its buffer, or kOutside.
    template <class RowOffset>
    __device__ __forceinline__ void turn_to(const TileOperands& tile, RowOffset row_offset) {
        rows_ = tile.a, columns_ = tile.b, units_ = tile.units;
#pragma unroll
        for (int pass = 0; pass < kUnits; ++pass) {
            const int begin = tile.there ? row_offset(row() + pass * kUnitRows) : kOutside;
            load_a_[pass] = begin == kOutside ? kOutside : begin + chunk() * kChunk;
        }
        bytes_b_ = tile.there && tile.columns > 0 ? (kPanelK - 1) * pitch_b_ + tile.columns * 2 : 0;
        load_b_ = columns() * 8 < tile.columns ? quad() * kQuad * pitch_b_ + columns() * kChunk : kOutside;
    }

    /// Units that the tile lacks are asked for, too: nothing moves, and the compiler knows at every wait what is on its way.
    __device__ __forceinline__ void load_a(int block) {
#pragma unroll
        for (int pass = 0; pass < kUnits; ++pass) a_[pass] = buffer_load_16(rows_, load_a_[pass], block * kBlockK);
    }
    __device__ __forceinline__ void store_a(TileLds& lds) const {
        const int to = Fp8Rows::offset(row(), chunk());
#pragma unroll
        for (int pass = 0; pass < kUnits; ++pass) {
            if (pass < units_) write_chunk(lds.a.bytes, Fp8Rows::at(to, pass * kUnitRows, 0), a_[pass]);
        }
    }
    __device__ __forceinline__ void load_b(int block) {
        const uint8_t* const values = reinterpret_cast<const uint8_t*>(columns_) +
                                      static_cast<size_t>(block) * kPanelK * static_cast<size_t>(pitch_b_);
        const BufferResource buffer = make_buffer(values, bytes_b_);
#pragma unroll
        for (int i = 0; i < kQuad; ++i) b_[i] = buffer_load_16(buffer, load_b_, i * pitch_b_);
    }
    __device__ __forceinline__ void store_b(TileLds& lds) const {
        u32x2 column[8];
        transpose_halves(b_, column);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            *reinterpret_cast<u32x2*>(lds.b.bytes + Fp8Rows::at(computed_here(store_b_), i, 0)) = column[i];
    }
};

/// Sums of one wave: 16 rows of each unit by 64 columns of each half.
template <class Half, int Units_>
struct TileSums {
    static constexpr int kUnits = Units_;
    f32x4 sum[kUnits][2][4];  // [unit][half][four columns of sixteen]

    __device__ __forceinline__ TileSums() : sum{} {}
    /// Row of the tile, less 64 * unit, that operand row `r` of this wave is.
    static __device__ __forceinline__ int row(int r) { return column_row(wave_id() / 2, r); }
    /// First of this lane's 16 consecutive columns of a half.
    static __device__ __forceinline__ int column() { return wave_id() % 2 * 64 + computed_here(lane_id()) / 16 * 16; }

    /// Columns `first` and `first + 1`: of one unit, independent tiles take turns.
    __device__ __forceinline__ void multiply(int first, int unit, const Fp8Operand& a, const Fp8Operand* b) {
#pragma unroll
        for (int step = 0; step < Fp8Operand::kSteps; ++step)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                f32x4& to = sum[unit][(first + i) / 4][(first + i) % 4];
                to = Half::multiply(b[i].step[step], a.step[step], to);
            }
    }

    /// Two registers of eight halves each for every unit, of rows of `pitch` bytes: `value(unit, i)` packs columns 8 i of this
    /// lane's 16. Lanes that hold rows of the same columns swap, so that one store writes whole lines of fewer rows.
    /// `offset`: of this lane's first column in a row; `left`: columns from there on.
    template <class Value>
    static __device__ __forceinline__ void store(BufferResource to, int pitch, int offset, int left, Value value) {
        const int r = computed_here(lane_id()) % 16, chunk = r >> 3;
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            u32x4 packed[2] = {value(unit, 0), value(unit, 1)};
            swap_8_apart(packed[0], packed[1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int place = (unit * kUnitRows + row((r & 7) + 8 * i)) * pitch + offset + chunk * kChunk;
                buffer_store_16(to, chunk * 8 < left ? place : kOutside, packed[i]);
            }
        }
    }
};

/// One K block of a tile, while block `ahead`, of this tile or the next one, comes in.
template <class Sums>
__device__ __forceinline__ void multiply_block(
    TileLds& lds, TileParts& parts, Sums& sums, int base_a, int base_b, int ahead) {
    constexpr int kTurns = Sums::kUnits > 2 ? 4 : 2, kColumns = 8 / kTurns;
    const bool late = is_late();
    Fp8Operand a[Sums::kUnits], b[kColumns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
            const int n = turn * kColumns + i;
            b[i] = read_fp8_operand(lds.b.bytes, computed_here(base_b), n / 4 * 64 + interleaved_row(n % 4, 0));
        }
        if (turn == 0) {
#pragma unroll
            for (int unit = 0; unit < Sums::kUnits; ++unit)
                a[unit] = read_fp8_operand(lds.a.bytes, computed_here(base_a), unit * kUnitRows);
            parts.load_a(ahead);
        }
        // Both groups ask at one place: the compiler then knows at every wait what is on its way behind it.
        if (turn == kTurns / 2 - 1) {
            if (late) parts.store_b(lds);
            parts.load_b(ahead);
        }
        if (turn == kTurns / 2) parts.store_a(lds);
        if (turn == kTurns - 1 && !late) parts.store_b(lds);
        schedule_barrier();
        __syncthreads();
        schedule_barrier();
        set_wave_priority<1>();
#pragma unroll
        for (int i = 0; i < kColumns; i += 2)
#pragma unroll
            for (int unit = 0; unit < Sums::kUnits; ++unit) sums.multiply(turn * kColumns + i, unit, a[unit], b + i);
        set_wave_priority<0>();
        schedule_barrier();
        __syncthreads();
        schedule_barrier();
    }
}

/// Multiply tile after tile, K blocks [0, blocks) of each. `Tiles` has `Tile` with `units`, `bool next(Tile&)` (false behind
/// the last one), `TileOperands operands(const Tile&, bool there)`, `int row_offset(const Tile&, int row)`, `int pitch_b()` and
/// `void store(const Tile&, const TileSums<Half, units>&)`. All threads of a workgroup call it alike.
template <class Half, class Tiles>
__device__ __forceinline__ void multiply_tiles(TileLds& lds, Tiles& tiles, int blocks) {
    typename Tiles::Tile tile;
    if (!tiles.next(tile)) return;
    TileParts parts(tiles.pitch_b());
    const auto turn_to = [&](const typename Tiles::Tile& to, bool there) {
        parts.turn_to(tiles.operands(to, there), [&](int row) { return tiles.row_offset(to, row); });
    };
    turn_to(tile, true);
    parts.load_a(0), parts.load_b(0);
    parts.store_a(lds);
    const bool late = is_late();
    if (!late) parts.store_b(lds);
    __syncthreads();
    if (late) __syncthreads();

    const int base_a = fp8_operand_base(column_row(wave_id() / 2, lane_id() % 16));
    const int base_b = fp8_operand_base(wave_id() % 2 * 128 + interleaved_row(0, lane_id() % 16));
    bool more = false;
    const auto run = [&](auto units) {
        TileSums<Half, decltype(units)::value> sums;
        typename Tiles::Tile following = tile;
        for (int block = 0; block < blocks; ++block) {
            int ahead = computed_here_for_all(block + 1);  // else the last block becomes code of its own
            if (ahead == blocks) {
                more = tiles.next(following);
                turn_to(following, more);
                ahead = 0;
            }
            multiply_block(lds, parts, sums, base_a, base_b, ahead);
        }
        tiles.store(tile, sums);
        tile = following;
    };
    do {
        switch (tile.units) {
            case 1: run(std::integral_constant<int, 1>()); break;
            case 2: run(std::integral_constant<int, 2>()); break;
            case 3: run(std::integral_constant<int, 3>()); break;
            default: run(std::integral_constant<int, kUnits>());
        }
    } while (more);
    if (!late) __syncthreads();
}
