// SPDX-License-Identifier: MIT
// What the HIP programs of the corpus share: buffers, launches, comparison, and how a verdict leaves the library.
// Host pointers are not used as device pointers here: these programs do what portable HIP host code does.
#pragma once

#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#define PROGRAM extern "C" __attribute__((visibility("default"))) int program(char* message, int room)

/// Collects what is wrong; the first complaint is the one reported.
class Verdict {
public:
    void require(bool right, const std::string& complaint) {
        if (right) return;
        if (wrong_++ == 0) first_ = complaint;
    }
    void require(hipError_t status, const char* what) {
        require(status == hipSuccess, std::string(what) + ": " + hipGetErrorString(status));
    }
    /// Equal in every bit, except that any NaN is as good as any other.
    template <class T>
    void equal(const std::vector<T>& got, const std::vector<T>& wanted, const char* what) {
        for (size_t i = 0; i < wanted.size(); ++i) {
            const bool same =
                std::memcmp(&got[i], &wanted[i], sizeof(T)) == 0 || (got[i] != got[i] && wanted[i] != wanted[i]);
            require(same, describe(what, i, got[i], wanted[i]));
        }
    }
    /// |got - wanted| <= relative * |wanted| + absolute.
    template <class T, class U>
    void close(
        const std::vector<T>& got, const std::vector<U>& wanted, double relative, double absolute, const char* what) {
        for (size_t i = 0; i < wanted.size(); ++i) {
            const double g = static_cast<double>(got[i]), w = static_cast<double>(wanted[i]);
            const bool near = g == w || std::fabs(g - w) <= relative * std::fabs(w) + absolute || (g != g && w != w);
            require(near, describe(what, i, g, w));
        }
    }
    int leave(char* message, int room) const {
        std::snprintf(message, static_cast<size_t>(room), "%d wrong; first: %s", wrong_, first_.c_str());
        return wrong_;
    }

private:
    template <class T>
    static std::string describe(const char* what, size_t i, T got, T wanted) {
        char text[200];
        std::snprintf(
            text, sizeof text, "%s[%zu]: got %.17g, wanted %.17g", what, i, static_cast<double>(got),
            static_cast<double>(wanted));
        return text;
    }
    int wrong_ = 0;
    std::string first_;
};

/// Device memory that starts as a copy of a vector.
template <class T>
class Buffer {
public:
    explicit Buffer(const std::vector<T>& values) : size_(values.size()) {
        allocate();
        status_ = hipMemcpy(data_, values.data(), size_ * sizeof(T), hipMemcpyHostToDevice);
    }
    explicit Buffer(size_t size) : size_(size) {
        allocate();
        status_ = hipMemset(data_, 0xa5, size * sizeof(T));
    }
    ~Buffer() { (void)hipFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* data() const { return data_; }
    std::vector<T> read(Verdict& verdict) const {
        verdict.require(status_, "filling a buffer");
        verdict.require(hipGetLastError(), "launch");
        std::vector<T> values(size_);
        verdict.require(hipMemcpy(values.data(), data_, size_ * sizeof(T), hipMemcpyDeviceToHost), "hipMemcpy");
        return values;
    }

private:
    void allocate() {
        void* memory = nullptr;
        status_ = hipMalloc(&memory, size_ * sizeof(T));
        data_ = static_cast<T*>(memory);
    }
    T* data_ = nullptr;
    size_t size_;
    hipError_t status_ = hipSuccess;
};

inline std::vector<double> uniform_numbers(size_t count, double low, double high, unsigned seed = 1) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> spread(low, high);
    std::vector<double> values(count);
    for (double& value : values) value = spread(engine);
    return values;
}

template <class T>
std::vector<T> random_words(size_t count, unsigned seed = 1) {
    std::mt19937_64 engine(seed);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(engine());
    return values;
}

template <class T, class U>
std::vector<T> converted(const std::vector<U>& values) {
    return std::vector<T>(values.begin(), values.end());
}
