// SPDX-License-Identifier: MIT
// Format: DWARF Debugging Information Format 4 and 5, section 6.2 "Line Number Information".
#include "lines.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

namespace emu::loader {
namespace {

// Forms that a file or directory entry of DWARF 5 may have (section 7.5.6).
enum Form : uint64_t {
    kBlock2 = 0x03,
    kBlock4 = 0x04,
    kData2 = 0x05,
    kData4 = 0x06,
    kData8 = 0x07,
    kText = 0x08,
    kBlock = 0x09,
    kBlock1 = 0x0a,
    kData1 = 0x0b,
    kStrings = 0x0e,
    kUdata = 0x0f,
    kData16 = 0x1e,
    kLineStrings = 0x1f,
};
enum Content : uint64_t { kPath = 1, kDirectory = 2 };
enum Standard : uint8_t {
    kExtended,
    kCopy,
    kAdvancePc,
    kAdvanceLine,
    kSetFile,
    kSetColumn,
    kNegate,
    kBasicBlock,
    kConstAddPc,
    kFixedAdvancePc,
};
enum Extended : uint8_t { kEndSequence = 1, kSetAddress = 2, kDefineFile = 3 };

constexpr uint32_t kNoFile = ~uint32_t{0};

struct Entry {
    std::string_view name;
    uint64_t directory = 0;
};

struct Row {
    uint64_t address;
    uint32_t file, line, column;  // kNoFile: no code from here on
};

struct Sections {
    Bytes lines, line_strings, strings;
};

std::string join(std::string_view folder, std::string_view name) {
    if (folder.empty() || folder == "." || name.starts_with('/')) return std::string(name);
    std::string path(folder);
    if (!path.ends_with('/')) path += '/';
    return path.append(name);
}

// One unit's header and line program, from behind its length.
class Unit {
public:
    Unit(
        Cursor from, bool wide, const Sections& sections, uint64_t text_begin, uint64_t text_end,
        std::vector<std::string>& files, std::vector<Row>& rows)
        : from_(from), wide_(wide), sections_(sections), text_begin_(text_begin), text_end_(text_end), files_(files),
          rows_(rows) {}

    void read() {
        version_ = from_.take<uint16_t>();
        if (version_ < 2 || version_ > 5) return;
        if (version_ == 5) from_.skip(2);  // sizes of addresses and of segment selectors
        const uint64_t header = offset();
        const uint64_t program = from_.position() + header;
        if (header > from_.left()) return;
        step_ = from_.take<uint8_t>();
        if (version_ >= 4) from_.skip(1);  // operations per instruction: for VLIW machines
        from_.skip(1);                     // whether a row begins a statement by default
        line_base_ = from_.take<int8_t>();
        line_range_ = from_.take<uint8_t>();
        opcode_base_ = from_.take<uint8_t>();
        if (line_range_ == 0 || opcode_base_ == 0) return;
        for (unsigned opcode = 1; opcode < opcode_base_; ++opcode) operands_[opcode] = from_.take<uint8_t>();
        if (version_ == 5) {
            directories_ = entries();
            names_ = entries();
        } else {
            old_tables();
        }
        for (uint64_t file = 0; file < names_.size(); ++file) file_number(file);
        if (from_.position() > program) return;
        from_.skip(program - from_.position());
        run();
    }

    // By the unit's numbers of files: indices into `files`.
    const std::vector<uint32_t>& numbers() const { return numbers_; }

private:
    uint64_t offset() { return wide_ ? from_.take<uint64_t>() : from_.take<uint32_t>(); }

    // DWARF 2 to 4: directories and files count from 1; number 0 is where the compiler ran, told elsewhere.
    void old_tables() {
        directories_.push_back({});
        for (std::string_view name = from_.text(); !name.empty(); name = from_.text()) {
            directories_.push_back({name, 0});
        }
        names_.push_back({});
        for (std::string_view name = from_.text(); !name.empty(); name = from_.text()) {
            names_.push_back({name, from_.unsigned_leb()});
            from_.unsigned_leb();  // time
            from_.unsigned_leb();  // size
        }
    }

