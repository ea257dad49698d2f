// SPDX-License-Identifier: MIT
// Graphs and captured streams: prints one line for each part, "ok" or what is wrong. With the argument "behind" a kernel of a graph
// writes behind its array.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                \
    if (const cudaError_t error = (call)) {                        \
        std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
        std::exit(3);                                              \
    }

constexpr int kCount = 64;

__device__ int g_offset;

__global__ void add(int* values, int n) { values[threadIdx.x] += n; }
__global__ void times(int* values, int n) { values[threadIdx.x] *= n; }
__global__ void sum(const int* a, const int* b, int* c) { c[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x] + g_offset; }
__global__ void behind(int* values) { values[threadIdx.x + 1] = 1; }

static void say(const char* what, bool right) { std::printf("%s: %s\n", what, right ? "ok" : "WRONG"); }

struct Array {
    int* device;
    Array() { CHECK(cudaMalloc(&device, kCount * sizeof(int))); }
    ~Array() { cudaFree(device); }
    void set(int value) {
        int host[kCount];
        for (int& each : host) each = value;
        CHECK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    }
    bool is(int value) const {
        int host[kCount];
        CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
        for (const int each : host)
            if (each != value) return false;
        return true;
    }
};

static cudaKernelNodeParams parameters(void (*kernel)(int*, int), void** arguments) {
    cudaKernelNodeParams result{};
    result.func = reinterpret_cast<void*>(kernel);
    result.gridDim = dim3(1);
    result.blockDim = dim3(kCount);
    result.kernelParams = arguments;
    return result;
}

static cudaGraphExec_t instantiated(cudaGraph_t graph) {
    cudaGraphExec_t result;
    CHECK(cudaGraphInstantiate(&result, graph, 0));
    return result;
}

static void captured() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    Array a, b;
    a.set(5), b.set(7);
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    int n = 3;
    add<<<1, kCount, 0, stream>>>(a.device, n);
    n = 100;  // too late: the arguments have been taken
    times<<<1, kCount, 0, stream>>>(a.device, 2);
    CHECK(cudaMemcpyAsync(b.device, a.device, kCount * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemsetAsync(a.device, 0, kCount * sizeof(int), stream));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    CHECK(cudaStreamEndCapture(stream, &graph));
    say("nothing happens while it is captured", status == cudaStreamCaptureStatusActive && a.is(5) && b.is(7));
    size_t count = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    say("a stream is a chain of nodes", count == 4 && roots == 1);
    cudaGraphExec_t ready = instantiated(graph);
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(ready, stream));
    const bool first = b.is(16) && a.is(0);
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("a graph can be launched again", first && b.is(6) && a.is(0));
    CHECK(cudaGraphExecDestroy(ready));
    say("a graph that is gone", cudaGraphLaunch(ready, stream) == cudaErrorInvalidValue);
    CHECK(cudaStreamDestroy(stream));
    cudaGetLastError();
}

static void forked() {
    cudaStream_t one, two;
    CHECK(cudaStreamCreate(&one));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    cudaEvent_t fork, join;
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    Array a, b, c;
    a.set(1), b.set(2);
    const auto capture = [&](bool joins, cudaGraph_t* graph) {
        CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
        times<<<1, kCount, 0, one>>>(b.device, 3);
        CHECK(cudaEventRecord(fork, one));
        CHECK(cudaStreamWaitEvent(two, fork, 0));
        add<<<1, kCount, 0, two>>>(b.device, 10);
        add<<<1, kCount, 0, one>>>(a.device, 1);
        CHECK(cudaEventRecord(join, two));
        if (joins) CHECK(cudaStreamWaitEvent(one, join, 0));
        sum<<<1, kCount, 0, one>>>(a.device, b.device, c.device);
        const bool asked = cudaEventQuery(join) == cudaErrorCapturedEvent;
        const cudaError_t error = cudaStreamEndCapture(one, graph);
        return asked ? error : cudaErrorUnknown;
    };
    cudaGraph_t graph;
    CHECK(capture(true, &graph));
    cudaGraphExec_t ready = instantiated(graph);
    const int offset = 1000;
    CHECK(cudaMemcpyToSymbol(g_offset, &offset, sizeof offset));
    CHECK(cudaGraphLaunch(ready, two));
    say("two streams meet again", c.is(1 + 1 + 2 * 3 + 10 + 1000));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(two, &status));
    say("the second stream is free again", status == cudaStreamCaptureStatusNone);
    say("a stream that is not joined", capture(false, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(one));
    CHECK(cudaStreamDestroy(two));
    cudaGetLastError();
}

static void explicit_nodes() {
    Array a, b;
    cudaGraph_t graph, other;
    cudaGraphNode_t plus, by, fill, copy, host, again;
    CHECK(cudaGraphCreate(&graph, 0));
    int n = 1, m = 2;
    void *plus_arguments[] = {&a.device, &n}, *by_arguments[] = {&a.device, &m};
    cudaKernelNodeParams adds = parameters(add, plus_arguments), multiplies = parameters(times, by_arguments);
    CHECK(cudaGraphAddKernelNode(&plus, graph, nullptr, 0, &adds));
    CHECK(cudaGraphAddKernelNode(&by, graph, nullptr, 0, &multiplies));
    cudaMemsetParams set{};
    set.dst = a.device, set.value = 20, set.elementSize = 4, set.width = kCount, set.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
    CHECK(cudaGraphAddMemcpyNode1D(
        &copy, graph, &plus, 1, b.device, a.device, kCount * sizeof(int), cudaMemcpyDeviceToDevice));
    static int calls = 0;
    cudaHostNodeParams call{[](void* data) { calls += *static_cast<int*>(data); }, &m};
    CHECK(cudaGraphAddHostNode(&host, graph, &copy, 1, &call));
    // Edges decide, not the order in which nodes were made: a fill, then * 2, then + 1.
    cudaGraphNode_t from[] = {fill, by}, to[] = {by, plus};
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddDependencies(graph, from, to, nullptr, 2));
#else
    CHECK(cudaGraphAddDependencies(graph, from, to, 2));
