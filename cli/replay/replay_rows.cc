// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_rows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/first_part.h"
#include "cli/terminal.h"
#include "io/picture_file.h"
#include "rpc/convert.h"

namespace oxbow::cli {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson Number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

std::string ShapeText(const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) return "none";
  std::string type = v1::DType_Name(tensor.dtype());
  return absl::StrCat(type.substr(type.find('_') + 1), " [", absl::StrJoin(tensor.shape(), ", "),
                      "]");
}

OrderedJson TensorJson(const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) return nullptr;
  const std::string type = v1::DType_Name(tensor.dtype());
  return {{"dtype", type.substr(type.find('_') + 1)},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
}

template <typename List>
OrderedJson NumbersJson(const List& values) {
  OrderedJson json = OrderedJson::array();
  for (const auto value : values) json.push_back(Number(static_cast<double>(value)));
  return json;
}

OrderedJson RewardsJson(const v1::Trajectory& trajectory) {
  OrderedJson rewards = OrderedJson::object();
  for (const v1::NamedValue& reward : trajectory.rewards()) {
    rewards[reward.name()] = Number(reward.value());
  }
  return rewards;
}

OrderedJson TrajectoryJson(const v1::Trajectory& trajectory) {
  return {
      {"sample", trajectory.sample()},
      {"reward", trajectory.reward_failed() ? OrderedJson(nullptr) : Number(trajectory.reward())},
      {"rewards", RewardsJson(trajectory)},
      {"first_latent", trajectory.first_latent()},
      {"latents", TensorJson(trajectory.latents())},
      {"log_prob", NumbersJson(trajectory.log_prob())},
      {"sde", std::vector<bool>(trajectory.sde().begin(), trajectory.sde().end())},
      {"behaviour_version", std::vector<uint64_t>(trajectory.behaviour_version().begin(),
                                                  trajectory.behaviour_version().end())},
      {"schedule", std::to_string(trajectory.schedule_id())},
      {"group_distance", Number(trajectory.group_distance())},
      {"duplicate_share", Number(trajectory.duplicate_share())}};
}

std::string Line(const char* name, const std::string& value) {
  return absl::StrFormat("%-14s %s\n", name, value);
}

// One row per step: where it starts, whether it is stochastic, its log-prob and weights.
std::string StepsText(const v1::ReplayEntry& entry) {
  const v1::Trajectory& trajectory = entry.trajectory();
  const int steps = trajectory.log_prob_size();
  if (steps == 0) return "";
  std::string text =
      absl::StrFormat("%6s %10s %5s %12s %9s\n", "step", "sigma", "sde", "log-prob", "version");
  for (int i = 0; i < steps; ++i) {
    const bool sde = i < trajectory.sde_size() && trajectory.sde(i);
    absl::StrAppendFormat(
        &text, "%6d %10s %5s %12s %9s\n", i,
        i < entry.sigmas_size() ? absl::StrFormat("%.6f", entry.sigmas(i)) : "-",
        sde ? "yes" : "no", sde ? absl::StrFormat("%.6f", trajectory.log_prob(i)) : "-",
        i < trajectory.behaviour_version_size() ? absl::StrCat(trajectory.behaviour_version(i))
                                                : "-");
  }
  return text;
}

// In a group the sample stands before the index.
std::string LatentsText(const std::vector<LatentFacts>& latents, bool group) {
  if (latents.empty()) return "";
  std::string text = absl::StrFormat("%8s %10s %10s %10s\n", "latent", "min", "mean", "max");
  for (const LatentFacts& latent : latents) {
    const std::string of = group ? absl::StrCat(latent.sample, ":") : "";
    absl::StrAppendFormat(&text, "%8s %10.4f %10.4f %10.4f%s\n",
                          absl::StrCat(of, "x", latent.index), latent.min, latent.mean, latent.max,
                          latent.finite ? "" : "  NOT FINITE");
  }
  return text;
}

// The oldest policy version that took a step of the entry's trajectories.
std::optional<uint64_t> OldestVersion(const v1::ReplayEntry& entry) {
  std::optional<uint64_t> oldest;
  const auto look = [&](const v1::Trajectory& trajectory) {
    for (const uint64_t version : trajectory.behaviour_version()) {
      oldest = std::min(oldest.value_or(version), version);
    }
  };
  look(entry.trajectory());
  for (const v1::Trajectory& member : entry.group().trajectories()) look(member);
  return oldest;
}

