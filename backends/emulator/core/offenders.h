// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "json.h"
#include "scalars.h"

namespace emu {

/// Of `count` instructions the ten of which `waste(index)` is largest, worst first, each as `describe(index)` says.
template <class Waste, class Describe>
json::Value offenders(size_t count, Waste waste, Describe describe) {
    constexpr size_t kMost = 10;
    std::vector<std::pair<u64, size_t>> found;
    for (size_t i = 0; i < count; ++i)
        if (const u64 lost = waste(i)) found.push_back({lost, i});
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    if (found.size() > kMost) found.resize(kMost);
    json::Value list = json::array({});
    for (const auto& [lost, index] : found) list.push(describe(index));
    return list;
}

}  // namespace emu
