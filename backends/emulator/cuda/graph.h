// SPDX-License-Identifier: MIT
// Graphs: work that is written down and carried out later, node by node in an order that its edges allow; and streams that
// write down in place of carrying out. Source: CUDA Runtime API 13.0, modules "Graph Management" and "Stream Management".
#pragma once

#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "device.h"
#include "library.h"

namespace emu::cuda {

struct KernelWork {
    Library* library = nullptr;
    std::string name;
    const void* function = nullptr;  // of the runtime; null: of a module of the driver
    Geometry geometry{};
    std::vector<uint8_t> packed;   // its arguments behind each other
    std::vector<void*> arguments;  // where each begins, for whoever asks
    KernelWork() = default;
    /// Copies the arguments. Throws LaunchError and ptx::SourceError.
    KernelWork(Library&, const std::string& name, const Geometry&, void** arguments, const void* packed);
    KernelWork(const KernelWork&);
    KernelWork& operator=(const KernelWork&) = delete;
    KernelWork(KernelWork&&) = default;
    KernelWork& operator=(KernelWork&&) = default;
};
/// Rows of `width` bytes, in planes.
struct CopyWork {
    void* to;
    const void* from;
    size_t width, height = 1, depth = 1;
    size_t to_pitch = 0, from_pitch = 0, to_plane = 0, from_plane = 0;
};
struct FillWork {
    void* to;
    unsigned value;
    unsigned element;  // bytes
    size_t width, height = 1, pitch = 0;
};
struct HostWork {
    void (*function)(void*);
    void* data;
};
struct EventWork {
    void* event;
    bool record;
};
struct Graph;
struct ChildWork {
    std::shared_ptr<Graph> graph;
};
using Work = std::variant<std::monostate, KernelWork, CopyWork, FillWork, HostWork, EventWork, ChildWork>;

struct Node {
    Graph* graph;
    Work work;
    std::vector<Node*> needs;
    const Node* origin = nullptr;  // of a copy: the node that it is a copy of
    /// cudaGraphNodeType.
    int type() const;
};

struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
    Graph() = default;
    Graph(const Graph&);
    Graph& operator=(const Graph&) = delete;
    ~Graph();
    Node* add(Work work, std::vector<Node*> needs);
    void remove(Node*);
    /// Nodes behind all that they need; empty for a graph with a circle.
    std::vector<Node*> order() const;
    size_t number(const Node*) const;
};

/// An instantiated graph: a copy, of which only what its nodes do can be changed.
struct Executable {
    Graph graph;
    std::vector<Node*> order;
    explicit Executable(const Graph& original) : graph(original), order(graph.order()) {}
};

/// Carries work out; the error of the first node that fails.
int carry_out(const Work&, void* stream);
int carry_out(const std::vector<Node*>& order, void* stream);

// ---- what exists. Handles that do not are refused.

bool exists(const Graph*);
bool exists(const Node*);
bool exists(const Executable*);
Graph* keep(std::unique_ptr<Graph>);
Executable* keep(std::unique_ptr<Executable>);
bool forget(const Graph*);
bool forget(const Executable*);

// ---- capture: see stream.cpp

bool is_capturing(void* stream);
int capture(void* stream, Work work);
/// An error for calls that wait for a stream that is captured, or for all of them; the capture cannot go on. Else 0.
int not_captured(void* stream, const char* what);
int none_captured(const char* what);
/// The same for calls that would wait for everything (cudaMalloc), unless the capture's mode allows them.
int safe_in_captures(const char* what);

void* new_stream(bool blocking);
void record_event(void* event);

/// Of a stream that is captured the work that `make` returns becomes a node: true, and `error` says whether that went well.
template <class Make>
bool captured(void* stream, Make make, int& error) {
    if (!is_capturing(stream)) return false;
    try {
        error = capture(stream, make());
    } catch (const LaunchError& refused) {
        error = fail(refused.error, refused.message);
    } catch (const std::exception& refused) {
        error = fail(kInvalidPtx, refused.what());
    }
    return true;
}

}  // namespace emu::cuda
