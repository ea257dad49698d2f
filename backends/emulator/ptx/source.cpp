// SPDX-License-Identifier: MIT
#include "source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "body.h"
#include "declaration.h"

namespace emu::ptx {
namespace {

/// Comments become spaces; lines stay where they are.
std::string without_comments(std::string text) {
    for (size_t i = 0; i + 1 < text.size(); ++i) {
        if (text[i] == '"') {
            i = std::min(text.find('"', i + 1), text.size() - 1);
        } else if (text[i] == '/' && text[i + 1] == '/') {
            for (; i < text.size() && text[i] != '\n'; ++i) text[i] = ' ';
        } else if (text[i] == '/' && text[i + 1] == '*') {
            const size_t end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
            for (; i < end; ++i)
                if (text[i] != '\n') text[i] = ' ';
        }
    }
    return text;
}

/// ".maxntid 128, 1, 1" and the like, up to the body.
void performance_directives(Scanner& scan, Function& function) {
    while (scan.peek() == '.') {
        const std::string word = scan.directive();
        std::vector<u64> numbers;
        while (std::isdigit(static_cast<unsigned char>(scan.peek()))) {
            numbers.push_back(scan.number());
            scan.take(',');
        }
        if (word == ".pragma") scan.until(';');
        if (word == ".maxntid" || word == ".reqntid") {
            function.max_threads = 1;
            for (const u64 n : numbers) function.max_threads *= static_cast<u32>(n);
        } else if (word == ".reqnctapercluster") {
            for (size_t i = 0; i < 3; ++i) function.cluster[i] = i < numbers.size() ? static_cast<u32>(numbers[i]) : 1;
        }
    }
}

}  // namespace

const Variable* Module::variable(std::string_view name) const {
    for (const Variable& each : variables)
        if (each.name == name) return &each;
    return nullptr;
}

u64 Module::address(std::string_view function) const {
    if (const auto alias = aliases.find(function); alias != aliases.end()) function = alias->second;
    const auto body = bodies.find(function);
    return body == bodies.end() ? 0 : kCodeWindow + 16 * static_cast<u64>(std::distance(bodies.begin(), body));
}

std::vector<std::string> Module::taken() const {
    std::set<std::string, std::less<>> found;
    const auto note = [&](std::string_view name) {
        if (const auto body = bodies.find(name); body != bodies.end() && body->second.starts_with(".func"))
            found.insert(std::string(name));
    };
    for (const Variable& each : variables)
        for (const Variable::Reference& reference : each.references) note(reference.symbol);
    for (const auto& [name, body] : bodies)
        for (size_t at = body.find("mov."); at != body.npos; at = body.find("mov.", at + 1)) {
            const size_t comma = body.find(',', at), end = body.find(';', at);
            if (comma >= end || end == body.npos) continue;
            Scanner scan(std::string_view(body).substr(comma + 1, end - comma - 1));
            note(scan.word());
        }
    return {found.begin(), found.end()};
}

std::unique_ptr<Function> Module::function(std::string_view name) const {
    if (const auto alias = aliases.find(name); alias != aliases.end()) name = alias->second;
    const auto body = bodies.find(name);
    if (body == bodies.end()) throw SourceError("the PTX has no function " + std::string(name));
    Scanner scan(body->second, lines.find(name)->second);
    auto result = std::make_unique<Function>();
    result->entry = scan.directive() == ".entry";
    Formal formal;
    if (!result->entry && scan.peek() == '(') formal.results = parameters(scan);
    result->name = scan.word();
    if (scan.peek() == '(') formal.parameters = parameters(scan);
    if (result->entry) {
        result->parameters = std::exchange(formal.parameters, {});
        place(result->parameters, result->parameter_bytes);
    }
    performance_directives(scan, *result);
    scan.expect('{');
    parse_body(*result, formal, scan);
    return result;
}

std::unique_ptr<Module> parse_module(std::string text) {
    auto module = std::make_unique<Module>();
    module->text = without_comments(std::move(text));
    Scanner scan(module->text);
    while (!scan.done()) {
        const size_t begin = scan.position();
        const u32 line = scan.line();
        const std::string word = scan.directive();
        if (word == ".version") {
            module->version = scan.word(true);
        } else if (word == ".target") {
            module->target = scan.word();
            while (scan.take(',')) scan.word();
        } else if (word == ".address_size") {
            if (scan.number() != 64) scan.fail("PTX with 32-bit addresses is not supported");
        } else if (word == ".file") {
            const auto number = static_cast<u32>(scan.number());
            module->files[number] = scan.quoted();
            if (scan.take(',')) scan.number(), scan.expect(','), scan.number();
        } else if (word == ".section") {
            scan.until('{');
            scan.past_braces();
        } else if (word == ".entry" || word == ".func") {
            const size_t start = scan.position() - word.size();
            if (scan.peek() == '(') scan.until(')');  // results
            const std::string name = scan.word();
            if (scan.peek() == '(') scan.until(')');
            while (scan.peek() != '{' && scan.peek() != ';') {
                if (scan.done()) scan.fail("the function " + name + " has no body");
                scan.take(scan.peek());
                scan.word(true);
                if (scan.peek() == '"') scan.quoted();
            }
            if (scan.take(';')) continue;  // a declaration
            scan.take('{');
            scan.past_braces();
            module->bodies[name] = std::string(scan.slice(start, scan.position()));
            module->lines[name] = line;
        } else if (const auto space = space_named(word)) {
            for (Variable& each : variables(scan, *space)) module->variables.push_back(std::move(each));
            scan.expect(';');
        } else if (word == ".alias") {
            const std::string alias = scan.word();
            scan.expect(',');
            module->aliases[alias] = scan.word();
            scan.expect(';');
        } else if (word == ".pragma") {
            scan.until(';');
        } else if (word != ".visible" && word != ".extern" && word != ".weak" && word != ".common") {
            scan.fail("'" + (word.empty() ? scan.word() : word) + "' is not supported here");
        }
        if (scan.position() == begin) scan.fail("text that is not PTX");
    }
    return module;
}

}  // namespace emu::ptx
