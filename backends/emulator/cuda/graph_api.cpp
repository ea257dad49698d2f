// SPDX-License-Identifier: MIT
// The runtime's functions of graphs. Source: CUDA Runtime API 13.0, module "Graph Management".
#include <algorithm>
#include <cstring>

#include "api.h"
#include "graph.h"

void* emu_cuda_symbol(const void* host, size_t* bytes);

namespace emu::cuda {
namespace {

struct KernelParameters {
    void* function;
    Dim3 grid, block;
    unsigned shared;
    void** arguments;
    void** extra;
};
struct FillParameters {
    void* to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
struct HostParameters {
    void (*function)(void*);
    void* data;
};
struct Position {
    size_t x, y, z;
};
struct Pitched {
    void* pointer;
    size_t pitch, xsize, ysize;
};
struct CopyParameters {
    void* from_array;
    Position from_position;
    Pitched from;
    void* to_array;
    Position to_position;
    Pitched to;
    Position extent;
    int kind;
};
struct UpdateResult {
    int result;
    Node *node, *from;
};
enum Update : int { kUpdated = 0, kTopologyChanged = 2, kTypeChanged = 3 };

int added(Node** node, Graph* graph, Node* const* needs, size_t count, Work work) {
    if (!node || !exists(graph) || (count && !needs)) return fail(kInvalidValue);
    for (size_t i = 0; i < count; ++i)
        if (!exists(needs[i]) || needs[i]->graph != graph)
            return fail(kInvalidValue, "a node needs one that is not of its graph");
    *node = graph->add(std::move(work), {needs, needs + count});
    return kSuccess;
}

/// `make` may throw LaunchError.
template <class Make>
int made(Make make) {
    try {
        return make();
    } catch (const LaunchError& error) {
        return fail(error.error, error.message);
    } catch (const std::exception& error) {
        return fail(kInvalidPtx, error.what());
    }
}

KernelWork kernel_of(const KernelParameters& p, const KernelWork* before = nullptr) {
    std::string name;
    Library* const library = kernel_at(p.function, name);
    if (!library) throw LaunchError{kInvalidDeviceFunction, "no kernel is registered at that address"};
    const void* packed = nullptr;
    for (void** extra = p.extra; extra && *extra; extra += 2)
        if (*extra == reinterpret_cast<void*>(1)) packed = extra[1];
    Geometry geometry{p.grid, p.block, before ? before->geometry.cluster : Dim3{1, 1, 1}, p.shared};
    if (before) geometry.early = before->geometry.early;
    KernelWork work(*library, name, geometry, p.arguments, packed);
    work.function = p.function;
    return work;
}

FillWork fill_of(const FillParameters& p) {
    if (p.element != 1 && p.element != 2 && p.element != 4)
        throw LaunchError{kInvalidValue, "elements of 1, 2 or 4 bytes can be filled"};
    if (p.width && !p.to) throw LaunchError{kInvalidValue, "a fill of no memory"};
    return {p.to, p.value, p.element, p.width, p.height, p.pitch};
}

CopyWork copy_of(const CopyParameters& p) {
    if (p.from_array || p.to_array) throw LaunchError{kNotSupported, "the emulator has no arrays of textures"};
    const auto at = [](const Pitched& area, const Position& place) {
        return static_cast<char*>(area.pointer) + place.x + area.pitch * (place.y + area.ysize * place.z);
    };
    return {at(p.to, p.to_position),
            at(p.from, p.from_position),
            p.extent.x,
            p.extent.y,
            p.extent.z,
            p.to.pitch,
            p.from.pitch,
            p.to.pitch * p.to.ysize,
            p.from.pitch * p.from.ysize};
}

CopyWork symbol_copy(const void* symbol, const void* other, size_t bytes, size_t offset, bool to_symbol) {
    size_t size = 0;
    char* const at = static_cast<char*>(emu_cuda_symbol(symbol, &size));
    if (!at) throw LaunchError{kInvalidSymbol, "no variable is registered at that address"};
    if (offset + bytes > size) throw LaunchError{kInvalidValue, "a copy behind the end of the variable"};
    if (to_symbol) return {at + offset, other, bytes};
    return {const_cast<void*>(other), at + offset, bytes};
}

template <class Kind>
Kind* work_of(Node* node) {
    return exists(node) ? std::get_if<Kind>(&node->work) : nullptr;
}

/// The copy of `node` in an executable; null if there is none.
Node* copy_in(Executable* executable, const Node* node) {
    if (!exists(executable)) return nullptr;
    for (const auto& each : executable->graph.nodes)
        if (each->origin == node) return each.get();
    return nullptr;
}

/// Replaces what a node does by the same kind of work.
template <class Kind>
int changed(Node* node, Kind work) {
    if (!work_of<Kind>(node)) return fail(kInvalidValue, "there is no such node of that kind");
    node->work = std::move(work);
    return kSuccess;
}

int instantiate(Executable** executable, Graph* graph) {
    if (!executable || !exists(graph)) return fail(kInvalidValue);
    auto ready = std::make_unique<Executable>(*graph);
    if (ready->order.size() != ready->graph.nodes.size())
        return fail(kInvalidValue, "nodes of the graph need each other in a circle");
    *executable = keep(std::move(ready));
    return kSuccess;
}

int update(Executable& executable, const Graph& graph, UpdateResult* told) {
    const auto refuse = [&](int why, const std::string& words) {
        if (told) *told = {why, nullptr, nullptr};
        return fail(kGraphUpdateFailure, "the graph cannot be updated like this: " + words);
    };
    const auto &old = executable.graph.nodes, &now = graph.nodes;
    if (old.size() != now.size()) return refuse(kTopologyChanged, "it has other nodes");
    for (size_t i = 0; i < old.size(); ++i) {
        if (old[i]->type() != now[i]->type()) return refuse(kTypeChanged, "a node is of another kind");
        std::vector<size_t> before, after;
        for (const Node* const each : old[i]->needs) before.push_back(executable.graph.number(each));
        for (const Node* const each : now[i]->needs) after.push_back(graph.number(each));
        std::sort(before.begin(), before.end());
        std::sort(after.begin(), after.end());
        if (before != after) return refuse(kTopologyChanged, "a node needs others");
    }
    for (size_t i = 0; i < old.size(); ++i) {
        Work work = now[i]->work;
        if (auto* const child = std::get_if<ChildWork>(&work)) child->graph = std::make_shared<Graph>(*child->graph);
        old[i]->work = std::move(work);
    }
    if (told) *told = {kUpdated, nullptr, nullptr};
    return kSuccess;
}

/// Fills `into` with up to `*count` handles, or says how many there are.
int listed(const std::vector<Node*>& all, Node** into, size_t* count) {
    if (!count) return fail(kInvalidValue);
    if (into) {
        for (size_t i = 0; i < *count; ++i) into[i] = i < all.size() ? all[i] : nullptr;
        *count = std::min(*count, all.size());
    } else {
        *count = all.size();
    }
    return kSuccess;
}

std::vector<Node*> nodes_of(const Graph& graph, bool roots) {
    std::vector<Node*> all;
    for (const auto& each : graph.nodes)
        if (!roots || each->needs.empty()) all.push_back(each.get());
    return all;
}

int edges(Graph* graph, Node* const* from, Node* const* to, size_t count, bool add) {
    if (!exists(graph)) return fail(kInvalidValue);
    for (size_t i = 0; i < count; ++i) {
        if (!exists(from[i]) || !exists(to[i]) || from[i]->graph != graph || to[i]->graph != graph)
            return fail(kInvalidValue, "an edge to a node that is not of the graph");
        std::vector<Node*>& needs = to[i]->needs;
        const bool there = std::find(needs.begin(), needs.end(), from[i]) != needs.end();
        if (there == add) return fail(kInvalidValue, add ? "the edge is there already" : "there is no such edge");
        if (add) needs.push_back(from[i]);
        else std::erase(needs, from[i]);
    }
    return kSuccess;
}

int needs_of(Node* node, Node** into, size_t* count) {
    return exists(node) ? listed(node->needs, into, count) : fail(kInvalidValue);
}
int needed_by(Node* node, Node** into, size_t* count) {
    if (!exists(node)) return fail(kInvalidValue);
    std::vector<Node*> all;
    for (const auto& each : node->graph->nodes)
        if (std::find(each->needs.begin(), each->needs.end(), node) != each->needs.end()) all.push_back(each.get());
    return listed(all, into, count);
}

}  // namespace
}  // namespace emu::cuda

using namespace emu::cuda;

API int cudaGraphCreate(Graph** graph, unsigned) {
    *graph = keep(std::make_unique<Graph>());
    return kSuccess;
}
API int cudaGraphDestroy(Graph* graph) { return forget(graph) ? kSuccess : fail(kInvalidValue); }
API int cudaGraphClone(Graph** clone, Graph* graph) {
    if (!clone || !exists(graph)) return fail(kInvalidValue);
    *clone = keep(std::make_unique<Graph>(*graph));
    return kSuccess;
}
API int cudaGraphNodeFindInClone(Node** node, Node* original, Graph* clone) {
    if (!node || !exists(clone)) return fail(kInvalidValue);
    for (const auto& each : clone->nodes)
        if (each->origin == original) {
            *node = each.get();
            return kSuccess;
        }
    return fail(kInvalidValue);
}

API int cudaGraphAddKernelNode(
    Node** node, Graph* graph, Node* const* needs, size_t count, const KernelParameters* parameters) {
    return made([&] { return added(node, graph, needs, count, kernel_of(*parameters)); });
}
API int cudaGraphAddMemcpyNode(
    Node** node, Graph* graph, Node* const* needs, size_t count, const CopyParameters* parameters) {
    return made([&] { return added(node, graph, needs, count, copy_of(*parameters)); });
}
API int cudaGraphAddMemcpyNode1D(
    Node** node, Graph* graph, Node* const* needs, size_t count, void* to, const void* from, size_t bytes, int) {
    return added(node, graph, needs, count, CopyWork{to, from, bytes});
}
API int cudaGraphAddMemcpyNodeToSymbol(
    Node** node, Graph* graph, Node* const* needs, size_t count, const void* symbol, const void* from, size_t bytes,
    size_t offset, int) {
    return made([&] { return added(node, graph, needs, count, symbol_copy(symbol, from, bytes, offset, true)); });
}
API int cudaGraphAddMemcpyNodeFromSymbol(
    Node** node, Graph* graph, Node* const* needs, size_t count, void* to, const void* symbol, size_t bytes,
    size_t offset, int) {
    return made([&] { return added(node, graph, needs, count, symbol_copy(symbol, to, bytes, offset, false)); });
}
API int cudaGraphAddMemsetNode(
    Node** node, Graph* graph, Node* const* needs, size_t count, const FillParameters* parameters) {
    return made([&] { return added(node, graph, needs, count, fill_of(*parameters)); });
}
API int cudaGraphAddHostNode(
    Node** node, Graph* graph, Node* const* needs, size_t count, const HostParameters* parameters) {
    if (!parameters || !parameters->function) return fail(kInvalidValue);
    return added(node, graph, needs, count, HostWork{parameters->function, parameters->data});
}
API int cudaGraphAddChildGraphNode(Node** node, Graph* graph, Node* const* needs, size_t count, Graph* child) {
    if (!exists(child)) return fail(kInvalidValue);
    return added(node, graph, needs, count, ChildWork{std::make_shared<Graph>(*child)});
}
API int cudaGraphAddEmptyNode(Node** node, Graph* graph, Node* const* needs, size_t count) {
    return added(node, graph, needs, count, {});
}
API int cudaGraphAddEventRecordNode(Node** node, Graph* graph, Node* const* needs, size_t count, void* event) {
    return added(node, graph, needs, count, EventWork{event, true});
}
API int cudaGraphAddEventWaitNode(Node** node, Graph* graph, Node* const* needs, size_t count, void* event) {
    return added(node, graph, needs, count, EventWork{event, false});
}
API int cudaGraphDestroyNode(Node* node) {
    if (!exists(node)) return fail(kInvalidValue);
    node->graph->remove(node);
    return kSuccess;
}

API int cudaGraphNodeGetType(Node* node, int* type) {
    if (!type || !exists(node)) return fail(kInvalidValue);
    *type = node->type();
    return kSuccess;
}
API int cudaGraphGetNodes(Graph* graph, Node** nodes, size_t* count) {
    return exists(graph) ? listed(nodes_of(*graph, false), nodes, count) : fail(kInvalidValue);
}
API int cudaGraphGetRootNodes(Graph* graph, Node** nodes, size_t* count) {
    return exists(graph) ? listed(nodes_of(*graph, true), nodes, count) : fail(kInvalidValue);
}
// Release 13 has data of edges, which say nothing here.
#if WARPWAVE_CUDA_MAJOR >= 13
#define EDGE_DATA(name) , void* name
#define CONST_EDGE_DATA , const void*
#else
#define EDGE_DATA(name)
#define CONST_EDGE_DATA
#endif
API int cudaGraphNodeGetDependencies(Node* node, Node** nodes EDGE_DATA(), size_t* count) {
    return needs_of(node, nodes, count);
}
API int cudaGraphNodeGetDependentNodes(Node* node, Node** nodes EDGE_DATA(), size_t* count) {
    return needed_by(node, nodes, count);
}
API int cudaGraphAddDependencies(Graph* graph, Node* const* from, Node* const* to CONST_EDGE_DATA, size_t count) {
    return edges(graph, from, to, count, true);
}
API int cudaGraphRemoveDependencies(Graph* graph, Node* const* from, Node* const* to CONST_EDGE_DATA, size_t count) {
    return edges(graph, from, to, count, false);
}

API int cudaGraphKernelNodeGetParams(Node* node, KernelParameters* parameters) {
    KernelWork* const work = work_of<KernelWork>(node);
    if (!work || !parameters) return fail(kInvalidValue);
    *parameters = {
        const_cast<void*>(work->function),
        work->geometry.grid,
        work->geometry.block,
        static_cast<unsigned>(work->geometry.dynamic_shared),
        work->arguments.data(),
        nullptr};
    return kSuccess;
}
API int cudaGraphKernelNodeSetParams(Node* node, const KernelParameters* parameters) {
    return made([&] { return changed(node, kernel_of(*parameters, work_of<KernelWork>(node))); });
}
API int cudaGraphKernelNodeSetAttribute(Node* node, int id, const unsigned* value) {
    KernelWork* const work = work_of<KernelWork>(node);
    if (!work) return fail(kInvalidValue);
    LaunchAttribute attribute{id, {}, {}};
    std::memcpy(attribute.value, value, sizeof attribute.value);
    take(work->geometry, &attribute, 1);
    return kSuccess;
}
API int cudaGraphMemcpyNodeSetParams(Node* node, const CopyParameters* parameters) {
    return made([&] { return changed(node, copy_of(*parameters)); });
}
API int cudaGraphMemcpyNodeSetParams1D(Node* node, void* to, const void* from, size_t bytes, int) {
    return changed(node, CopyWork{to, from, bytes});
}
API int cudaGraphMemsetNodeGetParams(Node* node, FillParameters* parameters) {
    const FillWork* const work = work_of<FillWork>(node);
    if (!work || !parameters) return fail(kInvalidValue);
    *parameters = {work->to, work->pitch, work->value, work->element, work->width, work->height};
    return kSuccess;
}
API int cudaGraphMemsetNodeSetParams(Node* node, const FillParameters* parameters) {
    return made([&] { return changed(node, fill_of(*parameters)); });
}
API int cudaGraphHostNodeSetParams(Node* node, const HostParameters* parameters) {
    return changed(node, HostWork{parameters->function, parameters->data});
}

API int cudaGraphInstantiate(Executable** executable, Graph* graph, unsigned long long) {
    return instantiate(executable, graph);
}
API int cudaGraphInstantiateWithFlags(Executable** executable, Graph* graph, unsigned long long) {
    return instantiate(executable, graph);
}
API int cudaGraphUpload(Executable* executable, void*) { return exists(executable) ? kSuccess : fail(kInvalidValue); }
API int cudaGraphLaunch(Executable* executable, void* stream) {
    if (!exists(executable)) return fail(kInvalidValue, "there is no such instantiated graph");
    int error = kSuccess;
    if (captured(stream, [&] { return ChildWork{std::make_shared<Graph>(executable->graph)}; }, error)) return error;
    return carry_out(executable->order, stream);
}
API int cudaGraphExecDestroy(Executable* executable) { return forget(executable) ? kSuccess : fail(kInvalidValue); }
API int cudaGraphExecUpdate(Executable* executable, Graph* graph, UpdateResult* result) {
    if (!exists(executable) || !exists(graph)) return fail(kInvalidValue);
    return update(*executable, *graph, result);
}
API int cudaGraphExecKernelNodeSetParams(Executable* executable, Node* node, const KernelParameters* parameters) {
    Node* const copy = copy_in(executable, node);
    return made([&] { return changed(copy, kernel_of(*parameters, work_of<KernelWork>(copy))); });
}
API int cudaGraphExecMemcpyNodeSetParams(Executable* executable, Node* node, const CopyParameters* parameters) {
    return made([&] { return changed(copy_in(executable, node), copy_of(*parameters)); });
}
API int cudaGraphExecMemcpyNodeSetParams1D(
    Executable* executable, Node* node, void* to, const void* from, size_t bytes, int) {
    return changed(copy_in(executable, node), CopyWork{to, from, bytes});
}
API int cudaGraphExecMemsetNodeSetParams(Executable* executable, Node* node, const FillParameters* parameters) {
    return made([&] { return changed(copy_in(executable, node), fill_of(*parameters)); });
}
API int cudaGraphExecHostNodeSetParams(Executable* executable, Node* node, const HostParameters* parameters) {
    return changed(copy_in(executable, node), HostWork{parameters->function, parameters->data});
}
