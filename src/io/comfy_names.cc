// SPDX-License-Identifier: Apache-2.0
#include "io/comfy_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/lora_file.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kNumber = "{}";
constexpr char kNative[] = "diffusion_model.";
constexpr char kComfyDown[] = ".lora_A.weight";
constexpr char kComfyUp[] = ".lora_B.weight";

struct Place {
  const NativeModule* module = nullptr;
  std::string number;
};

std::optional<Place> PlaceOf(const ComfyNames& names, std::string_view module) {
  for (const NativeModule& native : names.modules) {
    for (const std::string_view part : native.parts) {
      if (const auto number = NumberIn(part, module)) return Place{&native, *number};
    }
  }
  return std::nullopt;
}

// The second half of the rows before the first.
TensorBytes HalvesSwapped(TensorBytes tensor) {
  const size_t half = tensor.data.size() / 2;
  std::rotate(tensor.data.begin(), tensor.data.begin() + static_cast<ptrdiff_t>(half),
              tensor.data.end());
  return tensor;
}

// The rows of a part that has no adapter, too.
absl::StatusOr<int64_t> ComfyRowsOf(const std::map<std::string, TensorHeader>& base,
                                    const std::string& module) {
  const auto found = base.find(module + ".weight");
  if (found != base.end() && found->second.shape.size() == 2) return found->second.shape[0];
  return absl::FailedPreconditionError(absl::StrCat(
      "ComfyUI joins a module with others, and the base model has none such: ", module));
}

// A below each other, B in blocks. Those without an adapter have zeros.
absl::Status Join(const Place& place, const std::map<std::string, TensorHeader>& base,
                  const std::map<std::string, TensorBytes>& folded, const std::string& name,
                  std::map<std::string, TensorBytes>& out) {
  struct Part {
    const TensorBytes* a = nullptr;
    const TensorBytes* b = nullptr;
    int64_t rows = 0;
  };
  std::vector<Part> parts;
  int64_t rank = 0;
  int64_t rows = 0;
  for (const std::string_view pattern : place.module->parts) {
    const std::string module = WithNumber(pattern, place.number);
    const auto a = folded.find(module + kComfyDown);
    Part part;
    if (a != folded.end()) {
      part = {&a->second, &folded.at(module + kComfyUp), folded.at(module + kComfyUp).shape[0]};
      rank += a->second.shape[0];
    } else {
      OXBOW_ASSIGN_OR_RETURN(part.rows, ComfyRowsOf(base, module));
    }
    rows += part.rows;
    parts.push_back(part);
  }
  TensorBytes a{.dtype = DType::kF32, .shape = {rank, 0}};
  TensorBytes b{.dtype = DType::kF32, .shape = {rows, rank}};
  b.data.assign(static_cast<size_t>(rows * rank) * sizeof(float), '\0');
  int64_t row = 0;
  int64_t column = 0;
  for (const Part& part : parts) {
    if (part.a != nullptr) {
      const int64_t own = part.a->shape[0];
      const size_t width = static_cast<size_t>(own) * sizeof(float);
      a.shape[1] = part.a->shape[1];
      a.data += part.a->data;
      for (int64_t i = 0; i < part.rows; ++i) {
        part.b->data.copy(
            b.data.data() + static_cast<size_t>((row + i) * rank + column) * sizeof(float), width,
            static_cast<size_t>(i) * width);
      }
      column += own;
    }
    row += part.rows;
  }
  out[name + kComfyDown] = std::move(a);
  out[name + kComfyUp] = place.module->halves_swapped ? HalvesSwapped(std::move(b)) : std::move(b);
  return absl::OkStatus();
}

}  // namespace

std::optional<std::string> NumberIn(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string_view::npos) {
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, at);
  const std::string_view after = pattern.substr(at + kNumber.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string number(name.substr(before.size(), name.size() - before.size() - after.size()));
  const bool digits = std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  return digits ? std::optional(number) : std::nullopt;
}

std::string WithNumber(std::string_view pattern, std::string_view number) {
  std::string name(pattern);
  const size_t at = name.find(kNumber);
  if (at != std::string::npos) name.replace(at, kNumber.size(), number);
  return name;
}

absl::StatusOr<std::map<std::string, TensorBytes>> ComfyTensors(
    std::string_view transformer_class, const std::map<std::string, TensorHeader>& base,
    const LoraExport& lora) {
  const ComfyNames* const names = ComfyNamesOf(transformer_class);
  if (names == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("ComfyUI's names are not known for this network; export --format diffusers: ",
                     std::string(transformer_class)));
  }
  const std::map<std::string, TensorBytes> folded = FoldedTensors(lora);
  std::map<std::string, TensorBytes> out;
  for (const auto& [name, a] : folded) {
    if (!name.ends_with(kComfyDown)) continue;
    const std::string module = name.substr(0, name.size() - std::string_view(kComfyDown).size());
    const std::optional<Place> place = PlaceOf(*names, module);
    const bool diffusers = names->knows == ComfyKnows::kDiffusers;
    if (place && (place->module->native_only || !diffusers)) {
      const std::string native =
          absl::StrCat(kNative, WithNumber(place->module->name, place->number));
      if (!out.contains(native + kComfyDown)) {
        OXBOW_RETURN_IF_ERROR(Join(*place, base, folded, native, out));
      }
      continue;
    }
    if (!place && names->knows == ComfyKnows::kNative) {
      return absl::FailedPreconditionError(
          absl::StrCat("ComfyUI has no name for this module of the network: ", module));
    }
    const std::string alike = (diffusers ? "transformer." : kNative) + module;
    out[alike + kComfyDown] = a;
    out[alike + kComfyUp] = folded.at(module + kComfyUp);
  }
  return out;
}

}  // namespace oxbow::io
