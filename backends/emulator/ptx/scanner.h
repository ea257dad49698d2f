// SPDX-License-Identifier: MIT
// Words and signs of PTX text.
#pragma once

#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

#include "source.h"

namespace emu::ptx {

inline bool name_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

/// Reads words and signs from text, and knows the line.
class Scanner {
public:
    explicit Scanner(std::string_view text, u32 line = 1) : text_(text), line_(line) {}

    bool done() {
        skip();
        return at_ >= text_.size();
    }
    char peek() {
        skip();
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool take(char c) {
        if (peek() != c || at_ >= text_.size()) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!take(c)) fail(std::string("'") + c + "' expected, not '" + peek() + "'");
    }
    /// Letters, digits, _, $, %; with `dots` also dots and double colons, as opcodes and directives have.
    std::string word(bool dots = false) {
        skip();
        const size_t begin = at_;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (!name_char(c) && !(dots && (c == '.' || (c == ':' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') ||
                                            (c == ':' && at_ > begin && text_[at_ - 1] == ':'))))
                break;
            ++at_;
        }
        return std::string(text_.substr(begin, at_ - begin));
    }
    std::string directive() {
        skip();
        std::string result;
        if (at_ < text_.size() && text_[at_] == '.') {
            ++at_;
            result = "." + word();
        }
        return result;
    }
    bool ahead(std::string_view words) {
        skip();
        return text_.substr(at_, words.size()) == words;
    }
    /// Up to `end`, which is taken, outside of strings.
    std::string until(char end) {
        const size_t begin = at_;
        bool quoted = false;
        for (; at_ < text_.size() && (quoted || text_[at_] != end); ++at_) {
            quoted ^= text_[at_] == '"';
            line_ += text_[at_] == '\n';
        }
        std::string result(text_.substr(begin, at_ - begin));
        if (at_ < text_.size()) {
            line_ += text_[at_] == '\n';
            ++at_;
        }
        return result;
    }
    /// After an opening brace: past the closing one that belongs to it.
    void past_braces() {
        int depth = 1;
        bool quoted = false;
        for (; at_ < text_.size() && depth; ++at_) {
            const char c = text_[at_];
            quoted ^= c == '"';
            line_ += c == '\n';
            if (!quoted) depth += (c == '{') - (c == '}');
        }
        if (depth) fail("a '}' is missing");
    }
    std::string quoted() {
        expect('"');
        return until('"');
    }
    u64 number() {
        skip();
        const bool minus = take('-');
        const std::string digits = word();
        char* end = nullptr;
        const u64 value = std::strtoull(digits.c_str(), &end, 0);
        if (digits.empty() || (*end && *end != 'U')) fail("a number expected, not '" + digits + "'");
        return minus ? ~value + 1 : value;
    }
    size_t position() const { return at_; }
    void back_to(size_t position) {
        for (; at_ > position; --at_) line_ -= text_[at_ - 1] == '\n';
    }
    u32 line() const { return line_; }
    std::string_view slice(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }

    [[noreturn]] void fail(const std::string& what) const {
        throw SourceError("PTX line " + std::to_string(line_) + ": " + what);
    }

private:
    void skip() {
        for (; at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])); ++at_)
            line_ += text_[at_] == '\n';
    }

    std::string_view text_;
    size_t at_ = 0;
    u32 line_;
};

}  // namespace emu::ptx
