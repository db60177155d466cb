// SPDX-License-Identifier: Apache-2.0
#include "io/pickle_machine.h"

#include <bit>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Kind = PickleValue::Kind;

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalNamed = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersistentId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kProtocol = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

constexpr uint64_t kProtocolUsed = 2;

class Machine {
 public:
  Machine(std::string_view bytes, PickleCalls& calls, PickleHeap& heap)
      : bytes_(bytes), calls_(calls), heap_(heap) {}

  absl::StatusOr<PickleValue*> Run() {
    if (bytes_.size() > kPickleBytesMax) return Malformed("too long");
    while (true) {
      OXBOW_ASSIGN_OR_RETURN(const uint64_t code, TakeNumber(1));
      if (code == kStop) break;
      OXBOW_RETURN_IF_ERROR(Step(static_cast<uint8_t>(code)));
      if (heap_.size() > kPickleValuesMax) return Malformed("too many values");
    }
    if (stack_.size() != 1 || !marks_.empty())
      return Malformed("it leaves more or less than a value");
    return stack_.back();
  }

  size_t at() const { return at_; }

 private:
  absl::Status Malformed(const std::string& what) const {
    return absl::DataLossError(absl::StrCat("corrupt pickle at byte ", at_, ": ", what));
  }

  absl::StatusOr<std::string_view> Take(uint64_t size) {
    if (size > bytes_.size() - at_) return Malformed("it ends early");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  // Little-endian.
  absl::StatusOr<uint64_t> TakeNumber(size_t width) {
    OXBOW_ASSIGN_OR_RETURN(const std::string_view digits, Take(width));
    uint64_t number = 0;
    for (size_t i = width; i-- > 0;) number = number << 8 | static_cast<uint8_t>(digits[i]);
    return number;
  }

  absl::Status Push(PickleValue value) {
    stack_.push_back(heap_.New(std::move(value)));
    return absl::OkStatus();
  }

  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  // The last `count` values, in order; never ones below the last mark.
  absl::StatusOr<std::vector<PickleValue*>> Pop(size_t count) {
    if (stack_.size() - Floor() < count) return Malformed("its stack is empty");
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<PickleValue*> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return values;
  }

  absl::StatusOr<std::vector<PickleValue*>> PopToMark() {
    if (marks_.empty()) return Malformed("it has no mark");
    const size_t count = stack_.size() - marks_.back();
    auto values = Pop(count);
    marks_.pop_back();
    return values;
  }

  absl::Status Step(uint8_t code) {
    switch (code) {
      case kProtocol:
        return Protocol();
      case kMark:
        marks_.push_back(stack_.size());
        return absl::OkStatus();
      case kBinPut:
        return Remember(1);
      case kLongBinPut:
        return Remember(4);
      case kBinGet:
        return Recall(1);
      case kLongBinGet:
        return Recall(4);
      case kTuple:
        return PushTuple(PopToMark());
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return PushTuple(Pop(static_cast<size_t>(code) - kTuple1 + 1));
      case kAppend:
        return Extend(Kind::kList, Pop(1));
      case kAppends:
        return Extend(Kind::kList, PopToMark());
      case kSetItem:
        return Extend(Kind::kDict, Pop(2));
      case kSetItems:
        return Extend(Kind::kDict, PopToMark());
      case kGlobalNamed:
        return Global();
      case kReduce:
        return Reduce();
      case kBuild:
        return Build();
      case kBinPersistentId:
        return Persistent();
      default:
        return Literal(code);
    }
  }

  absl::Status Literal(uint8_t code) {
    switch (code) {
      case kNone:
        return Push({.kind = Kind::kNone});
      case kNewTrue:
      case kNewFalse:
        return Push({.kind = Kind::kBool, .integer = code == kNewTrue ? 1 : 0});
      case kEmptyTuple:
        return Push({.kind = Kind::kTuple});
      case kEmptyList:
        return Push({.kind = Kind::kList});
      case kEmptyDict:
        return Push({.kind = Kind::kDict});
      case kBinInt1:
        return Integer(1, false);
      case kBinInt2:
        return Integer(2, false);
      case kBinInt:
        return Integer(4, true);
      case kLong1:
        return Long();
      case kBinFloat:
        return Float();
      case kBinUnicode:
        return Text();
      default:
        return absl::FailedPreconditionError(absl::StrFormat(
            "the pickle uses opcode 0x%02x, which no state dict of torch.save has", code));
    }
  }

  absl::Status Protocol() {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t protocol, TakeNumber(1));
    if (protocol == kProtocolUsed) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the pickle has protocol ", protocol, "; torch.save writes ", kProtocolUsed,
                     ": save the file again without pickle_protocol"));
  }

  absl::Status Integer(size_t width, bool with_sign) {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(width));
    const unsigned unused = 64 - 8 * static_cast<unsigned>(width);
    const auto extended = static_cast<int64_t>(number << unused) >> unused;
    return Push(
        {.kind = Kind::kInt, .integer = with_sign ? extended : static_cast<int64_t>(number)});
  }

  absl::Status Long() {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t width, TakeNumber(1));
    if (width > 8) return Malformed("a number over 64 bits");
    if (width == 0) return Push({.kind = Kind::kInt});
    return Integer(width, true);
  }

  absl::Status Float() {  // Big-endian, unlike all else.
    OXBOW_ASSIGN_OR_RETURN(const std::string_view digits, Take(8));
    uint64_t bits = 0;
    for (const char digit : digits) bits = bits << 8 | static_cast<uint8_t>(digit);
    return Push({.kind = Kind::kFloat, .number = std::bit_cast<double>(bits)});
  }

  absl::Status Text() {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t size, TakeNumber(4));
    OXBOW_ASSIGN_OR_RETURN(const std::string_view text, Take(size));
    return Push({.kind = Kind::kText, .text = text});
  }

  absl::Status Remember(size_t width) {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t key, TakeNumber(width));
    if (stack_.size() == Floor()) return Malformed("its stack is empty");
    memo_[key] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Recall(size_t width) {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t key, TakeNumber(width));
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Malformed("it recalls what it never kept");
    stack_.push_back(found->second);
    return absl::OkStatus();
  }

  absl::Status PushTuple(absl::StatusOr<std::vector<PickleValue*>> items) {
    if (!items.ok()) return items.status();
    return Push({.kind = Kind::kTuple, .items = *std::move(items)});
  }

  absl::Status Extend(Kind kind, absl::StatusOr<std::vector<PickleValue*>> items) {
    if (!items.ok()) return items.status();
    if (stack_.size() == Floor() || stack_.back()->kind != kind ||
        (kind == Kind::kDict && items->size() % 2 != 0)) {
      return Malformed("it fills what is no list or dict");
    }
    std::vector<PickleValue*>& all = stack_.back()->items;
    all.insert(all.end(), items->begin(), items->end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::string_view> TakeLine() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Malformed("it ends early");
    OXBOW_ASSIGN_OR_RETURN(std::string_view line, Take(end + 1 - at_));
    line.remove_suffix(1);
    return line;
  }

  absl::Status Global() {
    OXBOW_ASSIGN_OR_RETURN(const std::string_view module, TakeLine());
    OXBOW_ASSIGN_OR_RETURN(const std::string_view name, TakeLine());
    const std::string_view global =
        heap_.Keep(absl::StrCat(std::string(module), " ", std::string(name)));
    OXBOW_RETURN_IF_ERROR(calls_.Allow(global));
    return Push({.kind = Kind::kGlobal, .text = global});
  }

  absl::Status Reduce() {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<PickleValue*> call, Pop(2));
    if (call[0]->kind != Kind::kGlobal || call[1]->kind != Kind::kTuple) {
      return Malformed("it calls what is no function");
    }
    OXBOW_ASSIGN_OR_RETURN(PickleValue* const result, calls_.Call(call[0]->text, *call[1], heap_));
    stack_.push_back(result);
    return absl::OkStatus();
  }

  // Attributes of a dict, such as the version numbers that a state dict carries, mean nothing here.
  absl::Status Build() {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<PickleValue*> build, Pop(2));
    if (build[0]->kind != Kind::kDict) return Malformed("it gives attributes to what is no dict");
    stack_.push_back(build[0]);
    return absl::OkStatus();
  }

  absl::Status Persistent() {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<PickleValue*> id, Pop(1));
    OXBOW_ASSIGN_OR_RETURN(PickleValue* const found, calls_.Find(*id[0], heap_));
    stack_.push_back(found);
    return absl::OkStatus();
  }

  const std::string_view bytes_;
  PickleCalls& calls_;
  PickleHeap& heap_;
  uint64_t at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue*> memo_;
};

}  // namespace

absl::StatusOr<PickleValue*> RunPickle(std::string_view bytes, PickleCalls& calls, PickleHeap& heap,
                                       size_t* end) {
  Machine machine(end == nullptr ? bytes : bytes.substr(0, kPickleBytesMax), calls, heap);
  absl::StatusOr<PickleValue*> value = machine.Run();
  if (end != nullptr) *end = machine.at();
  return value;
}

}  // namespace oxbow::io
