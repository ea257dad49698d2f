// SPDX-License-Identifier: MIT
#include "source.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

namespace emu::ptx {
namespace {

bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

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

std::vector<std::string> split(const std::string& word) {
    std::vector<std::string> parts;
    size_t begin = 0;
    for (size_t i = 0; i <= word.size(); ++i)
        if (i == word.size() || word[i] == '.') {
            parts.push_back(word.substr(begin, i - begin));
            begin = i + 1;
        }
    return parts;
}

u64 rounded(u64 value, u64 align) { return (value + align - 1) / align * align; }

std::optional<Space> space_named(const std::string& directive) {
    if (directive == ".shared") return Space::Shared;
    if (directive == ".local") return Space::Local;
    if (directive == ".global") return Space::Global;
    if (directive == ".const") return Space::Const;
    if (directive == ".param") return Space::Param;
    return std::nullopt;
}

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

/// ".align 16 .b8 name[12][3] = {…}", after the space; several names with commas are several variables.
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
        each.offset = rounded(bytes, each.align);
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
            const std::string type = scan.directive();
            each.element = static_cast<u32>(std::max(4, type_bytes(std::string_view(type).substr(1))));
            each.name = scan.word();
            each.bytes = each.element;
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

/// The statements of one function.
class Body {
public:
    Body(Function& function, Scanner& scan) : function_(function), scan_(scan) {}

    void parse() {
        scopes_.push_back({-1, {}, {}, {}});
        int scope = 0;
        for (;;) {
            if (scan_.done()) scan_.fail("the function " + function_.name + " does not end");
            const char c = scan_.peek();
            if (c == '{') {
                scan_.take('{');
                scopes_.push_back({scope, {}, {}, {}});
                scope = static_cast<int>(scopes_.size()) - 1;
            } else if (c == '}') {
                scan_.take('}');
                if (scope == 0) break;
                scope = scopes_[static_cast<size_t>(scope)].parent;
            } else if (c == '.') {
                declaration(scope);
            } else if (c == ';') {
                scan_.take(';');
            } else {
                statement(scope);
            }
        }
        resolve();
    }

private:
    struct Range {
        std::string prefix;
        u64 count;
        u8 bytes;
    };
    struct Scope {
        int parent;
        std::map<std::string, u32, std::less<>> registers;
        std::vector<Range> ranges;
        std::map<std::string, u32, std::less<>> labels;
    };
    struct Jump {
        u32 statement;
        int scope;
        std::string label;
        u32 line;
    };

    void declaration(int scope) {
        const u32 line = scan_.line();
        const std::string word = scan_.directive();
        if (word == ".loc") {
            const std::string text = scan_.until('\n');
            Scanner rest(text, line);
            file_ = static_cast<u32>(rest.number());
            line_ = static_cast<u32>(rest.number());
        } else if (word == ".reg") {
            registers(scope);
        } else if (word == ".pragma" || word == ".callprototype") {
            scan_.until(';');
        } else if (const auto space = space_named(word)) {
            std::vector<Variable> list = variables(scan_, *space);
            scan_.expect(';');
            auto& all = *space == Space::Shared ? function_.shared : function_.local;
            if (*space == Space::Param) call_parameters(scope, list);
            else all.insert(all.end(), list.begin(), list.end());
        } else {
            scan_.fail("the directive " + word + " is not supported");
        }
    }

    // Parameters of a call are registers of the caller here: no call that is supported takes their addresses.
    void call_parameters(int scope, const std::vector<Variable>& list) {
        for (const Variable& each : list) {
            if (each.bytes > 16)
                scan_.fail("a call with a parameter of " + std::to_string(each.bytes) + " bytes is not supported");
            const u32 number = add(scope, each.name, each.bytes > 8 ? 16 : each.bytes > 4 ? 8 : 4);
            function_.registers[number].parameter = true;
        }
    }

    void registers(int scope) {
        u8 bytes = 4;
        while (scan_.peek() == '.') {
            const std::string type = scan_.directive();
            const int size = type_bytes(std::string_view(type).substr(1));
            if (size < 0) scan_.fail("registers of type " + type + " are not supported");
            bytes = size == 0 ? 0 : size <= 4 ? 4 : static_cast<u8>(size);
        }
        do {
            const std::string name = scan_.word();
            if (scan_.take('<')) {
                scopes_[static_cast<size_t>(scope)].ranges.push_back({name, scan_.number(), bytes});
                scan_.expect('>');
            } else {
                add(scope, name, bytes);
            }
        } while (scan_.take(','));
        scan_.expect(';');
    }

    u32 add(int scope, const std::string& name, u8 bytes) {
        const auto number = static_cast<u32>(function_.registers.size());
        function_.registers.push_back({name, bytes});
        scopes_[static_cast<size_t>(scope)].registers[name] = number;
        return number;
    }