// The number that a row is ordered by; larger is earlier. Unknown is last in either direction.
std::optional<double> RowNumberOf(const ReplayRow& row, const std::string& key) {
  if (key == "reward") return row.reward;
  if (key == "priority") return row.priority;
  if (key == "age") return static_cast<double>(row.age);
  if (key == "uses") return static_cast<double>(row.uses);
  if (key == "staleness") return row.staleness;
  return static_cast<double>(row.bytes);
}

std::string Cell(const std::optional<double>& value, int digits) {
  return value.has_value() ? absl::StrFormat("%.*f", digits, *value) : "-";
}

}  // namespace

nlohmann::ordered_json RowJson(const ReplayRow& row) {
  OrderedJson json = {
      {"entry", std::to_string(row.entry)},
      {"prompt", row.prompt},
      {"reward", Number(row.reward)},
      {"priority", row.priority.has_value() ? Number(*row.priority) : OrderedJson(nullptr)},
      {"birth_step", row.birth},
      {"age_steps", row.age},
      {"uses", row.uses}};
  json["last_used_step"] = row.uses > 0 ? OrderedJson(row.last_used) : OrderedJson(nullptr);
  json["staleness_steps"] =
      row.staleness.has_value() ? Number(*row.staleness) : OrderedJson(nullptr);
  json["bytes"] = row.bytes;
  return json;
}

nlohmann::ordered_json EntryJson(const v1::ReplayEntry& entry, const ReplayRow& row,
                                 const std::vector<LatentFacts>& latents) {
  OrderedJson json = RowJson(row);
  json["table"] = entry.table().empty() ? "best" : entry.table();
  json["group"] = std::to_string(entry.group_id());
  json["prompt_id"] = std::to_string(entry.prompt().id());
  json["metadata"] = entry.prompt().metadata_json();
  json["conditioning"] = OrderedJson::object();
  for (const rpc::PartHeld& part : rpc::PartsOf(entry.conditioning())) {
    json["conditioning"][part.name] = TensorJson(*part.tensor);
  }
  json["sigmas"] = NumbersJson(entry.sigmas());
  json["trajectory"] = TrajectoryJson(entry.trajectory());
  if (entry.has_group()) {
    json["members"] = OrderedJson::array();
    for (const v1::Trajectory& member : entry.group().trajectories()) {
      json["members"].push_back(TrajectoryJson(member));
    }
  }
  const std::string& picture = entry.trajectory().picture();
  const auto seen = io::FactsOfPicture(picture);
  json["picture"] = !seen ? OrderedJson(nullptr)
                          : OrderedJson({{"format", seen->extension},
                                         {"width", seen->width},
                                         {"height", seen->height},
                                         {"bytes", picture.size()}});
  json["latents"] = OrderedJson::array();
  for (const LatentFacts& latent : latents) {
    json["latents"].push_back({{"sample", latent.sample},
                               {"index", latent.index},
                               {"min", Number(latent.min)},
                               {"mean", Number(latent.mean)},
                               {"max", Number(latent.max)},
                               {"finite", latent.finite}});
  }
  return json;
}

std::string EntryText(const v1::ReplayEntry& entry, const ReplayRow& row,
                      const std::vector<LatentFacts>& latents) {
  const v1::Trajectory& trajectory = entry.trajectory();
  std::string text = Line("entry", absl::StrCat(row.entry));
  text += Line("table", entry.table().empty() ? "best" : entry.table());
  text += Line("prompt", absl::StrCat(entry.prompt().text(), "  (id ", entry.prompt().id(), ")"));
  if (!entry.prompt().metadata_json().empty()) {
    text += Line("metadata", entry.prompt().metadata_json());
  }
  text += Line("reward", absl::StrFormat("%.6f", row.reward));
  for (const v1::NamedValue& reward : trajectory.rewards()) {
    text += Line("", absl::StrFormat("%s %.6f", reward.name(), reward.value()));
  }
  text +=
      Line("priority", row.priority.has_value() ? absl::StrFormat("%.6f (decayed)", *row.priority)
                                                : "unknown: name the run's config with --config");
  text += Line("age", absl::StrCat(row.age, " steps (born in step ", row.birth, ", group ",
                                   entry.group_id(), ", sample ", trajectory.sample(), ")"));
  text +=
      Line("uses",
           row.uses == 0 ? "none" : absl::StrCat(row.uses, ", the last in step ", row.last_used));
  if (row.staleness.has_value()) {
    text += Line("staleness", absl::StrFormat("%.1f steps", *row.staleness));
  }
  text += Line("bytes", BytesText(row.bytes));
  const auto seen = io::FactsOfPicture(trajectory.picture());
  text +=
      Line("picture", seen ? absl::StrCat(seen->extension, " ", seen->width, " x ", seen->height,
                                          ", ", BytesText(trajectory.picture().size()))
                           : "none");
  text += Line("latents",
               absl::StrCat(ShapeText(trajectory.latents()), " from x", trajectory.first_latent()));
  const std::vector<rpc::PartHeld> parts = rpc::PartsOf(entry.conditioning());
  text += Line("conditioning", absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
                 absl::StrAppend(out, part.name, " ", ShapeText(*part.tensor));
               }));
  text += Line("schedule", absl::StrCat(trajectory.schedule_id()));
  if (entry.has_group()) {
    text += Line("group of", absl::StrCat(entry.group().trajectories_size(), " trajectories"));
  }
  return text + StepsText(entry) + LatentsText(latents, entry.has_group());
}

