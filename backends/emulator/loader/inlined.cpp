// SPDX-License-Identifier: MIT
// Format: DWARF Debugging Information Format 4 and 5, sections 3.3.8 "Inlined Subroutines", 7.5 "Format of Debugging
// Information", 2.17.3 "Non-Contiguous Address Ranges". Only the 32-bit form, which is what compilers write.
#include "inlined.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace emu::loader {
namespace {

enum Tag : uint64_t { kCompileUnit = 0x11, kInlinedSubroutine = 0x1d };
enum Attribute : uint64_t {
    kStatements = 0x10,
    kLowPc = 0x11,
    kHighPc = 0x12,
    kRanges = 0x55,
    kCallColumn = 0x57,
    kCallFile = 0x58,
    kCallLine = 0x59,
    kAddressBase = 0x73,
    kRangeListsBase = 0x74,
};
enum Form : uint64_t {
    kAddress = 0x01,
    kBlock2 = 0x03,
    kBlock4,
    kData2,
    kData4,
    kData8,
    kString,
    kBlock,
    kBlock1,
    kData1,
    kFlag,
    kSdata,
    kStrp,
    kUdata,
    kRefAddress,
    kRef1,
    kRef2,
    kRef4,
    kRef8,
    kRefUdata,
    kIndirect,
    kSectionOffset,
    kExpression,
    kPresent,
    kStrx,
    kAddrx,
    kRefSup4,
    kStrpSup,
    kData16,
    kLineStrp,
    kRefSig8,
    kImplicitConstant,
    kLoclistx,
    kRnglistx,
    kRefSup8,
    kStrx1,
    kStrx2,
    kStrx3,
    kStrx4,
    kAddrx1,
    kAddrx2,
    kAddrx3,
    kAddrx4,
};
static_assert(kAddrx4 == 0x2c);

enum RangeEntry : uint8_t {
    kEndOfList,
    kBaseAddressx,
    kStartxEndx,
    kStartxLength,
    kOffsetPair,
    kBaseAddress,
    kStartEnd,
    kStartLength,
};

struct Range {
    uint64_t begin, end;
};

struct Call {
    Range range;
    uint32_t depth;
    uint64_t unit;  // its line table
    uint64_t file, line, column;
};

struct Abbreviation {
    struct Field {
        uint64_t attribute, form;
        int64_t constant;
    };
    uint64_t tag;
    bool children;
    std::vector<Field> fields;
};

struct Value {
    uint64_t form = 0, number = 0;  // form 0: the attribute is not there
};

class Unit {
public:
    Unit(Cursor from, const InlineTable::Sections& sections, std::vector<Call>& calls)
        : from_(from), sections_(sections), calls_(calls) {}

    void read() {
        version_ = from_.take<uint16_t>();
        if (version_ != 4 && version_ != 5) return;
        constexpr uint8_t kCompile = 1;
        if (version_ == 5 && from_.take<uint8_t>() != kCompile) return;
        if (version_ == 5) from_.skip(1);  // size of addresses: 8
        abbreviations(from_.take<uint32_t>());
        if (version_ == 4) from_.skip(1);
        uint32_t depth = 0;
        do {
            const uint64_t code = from_.unsigned_leb();
            if (code == 0) {
                if (depth) --depth;
                continue;
            }
            const auto found = abbreviations_.find(code);
            if (found == abbreviations_.end()) return;
            entry(found->second, depth);
            if (found->second.children) ++depth;
        } while (depth && !from_.done());
    }

private:
    void abbreviations(uint64_t offset) {
        const Bytes& all = sections_.abbreviations;
        Cursor from(all.part(offset, all.size() - offset, "abbreviations"));
        while (const uint64_t code = from.unsigned_leb()) {
            Abbreviation& abbreviation = abbreviations_[code];
            abbreviation.tag = from.unsigned_leb();
            abbreviation.children = from.take<uint8_t>();
            for (;;) {
                const uint64_t attribute = from.unsigned_leb(), form = from.unsigned_leb();
                const int64_t constant = form == kImplicitConstant ? from.signed_leb() : 0;
                if (!attribute && !form) break;
                abbreviation.fields.push_back({attribute, form, constant});
            }
        }
    }

