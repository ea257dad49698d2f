// SPDX-License-Identifier: MIT
#include "classes.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <iterator>

namespace emu::ptx {
namespace {

bool one_of(std::string_view word, std::initializer_list<std::string_view> all) {
    return std::find(all.begin(), all.end(), word) != all.end();
}

Class of_type(const Statement& s) {
    const std::string& type = s.words.back();
    if (type.find("16") != std::string::npos && type[0] != 'u' && type[0] != 's' && type != "b16") return Class::Half;
    if (type == "f64") return Class::Double;
    return type[0] == 'f' ? Class::Float : Class::Integer;
}

Class of_memory(const Statement& s, Class shared, Class elsewhere) {
    const bool is_shared = s.has("shared") || s.has("shared::cta") || s.has("shared::cluster");
    return s.has("param") ? Class::Move : is_shared ? shared : elsewhere;
}

Class of_copy(const Statement& s) {
    if (s.has("wait_group") || s.has("wait_all") || s.has("commit_group")) return Class::Wait;
    if (s.has("mbarrier")) return Class::Mbarrier;
    return s.has("bulk") ? Class::BulkCopy : Class::AsyncCopy;
}

u64 products(const Statement& s) {
    for (const std::string& word : s.words) {
        unsigned m = 0, n = 0, k = 0;
        if (std::sscanf(word.c_str(), "m%un%uk%u", &m, &n, &k) == 3) return u64{m} * n * k;
    }
    return 0;
}

Class class_of(const Statement& s) {
    const std::string& word = s.words[0];
    if (word == "ld" || word == "ldu") return of_memory(s, Class::SharedLoad, Class::Load);
    if (word == "st") return of_memory(s, Class::SharedStore, Class::Store);
    if (word == "ldmatrix") return Class::SharedLoad;
    if (word == "stmatrix") return Class::SharedStore;
    if (word == "cp") return of_copy(s);
    if (one_of(word, {"atom", "red"})) return Class::Atomic;
    if (word == "wmma" && s.words[1] != "mma")
        return s.words[1] == "load" ? of_memory(s, Class::SharedLoad, Class::Load)
                                    : of_memory(s, Class::SharedStore, Class::Store);
    if (word == "wgmma" && s.words[1] != "mma_async") return s.words[1] == "fence" ? Class::Fence : Class::Wait;
    if (one_of(word, {"mma", "wmma", "wgmma"})) return Class::Tensor;
    if (word == "mbarrier") return Class::Mbarrier;
    if (one_of(word, {"bar", "barrier"})) return Class::Barrier;
    if (one_of(word, {"fence", "membar"})) return Class::Fence;
    if (one_of(word, {"bra", "brx", "ret", "exit", "call", "trap"})) return Class::Branch;
    if (one_of(word, {"shfl", "vote", "match", "redux", "activemask", "elect", "movmatrix"})) return Class::Lanes;
    if (one_of(word, {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"})) return Class::Special;
    if (one_of(word, {"div", "rem"})) return Class::Special;
    if (one_of(word, {"cvt", "cvta"})) return word == "cvt" ? Class::Convert : Class::Move;
    if (one_of(word, {"set", "setp", "selp", "slct", "testp"})) return Class::Compare;
    if (one_of(word, {"mov", "mapa"})) return Class::Move;
    if (one_of(
            word, {"and", "or", "xor", "not", "lop3", "cnot", "shl", "shr", "shf", "prmt", "bfe", "bfi", "bfind",
                   "brev", "clz", "popc", "fns", "bmsk"}))
        return Class::Bits;
    if (one_of(
            word, {"add", "sub", "mul", "mad", "fma", "min", "max", "abs", "neg", "addc", "subc", "madc", "mul24",
                   "mad24", "sad", "dp4a", "dp2a", "copysign"}))
        return of_type(s);
    return Class::Other;
}

}  // namespace

const char* name(Class klass) {
    constexpr const char* kNames[] = {"integer", "bits",    "float",  "double",     "half",        "special",
                                      "convert", "compare", "move",   "tensor",     "shared_load", "shared_store",
                                      "load",    "store",   "atomic", "async_copy", "bulk_copy",   "mbarrier",
                                      "barrier", "fence",   "wait",   "lanes",      "branch",      "other"};
    static_assert(std::size(kNames) == kClasses);
    return kNames[static_cast<int>(klass)];
}

Classified classify(const Statement& s) {
    Classified kind;
    kind.klass = class_of(s);
    if (kind.klass != Class::Tensor) return kind;
    kind.flops = 2 * products(s);
    if (s.words[0] != "wgmma") return kind;
    kind.flops /= 4;
    // 32 bytes along K: its 16 rows of A unless they are in registers, and a quarter of B, which four warps read together.
    unsigned m = 0, n = 0;
    if (std::sscanf(s.words[4].c_str(), "m%un%u", &m, &n) == 2) kind.operand_bytes = 32 * u64{n} / 4;
    if (s.operands[1].kind != Operand::Kind::List) kind.operand_bytes += 32 * 16;
    return kind;
}

std::string opcode(const Statement& s) {
    std::string text;
    for (const std::string& word : s.words) text += (text.empty() ? "" : ".") + word;
    return text;
}

}  // namespace emu::ptx
