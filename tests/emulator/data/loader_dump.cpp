// SPDX-License-Identifier: MIT
// What the loader makes of a file, as JSON, and what it does with broken copies of it. For test_loader.py.
//
//   dump FILE                  the code object, its lines by address, and the words that relocation left
//   bundle FILE TARGET         where the code object lies in it: {"offset", "size"}
//   wrapped FILE TARGET        the same, from behind the wrapper that host programs register
//   truncate FILE STEP         loads every STEPth proper prefix; all must be refused
//   mutate FILE SEED COUNT     loads copies with bytes changed; each must load or be refused
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bundle.h"
#include "code_object.h"

using namespace emu::loader;

namespace {

std::vector<uint8_t> read_file(const char* path) {
    std::FILE* const file = std::fopen(path, "rb");
    if (file == nullptr) throw std::runtime_error(std::string("cannot read ") + path);
    std::vector<uint8_t> found;
    for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file)) found.push_back(static_cast<uint8_t>(byte));
    std::fclose(file);
    return found;
}

// A copy of exactly that size on the heap, so that a sanitizer sees each read beyond it.
struct Exact {
    explicit Exact(const uint8_t* from, size_t count) : data(new uint8_t[count]), size(count) {
        std::copy_n(from, count, data.get());
    }
    std::unique_ptr<uint8_t[]> data;
    size_t size;
};

std::string quoted(const std::string& text) {
    std::string made = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') made += '\\';
        if (static_cast<unsigned char>(letter) < 32) throw std::runtime_error("a control character in a name");
        made += letter;
    }
    return made + '"';
}

class Json {
public:
    Json& field(const char* name, const std::string& text) { return raw(name, quoted(text)); }
    Json& number(const char* name, auto value) { return raw(name, std::to_string(value)); }
    Json& raw(const char* name, const std::string& value) {
        body_ += (body_.empty() ? "" : ", ") + quoted(name) + ": " + value;
        return *this;
    }
    std::string text() const { return "{" + body_ + "}"; }

private:
    std::string body_;
};

template <typename Items, typename Each>
std::string list(const Items& items, Each each) {
    std::string made;
    for (const auto& item : items) made += (made.empty() ? "" : ",\n ") + each(item);
    return "[" + made + "]";
}

std::string kernel_json(const KernelInfo& k) {
    Json made;
    made.field("name", k.name).field("symbol", k.symbol).number("descriptor", k.descriptor).number("entry", k.entry);
    made.number("kernarg_bytes", k.kernarg_bytes).number("kernarg_align", k.kernarg_align);
    made.number("lds_bytes", k.lds_bytes).number("scratch_bytes", k.scratch_bytes);
    made.number("sgprs", k.sgprs).number("vgprs", k.vgprs).number("agprs", k.agprs);
    made.number("accum_offset", k.accum_offset).number("max_threads", k.max_threads).number("wave_size", k.wave_size);
    made.number("rsrc1", k.rsrc1).number("rsrc2", k.rsrc2).number("rsrc3", k.rsrc3).number("properties", k.properties);
    made.number("kernarg_preload", k.kernarg_preload).number("dynamic_stack", int{k.dynamic_stack});
    made.number("uniform_workgroup", int{k.uniform_workgroup});
    made.number("spilled_vgprs", k.spilled_vgprs).number("spilled_sgprs", k.spilled_sgprs);
    made.raw("arguments", list(k.arguments, [](const Argument& a) {
        Json argument;
        argument.field("name", a.name).field("kind", a.kind).number("offset", a.offset).number("size", a.size);
        return argument.text();
    }));
    return made.text();
}

constexpr uint64_t kElsewhere = 0x123456789abcdef0;

// The image with `elsewhere` defined, alone of all symbols that code may leave undefined.
std::vector<uint8_t> relocated(const CodeObject& code) {
    std::vector<uint8_t> placed = code.image;
    relocate(code, placed.data(), [](std::string_view name) -> std::optional<uint64_t> {
        return name == "elsewhere" ? std::optional(kElsewhere) : std::nullopt;
    });
    return placed;
}

