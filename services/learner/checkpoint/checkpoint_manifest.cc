// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

using nlohmann::json;
constexpr char kHash[] = "sha256";
constexpr size_t kDigits = 64;

// Where the digits of the manifest's own hash begin; npos, if it has none. A file's hash stands
// further in, and no text in JSON has a line break.
size_t OwnHash(const std::string& text) {
  constexpr std::string_view kLine = "\n  \"sha256\": \"";
  const size_t at = text.find(kLine);
  return at == text.npos ? at : at + kLine.size();
}

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError(absl::StrCat("manifest is corrupt: ", what));
}

// JSON has no other numbers.
json Finite(const std::map<std::string, double>& numbers) {
  json object = json::object();
  for (const auto& [name, number] : numbers) {
    if (std::isfinite(number)) object[name] = number;
  }
  return object;
}

// {"settled": [[prompt, successes, failures, step]...], "recent": the same of single groups}
json SuccessToJson(const rl::SuccessRecord& known) {
  json settled = json::array();
  for (const auto& [prompt, evidence] : known.settled()) {
    settled.push_back({prompt.value, evidence.successes, evidence.failures, evidence.step.value});
  }
  json recent = json::array();
  for (const rl::GroupOutcome& one : known.recent()) {
    recent.push_back({one.prompt.value, one.successes, one.failures, one.step.value});
  }
  return {{"settled", settled}, {"recent", recent}};
}

// {"2": the prompts that were seen once, at level 2, "0_5": those from level 0 to level 5}: numbers
// with spaces between them.
json ProgressToJson(const rl::PromptProgress& progress) {
  std::map<std::string, std::string> cells;
  for (const auto& [prompt, levels] : progress.prompts()) {
    std::string& cell = cells[levels.again ? absl::StrCat(levels.first, "_", levels.latest)
                                           : absl::StrCat(levels.first)];
    absl::StrAppend(&cell, cell.empty() ? "" : " ", prompt.value);
  }
  return cells;
}

json StateToJson(const RunState& state) {
  json object = {{"committed_steps", state.committed_steps},
                 {"policy_version", state.policy_version},
                 {"epoch", state.epoch},
                 {"prompt_pass", state.prompts.pass},
                 {"prompts_taken", state.prompts.taken},
                 {"config_sha256", state.config_sha256},
                 {"buffer_checkpoint", state.buffer_checkpoint},
                 {"replay_need", state.reuse.need},
                 {"replay_success_rate", state.reuse.success_rate},
                 {"prompts_sha256", state.prompts_sha256},
                 {"model_sha256", state.model_sha256},
                 {"reward_identities", state.reward_identities},
                 {"evaluated", Finite(state.evaluated)}};
  if (std::isfinite(state.wall_seconds)) object["wall_seconds"] = state.wall_seconds;
  if (std::isfinite(state.best_reward)) object["best_reward"] = state.best_reward;
  if (!state.reuse.earlier.empty()) object["replay_need_before"] = state.reuse.earlier;
  if (!state.run_uid.empty()) object["run_uid"] = state.run_uid;
  if (!state.owed_evaluations.empty()) object["owed_evaluations"] = state.owed_evaluations;
  if (!state.known.empty()) object["prompt_success"] = SuccessToJson(state.known);
  if (!state.progress.prompts().empty()) object["prompt_levels"] = ProgressToJson(state.progress);
  return object;
}

bool Fits(const json& value, uint64_t) { return value.is_number_unsigned(); }
bool Fits(const json& value, double) { return value.is_number(); }
bool Fits(const json& value, const std::string&) { return value.is_string(); }

// Reads the values of an object; a key that is not there leaves its value as it is.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  template <typename T>
  Reader& Read(const char* key, T& value) {
    const auto found = object_.find(key);
    if (found == object_.end() || !status_.ok()) return *this;
    if (Fits(*found, value)) {
      value = found->template get<T>();
    } else {
      status_ = Corrupt(absl::StrCat(key, " is ", found->dump().substr(0, 40)));
    }
    return *this;
  }

  const absl::Status& status() const { return status_; }

 private:
  const json& object_;
  absl::Status status_;
};

// A text or a number for each name; a key that is not there leaves none.
template <typename T>
absl::Status ReadNamed(const json& object, const char* key, std::map<std::string, T>& values) {
  const json given = object.value(key, json::object());
  if (!given.is_object()) return Corrupt(key);
  for (const auto& [name, value] : given.items()) {
    if (!Fits(value, T())) return Corrupt(absl::StrCat(key, ": ", name));
    values[name] = value.template get<T>();
  }
  return absl::OkStatus();
}

