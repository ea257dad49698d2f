// SPDX-License-Identifier: MIT
#include "declaration.h"

#include <algorithm>

namespace emu::ptx {

std::optional<Space> space_named(const std::string& directive) {
    if (directive == ".shared") return Space::Shared;
    if (directive == ".local") return Space::Local;
    if (directive == ".global") return Space::Global;
    if (directive == ".const") return Space::Const;
    if (directive == ".param") return Space::Param;
    return std::nullopt;
}

namespace {

/// A value of an initialiser: a number, or an address.
void initial_value(Scanner& scan, Variable& variable) {
    const u64 at = variable.initial.size();
    u64 value = 0;
    const char first = scan.peek();
    if (std::isdigit(static_cast<unsigned char>(first)) || first == '-') {
        const size_t begin = scan.position();
        scan.take('-');
        const std::string word = scan.word(true);
        if (word.size() > 2 && word[0] == '0' && std::string_view("fFdD").find(word[1]) != std::string_view::npos) {
            value = std::strtoull(word.c_str() + 2, nullptr, 16);
        } else if (word.find('.') != std::string::npos) {
            const double number = std::strtod(word.c_str(), nullptr);
            value = variable.element == 8 ? as_u64(number) : as_u32(static_cast<float>(number));
        } else {
            scan.back_to(begin);
            value = scan.number();
        }
    } else {
        std::string symbol = scan.word();
        if (symbol == "generic") {
            scan.expect('(');
            symbol = scan.word();
            scan.expect(')');
        }
        if (scan.take('+')) value = scan.number();
        variable.references.push_back({at, symbol});
    }
    for (u32 i = 0; i < variable.element; ++i) variable.initial.push_back(static_cast<u8>(value >> (8 * i)));
}

void initial_values(Scanner& scan, Variable& variable) {
    if (!scan.take('{')) return initial_value(scan, variable);
    if (scan.take('}')) return;
    do {
        if (scan.peek() == '{') initial_values(scan, variable);
        else initial_value(scan, variable);
    } while (scan.take(','));
    scan.expect('}');
}

}  // namespace

std::vector<Variable> variables(Scanner& scan, Space space) {
    Variable form;
    form.space = space;
    u32 width = 1;
    while (scan.peek() == '.') {
        const std::string word = scan.directive();
        if (word == ".align") form.align = static_cast<u32>(scan.number());
        else if (word == ".v2") width = 2;
        else if (word == ".v4") width = 4;
        else if (word == ".ptr" || word == ".attribute") {
            if (word == ".attribute") scan.expect('('), scan.until(')');
        } else if (space_named(word)) {
            continue;  // ".ptr .global"
        } else {
            const int bytes = type_bytes(std::string_view(word).substr(1));
            if (bytes < 0) scan.fail("the type " + word + " is not known");
            form.element = static_cast<u32>(bytes);
        }
    }
    std::vector<Variable> result;
    do {
        Variable each = form;
        each.name = scan.word();
        each.align = std::max(each.align, each.element * width);
        u64 count = width;
        while (scan.take('[')) {
            count *= scan.peek() == ']' ? 0 : scan.number();
            scan.expect(']');
        }
        each.bytes = count * each.element;
        if (scan.take('=')) {
            initial_values(scan, each);
            each.bytes = std::max<u64>(each.bytes, each.initial.size());
        }
        result.push_back(std::move(each));
    } while (scan.peek() == ',' && space != Space::Param && scan.take(','));
    return result;
}

void place(std::vector<Variable>& list, u64& bytes) {
    for (Variable& each : list) {
        each.offset = round_up(bytes, each.align);
        bytes = each.offset + each.bytes;
    }
}

std::vector<Variable> parameters(Scanner& scan) {
    std::vector<Variable> list;
    scan.expect('(');
    while (!scan.take(')')) {
        const std::string word = scan.directive();
        if (word == ".reg") {  // of a device function
            Variable each;
            each.space = Space::Register;
            const std::string type = scan.directive();
            const int size = type_bytes(std::string_view(type).substr(1));
            if (size < 0) scan.fail("registers of type " + type + " are not supported");
            each.bytes = each.element = size == 0 ? 0 : static_cast<u32>(std::max(4, size));
            each.name = scan.word();
            list.push_back(each);
        } else if (word == ".param") {
            for (Variable& each : variables(scan, Space::Param)) list.push_back(std::move(each));
        } else {
            scan.fail("a parameter expected, not '" + word + scan.word() + "'");
        }
        scan.take(',');
    }
    return list;
}

int type_bytes(std::string_view name) {
    if (name == "pred") return 0;
    if (name == "b128") return 16;
    if (name.empty() || std::string_view("bsuf").find(name[0]) == std::string_view::npos) return -1;
    const std::string digits(name.substr(1, name.find('x') == std::string_view::npos ? name.npos : name.find('x') - 1));
    const int width = std::atoi(digits.c_str());
    if (width != 8 && width != 16 && width != 32 && width != 64) return name == "bf16x2" ? 4 : name == "bf16" ? 2 : -1;
    return width / 8 * (name.ends_with("x2") ? 2 : name.ends_with("x4") ? 4 : 1);
}

}  // namespace emu::ptx
