// SPDX-License-Identifier: MIT
// Graphs and the capture of queues. Launches, copies and fills are complete when they return, so a graph runs its nodes one after
// the other, in an order that their dependencies allow.

#include "hip/graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/graph.h"
#include "hip/queue.h"

struct hipGraphNode {
    hipGraphNodeType type;
    emu::Work work;
    std::vector<hipGraphNode*> needs;
    ihipGraph* graph;
};

struct ihipGraph {
    std::vector<std::unique_ptr<hipGraphNode>> nodes;  // in the order in which they were added
    std::vector<std::shared_ptr<hipGraphExec>> children;
};

struct hipGraphExec {
    struct Step {
        const hipGraphNode* node;
        hipGraphNodeType type;
        emu::Work work;
    };
    std::vector<Step> steps;
    std::vector<std::shared_ptr<hipGraphExec>> children;  // that work of the steps refers to
};

using namespace emu;

namespace {

using Nodes = std::vector<hipGraphNode*>;

struct Capture {
    hipStream_t origin;
    ihipGraph* graph;
    bool own;                           // made for this capture
    std::map<hipStream_t, Nodes> last;  // by captured queue: what its next node comes after
};

struct Graphs {
    std::recursive_mutex mutex;
    std::map<ihipGraph*, std::unique_ptr<ihipGraph>> graphs;
    std::map<hipGraphExec*, std::shared_ptr<hipGraphExec>> executable;
    std::vector<std::unique_ptr<Capture>> captures;
    std::map<hipEvent_t, std::pair<Capture*, Nodes>> events;  // that stand for captured work
};

Graphs& state() { return immortal<Graphs>(); }

template <class Body>
hipError_t graph_api(const char* name, Body body) {
    return api(name, [&] {
        const std::lock_guard lock(state().mutex);
        return body();
    });
}

ihipGraph& checked(ihipGraph* graph) {
    require(state().graphs.contains(graph));
    return *graph;
}

hipGraphExec& checked(hipGraphExec* graph) {
    require(state().executable.contains(graph));
    return *graph;
}

hipGraphNode& checked(hipGraphNode* node) {
    const auto owns = [=](const auto& each) { return each.get() == node; };
    for (const auto& [graph, owner] : state().graphs)
        if (std::any_of(graph->nodes.begin(), graph->nodes.end(), owns)) return *node;
    throw ApiError(hipErrorInvalidValue);
}

hipGraphNode* add(ihipGraph& graph, hipGraphNodeType type, Work work, Nodes after) {
    graph.nodes.push_back(std::make_unique<hipGraphNode>(type, std::move(work), std::move(after), &graph));
    return graph.nodes.back().get();
}

hipError_t add(
    const char* name, hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    hipGraphNodeType type, const std::function<Work()>& work) {
    return graph_api(name, [&] {
        require(node != nullptr && (after != nullptr || count == 0));
        for (size_t i = 0; i < count; ++i) require(checked(after[i]).graph == graph);
        ihipGraph& into = checked(graph);
        *node = add(into, type, work(), {after, after + count});
        return hipSuccess;
    });
}

Work nothing() {
    return [] { return hipSuccess; };
}

std::shared_ptr<hipGraphExec> instance_of(const ihipGraph& graph) {
    auto made = std::make_shared<hipGraphExec>();
    const Nodes order = in_order(graph.nodes);
    require(order.size() == graph.nodes.size());  // no circle
    for (const hipGraphNode* node : order) made->steps.push_back({node, node->type, node->work});
    made->children = graph.children;
    return made;
}

hipError_t run(const hipGraphExec& graph) {
    for (const hipGraphExec::Step& step : graph.steps)
        if (const hipError_t status = step.work(); status != hipSuccess) return status;
    return hipSuccess;
}

hipError_t instantiate(const char* name, hipGraphExec_t* made, hipGraph_t graph) {
    return graph_api(name, [&] {
        require(made != nullptr);
        std::shared_ptr<hipGraphExec> instance = instance_of(checked(graph));
        *made = instance.get();
        state().executable[*made] = std::move(instance);
        return hipSuccess;
    });
}

// `to` null: only how many there are is asked. Otherwise up to `count` of them.
void give(const Nodes& nodes, hipGraphNode_t* to, size_t* count) {
    require(count != nullptr);
    if (to) std::copy_n(nodes.begin(), std::min(*count, nodes.size()), to);
    *count = nodes.size();
}

Capture* capture_of(hipStream_t queue) {
    for (const auto& capture : state().captures)
        if (capture->last.contains(queue)) return capture.get();
    return nullptr;
}

hipError_t begin_capture(const char* name, hipStream_t queue, ihipGraph* graph, Nodes after) {
    return graph_api(name, [&] {
        require_queue(queue);
        require(queue != nullptr && queue != hipStreamLegacy, hipErrorStreamCaptureUnsupported);
        require(!capture_of(queue), hipErrorIllegalState);
        auto capture = std::make_unique<Capture>(queue, graph, graph == nullptr);
        if (capture->own) {
            auto made = std::make_unique<ihipGraph>();
            capture->graph = made.get();
            state().graphs[capture->graph] = std::move(made);
        }
        static_cast<void>(checked(capture->graph));
        capture->last[queue] = std::move(after);
        state().captures.push_back(std::move(capture));
        return hipSuccess;
    });
}

Work memset_work(const hipMemsetParams& p) {
    require(p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4);
    return [p] {
        const size_t pitch = p.height > 1 ? p.pitch : p.width * p.elementSize;
        if (p.elementSize == 1) return hipMemset2D(p.dst, pitch, static_cast<int>(p.value), p.width, p.height);
        if (p.elementSize == 2)
            return hipMemsetD2D16(p.dst, pitch, static_cast<unsigned short>(p.value), p.width, p.height);
        return hipMemsetD2D32(p.dst, pitch, p.value, p.width, p.height);
    };
}

Work host_work(const hipHostNodeParams& p) {
    require(p.fn != nullptr);
    return [p] {
        p.fn(p.userData);
        return hipSuccess;
    };
}

Work copy_work(void* to, const void* from, size_t size, hipMemcpyKind kind) {
    return [=] { return hipMemcpy(to, from, size, kind); };
}

Work copy_work(const hipMemcpy3DParms& p) {
    return [p] { return hipMemcpy3D(&p); };
}

// New work for a node of that type, in its graph or in an executable one.
hipError_t change(
    const char* name, hipGraphExec_t graph, hipGraphNode_t node, hipGraphNodeType type,
    const std::function<Work()>& work) {
    return graph_api(name, [&] {
        require(checked(node).type == type);
        if (!graph) {
            node->work = work();
            return hipSuccess;
        }
        std::vector<hipGraphExec::Step>& steps = checked(graph).steps;
        const auto step = std::find_if(steps.begin(), steps.end(), [=](const auto& each) { return each.node == node; });
        require(step != steps.end());
        step->work = work();
        return hipSuccess;
    });
}

template <class T>
const T& given(const T* parameters) {
    require(parameters != nullptr);
    return *parameters;
}

}  // namespace

