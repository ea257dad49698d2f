// SPDX-License-Identifier: MIT
// What the host does for a kernel that runs: printf, memory for malloc and new, calls of host functions.
//
// Device libraries write a request into a packet, put the packet on a stack and send an interrupt (s_sendmsg); the answer is
// there when that instruction is done. Layout: ockl's hostcall, as the device libraries' bitcode has it.
#pragma once

#include <atomic>

#include "types.h"

namespace emu::services {

/// Addresses for a kernel's hidden arguments. Made when a kernel first asks for them; they last until the process ends.
u64 hostcall_buffer();
u64 heap();

/// Answers all requests that wait. From any thread.
void serve();

/// After a launch: what was printed leaves the buffers.
void flush();

/// True once a kernel has had one of the hidden arguments: only then need the checks ask `own_lanes`.
extern std::atomic<bool> used;

/// Lanes whose address lies in memory that the device libraries manage: packets, the heap's tables and its slabs. What they do
/// there has rules of its own.
u64 own_lanes(const u64* address, u64 lanes);

}  // namespace emu::services
