// SPDX-License-Identifier: MIT
// hiprtc: programs compiled at run time, by the hipcc that lies beside this library in the emulator's prefix.

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "hip/api.h"
#include "include/hip/hiprtc.h"
#include "loader/code_object.h"

#define RTC_API extern "C" __attribute__((visibility("default")))

extern char** environ;

using namespace emu;
namespace fs = std::filesystem;

struct _hiprtcProgram {
    std::string source, name;
    std::vector<std::pair<std::string, std::string>> headers;  // name, text
    std::map<std::string, std::string> names;                  // expression -> name in the code object
    std::string log, code;
    bool compiled = false;
};

namespace {

constexpr const char* kNameOf = "warpwave_name_";  // device variables that hold what name expressions stand for

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string compiler() {
    if (const char* named = std::getenv("WARPWAVE_HIPCC")) return named;
    Dl_info here;
    if (!dladdr(reinterpret_cast<void*>(&hiprtcVersion), &here)) return "";
    const fs::path beside = fs::path(here.dli_fname).parent_path().parent_path() / "bin" / "hipcc";
    return fs::exists(beside) ? beside.string() : "";
}

// A folder that goes away with the object.
struct Scratch {
    fs::path path;
    Scratch() {
        std::string name = (fs::temp_directory_path() / "warpwave-rtc-XXXXXX").string();
        if (mkdtemp(name.data())) path = name;
    }
    ~Scratch() {
        std::error_code ignored;
        if (!path.empty()) fs::remove_all(path, ignored);
    }
};

// Exit status; -1 if it could not be started. Both outputs go to `log`. The compiler is not to run on this library.
int run(std::vector<std::string> words, const fs::path& log) {
    std::vector<char*> arguments, environment;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    for (char** each = environ; *each; ++each)
        if (std::strncmp(*each, "LD_PRELOAD=", 11) != 0) environment.push_back(*each);
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child = 0;
    const int failed = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    if (failed || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string with_names(const _hiprtcProgram& program) {
    std::string text = "#line 1 \"" + program.name + "\"\n" + program.source + "\n";
    int number = 0;
    for (const auto& [expression, name] : program.names)
        text += "extern \"C\" __device__ __attribute__((used)) const void* const " +
                (kNameOf + std::to_string(number++)) + " = reinterpret_cast<const void*>(&" +
                (expression[0] == '&' ? expression.substr(1) : expression) + ");\n";
    return text;
}

// What the variable at `address` points to, by the relocation that fills it in.
std::string pointed_to(const loader::CodeObject& code, uint64_t address) {
    for (const loader::Relocation& relocation : code.relocations) {
        if (relocation.offset != address) continue;
        const uint64_t target = relocation.symbol + static_cast<uint64_t>(relocation.addend);
        for (const loader::Symbol& symbol : code.symbols)
            if (symbol.address == target && !symbol.name.ends_with(".kd")) return symbol.name;
    }
    return "";
}

bool find_names(_hiprtcProgram& program) {
    if (program.names.empty()) return true;
    const loader::CodeObject code = loader::load(program.code.data(), program.code.size());
    int number = 0;
    for (auto& [expression, name] : program.names) {
        const std::string variable = kNameOf + std::to_string(number++);
        const auto found = std::find_if(code.symbols.begin(), code.symbols.end(), [&](const loader::Symbol& symbol) {
            return symbol.name == variable;
        });
        if (found != code.symbols.end()) name = pointed_to(code, found->address);
        if (name.empty()) return false;
    }
    return true;
}

hiprtcResult compile(_hiprtcProgram& program, int count, const char* const* options) {
    const Scratch scratch;
    const std::string hipcc = compiler();
    if (scratch.path.empty() || hipcc.empty()) {
        program.log =
            "hiprtc: no compiler beside the emulator's library: start the program with python -m backends emulate, or "
            "set "
            "WARPWAVE_HIPCC to the hipcc in the folder of python -m backends.emulator --prefix";
        complain("hiprtcCompileProgram", program.log);
        return HIPRTC_ERROR_INTERNAL_ERROR;
    }
    for (const auto& [name, text] : program.headers) {
        fs::create_directories((scratch.path / name).parent_path());
        std::ofstream(scratch.path / name, std::ios::binary) << text;
    }
    const fs::path source = scratch.path / "warpwave_program.hip", code = scratch.path / "code.hsaco",
                   log = scratch.path / "log";
    std::ofstream(source, std::ios::binary) << with_names(program);
    std::vector<std::string> words{hipcc, "--genco", "-include", "hip/hip_runtime.h", "-I", scratch.path.string()};
    for (int i = 0; i < count; ++i) {
        const std::string option = options[i];
        if (!option.starts_with("--gpu-architecture") && option != "-fgpu-rdc") words.push_back(option);
    }
    words.insert(words.end(), {source.string(), "-o", code.string()});
    const int status = run(words, log);
    program.log = contents(log);
    if (status != 0) return HIPRTC_ERROR_COMPILATION;
    program.code = contents(code);
    program.compiled = true;
    return find_names(program) ? HIPRTC_SUCCESS : HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

template <class Body>
hiprtcResult guarded(Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return HIPRTC_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        complain("hiprtc", error.what());
        return HIPRTC_ERROR_INTERNAL_ERROR;
    }
}

}  // namespace

RTC_API const char* hiprtcGetErrorString(hiprtcResult result) {
    switch (result) {
        case HIPRTC_SUCCESS: return "HIPRTC_SUCCESS";
        case HIPRTC_ERROR_OUT_OF_MEMORY: return "HIPRTC_ERROR_OUT_OF_MEMORY";
        case HIPRTC_ERROR_PROGRAM_CREATION_FAILURE: return "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE";
        case HIPRTC_ERROR_INVALID_INPUT: return "HIPRTC_ERROR_INVALID_INPUT";
        case HIPRTC_ERROR_INVALID_PROGRAM: return "HIPRTC_ERROR_INVALID_PROGRAM";
        case HIPRTC_ERROR_INVALID_OPTION: return "HIPRTC_ERROR_INVALID_OPTION";
        case HIPRTC_ERROR_COMPILATION: return "HIPRTC_ERROR_COMPILATION";
        case HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE: return "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE";
        case HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION:
            return "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
        case HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION:
            return "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
        case HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID: return "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
        case HIPRTC_ERROR_LINKING: return "HIPRTC_ERROR_LINKING";
        default: return "HIPRTC_ERROR_INTERNAL_ERROR";
    }
}

RTC_API hiprtcResult hiprtcVersion(int* major, int* minor) {
    if (!major || !minor) return HIPRTC_ERROR_INVALID_INPUT;
    *major = HIP_VERSION_MAJOR;
    *minor = HIP_VERSION_MINOR;
    return HIPRTC_SUCCESS;
}

RTC_API hiprtcResult hiprtcCreateProgram(
    hiprtcProgram* program, const char* source, const char* name, int count, const char** headers, const char** names) {
    return guarded([&] {
        if (!program || !source || count < 0 || (count && (!headers || !names))) return HIPRTC_ERROR_INVALID_INPUT;
        auto made = std::make_unique<_hiprtcProgram>();
        made->source = source;
        made->name = name && *name ? name : "CompileSourceXXXXXX";
        for (int i = 0; i < count; ++i) made->headers.emplace_back(names[i], headers[i]);
        *program = made.release();
        return HIPRTC_SUCCESS;
    });
}

RTC_API hiprtcResult hiprtcDestroyProgram(hiprtcProgram* program) {
    if (!program || !*program) return HIPRTC_ERROR_INVALID_INPUT;
    delete *program;
    *program = nullptr;
    return HIPRTC_SUCCESS;
}

RTC_API hiprtcResult hiprtcAddNameExpression(hiprtcProgram program, const char* expression) {
    return guarded([&] {
        if (!program || !expression || !*expression) return HIPRTC_ERROR_INVALID_INPUT;
        if (program->compiled) return HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
        program->names[expression];
        return HIPRTC_SUCCESS;
    });
}

RTC_API hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int count, const char* const* options) {
    return guarded([&] {
        if (!program || count < 0 || (count && !options)) return HIPRTC_ERROR_INVALID_INPUT;
        return compile(*program, count, options);
    });
}

RTC_API hiprtcResult hiprtcGetLoweredName(hiprtcProgram program, const char* expression, const char** name) {
    return guarded([&] {
        if (!program || !expression || !name) return HIPRTC_ERROR_INVALID_INPUT;
        if (!program->compiled) return HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
        const auto found = program->names.find(expression);
        if (found == program->names.end()) return HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
        *name = found->second.c_str();
        return HIPRTC_SUCCESS;
    });
}

namespace {

hiprtcResult size_of(const std::string& text, size_t extra, size_t* size) {
    if (!size) return HIPRTC_ERROR_INVALID_INPUT;
    *size = text.size() + extra;
    return HIPRTC_SUCCESS;
}

hiprtcResult copy_of(const std::string& text, size_t extra, char* to) {
    if (!to) return HIPRTC_ERROR_INVALID_INPUT;
    std::memcpy(to, text.c_str(), text.size() + extra);  // NOLINT(bugprone-not-null-terminated-result): in `extra`
    return HIPRTC_SUCCESS;
}

}  // namespace

// The log ends with a zero, the code does not.

RTC_API hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, size_t* size) {
    return program ? size_of(program->log, program->log.empty() ? 0 : 1, size) : HIPRTC_ERROR_INVALID_PROGRAM;
}

RTC_API hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char* log) {
    return program ? copy_of(program->log, program->log.empty() ? 0 : 1, log) : HIPRTC_ERROR_INVALID_PROGRAM;
}

RTC_API hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, size_t* size) {
    if (!program || !program->compiled) return HIPRTC_ERROR_INVALID_PROGRAM;
    return size_of(program->code, 0, size);
}

RTC_API hiprtcResult hiprtcGetCode(hiprtcProgram program, char* code) {
    if (!program || !program->compiled) return HIPRTC_ERROR_INVALID_PROGRAM;
    return copy_of(program->code, 0, code);
}