namespace emu {

bool is_captured(hipStream_t queue) {
    const std::lock_guard lock(state().mutex);
    return !state().captures.empty() && capture_of(queue);
}

bool captured(hipStream_t queue, hipGraphNodeType type, Work work) {
    const std::lock_guard lock(state().mutex);
    if (state().captures.empty()) return false;
    Capture* const capture = capture_of(queue);
    if (!capture) return false;
    Nodes& last = capture->last[queue];
    last = {add(*capture->graph, type, std::move(work), last)};
    return true;
}

bool capture_event(hipStream_t queue, hipEvent_t event) {
    const std::lock_guard lock(state().mutex);
    state().events.erase(event);
    if (state().captures.empty()) return false;
    Capture* const capture = capture_of(queue);
    if (capture) state().events[event] = {capture, capture->last[queue]};
    return capture != nullptr;
}

bool capture_wait(hipStream_t queue, hipEvent_t event) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().events.find(event);
    if (found == state().events.end()) return false;
    auto& [capture, nodes] = found->second;
    Capture* const own = capture_of(queue);
    require(!own || own == capture, hipErrorStreamCaptureMerge);
    Nodes& last = capture->last[queue];
    for (hipGraphNode* node : nodes)
        if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
    return true;
}

}  // namespace emu

// --- capture ----------------------------------------------------------------------------------------------------------