// Rows of a list in "prompt_success"; the steps of single groups never fall.
absl::StatusOr<std::vector<rl::GroupOutcome>> SuccessRows(const json& object, const char* key) {
  const json rows = object.value(key, json::array());
  if (!rows.is_array()) return Corrupt(key);
  std::vector<rl::GroupOutcome> found;
  for (const json& row : rows) {
    if (!row.is_array() || row.size() != 4 || !Fits(row[0], uint64_t{}) || !Fits(row[1], 0.0) ||
        !Fits(row[2], 0.0) || !Fits(row[3], uint64_t{})) {
      return Corrupt(absl::StrCat(key, ": ", JsonText(row).substr(0, 40)));
    }
    found.push_back({.step = LearnerStep(row[3].get<uint64_t>()),
                     .prompt = PromptId(row[0].get<uint64_t>()),
                     .successes = row[1].get<double>(),
                     .failures = row[2].get<double>()});
    const bool counts = found.back().successes >= 0 && found.back().failures >= 0;
    if (!counts) return Corrupt(absl::StrCat(key, " has a count below 0"));
  }
  return found;
}

absl::StatusOr<rl::SuccessRecord> SuccessFromJson(const json& object) {
  if (!object.is_object()) return Corrupt("prompt_success");
  OXBOW_ASSIGN_OR_RETURN(const auto settled, SuccessRows(object, "settled"));
  OXBOW_ASSIGN_OR_RETURN(auto recent, SuccessRows(object, "recent"));
  const auto later = [](const auto& a, const auto& b) { return a.step < b.step; };
  if (!std::is_sorted(recent.begin(), recent.end(), later)) return Corrupt("recent: its order");
  rl::SuccessRecord::Evidence evidence;
  for (const rl::GroupOutcome& one : settled) {
    evidence[one.prompt] = {.successes = one.successes, .failures = one.failures, .step = one.step};
  }
  return rl::SuccessRecord(std::move(evidence), std::move(recent));
}

absl::StatusOr<rl::PromptProgress> ProgressFromJson(const json& object) {
  std::map<std::string, std::string> cells;
  OXBOW_RETURN_IF_ERROR(ReadNamed(object, "prompt_levels", cells));
  rl::PromptProgress::Prompts prompts;
  for (const auto& [name, text] : cells) {
    const std::vector<std::string> ends = absl::StrSplit(name, '_');
    rl::PromptLevels levels{.again = ends.size() == 2};
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &levels.first) ||
        !absl::SimpleAtoi(ends.back(), &levels.latest) ||
        std::max(levels.first, levels.latest) >= rl::kPromptLevels) {
      return Corrupt(absl::StrCat("prompt_levels: ", name));
    }
    for (const absl::string_view number : absl::StrSplit(text, ' ')) {
      uint64_t id = 0;
      if (!absl::SimpleAtoi(number, &id) || !prompts.emplace(PromptId(id), levels).second) {
        return Corrupt(absl::StrCat("prompt_levels ", name, ": ", number));
      }
    }
  }
  return rl::PromptProgress(std::move(prompts));
}