    std::vector<Entry> entries() {
        std::vector<std::pair<uint64_t, uint64_t>> format(from_.take<uint8_t>());
        for (auto& [content, form] : format) {
            content = from_.unsigned_leb();
            form = from_.unsigned_leb();
        }
        const uint64_t count = from_.unsigned_leb();
        std::vector<Entry> found;
        // Each field takes a byte at least, so a hostile count ends at the end of the bytes; no field, no entry.
        for (uint64_t index = 0; index < count && !format.empty(); ++index) {
            Entry entry;
            for (const auto& [content, form] : format) field(entry, content, form);
            found.push_back(entry);
        }
        return found;
    }

    void field(Entry& entry, uint64_t content, uint64_t form) {
        std::string_view name;
        uint64_t number = 0;
        switch (form) {
            case kText: name = from_.text(); break;
            case kLineStrings: name = sections_.line_strings.text(offset()); break;
            case kStrings: name = sections_.strings.text(offset()); break;
            case kUdata: number = from_.unsigned_leb(); break;
            case kData1: number = from_.take<uint8_t>(); break;
            case kData2: number = from_.take<uint16_t>(); break;
            case kData4: number = from_.take<uint32_t>(); break;
            case kData8: number = from_.take<uint64_t>(); break;
            case kData16: from_.skip(16); break;
            case kBlock: from_.skip(from_.unsigned_leb()); break;
            case kBlock1: from_.skip(from_.take<uint8_t>()); break;
            case kBlock2: from_.skip(from_.take<uint16_t>()); break;
            case kBlock4: from_.skip(from_.take<uint32_t>()); break;
            default: throw LoadError("debug lines: a form that file tables do not have");
        }
        if (content == kPath) entry.name = name;
        if (content == kDirectory) entry.directory = number;
    }

    void run() {
        reset();
        while (!from_.done()) {
            const uint8_t opcode = from_.take<uint8_t>();
            if (opcode >= opcode_base_) {
                const uint8_t adjusted = static_cast<uint8_t>(opcode - opcode_base_);
                address_ += uint64_t{step_} * (adjusted / line_range_);
                line_ += static_cast<uint32_t>(line_base_ + adjusted % line_range_);
                row();
            } else if (opcode == kExtended) {
                extended();
            } else {
                standard(opcode);
            }
        }
    }

    void standard(uint8_t opcode) {
        switch (opcode) {
            case kCopy: row(); break;
            case kAdvancePc: address_ += step_ * from_.unsigned_leb(); break;
            case kAdvanceLine: line_ += static_cast<uint32_t>(from_.signed_leb()); break;
            case kSetFile: file_ = from_.unsigned_leb(); break;
            case kSetColumn: column_ = static_cast<uint32_t>(from_.unsigned_leb()); break;
            case kNegate:
            case kBasicBlock: break;
            case kConstAddPc: address_ += uint64_t{step_} * ((255u - opcode_base_) / line_range_); break;
            case kFixedAdvancePc: address_ += from_.take<uint16_t>(); break;
            default:  // the header says how much to skip of the rest
                for (unsigned operand = 0; operand < operands_[opcode]; ++operand) from_.unsigned_leb();
        }
    }

    void extended() {
        const uint64_t size = from_.unsigned_leb();
        if (size == 0) return;
        Cursor operand(from_.take(size, "debug lines"));
        switch (operand.take<uint8_t>()) {
            case kEndSequence: end_sequence(); break;
            case kSetAddress:
                address_ = operand.left() >= 8 ? operand.take<uint64_t>() : operand.take<uint32_t>();
                break;
            case kDefineFile: names_.push_back({operand.text(), operand.unsigned_leb()}); break;
            default: break;
        }
    }

    void reset() {
        address_ = 0;
        file_ = line_ = 1;
        column_ = 0;
        sequence_.clear();
    }

    void row() { sequence_.push_back({address_, file_number(file_), line_, column_}); }

    // A sequence of discarded code begins at a made-up address, usually 0: leave it out.
    void end_sequence() {
        const uint64_t end = address_;
        if (!sequence_.empty() && sequence_.front().address >= text_begin_ && end <= text_end_) {
            for (const Row& row : sequence_) {
                if (row.address < end) rows_.push_back(row);  // one at the end would cover what follows
            }
            rows_.push_back({end, kNoFile, 0, 0});
        }
        reset();
    }