EMU_API hipError_t hipStreamBeginCapture(hipStream_t queue, hipStreamCaptureMode) {
    return begin_capture("hipStreamBeginCapture", queue, nullptr, {});
}

EMU_API hipError_t hipStreamBeginCaptureToGraph(
    hipStream_t queue, hipGraph_t graph, const hipGraphNode_t* after, const hipGraphEdgeData*, size_t count,
    hipStreamCaptureMode) {
    if (!graph || (count && !after)) return record(hipErrorInvalidValue);
    return begin_capture("hipStreamBeginCaptureToGraph", queue, graph, {after, after + count});
}

EMU_API hipError_t hipStreamEndCapture(hipStream_t queue, hipGraph_t* graph) {
    return graph_api("hipStreamEndCapture", [&] {
        require(graph != nullptr);
        *graph = nullptr;
        Capture* const capture = capture_of(queue);
        require(capture != nullptr, hipErrorIllegalState);
        require(capture->origin == queue, hipErrorStreamCaptureUnmatched);
        const std::set<const hipGraphNode*> joined = with_needs(capture->last[queue]);
        bool all = true;
        for (const auto& [other, last] : capture->last)
            for (const hipGraphNode* node : last) all &= joined.contains(node);
        ihipGraph* const made = capture->graph;
        if (!all && capture->own) state().graphs.erase(made);
        std::erase_if(state().events, [=](const auto& each) { return each.second.first == capture; });
        std::erase_if(state().captures, [=](const auto& each) { return each.get() == capture; });
        require(all, hipErrorStreamCaptureUnjoined);
        *graph = made;
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamIsCapturing(hipStream_t queue, hipStreamCaptureStatus* status) {
    return hipStreamGetCaptureInfo_v2(queue, status, nullptr, nullptr, nullptr, nullptr);
}

EMU_API hipError_t hipStreamGetCaptureInfo(hipStream_t queue, hipStreamCaptureStatus* status, unsigned long long* id) {
    return hipStreamGetCaptureInfo_v2(queue, status, id, nullptr, nullptr, nullptr);
}

EMU_API hipError_t hipStreamGetCaptureInfo_v2(
    hipStream_t queue, hipStreamCaptureStatus* status, unsigned long long* id, hipGraph_t* graph,
    const hipGraphNode_t** dependencies, size_t* count) {
    return graph_api("hipStreamGetCaptureInfo_v2", [&] {
        require(status != nullptr);
        require_queue(queue);
        Capture* const capture = capture_of(queue);
        *status = capture ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
        if (id) *id = reinterpret_cast<uintptr_t>(capture);
        if (graph) *graph = capture ? capture->graph : nullptr;
        if (dependencies) *dependencies = capture ? capture->last[queue].data() : nullptr;
        if (count) *count = capture ? capture->last[queue].size() : 0;
        return hipSuccess;
    });
}

EMU_API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
    return api("hipThreadExchangeStreamCaptureMode", [&] {
        thread_local hipStreamCaptureMode current = hipStreamCaptureModeGlobal;
        require(mode != nullptr);
        std::swap(current, *mode);
        return hipSuccess;
    });
}

// --- graphs -----------------------------------------------------------------------------------------------------------

EMU_API hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags) {
    return graph_api("hipGraphCreate", [&] {
        require(graph != nullptr && flags == 0);
        auto made = std::make_unique<ihipGraph>();
        *graph = made.get();
        state().graphs[*graph] = std::move(made);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphDestroy(hipGraph_t graph) {
    return graph_api("hipGraphDestroy", [&] {
        require(state().graphs.erase(graph) == 1);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphAddKernelNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, const hipKernelNodeParams* p) {
    return add(
        "hipGraphAddKernelNode", node, graph, after, count, hipGraphNodeTypeKernel, [&] { return prepare(given(p)); });
}

EMU_API hipError_t hipGraphAddMemcpyNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, const hipMemcpy3DParms* p) {
    return add("hipGraphAddMemcpyNode", node, graph, after, count, hipGraphNodeTypeMemcpy, [&] {
        return copy_work(given(p));
    });
}

EMU_API hipError_t hipGraphAddMemcpyNode1D(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, void* to, const void* from,
    size_t size, hipMemcpyKind kind) {
    return add("hipGraphAddMemcpyNode1D", node, graph, after, count, hipGraphNodeTypeMemcpy, [&] {
        return copy_work(to, from, size, kind);
    });
}

EMU_API hipError_t hipGraphAddMemsetNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, const hipMemsetParams* p) {
    return add("hipGraphAddMemsetNode", node, graph, after, count, hipGraphNodeTypeMemset, [&] {
        return memset_work(given(p));
    });
}

EMU_API hipError_t hipGraphAddHostNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, const hipHostNodeParams* p) {
    return add(
        "hipGraphAddHostNode", node, graph, after, count, hipGraphNodeTypeHost, [&] { return host_work(given(p)); });
}

EMU_API hipError_t
hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count) {
    return add("hipGraphAddEmptyNode", node, graph, after, count, hipGraphNodeTypeEmpty, nothing);
}

// The child's nodes as they are now.
EMU_API hipError_t hipGraphAddChildGraphNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, hipGraph_t child) {
    return add("hipGraphAddChildGraphNode", node, graph, after, count, hipGraphNodeTypeGraph, [&]() -> Work {
        require(child != graph);
        std::shared_ptr<hipGraphExec> instance = instance_of(checked(child));
        graph->children.push_back(instance);
        return [instance = instance.get()] { return run(*instance); };
    });
}

EMU_API hipError_t hipGraphAddEventRecordNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, hipEvent_t event) {
    return add("hipGraphAddEventRecordNode", node, graph, after, count, hipGraphNodeTypeEventRecord, [&]() -> Work {
        return [event] { return hipEventRecord(event, nullptr); };
    });
}