// Steps in order, none after the checkpoint's.
absl::Status ReadOwed(const json& object, RunState& state) {
  const json steps = object.value("owed_evaluations", json::array());
  if (!steps.is_array()) return Corrupt("owed_evaluations");
  for (const json& step : steps) {
    const bool later =
        state.owed_evaluations.empty() ||
        (Fits(step, uint64_t{}) && step.get<uint64_t>() > state.owed_evaluations.back());
    if (!Fits(step, uint64_t{}) || !later || step.get<uint64_t>() > state.committed_steps) {
      return Corrupt(absl::StrCat("owed_evaluations: ", JsonText(step).substr(0, 40)));
    }
    state.owed_evaluations.push_back(step.get<uint64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadNeedBefore(const json& object, RunState& state) {
  const json needs = object.value("replay_need_before", json::array());
  if (!needs.is_array()) return Corrupt("replay_need_before");
  for (const json& need : needs) {
    if (!Fits(need, double{})) {
      return Corrupt(absl::StrCat("replay_need_before: ", JsonText(need).substr(0, 40)));
    }
    state.reuse.earlier.push_back(need.get<double>());
  }
  return absl::OkStatus();
}

absl::StatusOr<RunState> StateFromJson(const json& object) {
  RunState state;
  Reader reader(object);
  reader.Read("committed_steps", state.committed_steps)
      .Read("policy_version", state.policy_version)
      .Read("epoch", state.epoch)
      .Read("run_uid", state.run_uid)
      .Read("prompt_pass", state.prompts.pass)
      .Read("prompts_taken", state.prompts.taken)
      .Read("config_sha256", state.config_sha256)
      .Read("buffer_checkpoint", state.buffer_checkpoint)
      .Read("replay_need", state.reuse.need)
      .Read("replay_success_rate", state.reuse.success_rate)
      .Read("wall_seconds", state.wall_seconds)
      .Read("best_reward", state.best_reward);
  OXBOW_RETURN_IF_ERROR(reader.status());
  // It names a directory of copies.
  if (!state.run_uid.empty() && !IsPlainName(state.run_uid)) {
    return Corrupt(absl::StrCat("run_uid ", state.run_uid));
  }
  OXBOW_RETURN_IF_ERROR(ReadNamed(object, "prompts_sha256", state.prompts_sha256));
  OXBOW_RETURN_IF_ERROR(ReadNamed(object, "model_sha256", state.model_sha256));
  OXBOW_RETURN_IF_ERROR(ReadNamed(object, "reward_identities", state.reward_identities));
  OXBOW_RETURN_IF_ERROR(ReadNamed(object, "evaluated", state.evaluated));
  OXBOW_RETURN_IF_ERROR(ReadOwed(object, state));
  OXBOW_RETURN_IF_ERROR(ReadNeedBefore(object, state));
  OXBOW_ASSIGN_OR_RETURN(state.known,
                         SuccessFromJson(object.value("prompt_success", json::object())));
  OXBOW_ASSIGN_OR_RETURN(state.progress, ProgressFromJson(object));
  return state;
}

absl::StatusOr<std::map<std::string, FileDigest>> FilesFromJson(const json& object) {
  std::map<std::string, FileDigest> files;
  for (const auto& [name, properties] : object.items()) {
    if (!IsPlainName(name)) return Corrupt(absl::StrCat("file name ", name));
    if (!properties.is_object()) return Corrupt(absl::StrCat("files: ", name));
    FileDigest digest;
    Reader reader(properties);
    reader.Read("sha256", digest.sha256).Read("bytes", digest.bytes);
    OXBOW_RETURN_IF_ERROR(Annotate(reader.status(), name));
    files[name] = digest;
  }
  return files;
}

// Whether the text has the hash that it says; one of an older version says none.
absl::Status CheckHash(const json& manifest, const std::string& text) {
  const auto found = manifest.find(kHash);
  if (found == manifest.end()) return absl::OkStatus();
  if (!found->is_string()) return Corrupt("its hash");
  const std::string hash = found->get<std::string>();
  const size_t at = OwnHash(text);
  if (hash.size() != kDigits || at == text.npos || text.compare(at, kDigits, hash) != 0) {
    return Corrupt("its hash");
  }
  std::string covered = text;
  covered.replace(at, kDigits, kDigits, '0');
  return Sha256Hex(covered) == hash ? absl::OkStatus() : Corrupt("its hash does not fit");
}

}  // namespace

std::string ManifestText(const CheckpointManifest& manifest) {
  json files = json::object();
  for (const auto& [name, digest] : manifest.files) {
    files[name] = {{"sha256", digest.sha256}, {"bytes", digest.bytes}};
  }
  const std::string zeros(kDigits, '0');
  const json object = {{"state", StateToJson(manifest.state)}, {"files", files}, {kHash, zeros}};
  std::string text = JsonText(object, 2) + "\n";
  return text.replace(OwnHash(text), kDigits, Sha256Hex(text));
}

absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text) {
  const json object = ParseJson(text);
  if (!object.is_object()) return Corrupt("no JSON object");
  OXBOW_RETURN_IF_ERROR(CheckHash(object, text));
  const auto state = object.find("state");
  const auto files = object.find("files");
  if (state == object.end() || !state->is_object()) return Corrupt("state");
  if (files == object.end() || !files->is_object()) return Corrupt("files");
  CheckpointManifest manifest;
  OXBOW_ASSIGN_OR_RETURN(manifest.state, StateFromJson(*state));
  OXBOW_ASSIGN_OR_RETURN(manifest.files, FilesFromJson(*files));
  return manifest;
}

}  // namespace oxbow::learner
