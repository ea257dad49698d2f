// SPDX-License-Identifier: MIT
// Streams, events, and the capture of a stream's work as a graph. Work that is not captured has happened when its call returns.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "api.h"
#include "core/graph.h"
#include "core/immortal.h"
#include "device.h"
#include "graph.h"

namespace emu::cuda {
namespace {

enum Mode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

struct Capture {
    unsigned long long id;
    Graph* graph;
    void* origin;  // the stream that it began in
    std::thread::id thread;
    int mode;
    bool valid = true, owned = true;  // owned: the graph is new, and goes if the capture fails
};
/// A stream that takes part in a capture: what its next node needs.
struct Part {
    std::shared_ptr<Capture> capture;
    std::vector<Node*> last;
};
struct Event {
    std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();
    bool recorded = false;
    std::shared_ptr<Capture> capture;  // that it was last recorded in
    std::vector<Node*> nodes;
};

struct Streams {
    std::mutex mutex;
    std::map<void*, bool> blocking;  // those that exist: whether they wait for the legacy stream
    std::map<void*, Part> parts;
    unsigned long long captures = 0;
    unsigned long long made = 0;
};
Streams& streams() { return immortal<Streams>(); }
thread_local int g_mode = kGlobal;

void* const kLegacy = reinterpret_cast<void*>(1);
bool is_legacy(const void* stream) { return !stream || stream == kLegacy; }

int refused(Capture& capture, int error, const std::string& what) {
    capture.valid = false;
    return fail(error, what + "; the capture of the stream has failed");
}

/// Those captures that work in the legacy stream would have to wait for.
Capture* behind_legacy() {
    for (const auto& [stream, part] : streams().parts) {
        const auto known = streams().blocking.find(stream);
        if (known != streams().blocking.end() && known->second && part.capture->valid) return part.capture.get();
    }
    return nullptr;
}

int begin(void* stream, int mode, Graph* graph, std::vector<Node*> last) {
    if (is_legacy(stream)) return fail(kCaptureUnsupported, "the legacy stream cannot be captured");
    if (mode < kGlobal || mode > kRelaxed) return fail(kInvalidValue);
    const std::lock_guard lock(streams().mutex);
    if (streams().parts.contains(stream)) return fail(kIllegalState, "the stream is being captured already");
    const bool owned = graph == nullptr;
    if (owned) graph = keep(std::make_unique<Graph>());
    auto capture = std::make_shared<Capture>(
        Capture{++streams().captures, graph, stream, std::this_thread::get_id(), mode, true, owned});
    streams().parts[stream] = {std::move(capture), std::move(last)};
    return kSuccess;
}

int end(void* stream, Graph** graph) {
    if (!graph) return fail(kInvalidValue);
    *graph = nullptr;
    const std::lock_guard lock(streams().mutex);
    auto& parts = streams().parts;
    const auto found = parts.find(stream);
    if (found == parts.end()) return fail(kIllegalState, "the stream is not being captured");
    const std::shared_ptr<Capture> capture = found->second.capture;
    if (capture->origin != stream)
        return refused(*capture, kCaptureUnmatched, "the capture did not begin in this stream");
    if (capture->mode != kRelaxed && capture->thread != std::this_thread::get_id())
        return fail(kCaptureWrongThread, "the capture began in another thread");
    const std::set<const Node*> seen = with_needs(found->second.last);
    bool joined = true;
    for (const auto& [other, part] : parts)
        for (const Node* const node : part.last) joined &= part.capture != capture || seen.contains(node);
    std::erase_if(parts, [&](const auto& each) { return each.second.capture == capture; });
    int error = kSuccess;
    if (!capture->valid) error = fail(kCaptureInvalidated, "an earlier error ended the capture");
    else if (!joined) error = fail(kCaptureUnjoined, "work of another stream in the capture is not waited for");
    capture->valid = false;  // events that it has recorded lead nowhere from now on
    if (error && capture->owned) forget(capture->graph);
    if (!error) *graph = capture->graph;
    return error;
}

}  // namespace

bool is_capturing(void* stream) {
    const std::lock_guard lock(streams().mutex);
    if (streams().parts.empty()) return false;
    return streams().parts.contains(stream) || (is_legacy(stream) && behind_legacy());
}

int capture(void* stream, Work work) {
    const std::lock_guard lock(streams().mutex);
    const auto found = streams().parts.find(stream);
    if (found == streams().parts.end())
        return refused(
            *behind_legacy(), kCaptureImplicit, "work in the legacy stream would wait for a stream that is captured");
    Part& part = found->second;
    if (!part.capture->valid) return fail(kCaptureInvalidated, "an earlier error ended the capture");
    part.last = {part.capture->graph->add(std::move(work), part.last)};
    return kSuccess;
}

int not_captured(void* stream, const char* what) {
    const std::lock_guard lock(streams().mutex);
    const auto found = streams().parts.find(stream);
    if (found == streams().parts.end()) return kSuccess;
    return refused(*found->second.capture, kCaptureUnsupported, std::string(what) + " of a stream that is captured");
}

int none_captured(const char* what) {
    const std::lock_guard lock(streams().mutex);
    int error = kSuccess;
    for (const auto& [stream, part] : streams().parts)
        error = refused(*part.capture, kCaptureUnsupported, std::string(what) + " while a stream is captured");
    return error;
}

int safe_in_captures(const char* what) {
    const std::lock_guard lock(streams().mutex);
    for (const auto& [stream, part] : streams().parts) {
        Capture& each = *part.capture;
        const bool own = each.thread == std::this_thread::get_id();
        if (g_mode != kRelaxed && (own ? each.mode != kRelaxed : g_mode == kGlobal && each.mode == kGlobal))
            return refused(
                each, kCaptureUnsupported,
                std::string(what) + " while a stream is captured in a mode that forbids it (cudaStreamCaptureMode)");
    }
    return kSuccess;
}

void* new_stream(bool blocking) {
    const std::lock_guard lock(streams().mutex);
    void* const handle = reinterpret_cast<void*>(0x1000 + 16 * ++streams().made);
    streams().blocking[handle] = blocking;
    return handle;
}

void record_event(void* event) {
    Event& each = *static_cast<Event*>(event);
    each.when = std::chrono::steady_clock::now();
    each.recorded = true;
    each.capture = nullptr;
    each.nodes.clear();
}

namespace {

/// Of an event that a capture has recorded nothing can be asked.
int asked(void* event) {
    const Event& each = *static_cast<Event*>(event);
    return each.capture ? fail(kCapturedEvent, "the event was recorded by a capture") : int{kSuccess};
}

int wait_event(void* stream, void* event) {
    const std::lock_guard lock(streams().mutex);
    const Event& each = *static_cast<Event*>(event);
    const auto found = streams().parts.find(stream);
    if (!each.capture) {
        if (found == streams().parts.end() || !each.recorded) return kSuccess;
        return refused(*found->second.capture, kCaptureIsolation, "a wait for an event from outside of the capture");
    }
    if (!each.capture->valid) return fail(kCaptureInvalidated, "the capture that has recorded the event is over");
    if (is_legacy(stream))
        return refused(*each.capture, kCaptureImplicit, "the legacy stream would become part of the capture");
    if (found == streams().parts.end()) {
        streams().parts[stream] = {each.capture, each.nodes};
        return kSuccess;
    }
    Part& part = found->second;
    if (part.capture != each.capture) {
        part.capture->valid = false;
        return refused(*each.capture, kCaptureMerge, "two captures would become one");
    }
    for (Node* const node : each.nodes)
        if (std::find(part.last.begin(), part.last.end(), node) == part.last.end()) part.last.push_back(node);
    return kSuccess;
}

int capture_info(void* stream, int* status, unsigned long long* id, Graph** graph, Node* const** needs, size_t* count) {
    if (!status) return fail(kInvalidValue);
    const std::lock_guard lock(streams().mutex);
    const auto found = streams().parts.find(stream);
    const bool here = found != streams().parts.end();
    *status = !here ? 0 : found->second.capture->valid ? 1 : 2;
    const bool active = *status == 1;
    if (id) *id = active ? found->second.capture->id : 0;
    if (graph) *graph = active ? found->second.capture->graph : nullptr;
    if (needs) *needs = active ? found->second.last.data() : nullptr;
    if (count) *count = active ? found->second.last.size() : 0;
    return kSuccess;
}

}  // namespace
}  // namespace emu::cuda

