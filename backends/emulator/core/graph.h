// SPDX-License-Identifier: MIT
// The order of a graph's work. A Node has `needs`, the nodes that it comes after.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace emu {

/// Each node behind all that it needs, those that were added first as early as possible. Fewer than all: they wait in a circle.
template <class Node>
std::vector<Node*> in_order(const std::vector<std::unique_ptr<Node>>& nodes) {
    std::vector<Node*> order;
    std::set<const Node*> done;
    for (bool moved = true; moved;) {
        moved = false;
        for (const auto& node : nodes) {
            const auto is_done = [&](const Node* each) { return done.contains(each); };
            if (is_done(node.get()) || !std::all_of(node->needs.begin(), node->needs.end(), is_done)) continue;
            order.push_back(node.get());
            done.insert(node.get());
            moved = true;
        }
    }
    return order;
}

/// The nodes, and what they need, directly or not.
template <class Node>
std::set<const Node*> with_needs(std::vector<Node*> nodes) {
    std::set<const Node*> found;
    while (!nodes.empty()) {
        const Node* const node = nodes.back();
        nodes.pop_back();
        if (found.insert(node).second) nodes.insert(nodes.end(), node->needs.begin(), node->needs.end());
    }
    return found;
}

}  // namespace emu
