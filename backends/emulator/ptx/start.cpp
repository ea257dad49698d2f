// SPDX-License-Identifier: MIT
#include "start.h"

#include <algorithm>

namespace emu::ptx {
namespace {

template <class T>
T* aligned(std::vector<T>& storage, size_t bytes, size_t align) {
    storage.resize(bytes + align);
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(storage.data()) + align - 1) / align * align);
}

void start_special(Warp& w, const Block& block, const Program::Start& start) {
    const Launch& launch = *block.launch;
    u32v value = u32v(0u);
    const u32 nx = launch.block[0], ny = launch.block[1];
    for (u32 lane = 0; lane < kLanes; ++lane) {
        const u32 thread = w.index * kLanes + lane;
        switch (start.special) {
            case Special::TidX: value[lane] = thread % nx; break;
            case Special::TidY: value[lane] = thread / nx % ny; break;
            case Special::TidZ: value[lane] = thread / nx / ny; break;
            case Special::NtidX: value[lane] = nx; break;
            case Special::NtidY: value[lane] = ny; break;
            case Special::NtidZ: value[lane] = launch.block[2]; break;
            case Special::CtaidX: value[lane] = block.index[0]; break;
            case Special::CtaidY: value[lane] = block.index[1]; break;
            case Special::CtaidZ: value[lane] = block.index[2]; break;
            case Special::NctaidX: value[lane] = launch.grid[0]; break;
            case Special::NctaidY: value[lane] = launch.grid[1]; break;
            case Special::NctaidZ: value[lane] = launch.grid[2]; break;
            case Special::ClusteridX: value[lane] = block.index[0] / launch.cluster[0]; break;
            case Special::ClusteridY: value[lane] = block.index[1] / launch.cluster[1]; break;
            case Special::ClusteridZ: value[lane] = block.index[2] / launch.cluster[2]; break;
            case Special::NclusteridX: value[lane] = launch.grid[0] / launch.cluster[0]; break;
            case Special::NclusteridY: value[lane] = launch.grid[1] / launch.cluster[1]; break;
            case Special::NclusteridZ: value[lane] = launch.grid[2] / launch.cluster[2]; break;
            case Special::ClusterCtaidX: value[lane] = block.index[0] % launch.cluster[0]; break;
            case Special::ClusterCtaidY: value[lane] = block.index[1] % launch.cluster[1]; break;
            case Special::ClusterCtaidZ: value[lane] = block.index[2] % launch.cluster[2]; break;
            case Special::ClusterCtarank: value[lane] = block.rank; break;
            case Special::IsExplicitCluster: value[lane] = block.cluster->blocks.size() > 1; break;
            case Special::LaneId: value[lane] = lane; break;
            case Special::WarpId: value[lane] = w.index; break;
            case Special::NwarpId: value[lane] = static_cast<u32>(block.warps.size()); break;
            case Special::LanemaskEq: value[lane] = 1u << lane; break;
            case Special::LanemaskLt: value[lane] = (1u << lane) - 1; break;
            case Special::LanemaskLe: value[lane] = (2u << lane) - 1; break;
            case Special::LanemaskGt: value[lane] = ~((2u << lane) - 1); break;
            case Special::LanemaskGe: value[lane] = ~((1u << lane) - 1); break;
            case Special::ClusterNctaidX: value[lane] = launch.cluster[0]; break;
            case Special::ClusterNctaidY: value[lane] = launch.cluster[1]; break;
            case Special::ClusterNctaidZ: value[lane] = launch.cluster[2]; break;
            case Special::ClusterNctarank: value[lane] = static_cast<u32>(block.cluster->blocks.size()); break;
            case Special::SmId: value[lane] = block.index[0] % launch.multiprocessors; break;
            case Special::NsmId: value[lane] = launch.multiprocessors; break;
            case Special::DynamicSmemSize: value[lane] = launch.dynamic_bytes; break;
            case Special::TotalSmemSize: value[lane] = launch.shared_bytes; break;
            default: break;
        }
    }
    if (start.special == Special::GridId) *reinterpret_cast<u64v*>(w.to(start.offset)) = u64v(launch.serial);
    else *reinterpret_cast<u32v*>(w.to(start.offset)) = value;
}

void begin(Block& block, Resident::Memory& memory, const Launch& launch) {
    const Program& program = *launch.program;
    block.launch = &launch;
    block.shared = aligned(memory.shared, launch.shared_bytes, 1024);
    // Nobody has written it: every bit set is NaN in every float format.
    std::memset(block.shared, 0xff, launch.shared_bytes);
    const u32 threads = launch.threads(), warps = (threads + kLanes - 1) / kLanes;
    block.local = aligned(memory.local, size_t{warps} * kLanes * program.local_bytes, 64);
    std::memset(block.local, 0xff, size_t{warps} * kLanes * program.local_bytes);
    const size_t per_warp = (size_t{program.register_bytes} + 63) / 64 * 64;
    char* const registers = aligned(memory.registers, per_warp * warps, 64);
    std::memset(registers, 0xff, per_warp * warps);
    block.warps.assign(warps, Warp{});
    block.mbarriers.clear();
    block.operands.clear();
    block.steps.clear();
    std::fill(std::begin(block.barriers), std::end(block.barriers), Barrier{});
    for (u32 i = 0; i < warps; ++i) {
        Warp& warp = block.warps[i];
        warp.registers = registers + per_warp * i;
        warp.constants = reinterpret_cast<const char*>(launch.program->constants.data());
        warp.index = i;
        if (!program.calls.empty()) warp.calls = std::make_shared<Calls>();
        warp.block = &block;
        const u32 present = std::min(threads - i * kLanes, static_cast<u32>(kLanes));
        warp.alive = present == kLanes ? kAllLanes : (1u << present) - 1;
        warp.splits = {{0, warp.alive, false}};
        for (const Program::Start& start : program.specials) start_special(warp, block, start);
    }
}

}  // namespace

void begin(Resident& resident, const Launch& launch, u64 number, Report& report, GlobalShadow* shadow) {
    const u32* const size = launch.cluster;
    const u32 count = size[0] * size[1] * size[2];
    const u32 clusters[2] = {launch.grid[0] / size[0], launch.grid[1] / size[1]};
    const auto x = static_cast<u32>(number % clusters[0]), y = static_cast<u32>(number / clusters[0] % clusters[1]),
               z = static_cast<u32>(number / clusters[0] / clusters[1]);
    Cluster& cluster = resident.cluster;
    cluster.blocks.resize(count);
    cluster.pending.clear();
    cluster.phase = 0;
    cluster.idle = 0;
    resident.memory.resize(count);
    for (u32 rank = 0; rank < count; ++rank) {
        Block& block = cluster.blocks[rank];
        block.cluster = &cluster;
        block.rank = rank;
        block.index[0] = x * size[0] + rank % size[0];
        block.index[1] = y * size[1] + rank / size[0] % size[1];
        block.index[2] = z * size[2] + rank / size[0] / size[1];
        begin(block, resident.memory[rank], launch);
    }
    if (launch.checks) {
        if (!cluster.checks) cluster.checks = std::make_unique<Checks>(launch.checks, report, *launch.program, shadow);
        cluster.checks->reset(cluster, number);
    }
    cluster.handed = Handed{};
    cluster.dice = Dice(Dice(launch.schedule.seed).next() + number);
    resident.live = true;
    resident.turns = 0;
}

}  // namespace emu::ptx