EMU_API hipError_t hipGraphAddEventWaitNode(
    hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count, hipEvent_t event) {
    return add("hipGraphAddEventWaitNode", node, graph, after, count, hipGraphNodeTypeWaitEvent, [&]() -> Work {
        return [event] { return hipStreamWaitEvent(nullptr, event, 0); };
    });
}

EMU_API hipError_t
hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count) {
    return graph_api("hipGraphAddDependencies", [&] {
        require(count == 0 || (from != nullptr && to != nullptr));
        for (size_t i = 0; i < count; ++i) require(checked(from[i]).graph == graph && checked(to[i]).graph == graph);
        for (size_t i = 0; i < count; ++i) to[i]->needs.push_back(from[i]);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
    return graph_api("hipGraphGetNodes", [&] {
        Nodes all;
        for (const auto& node : checked(graph).nodes) all.push_back(node.get());
        give(all, nodes, count);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
    return graph_api("hipGraphGetRootNodes", [&] {
        Nodes roots;
        for (const auto& node : checked(graph).nodes)
            if (node->needs.empty()) roots.push_back(node.get());
        give(roots, nodes, count);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count) {
    return graph_api("hipGraphNodeGetDependencies", [&] {
        give(checked(node).needs, nodes, count);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
    return graph_api("hipGraphNodeGetType", [&] {
        require(type != nullptr);
        *type = checked(node).type;
        return hipSuccess;
    });
}

// --- changes ----------------------------------------------------------------------------------------------------------

EMU_API hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams* p) {
    return change(
        "hipGraphKernelNodeSetParams", nullptr, node, hipGraphNodeTypeKernel, [&] { return prepare(given(p)); });
}

EMU_API hipError_t
hipGraphExecKernelNodeSetParams(hipGraphExec_t graph, hipGraphNode_t node, const hipKernelNodeParams* p) {
    if (!graph) return record(hipErrorInvalidValue);
    return change(
        "hipGraphExecKernelNodeSetParams", graph, node, hipGraphNodeTypeKernel, [&] { return prepare(given(p)); });
}

EMU_API hipError_t hipGraphExecMemcpyNodeSetParams1D(
    hipGraphExec_t graph, hipGraphNode_t node, void* to, const void* from, size_t size, hipMemcpyKind kind) {
    if (!graph) return record(hipErrorInvalidValue);
    return change("hipGraphExecMemcpyNodeSetParams1D", graph, node, hipGraphNodeTypeMemcpy, [&] {
        return copy_work(to, from, size, kind);
    });
}

EMU_API hipError_t
hipGraphExecMemsetNodeSetParams(hipGraphExec_t graph, hipGraphNode_t node, const hipMemsetParams* p) {
    if (!graph) return record(hipErrorInvalidValue);
    return change(
        "hipGraphExecMemsetNodeSetParams", graph, node, hipGraphNodeTypeMemset, [&] { return memset_work(given(p)); });
}

EMU_API hipError_t
hipGraphExecUpdate(hipGraphExec_t graph, hipGraph_t with, hipGraphNode_t* wrong, hipGraphExecUpdateResult* result) {
    return graph_api("hipGraphExecUpdate", [&] {
        require(result != nullptr);
        if (wrong) *wrong = nullptr;
        std::shared_ptr<hipGraphExec> fresh = instance_of(checked(with));
        hipGraphExec& now = checked(graph);
        const bool same = std::equal(
            now.steps.begin(), now.steps.end(), fresh->steps.begin(), fresh->steps.end(),
            [](const auto& a, const auto& b) { return a.type == b.type; });
        *result = same ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
        if (!same) return hipErrorGraphExecUpdateFailure;
        now.children = fresh->children;
        // Nodes go on having the names by which the graph was made.
        for (size_t i = 0; i < now.steps.size(); ++i) now.steps[i].work = fresh->steps[i].work;
        return hipSuccess;
    });
}

// --- executable graphs ------------------------------------------------------------------------------------------------

EMU_API hipError_t
hipGraphInstantiate(hipGraphExec_t* made, hipGraph_t graph, hipGraphNode_t* wrong, char* log, size_t size) {
    if (wrong) *wrong = nullptr;
    if (log && size) *log = 0;
    return instantiate("hipGraphInstantiate", made, graph);
}

EMU_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* made, hipGraph_t graph, unsigned long long) {
    return instantiate("hipGraphInstantiateWithFlags", made, graph);
}

EMU_API hipError_t hipGraphUpload(hipGraphExec_t graph, hipStream_t queue) {
    return graph_api("hipGraphUpload", [&] {
        static_cast<void>(checked(graph));
        require_queue(queue);
        return hipSuccess;
    });
}

EMU_API hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t queue) {
    return device_api("hipGraphLaunch", [&] {
        std::shared_ptr<hipGraphExec> instance;
        {
            const std::lock_guard lock(state().mutex);
            instance = state().executable.at(&checked(graph));
        }
        require_queue(queue);
        if (captured(queue, hipGraphNodeTypeGraph, [instance] { return run(*instance); })) return hipSuccess;
        return run(*instance);
    });
}

EMU_API hipError_t hipGraphExecDestroy(hipGraphExec_t graph) {
    return graph_api("hipGraphExecDestroy", [&] {
        require(state().executable.erase(graph) == 1);
        return hipSuccess;
    });
}
