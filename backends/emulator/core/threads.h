// SPDX-License-Identifier: MIT
#pragma once

#include <thread>
#include <vector>

namespace emu {

/// `work(0)` on this thread, the others on as many more; returns when all are done.
template <class Work>
void on_threads(unsigned count, Work work) {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < count; ++i) others.emplace_back([&work, i] { work(i); });
    work(0u);
    for (std::thread& other : others) other.join();
}

}  // namespace emu
