// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Control flow: recursion, calls through pointers and virtual tables, divergent loops, jump tables, early exits.
#include "program.h"

constexpr int kCount = 200;

__device__ __attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __attribute__((noinline)) int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__global__ void recursion(int* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= kCount) return;
    out[i] = fibonacci(i % 12) + ackermann(i % 3, i % 4);
}

int host_ackermann(int m, int n) {
    return m == 0 ? n + 1 : host_ackermann(m - 1, n == 0 ? 1 : host_ackermann(m, n - 1));
}

void judge_recursion(Verdict& verdict) {
    Buffer<int> out(kCount);
    recursion<<<2, 128>>>(out.data());
    const int numbers[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    std::vector<int> wanted(kCount);
    for (int i = 0; i < kCount; ++i) wanted[i] = numbers[i % 12] + host_ackermann(i % 3, i % 4);
    verdict.equal(out.read(verdict), wanted, "recursion");
}

typedef int (*Operation)(int, int);
__device__ __attribute__((noinline)) int plus(int a, int b) { return a + b; }
__device__ __attribute__((noinline)) int minus(int a, int b) { return a - b; }
__device__ __attribute__((noinline)) int times(int a, int b) { return a * b; }
__device__ Operation operations[] = {plus, minus, times};

__global__ void through_pointers(int* out) {
    const int i = static_cast<int>(threadIdx.x);
    out[i] = operations[i % 3](i, 2 * i + 1) + operations[blockIdx.x](5, 3);
}

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Box : Shape {
    float width, height;
    __device__ Box(float w, float h) : width(w), height(h) {}
    __device__ float area() const override { return width * height; }
};

__global__ void through_tables(float* out) {
    const int i = static_cast<int>(threadIdx.x);
    const Square square(static_cast<float>(i));
    const Box box(static_cast<float>(i), 3.0f);
    const Shape* shape = i % 5 < 2 ? static_cast<const Shape*>(&square) : static_cast<const Shape*>(&box);
    out[i] = shape->area();
}

void judge_calls(Verdict& verdict) {
    Buffer<int> out(64);
    through_pointers<<<1, 64>>>(out.data());
    Buffer<float> areas(64);
    through_tables<<<1, 64>>>(areas.data());
    std::vector<int> wanted(64);
    std::vector<float> surfaces(64);
    for (int i = 0; i < 64; ++i) {
        const int other = 2 * i + 1, results[] = {i + other, i - other, i * other};
        wanted[i] = results[i % 3] + 8;
        surfaces[i] = static_cast<float>(i % 5 < 2 ? i * i : 3 * i);
    }
    verdict.equal(out.read(verdict), wanted, "calls through pointers");
    verdict.equal(areas.read(verdict), surfaces, "calls through tables");
}

__host__ __device__ inline int collatz(unsigned long long n) {
    int steps = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        if (++steps == 150) break;
    }
    return steps;
}

__host__ __device__ inline int machine(int program, int value) {
    for (int pc = 0; pc < 24; ++pc) {
        switch ((program >> pc % 8 * 4) & 15) {
            case 0: value += 3; break;
            case 1: value ^= pc; break;
            case 2: value *= 5; break;
            case 3:
                if (value & 1) continue;
                value = value >> 1;
                break;
            case 4: value -= pc * pc; break;
            case 5: return value;
            case 6: value = ~value; break;
            case 7: ++pc; break;
            case 8: value |= 0x101; break;
            case 9: value &= 0x7ffffff; break;
            case 10:
                for (int k = 0; k < (value & 7); ++k) value += k;
                break;
            default: value = static_cast<int>(static_cast<unsigned>(value) << 1);
        }
    }
    return value;
}

__host__ __device__ inline int nested(int i) {
    int found = 0;
    for (int a = 1; a < 20; ++a) {
        for (int b = a; b < 20; ++b) {
            if ((a * b + i) % 11 == 0) continue;
            if (a * a + b * b > 150 + i) goto done;
            for (int c = b; c < 30; ++c) {
                if (a * a + b * b == c * c) {
                    found += c;
                    break;
                }
                if (c > i + 10) break;
            }
        }
    }
done:
    return found;
}

__global__ void divergent(int* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= kCount) return;
    out[i] = collatz(static_cast<unsigned long long>(i) + 1);
    out[kCount + i] = machine(i * 0x9e3779b, i);
    out[2 * kCount + i] = nested(i % 40);
}

void judge_divergent(Verdict& verdict) {
    Buffer<int> out(3 * kCount);
    divergent<<<4, 64>>>(out.data());
    std::vector<int> wanted(3 * kCount);
    for (int i = 0; i < kCount; ++i) {
        wanted[i] = collatz(static_cast<unsigned long long>(i) + 1);
        wanted[kCount + i] = machine(i * 0x9e3779b, i);
        wanted[2 * kCount + i] = nested(i % 40);
    }
    verdict.equal(out.read(verdict), wanted, "divergence");
}

__global__ void exits(int* out, int n) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= n) return;  // whole waves, and part of one
    if (i % 4 == 1) {
        out[i] = -i;
        return;
    }
    out[i] = __popcll(__ballot(1));
}

void judge_exits(Verdict& verdict) {
    const int n = 150;
    Buffer<int> out(std::vector<int>(256, 7));
    exits<<<1, 256>>>(out.data(), n);
    std::vector<int> wanted(256, 7);
    for (int i = 0; i < n; ++i) {
        int active = 0;
        for (int j = i / 64 * 64; j < i / 64 * 64 + 64; ++j) active += j < n && j % 4 != 1;
        wanted[i] = i % 4 == 1 ? -i : active;
    }
    verdict.equal(out.read(verdict), wanted, "early exits");
}

__device__ __attribute__((noinline)) void place(int* board, int row, int n, int* count) {
    if (row == n) {
        ++*count;
        return;
    }
    for (int column = 0; column < n; ++column) {
        bool free = true;
        for (int above = 0; above < row; ++above) {
            const int apart = board[above] - column;
            free = free && apart != 0 && apart != row - above && -apart != row - above;
        }
        if (!free) continue;
        board[row] = column;
        place(board, row + 1, n, count);
    }
}

/// Thread i counts the ways to put n queens with the first one in column i.
__global__ void queens(int n, int* out) {
    int board[8], count = 0;
    board[0] = static_cast<int>(threadIdx.x);
    if (board[0] < n) place(board, 1, n, &count);
    if (board[0] < n) out[board[0]] = count;
}

void judge_queens(Verdict& verdict) {
    Buffer<int> out(6);
    queens<<<1, 64>>>(6, out.data());
    verdict.equal(out.read(verdict), {0, 1, 1, 1, 1, 0}, "queens");
}

PROGRAM {
    Verdict verdict;
    judge_recursion(verdict);
    judge_calls(verdict);
    judge_divergent(verdict);
    judge_exits(verdict);
    judge_queens(verdict);
    return verdict.leave(message, room);
}