ReplayRow RowOf(const v1::ReplayEntry& entry, const RowContext& context) {
  ReplayRow row{.entry = entry.entry_id(),
                .prompt = entry.prompt().text(),
                .reward = entry.raw_reward(),
                .priority = std::nullopt,
                .birth = entry.birth_step(),
                .age = context.step - std::min(context.step, entry.birth_step()),
                .uses = entry.uses(),
                .last_used = entry.last_used_step(),
                .staleness = std::nullopt,
                .bytes = entry.stored_bytes()};
  if (context.priority_known) row.priority = entry.priority();
  if (const auto version = OldestVersion(entry); version.has_value() && context.updates > 0) {
    row.staleness =
        std::max(0.0, static_cast<double>(context.step) -
                          static_cast<double>(*version) / static_cast<double>(context.updates));
  }
  return row;
}

absl::StatusOr<TopRows> TopRows::By(const std::string& key, bool reverse, uint64_t limit) {
  const bool known = std::any_of(std::begin(kRowKeys), std::end(kRowKeys),
                                 [&](const char* name) { return key == name; });
  if (!known) return absl::InvalidArgumentError(absl::StrCat("not a column to sort by: ", key));
  return TopRows(key, reverse, std::max<uint64_t>(1, limit));
}

bool TopRows::Before(const ReplayRow& a, const ReplayRow& b) const {
  if (key_ == "id") return reverse_ ? a.entry > b.entry : a.entry < b.entry;
  if (key_ == "prompt") {
    if (a.prompt != b.prompt) return reverse_ ? a.prompt > b.prompt : a.prompt < b.prompt;
    return a.entry < b.entry;
  }
  const std::optional<double> left = RowNumberOf(a, key_);
  const std::optional<double> right = RowNumberOf(b, key_);
  if (left.has_value() != right.has_value()) return left.has_value();
  if (left.has_value() && *left != *right) return reverse_ ? *left < *right : *left > *right;
  return a.entry < b.entry;
}

void TopRows::Add(ReplayRow row) {
  ++seen_;
  rows_.push_back(std::move(row));
  if (rows_.size() >= 2 * limit_) Trim();
}

void TopRows::Trim() {
  std::sort(rows_.begin(), rows_.end(),
            [this](const ReplayRow& a, const ReplayRow& b) { return Before(a, b); });
  if (rows_.size() > limit_) rows_.erase(rows_.begin() + static_cast<int64_t>(limit_), rows_.end());
}

std::vector<ReplayRow> TopRows::Take() && {
  Trim();
  return std::move(rows_);
}

std::string RowsText(const std::vector<ReplayRow>& rows, size_t prompt_width) {
  std::string text = absl::StrFormat("%20s %8s %8s %6s %5s %6s %10s  %s\n", "entry", "reward",
                                     "priority", "age", "uses", "stale", "bytes", "prompt");
  for (const ReplayRow& row : rows) {
    absl::StrAppendFormat(&text, "%20d %8.4f %8s %6d %5d %6s %10s  %s\n", row.entry, row.reward,
                          Cell(row.priority, 4), row.age, row.uses, Cell(row.staleness, 1),
                          BytesText(row.bytes), FirstPart(row.prompt, prompt_width));
  }
  return text;
}

}  // namespace oxbow::cli
