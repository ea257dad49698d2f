// SPDX-License-Identifier: MIT
// Host side: bf16 products by the vendor's library, cuBLASLt, for what a kernel of ours would only repeat.
//
// Nothing links against it: the library is the one that the process has loaded already (torch brings it), or else the one
// the loader finds, and the few functions and numbers used of its documented interface are declared here. What the library
// proposes for a product is asked once per shape and device and kept, since asking takes longer than a product; that, and the
// library's handles, is all the state there is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>

#include "mla/layer_product.h"

#ifndef LIBRARY_CHOICE
#error \
    "LIBRARY_CHOICE is a tunable of the kernel file: which of the library's proposals is taken, the best by its own estimate being 0"
#endif

namespace mla {

namespace library {

// Of the library's interface: opaque things are pointers, statuses and enumerations int. 0 is success.
using Thing = void*;
enum { kFloat32 = 0, kBfloat16 = 14, kSumsInFloat32 = 68, kTransposed = 1 };
enum { kOperationOfA = 3, kBatchCount = 5, kBatchStep = 6, kMostWorkspace = 1 };
struct Proposal {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

struct Functions {
    int (*create)(Thing*);
    int (*product_create)(Thing*, int, int);
    int (*product_set)(Thing, int, const void*, size_t);
    int (*layout_create)(Thing*, int, uint64_t, uint64_t, int64_t);
    int (*layout_set)(Thing, int, const void*, size_t);
    int (*preference_create)(Thing*);
    int (*preference_set)(Thing, int, const void*, size_t);
    int (*propose)(Thing, Thing, Thing, Thing, Thing, Thing, Thing, int, Proposal*, int*);
    int (*multiply)(
        Thing, Thing, const void*, const void*, Thing, const void*, Thing, const void*, const void*, Thing, void*,
        Thing, const Proposal*, void*, size_t, void*);
    bool found = false;
};

inline Functions find() {
    Functions f{};
    void* handle = nullptr;
    const std::string own = std::to_string(CUDART_VERSION / 1000), names[] = {own, "13", "12"};
    for (const int mode : {RTLD_NOLOAD | RTLD_LAZY, RTLD_LAZY}) {
        for (const std::string& name : names) {
            if (handle == nullptr) handle = dlopen(("libcublasLt.so." + name).c_str(), mode);
        }
    }
    if (handle == nullptr) return f;
    f.found = true;
    const auto get = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
        f.found = f.found && function != nullptr;
    };
    get(f.create, "cublasLtCreate");
    get(f.product_create, "cublasLtMatmulDescCreate");
    get(f.product_set, "cublasLtMatmulDescSetAttribute");
    get(f.layout_create, "cublasLtMatrixLayoutCreate");
    get(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
    get(f.preference_create, "cublasLtMatmulPreferenceCreate");
    get(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    get(f.propose, "cublasLtMatmulAlgoGetHeuristic");
    get(f.multiply, "cublasLtMatmul");
    return f;
}

/// What is kept of a product: everything but the pointers.
struct Plan {
    Thing handle, product, w, x, y;
    Proposal chosen;
};

using Key = std::array<long long, 13>;

inline int layout(
    const Functions& f, Thing* made, long long rows, long long columns, long long pitch, int count, long long step) {
    int error = f.layout_create(
        made, kBfloat16, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), static_cast<int64_t>(pitch));
    const int32_t products = count;
    const int64_t apart = step;
    if (error == 0) error = f.layout_set(*made, kBatchCount, &products, sizeof products);
    if (error == 0) error = f.layout_set(*made, kBatchStep, &apart, sizeof apart);
    return error;
}

/// The library thinks in columns: its A is w, its B is x, and its D is y, each transposed.
inline int make(const Functions& f, Thing handle, const LayerProduct& p, size_t workspace_bytes, Plan* plan) {
    plan->handle = handle;
    const int32_t transposed = kTransposed;
    const uint64_t most = workspace_bytes;
    Thing preference = nullptr;
    int error = f.product_create(&plan->product, kSumsInFloat32, kFloat32);
    if (error == 0 && !p.plain) error = f.product_set(plan->product, kOperationOfA, &transposed, sizeof transposed);
    if (error == 0) {
        error = layout(f, &plan->w, p.plain ? p.n : p.k, p.plain ? p.k : p.n, p.w_pitch, p.count, p.w_step);
    }
    if (error == 0) error = layout(f, &plan->x, p.k, p.m, p.x_pitch, p.count, p.x_step);
    if (error == 0) error = layout(f, &plan->y, p.n, p.m, p.y_pitch, p.count, p.y_step);
    if (error == 0) error = f.preference_create(&preference);
    if (error == 0) error = f.preference_set(preference, kMostWorkspace, &most, sizeof most);
    Proposal proposals[8];
    int count = 0;
    if (error == 0) {
        error = f.propose(handle, plan->product, plan->w, plan->x, plan->y, plan->y, preference, 8, proposals, &count);
    }
    if (error != 0 || count == 0) return error != 0 ? error : 1;
    plan->chosen = proposals[LIBRARY_CHOICE < count ? LIBRARY_CHOICE : count - 1];
    return 0;
}

/// The caller's queue; packed builds use the default one.
inline void* queue_of(void* queue) {
#if defined(WARPWAVE_PACKED)
    (void)queue;
    return nullptr;
#else
    return queue;
#endif
}

}  // namespace library

inline const library::Functions& library_functions() {
    static const library::Functions functions = library::find();
    return functions;
}

/// Whether the library is here and starts. It does neither on an emulated device, whose driver it does not know.
inline bool library_works() {
    static const bool works = [] {
        library::Thing handle = nullptr;
        return library_functions().found && library_functions().create(&handle) == 0;
    }();
    return works;
}

/// Run `p`; `workspace` is aligned to 256 bytes. Returns 0 or an error code of the runtime.
inline int library_product(const LayerProduct& p, void* workspace, size_t workspace_bytes, void* queue) {
    const library::Functions& functions = library_functions();
    static std::mutex mutex;
    static std::map<int, library::Thing> handles;
    static std::map<library::Key, library::Plan> plans;
    if (!functions.found) return static_cast<int>(cudaErrorSharedObjectSymbolNotFound);
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return static_cast<int>(error);
    const library::Key key = {
        device,
        p.m,
        p.n,
        p.k,
        p.x_pitch,
        p.w_pitch,
        p.y_pitch,
        p.plain,
        p.count,
        p.x_step,
        p.w_step,
        p.y_step,
        static_cast<long long>(workspace_bytes)};
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = plans.find(key);
    if (found == plans.end()) {
        library::Thing& handle = handles[device];
        library::Plan plan{};
        int error = handle == nullptr ? functions.create(&handle) : 0;
        if (error == 0) error = library::make(functions, handle, p, workspace_bytes, &plan);
        if (error != 0) return static_cast<int>(cudaErrorUnknown);
        found = plans.emplace(key, plan).first;
    }
    const library::Plan& plan = found->second;
    const float one = 1.0f, zero = 0.0f;
    const int error = functions.multiply(
        plan.handle, plan.product, &one, p.w, plan.w, p.x, plan.x, &zero, p.y, plan.y, p.y, plan.y, &plan.chosen,
        workspace, workspace_bytes, library::queue_of(queue));
    return error == 0 ? 0 : static_cast<int>(cudaErrorUnknown);
}

}  // namespace mla
