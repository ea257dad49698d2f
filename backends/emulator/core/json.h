// SPDX-License-Identifier: MIT
// JSON text, written only. Objects keep their order.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>

namespace emu::json {

inline std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            result += escape;
        } else {
            result += c;
        }
    }
    return result + '"';
}

class Value {
public:
    Value(std::string_view text) : text_(quoted(text)) {}
    Value(const char* text) : text_(quoted(text)) {}
    Value(const std::string& text) : text_(quoted(text)) {}
    Value(bool truth) : text_(truth ? "true" : "false") {}
    Value(std::integral auto number) : text_(std::to_string(number)) {}
    Value(double number) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%.9g", number);
        text_ = std::isfinite(number) ? digits : "null";
    }

    static Value raw(std::string text) {
        Value value(false);
        value.text_ = std::move(text);
        return value;
    }

    Value& set(std::string_view key, const Value& value) { return insert(quoted(key) + ":" + value.text_); }
    Value& push(const Value& value) { return insert(value.text_); }
    const std::string& text() const { return text_; }

private:
    Value& insert(const std::string& item) {
        const bool empty = text_.size() == 2;
        text_.insert(text_.size() - 1, empty ? item : "," + item);
        return *this;
    }
    std::string text_;
};

inline Value object() { return Value::raw("{}"); }
inline Value array(std::initializer_list<Value> items) {
    Value list = Value::raw("[]");
    for (const Value& item : items) list.push(item);
    return list;
}

}  // namespace emu::json
