// SPDX-License-Identifier: Apache-2.0
#include "run/stop_record.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace oxbow::run {
namespace {

constexpr char kFile[] = "stopped.json";
constexpr uint64_t kBytesMax = 1 << 16;

}  // namespace

absl::Status WriteStop(const std::filesystem::path& run_dir, const StopRecord& stop) {
  const nlohmann::ordered_json json = {{"step", stop.step}, {"reason", stop.reason}};
  return WriteFileAtomically(run_dir / kFile, json.dump() + "\n");
}

std::optional<StopRecord> ReadStop(const std::filesystem::path& run_dir) {
  const auto text = ReadFile(run_dir / kFile, kBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step"), reason = json.find("reason");
  if (step == json.end() || !step->is_number_unsigned()) return std::nullopt;
  if (reason == json.end() || !reason->is_string()) return std::nullopt;
  return StopRecord{step->get<uint64_t>(), reason->get<std::string>()};
}

void RemoveStop(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  std::filesystem::remove(run_dir / kFile, ignored);
}

}  // namespace oxbow::run