#endif
    cudaGraphExec_t ready = instantiated(graph);
    CHECK(cudaGraphLaunch(ready, nullptr));
    say("edges decide the order", b.is(41) && calls == 2);

    m = 5;
    CHECK(cudaGraphExecKernelNodeSetParams(ready, by, &multiplies));
    set.value = 3;
    CHECK(cudaGraphExecMemsetNodeSetParams(ready, fill, &set));
    CHECK(cudaGraphLaunch(ready, nullptr));
    say("nodes of an instantiated graph", b.is(16) && calls == 7);

    CHECK(cudaGraphClone(&other, graph));
    cudaGraphNode_t cloned;
    CHECK(cudaGraphNodeFindInClone(&cloned, plus, other));
    n = 50;
    CHECK(cudaGraphKernelNodeSetParams(cloned, &adds));
    cudaGraphExecUpdateResultInfo told{};
    CHECK(cudaGraphExecUpdate(ready, other, &told));
    CHECK(cudaGraphLaunch(ready, nullptr));
    say("an update", b.is(90) && told.result == cudaGraphExecUpdateSuccess);
    CHECK(cudaGraphAddEmptyNode(&again, other, &cloned, 1));
    say("an update to another shape", cudaGraphExecUpdate(ready, other, &told) == cudaErrorGraphExecUpdateFailure &&
                                          told.result == cudaGraphExecUpdateErrorTopologyChanged);

    cudaKernelNodeParams held{};
    CHECK(cudaGraphKernelNodeGetParams(plus, &held));
    say("parameters of a node",
        held.func == adds.func && held.blockDim.x == kCount && *static_cast<int*>(held.kernelParams[1]) == 1);
    CHECK(cudaGraphCreate(&other, 0));
    CHECK(cudaGraphAddChildGraphNode(&again, other, nullptr, 0, graph));
    cudaGraphExec_t nested = instantiated(other);
    CHECK(cudaGraphLaunch(nested, nullptr));
    say("a graph in a graph", b.is(41));
    cudaGraphNode_t circle_from[] = {plus}, circle_to[] = {fill};
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddDependencies(graph, circle_from, circle_to, nullptr, 1));
#else
    CHECK(cudaGraphAddDependencies(graph, circle_from, circle_to, 1));
#endif
    cudaGraphExec_t none;
    say("a circle", cudaGraphInstantiate(&none, graph, 0) == cudaErrorInvalidValue);
    CHECK(cudaGraphDestroyNode(fill));
    CHECK(cudaGraphExecDestroy(ready));
    ready = instantiated(graph);
    CHECK(cudaGraphLaunch(ready, nullptr));
    say("a node that is gone", b.is(2 * 41 + 1));
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphExecDestroy(nested));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    cudaGetLastError();
}

static void refused() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaEvent_t outside;
    CHECK(cudaEventCreate(&outside));
    CHECK(cudaEventRecord(outside, nullptr));
    Array a;
    cudaGraph_t graph = nullptr;
    const auto during = [&](cudaStreamCaptureMode mode, auto call, cudaError_t wanted) {
        CHECK(cudaStreamBeginCapture(stream, mode));
        const bool told = call() == wanted;
        const cudaError_t end = cudaStreamEndCapture(stream, &graph);
        if (graph) CHECK(cudaGraphDestroy(graph));
        cudaGetLastError();
        return told && end == (wanted ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    };
    void* memory = nullptr;
    say("a wait for the stream", during(cudaStreamCaptureModeRelaxed, [&] {
        return cudaStreamSynchronize(stream);
    }, cudaErrorStreamCaptureUnsupported));
    say("a wait for the device", during(cudaStreamCaptureModeRelaxed, [] {
        return cudaDeviceSynchronize();
    }, cudaErrorStreamCaptureUnsupported));
    say("memory", during(cudaStreamCaptureModeGlobal, [&] {
        return cudaMalloc(&memory, 64);
    }, cudaErrorStreamCaptureUnsupported));
    say("memory where that is allowed",
        during(cudaStreamCaptureModeRelaxed, [&] { return cudaMalloc(&memory, 64); }, cudaSuccess));
    CHECK(cudaFree(memory));
    say("the legacy stream", during(cudaStreamCaptureModeRelaxed, [&] {
        add<<<1, kCount>>>(a.device, 1);
        return cudaGetLastError();
    }, cudaErrorStreamCaptureImplicit));
    say("an event from outside", during(cudaStreamCaptureModeRelaxed, [&] {
        return cudaStreamWaitEvent(stream, outside, 0);
    }, cudaErrorStreamCaptureIsolation));
    say("a capture in a capture", during(cudaStreamCaptureModeRelaxed, [&] {
        return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaErrorIllegalState ? cudaSuccess
                                                                                                     : cudaErrorUnknown;
    }, cudaSuccess));
    say("a capture of the legacy stream",
        cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    say("an end without a beginning", cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
    cudaGetLastError();
}

int main(int argc, char** argv) {
    if (argc > 1 && !std::strcmp(argv[1], "behind")) {
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        Array a;
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        behind<<<1, kCount, 0, stream>>>(a.device);
        CHECK(cudaStreamEndCapture(stream, &graph));
        std::printf("captured\n");
        std::printf("%s\n", cudaGetErrorName(cudaGraphLaunch(instantiated(graph), stream)));
        return 0;
    }
    captured();
    forked();
    explicit_nodes();
    refused();
    return 0;
}