    /// The register of that name, seen from a scope; -1: there is none.
    i64 find(int scope, const std::string& name) {
        for (int at = scope; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
            Scope& here = scopes_[static_cast<size_t>(at)];
            if (const auto known = here.registers.find(name); known != here.registers.end()) return known->second;
            const size_t digits = name.find_last_not_of("0123456789") + 1;
            if (digits == name.size()) continue;
            for (const Range& range : here.ranges)
                if (range.prefix == std::string_view(name).substr(0, digits) &&
                    std::strtoull(name.c_str() + digits, nullptr, 10) < range.count)
                    return add(at, name, range.bytes);
        }
        return -1;
    }

    void statement(int scope) {
        const u32 ptx_line = scan_.line();
        const size_t begin = scan_.position();
        Statement result;
        if (scan_.take('@')) {
            result.guard_negated = scan_.take('!');
            const std::string name = scan_.word();
            const i64 reg = find(scope, name);
            if (reg < 0) scan_.fail("there is no predicate " + name);
            result.guard = static_cast<i32>(reg);
        }
        const std::string opcode = scan_.word(true);
        if (opcode.empty()) scan_.fail(std::string("an instruction expected, not '") + scan_.peek() + "'");
        if (scan_.take(':')) {
            label(scope, opcode);
            return;
        }
        result.words = split(opcode);
        result.file = file_;
        result.line = line_;
        result.ptx_line = ptx_line;
        const auto index = static_cast<u32>(function_.statements.size());
        if (result.words[0] == "bra") {
            jumps_.push_back({index, scope, scan_.word(), ptx_line});
        } else if (result.words[0] == "brx") {
            result.operands.push_back(operand(scope));
            scan_.expect(',');
            tables_used_.push_back({index, scope, scan_.word(), ptx_line});
        } else if (result.words[0] == "call") {
            call(scope, result);
        } else if (scan_.peek() != ';') {
            do result.operands.push_back(operand(scope));
            while (scan_.take(','));
        }
        const size_t end = scan_.position();
        scan_.expect(';');
        result.text = squeezed(scan_.slice(begin, end));
        function_.statements.push_back(std::move(result));
    }

    void label(int scope, const std::string& name) {
        if (scan_.ahead(".branchtargets")) {
            scan_.directive();
            std::vector<std::string> targets;
            do targets.push_back(scan_.word());
            while (scan_.take(','));
            scan_.expect(';');
            tables_[name] = targets;
        } else if (scan_.ahead(".callprototype")) {
            scan_.until(';');
        } else {
            scopes_[static_cast<size_t>(scope)].labels[name] = static_cast<u32>(function_.statements.size());
        }
    }

    // call.uni (result), name, (parameters);
    void call(int scope, Statement& result) {
        Operand results, given, callee;
        results.kind = given.kind = Operand::Kind::List;
        if (scan_.take('(')) {
            do results.parts.push_back(operand(scope));
            while (scan_.take(','));
            scan_.expect(')');
            scan_.expect(',');
        }
        callee.kind = Operand::Kind::Symbol;
        callee.name = scan_.word();
        if (scan_.take(',') && scan_.take('(')) {
            if (!scan_.take(')')) {
                do given.parts.push_back(operand(scope));
                while (scan_.take(','));
                scan_.expect(')');
            }
            if (scan_.take(',')) scan_.word();  // the prototype of an indirect call
        }
        result.operands = {results, callee, given};
    }

    static std::string squeezed(std::string_view text) {
        std::string result;
        for (const char c : text) {
            if (!std::isspace(static_cast<unsigned char>(c))) result += c;
            else if (!result.empty() && result.back() != ' ') result += ' ';
        }
        return result;
    }

    Operand operand(int scope) {
        Operand result;
        const char c = scan_.peek();
        if (c == '{') {
            scan_.take('{');
            result.kind = Operand::Kind::List;
            do result.parts.push_back(operand(scope));
            while (scan_.take(','));
            scan_.expect('}');
        } else if (c == '[') {
            scan_.take('[');
            result.kind = Operand::Kind::Address;
            result.parts.push_back(operand(scope));
            if (scan_.take('+')) result.offset = static_cast<i64>(scan_.number());
            while (scan_.take(',')) result.parts.push_back(operand(scope));  // a tensor map and coordinates
            scan_.expect(']');
        } else if (c == '!') {
            scan_.take('!');
            result = operand(scope);
            result.negated = true;
        } else if (std::isdigit(static_cast<unsigned char>(c)) || c == '-') {
            number(result);
        } else {
            named(scope, result);
            if (scan_.take('|')) {
                Operand pair;
                pair.kind = Operand::Kind::Pair;
                pair.parts = {result, operand(scope)};
                return pair;
            }
        }
        return result;
    }