    void entry(const Abbreviation& abbreviation, uint32_t depth) {
        Value low, high, ranges, file, line, column;
        for (const Abbreviation::Field& field : abbreviation.fields) {
            const Value value = take(field.form, field.constant);
            switch (field.attribute) {
                case kLowPc: low = value; break;
                case kHighPc: high = value; break;
                case kRanges: ranges = value; break;
                case kCallFile: file = value; break;
                case kCallLine: line = value; break;
                case kCallColumn: column = value; break;
                case kStatements: statements_ = value.number; break;
                case kAddressBase: address_base_ = value.number; break;
                case kRangeListsBase: range_lists_base_ = value.number; break;
                default: break;
            }
        }
        // Bases may come behind what needs them, so addresses are looked up now.
        const uint64_t begin = low.form ? address(low) : 0;
        if (abbreviation.tag == kCompileUnit) base_ = begin;
        if (abbreviation.tag != kInlinedSubroutine || !line.form) return;
        const auto add = [&](Range range) {
            if (range.begin < range.end)
                calls_.push_back({range, depth, statements_, file.number, line.number, column.number});
        };
        if (low.form && high.form) add({begin, is_address(high.form) ? address(high) : begin + high.number});
        if (ranges.form) version_ == 5 ? range_list(ranges, add) : old_ranges(ranges.number, add);
    }

    static bool is_address(uint64_t form) {
        return form == kAddress || form == kAddrx || (form >= kAddrx1 && form <= kAddrx4);
    }

    uint64_t indexed_address(uint64_t index) const {
        return sections_.addresses.at<uint64_t>(address_base_ + 8 * index);
    }
    uint64_t address(const Value& value) const {
        return value.form == kAddress ? value.number : indexed_address(value.number);
    }

    template <class Add>
    void range_list(const Value& value, Add add) const {
        const Bytes& all = sections_.range_lists;
        uint64_t offset = value.number;
        if (value.form == kRnglistx)
            offset = range_lists_base_ + all.at<uint32_t>(range_lists_base_ + 4 * value.number);
        Cursor from(all.part(offset, all.size() - offset, "range lists"));
        uint64_t base = base_;
        for (;;) {
            const uint8_t kind = from.take<uint8_t>();
            if (kind == kEndOfList || kind > kStartLength) return;
            const bool leb = kind <= kOffsetPair;
            const uint64_t first = leb ? from.unsigned_leb() : from.take<uint64_t>();
            if (kind == kBaseAddressx || kind == kBaseAddress) {
                base = leb ? indexed_address(first) : first;
                continue;
            }
            const uint64_t second = kind == kStartEnd ? from.take<uint64_t>() : from.unsigned_leb();
            switch (kind) {
                case kStartxEndx: add({indexed_address(first), indexed_address(second)}); break;
                case kStartxLength: add({indexed_address(first), indexed_address(first) + second}); break;
                case kOffsetPair: add({base + first, base + second}); break;
                case kStartEnd: add({first, second}); break;
                default: add({first, first + second});
            }
        }
    }

    template <class Add>
    void old_ranges(uint64_t offset, Add add) const {
        const Bytes& all = sections_.ranges;
        Cursor from(all.part(offset, all.size() - offset, "ranges"));
        uint64_t base = base_;
        for (;;) {
            const uint64_t first = from.take<uint64_t>(), second = from.take<uint64_t>();
            if (!first && !second) return;
            if (first == ~uint64_t{0}) base = second;
            else add({base + first, base + second});
        }
    }

    uint64_t number(unsigned bytes) {
        uint64_t value = 0;
        for (unsigned i = 0; i < bytes; ++i) value |= uint64_t{from_.take<uint8_t>()} << 8 * i;
        return value;
    }

