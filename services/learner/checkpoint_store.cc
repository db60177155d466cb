#include "services/learner/checkpoint_store.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

using nlohmann::json;
constexpr char kManifest[] = "manifest.json";

json StateToJson(const RunState& state) {
  return {{"committed_steps", state.committed_steps},
          {"policy_version", state.policy_version},
          {"epoch", state.epoch},
          {"prompt_pass", state.prompts.pass},
          {"prompts_taken", state.prompts.taken},
          {"config_sha256", state.config_sha256},
          {"buffer_checkpoint", state.buffer_checkpoint},
          {"wall_seconds", state.wall_seconds},
          {"best_reward", state.best_reward}};
}

RunState StateFromJson(const json& object) {
  RunState state;
  state.committed_steps = object.value("committed_steps", uint64_t{0});
  state.policy_version = object.value("policy_version", uint64_t{0});
  state.epoch = object.value("epoch", uint64_t{0});
  state.prompts = {.pass = object.value("prompt_pass", uint64_t{0}),
                   .taken = object.value("prompts_taken", uint64_t{0})};
  state.config_sha256 = object.value("config_sha256", "");
  state.buffer_checkpoint = object.value("buffer_checkpoint", "");
  state.wall_seconds = object.value("wall_seconds", 0.0);
  state.best_reward = object.value("best_reward", 0.0);
  return state;
}

// The checkpoints in a directory, newest first.
std::vector<std::filesystem::path> Listed(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "step_") && entry.path().extension().empty())
      paths.push_back(entry.path());
  }
  std::sort(paths.rbegin(), paths.rend());
  return paths;
}

}  // namespace

std::string CheckpointName(uint64_t committed_steps) {
  return absl::StrFormat("step_%06d", committed_steps);
}

CheckpointStore::CheckpointStore(std::filesystem::path directory, uint32_t keep)
    : directory_(std::move(directory)), keep_(std::max(keep, 1u)) {}

absl::StatusOr<uint64_t> CheckpointStore::Write(const Checkpoint& checkpoint) const {
  const std::string name = CheckpointName(checkpoint.state.committed_steps);
  const std::filesystem::path target = directory_ / name;
  const std::filesystem::path temporary = directory_ / (name + ".tmp");
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  std::filesystem::create_directories(temporary, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot create directory: ", error.message(), ": ", temporary.string()));
  }
  json files = json::object();
  uint64_t bytes = 0;
  absl::Status status;
  for (const auto& [file, content] : checkpoint.files) {
    files[file] = {{"sha256", Sha256Hex(content)}, {"bytes", content.size()}};
    bytes += content.size();
    if (status.ok()) status = WriteFileAtomically(temporary / file, content);
  }
  const json manifest = {{"state", StateToJson(checkpoint.state)}, {"files", files}};
  if (status.ok()) status = WriteFileAtomically(temporary / kManifest, manifest.dump(2) + "\n");
  if (!status.ok()) {
    std::filesystem::remove_all(temporary, error);
    return Annotate(status, "checkpoint");
  }
  std::filesystem::remove_all(target, error);
  std::filesystem::rename(temporary, target, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot rename: ", error.message(), ": ", target.string()));
  }
  // Names the newest checkpoint for people; writing this file also makes the rename durable.
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory_ / "newest", name + "\n"));
  OXBOW_RETURN_IF_ERROR(Annotate(Load(target).status(), "checkpoint does not read back"));
  Prune(target);
  return bytes;
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(const std::filesystem::path& path) const {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path / kManifest));
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("state") || !manifest.contains("files") ||
      !manifest["state"].is_object() || !manifest["files"].is_object()) {
    return absl::DataLossError(absl::StrCat("checkpoint manifest is corrupt: ", path.string()));
  }
  Checkpoint checkpoint{.state = StateFromJson(manifest["state"]), .files = {}};
  for (const auto& [name, properties] : manifest["files"].items()) {
    OXBOW_ASSIGN_OR_RETURN(std::string content, ReadFile(path / name));
    const bool fits =
        properties.is_object() && properties.value("sha256", "") == Sha256Hex(content);
    if (!fits)
      return absl::DataLossError(
          absl::StrCat("checkpoint file is corrupt: ", (path / name).string()));
    checkpoint.files[name] = std::move(content);
  }
  return checkpoint;
}

bool CheckpointStore::empty() const { return Listed(directory_).empty(); }

absl::StatusOr<Checkpoint> CheckpointStore::LoadNewest() const {
  const std::vector<std::filesystem::path> present = Listed(directory_);
  for (const std::filesystem::path& path : present) {
    absl::StatusOr<Checkpoint> checkpoint = Load(path);
    if (checkpoint.ok()) return checkpoint;
    OXBOW_LOG(Warning) << "checkpoint is skipped, an older one is tried"
                       << Field("path", path.string())
                       << Field("error", std::string(checkpoint.status().message()));
  }
  if (present.empty()) {
    return absl::NotFoundError(absl::StrCat("no checkpoint in ", directory_.string()));
  }
  return absl::DataLossError(
      absl::StrCat("every checkpoint is damaged (", present.size(), "): ", directory_.string()));
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadAt(uint64_t committed_steps) const {
  const std::filesystem::path target = directory_ / CheckpointName(committed_steps);
  const std::vector<std::filesystem::path> present = Listed(directory_);
  if (std::find(present.begin(), present.end(), target) == present.end()) {
    std::vector<std::string> names;
    for (const auto& path : present) names.push_back(path.filename().string());
    return absl::NotFoundError(absl::StrCat("no checkpoint of step ", committed_steps,
                                            "; there is ",
                                            names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  return Load(target);
}

absl::StatusOr<RunState> CheckpointStore::RollBack(uint64_t committed_steps) const {
  const std::string name = CheckpointName(committed_steps);
  const std::filesystem::path target = directory_ / name;
  OXBOW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, LoadAt(committed_steps));
  for (const std::filesystem::path& path :
       Listed(directory_)) {  // Newest first: a crash leaves a gapless history.
    if (path == target) break;
    std::string aside = path.filename().string();
    aside.replace(0, std::strlen("step"), "rolled_back");
    std::error_code error;
    std::filesystem::remove_all(directory_ / aside, error);
    std::filesystem::rename(path, directory_ / aside, error);
    if (error) {
      return absl::InternalError(
          absl::StrCat("cannot rename: ", error.message(), ": ", path.string()));
    }
  }
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory_ / "newest", name + "\n"));
  return checkpoint.state;
}

// If the run resumed from an older checkpoint because a newer one was damaged, the newer one
// belongs to a discarded history.
void CheckpointStore::Prune(const std::filesystem::path& written) const {
  uint32_t kept = 0;
  for (const std::filesystem::path& path : Listed(directory_)) {
    if (path <= written && ++kept <= keep_) continue;
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
}

}  // namespace oxbow::learner