using namespace emu::cuda;

API int cudaStreamCreate(void** stream) {
    *stream = new_stream(true);
    return kSuccess;
}
API int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
    *stream = new_stream(!(flags & 1));
    return kSuccess;
}
API int cudaStreamCreateWithPriority(void** stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
API int cudaStreamDestroy(void* stream) {
    const std::lock_guard lock(streams().mutex);
    if (!streams().blocking.erase(stream)) return fail(kInvalidResourceHandle, "there is no such stream");
    if (const auto found = streams().parts.find(stream); found != streams().parts.end()) {
        found->second.capture->valid = false;
        streams().parts.erase(found);
    }
    return kSuccess;
}
API int cudaStreamSynchronize(void* stream) {
    if (const int error = not_captured(stream, "cudaStreamSynchronize")) return error;
    return launch_failed();
}
API int cudaStreamQuery(void* stream) { return not_captured(stream, "cudaStreamQuery"); }
API int cudaStreamWaitEvent(void* stream, void* event, unsigned flags) {
    constexpr unsigned kExternal = 1;
    if (!event) return fail(kInvalidResourceHandle);
    if (flags & kExternal && is_capturing(stream)) return capture(stream, EventWork{event, false});
    return wait_event(stream, event);
}
API int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
    if (!function) return fail(kInvalidValue);
    if (is_capturing(stream)) return capture(stream, HostWork{function, data});
    function(data);
    return kSuccess;
}

