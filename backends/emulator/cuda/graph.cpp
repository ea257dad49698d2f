// SPDX-License-Identifier: MIT
#include "graph.h"

#include "core/graph.h"
#include "core/immortal.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace emu::cuda {
namespace {

struct Known {
    std::mutex mutex;
    std::set<const Node*> nodes;
    std::map<const Graph*, std::unique_ptr<Graph>> graphs;
    std::map<const Executable*, std::unique_ptr<Executable>> executables;
};

Known& known() { return immortal<Known>(); }

void move_rows(const CopyWork& w) {
    for (size_t z = 0; z < w.depth; ++z)
        for (size_t y = 0; y < w.height; ++y)
            std::memmove(
                static_cast<char*>(w.to) + z * w.to_plane + y * w.to_pitch,
                static_cast<const char*>(w.from) + z * w.from_plane + y * w.from_pitch, w.width);
}

void fill_rows(const FillWork& w) {
    for (size_t y = 0; y < w.height; ++y) {
        char* const row = static_cast<char*>(w.to) + y * w.pitch;
        if (w.element == 1) std::memset(row, static_cast<int>(w.value), w.width);
        else
            for (size_t x = 0; x < w.width; ++x) std::memcpy(row + x * w.element, &w.value, w.element);
    }
}

}  // namespace

KernelWork::KernelWork(
    Library& library, const std::string& name, const Geometry& geometry, void** given, const void* given_packed)
    : library(&library), name(name), geometry(geometry) {
    const std::lock_guard lock(library.mutex);
    const ptx::Function& function = *library.program(name).function;
    packed.resize(function.parameter_bytes);
    if (given_packed) std::memcpy(packed.data(), given_packed, packed.size());
    size_t number = 0;
    for (const ptx::Variable& each : function.parameters) {
        uint8_t* const at = packed.data() + each.offset;
        if (!given_packed) std::memcpy(at, given[number++], each.bytes);
        arguments.push_back(at);
    }
}

KernelWork::KernelWork(const KernelWork& other)
    : library(other.library), name(other.name), function(other.function), geometry(other.geometry),
      packed(other.packed) {
    for (void* const each : other.arguments)
        arguments.push_back(packed.data() + (static_cast<uint8_t*>(each) - other.packed.data()));
}

int Node::type() const {
    // Kernel 0, Memcpy 1, Memset 2, Host 3, Graph 4, Empty 5, WaitEvent 6, EventRecord 7
    constexpr int kTypes[] = {5, 0, 1, 2, 3, 6, 4};
    const auto* const event = std::get_if<EventWork>(&work);
    return event && event->record ? 7 : kTypes[work.index()];
}

Graph::Graph(const Graph& other) {
    std::map<const Node*, Node*> copies;
    for (const auto& each : other.nodes) {
        Work work = each->work;
        if (auto* const child = std::get_if<ChildWork>(&work)) child->graph = std::make_shared<Graph>(*child->graph);
        copies[each.get()] = add(std::move(work), {});
        nodes.back()->origin = each.get();
    }
    for (const auto& each : other.nodes)
        for (const Node* const need : each->needs) copies[each.get()]->needs.push_back(copies[need]);
}

Graph::~Graph() {
    const std::lock_guard lock(known().mutex);
    for (const auto& each : nodes) known().nodes.erase(each.get());
}

Node* Graph::add(Work work, std::vector<Node*> needs) {
    nodes.push_back(std::make_unique<Node>(Node{this, std::move(work), std::move(needs)}));
    const std::lock_guard lock(known().mutex);
    known().nodes.insert(nodes.back().get());
    return nodes.back().get();
}

void Graph::remove(Node* node) {
    for (const auto& each : nodes) std::erase(each->needs, node);
    {
        const std::lock_guard lock(known().mutex);
        known().nodes.erase(node);
    }
    std::erase_if(nodes, [&](const auto& each) { return each.get() == node; });
}

std::vector<Node*> Graph::order() const {
    std::vector<Node*> all = in_order(nodes);
    if (all.size() < nodes.size()) all.clear();
    return all;
}

size_t Graph::number(const Node* node) const {
    return static_cast<size_t>(
        std::find_if(nodes.begin(), nodes.end(), [&](const auto& each) { return each.get() == node; }) - nodes.begin());
}

int carry_out(const Work& work, void* stream) {
    if (const auto* const kernel = std::get_if<KernelWork>(&work)) {
        Geometry geometry = kernel->geometry;
        geometry.stream = stream;
        return launch(*kernel->library, kernel->name, geometry, nullptr, kernel->packed.data());
    }
    if (const auto* const copy = std::get_if<CopyWork>(&work)) move_rows(*copy);
    if (const auto* const fill = std::get_if<FillWork>(&work)) fill_rows(*fill);
    if (const auto* const host = std::get_if<HostWork>(&work)) host->function(host->data);
    if (const auto* const event = std::get_if<EventWork>(&work); event && event->record) record_event(event->event);
    if (const auto* const child = std::get_if<ChildWork>(&work)) return carry_out(child->graph->order(), stream);
    return kSuccess;
}

int carry_out(const std::vector<Node*>& order, void* stream) {
    for (const Node* const each : order)
        if (const int error = carry_out(each->work, stream)) return error;
    return kSuccess;
}

bool exists(const Graph* graph) {
    const std::lock_guard lock(known().mutex);
    return known().graphs.contains(graph);
}
bool exists(const Node* node) {
    const std::lock_guard lock(known().mutex);
    return known().nodes.contains(node);
}
bool exists(const Executable* executable) {
    const std::lock_guard lock(known().mutex);
    return known().executables.contains(executable);
}
Graph* keep(std::unique_ptr<Graph> graph) {
    const std::lock_guard lock(known().mutex);
    Graph* const handle = graph.get();
    known().graphs[handle] = std::move(graph);
    return handle;
}
Executable* keep(std::unique_ptr<Executable> executable) {
    const std::lock_guard lock(known().mutex);
    Executable* const handle = executable.get();
    known().executables[handle] = std::move(executable);
    return handle;
}
bool forget(const Graph* graph) {
    std::unique_ptr<Graph> gone;  // destroyed without the lock, which its nodes need
    const std::lock_guard lock(known().mutex);
    const auto found = known().graphs.find(graph);
    if (found == known().graphs.end()) return false;
    gone = std::move(found->second);
    known().graphs.erase(found);
    return true;
}
bool forget(const Executable* executable) {
    std::unique_ptr<Executable> gone;
    const std::lock_guard lock(known().mutex);
    const auto found = known().executables.find(executable);
    if (found == known().executables.end()) return false;
    gone = std::move(found->second);
    known().executables.erase(found);
    return true;
}

}  // namespace emu::cuda