void dump(const CodeObject& code) {
    Json made;
    made.field("target", code.target).number("abi_version", code.abi_version).number("image_bytes", code.image.size());
    made.number("text_begin", code.text_begin).number("text_end", code.text_end);
    uint64_t sum = 14695981039346656037u;   // FNV-1a: enough to see that the image is the file's
    for (const uint8_t byte : code.image) sum = (sum ^ byte) * 1099511628211u;
    made.number("image_fnv", sum);
    made.raw("kernels", list(code.kernels, kernel_json));
    made.raw("symbols", list(code.symbols, [](const Symbol& s) {
        Json symbol;
        symbol.field("name", s.name).number("address", s.address).number("size", s.size);
        return symbol.number("function", int{s.function}).text();
    }));
    const std::vector<uint8_t> placed = relocated(code);
    const uint64_t base = reinterpret_cast<uintptr_t>(placed.data());
    made.number("base", base);
    made.raw("relocations", list(code.relocations, [&](const Relocation& r) {
        uint64_t word = 0;
        std::memcpy(&word, placed.data() + r.offset, std::min<size_t>(8, placed.size() - r.offset));
        Json one;
        one.number("offset", r.offset).number("type", r.type).number("addend", r.addend).number("symbol", r.symbol);
        one.field("name", r.name).number("absolute", int{r.absolute}).number("weak", int{r.weak}).number("word", word);
        return one.text();
    }));
    const auto place = [](const Line& line) {
        return "[" + quoted(line.file) + ", " + std::to_string(line.line) + ", " + std::to_string(line.column) + "]";
    };
    std::vector<std::string> lines, calls;
    for (uint64_t at = code.text_begin; at < code.text_end; at += 4) {
        const auto line = code.lines.find(at);
        lines.push_back(!line ? "null" : place(*line));
        calls.push_back(list(code.inlined.calls(at), place));
    }
    made.raw("lines", list(lines, [](const std::string& line) { return line; }));
    made.raw("calls", list(calls, [](const std::string& call) { return call; }));
    std::puts(made.text().c_str());
}

// Loads a copy and uses all of it; whether it loaded.
bool survives(const uint8_t* bytes, size_t size) {
    const Exact copy(bytes, size);
    try {
        const CodeObject code = load(copy.data.get(), copy.size);
        for (uint64_t at = code.text_begin; at < code.text_end; at += 64) {
            (void)code.lines.find(at);
            (void)code.inlined.calls(at);
        }
        relocated(code);
        return true;
    } catch (const LoadError& error) {
        const std::string said = error.what();
        if (said.size() < 30) throw std::runtime_error("says little: " + said);
        return false;
    }
}

void bundle(const std::vector<uint8_t>& file, const char* target, bool wrapped) {
    const Exact copy(file.data(), file.size());
    const struct {
        uint32_t magic, version;
        const void *binary, *unused;
    } wrapper{0x48495046, 1, copy.data.get(), nullptr};
    const auto [begin, size] =
        wrapped ? find_code_object(&wrapper, target) : find_code_object(copy.data.get(), target, copy.size);
    std::puts(Json().number("offset", begin - copy.data.get()).number("size", size).text().c_str());
}

int run(const std::vector<std::string>& words) {
    const std::vector<uint8_t> file = read_file(words.at(1).c_str());
    if (words[0] == "dump") {
        dump(load(file.data(), file.size()));
    } else if (words[0] == "bundle" || words[0] == "wrapped") {
        bundle(file, words.at(2).c_str(), words[0] == "wrapped");
    } else if (words[0] == "truncate") {
        const size_t step = std::stoul(words.at(2));
        size_t tried = 0, loaded = 0;
        for (size_t size = 0; size < file.size(); size += step, ++tried) loaded += survives(file.data(), size);
        std::puts(Json().number("tried", tried).number("loaded", loaded).text().c_str());
    } else if (words[0] == "mutate") {
        uint64_t state = std::stoull(words.at(2));
        const auto random = [&state] {   // splitmix64
            uint64_t mixed = state += 0x9e3779b97f4a7c15;
            mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
            mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
            return mixed ^ mixed >> 31;
        };
        const int count = std::stoi(words.at(3));
        int loaded = 0;
        for (int index = 0; index < count; ++index) {
            std::vector<uint8_t> changed = file;
            for (uint64_t change = random() % 4 + 1; change > 0; --change) {
                constexpr uint8_t kValues[] = {0, 1, 0x7f, 0x80, 0xff};
                const uint8_t value = random() % 2 ? kValues[random() % 5] : static_cast<uint8_t>(random());
                changed[random() % changed.size()] = value;
            }
            loaded += survives(changed.data(), changed.size());
        }
        std::puts(Json().number("tried", count).number("loaded", loaded).text().c_str());
    } else {
        throw std::runtime_error("unknown mode " + words[0]);
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    try {
        return run({words + 1, words + count});
    } catch (const LoadError& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 3;   // refused, as it should where the test says so
    } catch (const std::exception& error) {
        std::fprintf(stderr, "failed: %s\n", error.what());
        return 4;
    }
}
