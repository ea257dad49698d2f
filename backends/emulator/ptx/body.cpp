// SPDX-License-Identifier: MIT
#include "body.h"

#include <algorithm>

#include "declaration.h"

namespace emu::ptx {
namespace {

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

/// The statements of one function.
class Body {
public:
    Body(Function& function, Scanner& scan) : function_(function), scan_(scan) {}

    void parse(const Formal& formal) {
        open(-1);
        for (const Variable& each : formal.results) function_.results.push_back(handed_over(each));
        for (const Variable& each : formal.parameters) function_.given.push_back(handed_over(each));
        int scope = 0;
        for (;;) {
            if (scan_.done()) scan_.fail("the function " + function_.name + " does not end");
            const char c = scan_.peek();
            if (c == '{') {
                scan_.take('{');
                open(scope);
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
        end();
        resolve();
        place_frame();
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
        std::map<std::string, u32, std::less<>> labels, variables;
        u64 handed_bytes;  // of .param variables, up to here
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
            for (Variable& each : list) declare(scope, std::move(each));
        } else {
            scan_.fail("the directive " + word + " is not supported");
        }
    }

    void open(int parent) {
        const u64 bytes = parent < 0 ? 0 : scopes_[static_cast<size_t>(parent)].handed_bytes;
        scopes_.push_back({parent, {}, {}, {}, {}, bytes});
    }

    /// Of calls in scopes that are not in each other, the .param variables share their place: nothing outlives a scope.
    u32 declare(int scope, Variable each) {
        Scope& here = scopes_[static_cast<size_t>(scope)];
        if (each.space == Space::Param) {
            each.offset = round_up(here.handed_bytes, each.align);
            here.handed_bytes = each.offset + each.bytes;
            most_handed_ = std::max(most_handed_, here.handed_bytes);
        }
        const auto number = static_cast<u32>(function_.variables.size());
        here.variables[each.name] = number;
        function_.variables.push_back(std::move(each));
        return number;
    }

    Operand handed_over(const Variable& each) {
        Operand result;
        result.name = each.name;
        if (each.space == Space::Register) {
            result.kind = Operand::Kind::Register;
            result.reg = add(0, each.name, static_cast<u8>(each.bytes));
        } else {
            result.kind = Operand::Kind::Variable;
            result.value = declare(0, each);
        }
        return result;
    }

    /// The end of a function is a return.
    void end() {
        const auto count = static_cast<u32>(function_.statements.size());
        bool reached =
            !count || function_.statements.back().words[0] != "ret" || function_.statements.back().guard >= 0;
        for (const Scope& scope : scopes_)
            for (const auto& [name, at] : scope.labels) reached |= at == count;
        Statement ret;
        ret.words = {"ret"};
        ret.text = "ret";
        ret.file = file_, ret.line = line_, ret.ptx_line = scan_.line();
        if (reached) function_.statements.push_back(std::move(ret));
        for (Statement& each : function_.statements)
            if (each.words[0] == "ret")
                for (const Operand& result : function_.results)
                    if (result.kind == Operand::Kind::Register) each.operands.push_back(result);
    }

    /// The .param variables, whose places in relation to each other are known, then the .local ones: of these the kernel has
    /// addresses, and what is behind their end is not the function's.
    void place_frame() {
        u64 bytes = most_handed_;
        u32 align = 16;
        for (Variable& each : function_.variables) {
            if (each.space != Space::Shared) align = std::max(align, each.align);
            if (each.space != Space::Local) continue;
            each.offset = round_up(bytes, each.align);
            bytes = each.offset + each.bytes;
        }
        function_.frame_bytes = static_cast<u32>(round_up(bytes, 16));
        function_.frame_align = align;
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

    /// The variable of that name, seen from a scope; -1: there is none.
    i64 find_variable(int scope, const std::string& name) const {
        for (int at = scope; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
            const Scope& here = scopes_[static_cast<size_t>(at)];
            if (const auto known = here.variables.find(name); known != here.variables.end()) return known->second;
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
        } else if (scan_.ahead(".callprototype") || scan_.ahead(".calltargets")) {
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
        named(scope, callee);
        if (scan_.take(',') && scan_.take('(')) {
            if (!scan_.take(')')) {
                do given.parts.push_back(operand(scope));
                while (scan_.take(','));
                scan_.expect(')');
            }
            if (scan_.take(',')) scan_.word();  // the prototype or the targets of an indirect call
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
        } else if (const i64 variable = find_variable(scope, name); variable >= 0) {
            result.kind = Operand::Kind::Variable;
            result.value = static_cast<u64>(variable);
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
    u64 most_handed_ = 0;
};

}  // namespace

bool Statement::has(std::string_view word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

void parse_body(Function& function, const Formal& formal, Scanner& scan) { Body(function, scan).parse(formal); }

}  // namespace emu::ptx