API int cudaStreamBeginCapture(void* stream, int mode) { return begin(stream, mode, nullptr, {}); }
API int cudaStreamBeginCaptureToGraph(
    void* stream, Graph* graph, Node* const* needs, const void*, size_t count, int mode) {
    if (!exists(graph)) return fail(kInvalidValue);
    return begin(stream, mode, graph, {needs, needs + (needs ? count : 0)});
}
API int cudaStreamEndCapture(void* stream, Graph** graph) { return end(stream, graph); }
API int cudaStreamIsCapturing(void* stream, int* status) {
    return capture_info(stream, status, nullptr, nullptr, nullptr, nullptr);
}
#if WARPWAVE_CUDA_MAJOR >= 13
API int cudaStreamGetCaptureInfo(
    void* stream, int* status, unsigned long long* id, Graph** graph, Node* const** needs, const void** edges,
    size_t* count) {
    if (edges) *edges = nullptr;
    return capture_info(stream, status, id, graph, needs, count);
}
#else
API int cudaStreamGetCaptureInfo_v2(
    void* stream, int* status, unsigned long long* id, Graph** graph, Node* const** needs, size_t* count) {
    return capture_info(stream, status, id, graph, needs, count);
}
#endif
API int cudaThreadExchangeStreamCaptureMode(int* mode) {
    if (!mode || *mode < kGlobal || *mode > kRelaxed) return fail(kInvalidValue);
    std::swap(*mode, g_mode);
    return kSuccess;
}

API int cudaEventCreate(void** event) {
    *event = new Event;
    return kSuccess;
}
API int cudaEventCreateWithFlags(void** event, unsigned) { return cudaEventCreate(event); }
API int cudaEventDestroy(void* event) {
    delete static_cast<Event*>(event);
    return kSuccess;
}
API int cudaEventRecordWithFlags(void* event, void* stream, unsigned flags) {
    constexpr unsigned kExternal = 1;
    if (!event) return fail(kInvalidResourceHandle);
    if (is_capturing(stream) && (flags & kExternal || is_legacy(stream)))
        return capture(stream, EventWork{event, true});
    const std::lock_guard lock(streams().mutex);
    record_event(event);
    if (const auto found = streams().parts.find(stream); found != streams().parts.end()) {
        static_cast<Event*>(event)->capture = found->second.capture;
        static_cast<Event*>(event)->nodes = found->second.last;
    }
    return kSuccess;
}
API int cudaEventRecord(void* event, void* stream) { return cudaEventRecordWithFlags(event, stream, 0); }
API int cudaEventSynchronize(void* event) { return asked(event); }
API int cudaEventQuery(void* event) { return asked(event); }
/// Of the emulation on this CPU: it says nothing about a GPU.
API int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
    if (const int error = asked(begin)) return error;
    if (const int error = asked(end)) return error;
    const auto span = static_cast<Event*>(end)->when - static_cast<Event*>(begin)->when;
    *milliseconds = std::chrono::duration<float, std::milli>(span).count();
    return kSuccess;
}
