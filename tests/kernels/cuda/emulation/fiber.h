// SPDX-License-Identifier: MIT
// Fibers, for the host emulation: threads of a kernel that run in turn and say themselves when they give way.
//
// On x86-64 a switch stores six registers and the stack's pointer. ucontext, which serves elsewhere, also asks the kernel to
// swap the signal mask, twice per switch: that was two thirds of the time of an emulated kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fiber {

/// Where a fiber, or the thread that runs fibers, goes on.
class Context {
public:
    Context() = default;
    Context(const Context&) = delete;

    /// The next switch to this begins `entry` on that stack; `entry` never returns.
    void begin(void (*entry)(), char* stack, size_t bytes) {
#if defined(__x86_64__)
        // What leave() pops: six registers and its return address; above it lies the one that `entry` would return to.
        auto* top = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15});
        *--top = 0;
        *--top = reinterpret_cast<uintptr_t>(entry);
        for (int i = 0; i < 6; ++i) *--top = 0;
        at_ = top;
#else
        getcontext(&at_);
        at_.uc_stack = {stack, 0, bytes};
        at_.uc_link = nullptr;
        makecontext(&at_, entry, 0);
#endif
    }

    /// Go on at `other`; returns when somebody switches back.
    void leave_for(Context& other) {
#if defined(__x86_64__)
        leave(&at_, other.at_);
#else
        swapcontext(&at_, &other.at_);
#endif
    }

private:
#if defined(__x86_64__)
    void* at_ = nullptr;  // the stack's pointer

    __attribute__((naked, noipa)) static void leave(void** /*rdi*/, void* /*rsi*/) {
        asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
    }
#else
    ucontext_t at_;
#endif
};

}  // namespace fiber
