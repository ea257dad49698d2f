// SPDX-License-Identifier: MIT
// Text of a kernel's printf. An Arguments hands over what the kernel has passed, one after the other:
//   i32 star()                       a width or precision
//   u64 integer(bool wide)           of up to 64 bits
//   f64 number()
//   std::string text()
//   std::string other(const Conversion&)   of a kind that is none of these
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "scalars.h"

namespace emu {

/// One conversion: `%`, flags, width, precision, size and kind.
struct Conversion {
    std::string flags = "%";  // with width and precision
    std::string size;         // "hh", "h", "", "l", "ll", "j", "z", "t", "L"
    char kind = 0;            // 0: the format ends before it
};

template <class T>
std::string formatted(const std::string& how, T value) {
    const int length = std::snprintf(nullptr, 0, how.c_str(), value);
    if (length < 0) return "";
    std::string text(static_cast<size_t>(length) + 1, '\0');
    std::snprintf(text.data(), text.size(), how.c_str(), value);
    text.pop_back();
    return text;
}

template <class Arguments>
Conversion conversion_at(std::string_view format, size_t& at, Arguments& arguments) {
    const auto is_one_of = [&](std::string_view all) { return at < format.size() && all.find(format[at]) != all.npos; };
    Conversion result;
    for (++at; is_one_of("-+ #0123456789.*"); ++at) {
        if (format[at] == '*') result.flags += std::to_string(arguments.star());
        else result.flags += format[at];
    }
    for (; is_one_of("hljztL"); ++at) result.size += format[at];
    if (at < format.size()) result.kind = format[at++];
    return result;
}

template <class Arguments>
std::string converted(const Conversion& c, Arguments& arguments) {
    const int unused = c.size == "hh" ? 56 : c.size == "h" ? 48 : c.size.empty() ? 32 : 0;
    const auto raised = [&] { return arguments.integer(!unused) << unused; };
    switch (c.kind) {
        case '%': return "%";
        case 'd':
        case 'i': return formatted(c.flags + "lld", static_cast<long long>(static_cast<i64>(raised()) >> unused));
        case 'u':
        case 'o':
        case 'x':
        case 'X': return formatted(c.flags + "ll" + c.kind, static_cast<unsigned long long>(raised() >> unused));
        case 'c': return formatted(c.flags + "c", static_cast<int>(arguments.integer(false)));
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A': return formatted(c.flags + c.kind, arguments.number());
        case 'p': return formatted(c.flags + "p", reinterpret_cast<void*>(arguments.integer(true)));
        case 's': return formatted(c.flags + "s", arguments.text().c_str());
        default: return arguments.other(c);
    }
}

template <class Arguments>
std::string printed(std::string_view format, Arguments& arguments) {
    std::string text;
    for (size_t at = 0; at < format.size();) {
        if (format[at] != '%') text += format[at++];
        else text += converted(conversion_at(format, at, arguments), arguments);
    }
    return text;
}

}  // namespace emu
