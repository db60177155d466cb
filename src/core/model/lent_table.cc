// SPDX-License-Identifier: Apache-2.0
#include "core/model/lent_table.h"

#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace oxbow::model {
namespace {

constexpr char kTitle[] = "oxbow lent weights 1";
constexpr char kChecked[] = "xxh3 ";
constexpr uint64_t kLentBytesMax = std::numeric_limits<int64_t>::max();

constexpr std::pair<at::ScalarType, const char*> kLentTypes[] = {{at::kFloat, "F32"},
                                                                 {at::kBFloat16, "BF16"}};

const char* LentTypeName(at::ScalarType type) {
  for (const auto& [each, name] : kLentTypes) {
    if (each == type) return name;
  }
  return nullptr;
}

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError(absl::StrCat("the table of lent weights is damaged: ", what));
}

// Takes "KEY VALUE" from the front of the lines.
absl::StatusOr<std::string> TakeField(const std::vector<std::string>& lines, size_t& next,
                                      const std::string& key) {
  const std::string none;
  absl::string_view line = next < lines.size() ? lines[next++] : none;
  if (!absl::ConsumePrefix(&line, key) || !absl::ConsumePrefix(&line, " ")) return Damaged(key);
  return std::string(line);
}

absl::StatusOr<uint64_t> TakeNumber(const std::vector<std::string>& lines, size_t& next,
                                    const std::string& key) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, TakeField(lines, next, key));
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) return Damaged(key);
  return number;
}

// "BF16 512 3x4 blocks.0.weight"; the shape of a number is empty.
absl::StatusOr<std::pair<std::string, LentTensor>> ParseTensor(const std::string& text,
                                                               uint64_t bytes) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 3));
  if (parts.size() != 4) return Damaged(text);
  LentTensor tensor;
  bool known = false;
  for (const auto& [type, name] : kLentTypes) {
    if (parts[0] != name) continue;
    tensor.type = type;
    known = true;
  }
  bool whole = known && absl::SimpleAtoi(parts[1], &tensor.begin);
  for (const absl::string_view size : absl::StrSplit(parts[2], 'x', absl::SkipEmpty())) {
    whole = whole && absl::SimpleAtoi(size, &tensor.shape.emplace_back());
  }
  const std::optional<uint64_t> needs = LentBytes(tensor);
  const bool inside = needs.has_value() && *needs <= bytes && tensor.begin <= bytes - *needs;
  if (!whole || !inside || tensor.begin % kLentStep != 0) return Damaged(text);
  return std::pair(parts[3], std::move(tensor));
}

}  // namespace

std::optional<uint64_t> LentBytes(const LentTensor& tensor) {
  uint64_t bytes = at::elementSize(tensor.type);
  for (const int64_t size : tensor.shape) {
    if (size < 0) return std::nullopt;
    if (size > 0 && bytes > kLentBytesMax / static_cast<uint64_t>(size)) return std::nullopt;
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

absl::StatusOr<LentTable> PlacedTensors(const Shapes& shapes,
                                        const std::map<std::string, at::ScalarType>& types,
                                        const std::vector<std::vector<std::string>>& groups) {
  LentTable table;
  const auto up = [&](uint64_t step) { table.bytes = (table.bytes + step - 1) / step * step; };
  const auto place = [&](const std::string& name) -> absl::Status {
    LentTensor tensor{.type = types.at(name), .shape = shapes.at(name), .begin = table.bytes};
    const std::optional<uint64_t> bytes = LentBytes(tensor);
    if (LentTypeName(tensor.type) == nullptr || !bytes.has_value() ||
        *bytes > kLentBytesMax - kLentAlignment - table.bytes) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor that cannot be lent: ", name));
    }
    table.bytes += *bytes;
    up(kLentStep);
    table.tensors.emplace(name, std::move(tensor));
    return absl::OkStatus();
  };
  for (const std::vector<std::string>& group : groups) {
    for (const std::string& name : group) OXBOW_RETURN_IF_ERROR(place(name));
    up(kLentAlignment);
  }
  for (const auto& [name, shape] : shapes) {
    if (table.tensors.contains(name)) continue;
    OXBOW_RETURN_IF_ERROR(place(name));
    up(kLentAlignment);
  }
  return table;
}

std::string LentText(const LentTable& table) {
  std::string text = absl::StrCat(
      kTitle, "\nmachine ", table.machine, "\ngpu ", table.gpu, "\nlender ", table.lender,
      "\nhandle ", absl::BytesToHexString(table.handle), "\nbytes ", table.bytes, "\n");
  for (const auto& [name, tensor] : table.tensors) {
    absl::StrAppend(&text, "tensor ", LentTypeName(tensor.type), " ", tensor.begin, " ",
                    absl::StrJoin(tensor.shape, "x"), " ", name, "\n");
  }
  return absl::StrCat(text, kChecked, absl::BytesToHexString(Checksum128(text)), "\n");
}

absl::StatusOr<LentTable> ParseLent(std::string_view text) {
  const size_t end = text.rfind(kChecked);
  if (end == std::string_view::npos) return Damaged("it has no end");
  const std::string said(text.substr(0, end));
  if (text.substr(end) != absl::StrCat(kChecked, absl::BytesToHexString(Checksum128(said)), "\n")) {
    return Damaged("its checksum is another");
  }
  std::vector<std::string> lines = absl::StrSplit(said, '\n');
  if (lines.front() != kTitle || !lines.back().empty()) return Damaged("its title is another");
  lines.pop_back();
  LentTable table;
  size_t next = 1;
  OXBOW_ASSIGN_OR_RETURN(table.machine, TakeField(lines, next, "machine"));
  OXBOW_ASSIGN_OR_RETURN(table.gpu, TakeField(lines, next, "gpu"));
  OXBOW_ASSIGN_OR_RETURN(const uint64_t lender, TakeNumber(lines, next, "lender"));
  table.lender = static_cast<pid_t>(lender);
  OXBOW_ASSIGN_OR_RETURN(const std::string handle, TakeField(lines, next, "handle"));
  table.handle = absl::HexStringToBytes(handle);
  OXBOW_ASSIGN_OR_RETURN(table.bytes, TakeNumber(lines, next, "bytes"));
  while (next < lines.size()) {
    OXBOW_ASSIGN_OR_RETURN(const std::string line, TakeField(lines, next, "tensor"));
    OXBOW_ASSIGN_OR_RETURN(auto tensor, ParseTensor(line, table.bytes));
    if (!table.tensors.insert(std::move(tensor)).second) return Damaged("a name comes twice");
  }
  return table;
}

}  // namespace oxbow::model