    void number(Operand& result) {
        result.kind = Operand::Kind::Number;
        const size_t begin = scan_.position();
        const bool minus = scan_.take('-');
        const std::string word = scan_.word(true);
        if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F')) {
            result.float_bytes = 4;
            result.value = std::strtoull(word.c_str() + 2, nullptr, 16) ^ (minus ? 0x80000000u : 0);
        } else if (word.size() > 2 && word[0] == '0' && (word[1] == 'd' || word[1] == 'D')) {
            result.float_bytes = 8;
            result.value = std::strtoull(word.c_str() + 2, nullptr, 16) ^ (minus ? u64{1} << 63 : 0);
        } else if (word.find('.') != std::string::npos) {
            result.float_bytes = 8;
            result.value = as_u64(std::strtod(word.c_str(), nullptr) * (minus ? -1 : 1));
        } else {
            scan_.back_to(begin);
            result.value = scan_.number();
        }
    }

    void named(int scope, Operand& result) {
        const std::string name = scan_.word(true);
        if (name.empty()) scan_.fail(std::string("an operand expected, not '") + scan_.peek() + "'");
        if (name == "_") return;
        if (const i64 reg = find(scope, name); reg >= 0) {
            result.kind = Operand::Kind::Register;
            result.reg = static_cast<u32>(reg);
        } else if (name[0] == '%') {
            result.kind = Operand::Kind::Special;
        } else {
            result.kind = Operand::Kind::Symbol;
        }
        result.name = name;
    }

    i32 destination(const Jump& jump) {
        for (int at = jump.scope; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
            const Scope& here = scopes_[static_cast<size_t>(at)];
            if (const auto known = here.labels.find(jump.label); known != here.labels.end())
                return static_cast<i32>(known->second);
        }
        throw SourceError("PTX line " + std::to_string(jump.line) + ": there is no label " + jump.label);
    }

    void resolve() {
        for (const Jump& jump : jumps_) function_.statements[jump.statement].target = destination(jump);
        for (const Jump& use : tables_used_) {
            const auto known = tables_.find(use.label);
            if (known == tables_.end())
                throw SourceError(
                    "PTX line " + std::to_string(use.line) + ": there is no list of targets " + use.label);
            std::vector<u32> targets;
            for (const std::string& label : known->second)
                targets.push_back(static_cast<u32>(destination({use.statement, use.scope, label, use.line})));
            function_.statements[use.statement].target = static_cast<i32>(function_.branch_tables.size());
            function_.branch_tables.push_back(std::move(targets));
        }
    }

    Function& function_;
    Scanner& scan_;
    std::vector<Scope> scopes_;
    std::vector<Jump> jumps_, tables_used_;
    std::map<std::string, std::vector<std::string>> tables_;
    u32 file_ = 0, line_ = 0;
};

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

bool Statement::has(std::string_view word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

int type_bytes(std::string_view name) {
    if (name == "pred") return 0;
    if (name == "b128") return 16;
    if (name.empty() || std::string_view("bsuf").find(name[0]) == std::string_view::npos) return -1;
    const std::string digits(name.substr(1, name.find('x') == std::string_view::npos ? name.npos : name.find('x') - 1));
    const int width = std::atoi(digits.c_str());
    if (width != 8 && width != 16 && width != 32 && width != 64) return name == "bf16x2" ? 4 : name == "bf16" ? 2 : -1;
    return width / 8 * (name.ends_with("x2") ? 2 : name.ends_with("x4") ? 4 : 1);
}

const Variable* Module::variable(std::string_view name) const {
    for (const Variable& each : variables)
        if (each.name == name) return &each;
    return nullptr;
}

std::unique_ptr<Function> Module::function(std::string_view name) const {
    const auto body = bodies.find(name);
    if (body == bodies.end()) throw SourceError("the PTX has no function " + std::string(name));
    Scanner scan(body->second, lines.find(name)->second);
    auto result = std::make_unique<Function>();
    result->entry = scan.directive() == ".entry";
    if (!result->entry && scan.peek() == '(') result->results = parameters(scan);
    result->name = scan.word();
    if (scan.peek() == '(') result->parameters = parameters(scan);
    place(result->parameters, result->parameter_bytes);
    performance_directives(scan, *result);
    scan.expect('{');
    Body(*result, scan).parse();
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
        } else if (word == ".pragma" || word == ".alias") {
            scan.until(';');
        } else if (word != ".visible" && word != ".extern" && word != ".weak" && word != ".common") {
            scan.fail("'" + (word.empty() ? scan.word() : word) + "' is not supported here");
        }
        if (scan.position() == begin) scan.fail("text that is not PTX");
    }
    return module;
}

}  // namespace emu::ptx