    Value take(uint64_t form, int64_t constant) {
        Value value{form, 0};
        switch (form) {
            case kData1:
            case kFlag:
            case kRef1:
            case kStrx1:
            case kAddrx1: value.number = number(1); break;
            case kData2:
            case kRef2:
            case kStrx2:
            case kAddrx2: value.number = number(2); break;
            case kStrx3:
            case kAddrx3: value.number = number(3); break;
            case kData4:
            case kRef4:
            case kStrx4:
            case kAddrx4:
            case kStrp:
            case kLineStrp:
            case kSectionOffset:
            case kRefAddress:
            case kRefSup4:
            case kStrpSup: value.number = number(4); break;
            case kAddress:
            case kData8:
            case kRef8:
            case kRefSig8:
            case kRefSup8: value.number = number(8); break;
            case kData16: from_.skip(16); break;
            case kString: from_.text(); break;
            case kBlock1: from_.skip(number(1)); break;
            case kBlock2: from_.skip(number(2)); break;
            case kBlock4: from_.skip(number(4)); break;
            case kBlock:
            case kExpression: from_.skip(from_.unsigned_leb()); break;
            case kSdata: value.number = static_cast<uint64_t>(from_.signed_leb()); break;
            case kUdata:
            case kRefUdata:
            case kStrx:
            case kAddrx:
            case kLoclistx:
            case kRnglistx: value.number = from_.unsigned_leb(); break;
            case kPresent: value.number = 1; break;
            case kImplicitConstant: value.number = static_cast<uint64_t>(constant); break;
            case kIndirect: {
                const uint64_t real = from_.unsigned_leb();
                if (real == kIndirect) throw LoadError("debug information: a form that there is not");
                return take(real, 0);
            }
            default: throw LoadError("debug information: a form that there is not");
        }
        return value;
    }

    Cursor from_;
    const InlineTable::Sections& sections_;
    std::vector<Call>& calls_;
    uint16_t version_ = 0;
    uint64_t statements_ = 0, base_ = 0;
    uint64_t address_base_ = 8, range_lists_base_ = 12;  // behind the headers, if nothing says otherwise
    std::unordered_map<uint64_t, Abbreviation> abbreviations_;
};

std::vector<uint8_t> copy(const Bytes& bytes) { return {bytes.data(), bytes.data() + bytes.size()}; }

}  // namespace

struct InlineTable::State {
    std::vector<uint8_t> info, abbreviations, addresses, ranges, range_lists;  // let go of once read
    LineTable lines;
    std::once_flag once;
    std::vector<Call> all;

    void read() {
        const auto bytes = [](const std::vector<uint8_t>& from) {
            return Bytes(from.data(), from.size(), "debug information");
        };
        const Sections sections{bytes(info), bytes(abbreviations), bytes(addresses), bytes(ranges), bytes(range_lists)};
        try {
            Cursor from(sections.info);
            while (!from.done()) {
                const uint32_t size = from.take<uint32_t>();
                const Cursor unit(from.take(size, "debug information"));
                try {
                    Unit(unit, sections, all).read();
                } catch (const LoadError&) {  // NOLINT(bugprone-empty-catch): this unit alone is lost
                }
            }
        } catch (const LoadError&) {  // NOLINT(bugprone-empty-catch): what was read up to here still serves
        }
        info = abbreviations = addresses = ranges = range_lists = {};
    }
};

InlineTable::InlineTable(const Sections& sections, LineTable lines) : state_(std::make_shared<State>()) {
    state_->info = copy(sections.info);
    state_->abbreviations = copy(sections.abbreviations);
    state_->addresses = copy(sections.addresses);
    state_->ranges = copy(sections.ranges);
    state_->range_lists = copy(sections.range_lists);
    state_->lines = std::move(lines);
}

std::vector<Line> InlineTable::calls(uint64_t address) const {
    if (state_ == nullptr) return {};
    std::call_once(state_->once, [this] { state_->read(); });
    std::vector<const Call*> around;
    for (const Call& call : state_->all)
        if (address >= call.range.begin && address < call.range.end) around.push_back(&call);
    std::stable_sort(around.begin(), around.end(), [](const Call* a, const Call* b) { return a->depth > b->depth; });
    std::vector<Line> result;
    for (const Call* call : around) {
        const auto file = state_->lines.file(call->unit, call->file);
        result.push_back({file.value_or(""), static_cast<uint32_t>(call->line), static_cast<uint32_t>(call->column)});
    }
    return result;
}

}  // namespace emu::loader