    // Index into `files_` of the unit's file; its path is made once.
    uint32_t file_number(uint64_t file) {
        if (file >= names_.size() || names_[file].name.empty()) return kNoFile;
        numbers_.resize(names_.size(), kNoFile);
        uint32_t& number = numbers_[file];
        if (number == kNoFile) {
            const Entry& entry = names_[file];
            std::string folder;
            if (entry.directory < directories_.size()) {
                folder = directories_[entry.directory].name;
                if (entry.directory != 0) folder = join(directories_.front().name, folder);
            }
            number = static_cast<uint32_t>(files_.size());
            files_.push_back(join(folder, entry.name));
        }
        return number;
    }

    Cursor from_;
    bool wide_;  // 64 bit offsets
    const Sections& sections_;
    uint64_t text_begin_, text_end_;
    std::vector<std::string>& files_;
    std::vector<Row>& rows_;

    uint16_t version_ = 0;
    uint8_t step_ = 0, line_range_ = 0, opcode_base_ = 0;
    int8_t line_base_ = 0;
    std::array<uint8_t, 256> operands_{};
    std::vector<Entry> directories_, names_;
    std::vector<uint32_t> numbers_;

    uint64_t address_ = 0, file_ = 1;
    uint32_t line_ = 1, column_ = 0;
    std::vector<Row> sequence_;
};

std::vector<uint8_t> copy(const Bytes& bytes) { return {bytes.data(), bytes.data() + bytes.size()}; }

}  // namespace

struct LineTable::State {
    std::vector<uint8_t> lines, line_strings, strings;  // let go of once read
    uint64_t text_begin, text_end;
    std::once_flag once;
    std::vector<std::string> files;
    std::vector<Row> rows;
    std::map<uint64_t, std::vector<uint32_t>> units;  // by their place: their files' indices

    void read() {
        const Sections sections{
            {lines.data(), lines.size(), "debug lines"},
            {line_strings.data(), line_strings.size(), "names of debug lines"},
            {strings.data(), strings.size(), "names of debug information"}};
        try {
            Cursor from(sections.lines);
            while (!from.done()) {
                const uint64_t place = from.position();
                uint64_t size = from.take<uint32_t>();
                const bool wide = size == 0xffffffff;
                if (wide) size = from.take<uint64_t>();
                const Cursor unit(from.take(size, "debug lines"));
                try {
                    Unit reader(unit, wide, sections, text_begin, text_end, files, rows);
                    reader.read();
                    units[place] = reader.numbers();
                } catch (const LoadError&) {  // NOLINT(bugprone-empty-catch): this unit alone is lost
                }
            }
        } catch (const LoadError&) {  // NOLINT(bugprone-empty-catch): what was read up to here still serves
        }
        // Where one sequence ends and another begins, the beginning must come last: it is the one that is found.
        std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
            return a.address != b.address ? a.address < b.address : a.file == kNoFile && b.file != kNoFile;
        });
        lines = line_strings = strings = {};
    }
};

LineTable::LineTable(Bytes lines, Bytes line_strings, Bytes strings, uint64_t text_begin, uint64_t text_end)
    : state_(std::make_shared<State>()) {
    state_->lines = copy(lines);
    state_->line_strings = copy(line_strings);
    state_->strings = copy(strings);
    state_->text_begin = text_begin;
    state_->text_end = text_end;
}

std::optional<std::string> LineTable::file(uint64_t offset, uint64_t number) const {
    if (state_ == nullptr) return std::nullopt;
    std::call_once(state_->once, [this] { state_->read(); });
    const auto unit = state_->units.find(offset);
    if (unit == state_->units.end() || number >= unit->second.size() || unit->second[number] == kNoFile)
        return std::nullopt;
    return state_->files[unit->second[number]];
}

std::optional<Line> LineTable::find(uint64_t address) const {
    if (state_ == nullptr) return std::nullopt;
    std::call_once(state_->once, [this] { state_->read(); });
    const auto& rows = state_->rows;
    auto after = std::upper_bound(
        rows.begin(), rows.end(), address, [](uint64_t wanted, const Row& row) { return wanted < row.address; });
    if (after == rows.begin()) return std::nullopt;
    const Row& row = *--after;
    if (row.file == kNoFile || row.line == 0) return std::nullopt;
    return Line{state_->files[row.file], row.line, row.column};
}

}  // namespace emu::loader
