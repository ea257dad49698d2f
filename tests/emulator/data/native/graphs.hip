// SPDX-License-Identifier: MIT
// Graphs: captured from two queues, and built node by node. The result tells in which order the nodes ran.
#include <hip/hip_runtime.h>

#include <cstdio>

#define NEED(condition) \
    if (!(condition)) return std::printf("line %d\n", __LINE__), 2

__global__ void append(int* value, int digit) { *value = *value * 10 + digit; }

int main() {
    int *value = nullptr, *other = nullptr, result = 0, doubled = 0;
    NEED(!hipMalloc(&value, 4) && !hipMalloc(&other, 4));
    hipStream_t first, second;
    hipEvent_t fork, join;
    NEED(!hipStreamCreate(&first) && !hipStreamCreate(&second) && !hipEventCreate(&fork) && !hipEventCreate(&join));

    // Captured: nothing runs before the launch. The second queue joins by an event, and is joined by another.
    hipGraph_t captured = nullptr, none = nullptr;
    hipStreamCaptureStatus status;
    NEED(!hipMemset(value, 0, 4) && !hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
    NEED(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal) == hipErrorIllegalState);
    append<<<1, 1, 0, first>>>(value, 1);
    NEED(!hipEventRecord(fork, first) && !hipStreamWaitEvent(second, fork, 0));
    append<<<1, 1, 0, second>>>(value, 2);
    NEED(!hipStreamIsCapturing(second, &status) && status == hipStreamCaptureStatusActive);
    NEED(hipStreamEndCapture(second, &none) == hipErrorStreamCaptureUnmatched);
    NEED(!hipEventRecord(join, second) && !hipStreamWaitEvent(first, join, 0));
    NEED(!hipMemcpyAsync(other, value, 4, hipMemcpyDeviceToDevice, first));
    NEED(!hipStreamEndCapture(first, &captured) && captured);
    NEED(!hipStreamIsCapturing(second, &status) && status == hipStreamCaptureStatusNone);
    NEED(!hipMemcpy(&result, value, 4, hipMemcpyDefault) && result == 0);
    hipGraphExec_t executable = nullptr;
    NEED(!hipGraphInstantiate(&executable, captured, nullptr, nullptr, 0));
    NEED(!hipGraphLaunch(executable, first) && !hipGraphLaunch(executable, first) && !hipStreamSynchronize(first));
    NEED(!hipMemcpy(&result, other, 4, hipMemcpyDefault));
    size_t nodes = 0;
    NEED(!hipGraphGetNodes(captured, nullptr, &nodes));
    std::printf("%d %zu\n", result, nodes);

    // A fork that nobody joins.
    NEED(!hipStreamBeginCapture(first, hipStreamCaptureModeGlobal) && !hipEventRecord(fork, first));
    NEED(!hipStreamWaitEvent(second, fork, 0));
    append<<<1, 1, 0, second>>>(value, 9);
    NEED(hipStreamEndCapture(first, &none) == hipErrorStreamCaptureUnjoined && !none);

    // By hand: added in another order than that of the dependencies; arguments are those of the time of adding.
    hipGraph_t graph = nullptr, child = nullptr;
    hipGraphNode_t set, three, four, last, host;
    int digit = 3;
    void* arguments[] = {&value, &digit};
    hipKernelNodeParams kernel{};
    kernel.func = reinterpret_cast<void*>(append);
    kernel.gridDim = kernel.blockDim = dim3(1);
    kernel.kernelParams = arguments;
    hipMemsetParams fill{};
    fill.dst = value;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    hipHostNodeParams twice{};
    twice.fn = [](void* number) { *static_cast<int*>(number) *= 2; };
    twice.userData = &doubled;
    NEED(!hipGraphCreate(&graph, 0) && !hipGraphCreate(&child, 0));
    NEED(!hipGraphAddMemcpyNode1D(&last, graph, nullptr, 0, &doubled, value, 4, hipMemcpyDeviceToHost));
    NEED(!hipGraphAddKernelNode(&three, graph, nullptr, 0, &kernel));
    digit = 4;
    NEED(!hipGraphAddKernelNode(&four, child, nullptr, 0, &kernel));
    hipGraphNode_t whole;
    NEED(!hipGraphAddChildGraphNode(&whole, graph, &three, 1, child));
    NEED(!hipGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
    NEED(!hipGraphAddDependencies(graph, &set, &three, 1) && !hipGraphAddDependencies(graph, &whole, &last, 1));
    NEED(!hipGraphAddHostNode(&host, graph, &last, 1, &twice));
    NEED(hipGraphAddDependencies(graph, &four, &last, 1) == hipErrorInvalidValue);
    hipGraphExec_t second_executable = nullptr;
    NEED(!hipGraphInstantiateWithFlags(&second_executable, graph, 0));
    NEED(!hipGraphDestroy(graph) && !hipGraphDestroy(child) && hipGraphDestroy(child) == hipErrorInvalidValue);
    NEED(!hipGraphLaunch(second_executable, first));
    std::printf("%d\n", doubled);

    // Other arguments for a node, in the executable graph alone; then all of a graph.
    NEED(!hipGraphCreate(&graph, 0) && !hipGraphAddKernelNode(&three, graph, nullptr, 0, &kernel));
    NEED(!hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    digit = 7;
    NEED(!hipGraphExecKernelNodeSetParams(executable, three, &kernel) && !hipMemset(value, 0, 4));
    NEED(!hipGraphLaunch(executable, first) && !hipMemcpy(&result, value, 4, hipMemcpyDefault));
    std::printf("%d", result);
    hipGraphExecUpdateResult update;
    NEED(!hipGraphExecUpdate(executable, graph, nullptr, &update) && update == hipGraphExecUpdateSuccess);
    NEED(!hipGraphLaunch(executable, first) && !hipMemcpy(&result, value, 4, hipMemcpyDefault));
    std::printf(" %d\n", result);
    NEED(hipGraphExecUpdate(executable, captured, nullptr, &update) == hipErrorGraphExecUpdateFailure);
    NEED(update == hipGraphExecUpdateErrorTopologyChanged);
    NEED(!hipGraphExecDestroy(executable) && hipGraphLaunch(executable, first) == hipErrorInvalidValue);
    return 0;
}
