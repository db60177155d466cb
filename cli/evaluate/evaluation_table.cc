// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "cli/terminal.h"
#include "io/report/html.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::cli {

namespace {

// Pictures of one chunk with what a scorer is told of them.
struct Chunk {
  std::vector<Pictures> pictures;
  std::vector<reward::Item> items;
  std::vector<size_t> prompt_of;  // The prompt of each item, by its number in the set.
};

// Fills items and prompt_of. kInvalidArgument for a picture that no server would take.
absl::Status List(const std::vector<SetPrompt>& prompts, size_t first, Chunk& chunk) {
  for (size_t i = 0; i < chunk.pictures.size(); ++i) {
    const SetPrompt& prompt = prompts[first + i];
    for (const std::vector<Image8>& frames : chunk.pictures[i]) {
      for (const Image8& frame : frames) OXBOW_RETURN_IF_ERROR(reward::Validate(frame));
      chunk.items.push_back({.prompt = prompt.prompt.text(),
                             .metadata_json = prompt.prompt.metadata_json(),
                             .frames = frames,
                             .group = first + i + 1});
      chunk.prompt_of.push_back(first + i);
    }
  }
  return absl::OkStatus();
}

void AddScores(reward::Scorer& scorer, const Chunk& chunk, RewardValues& values) {
  const auto scores = reward::ScoreItems(scorer, chunk.items);
  for (size_t i = 0; i < scores.size();) {
    const size_t prompt = chunk.prompt_of[i];
    double sum = 0;
    size_t count = 0;
    for (; i < scores.size() && chunk.prompt_of[i] == prompt; ++i) {
      if (scores[i].ok()) {
        sum += scores[i]->value;
        ++count;
      } else if (values.failed++ == 0) {
        values.failure = std::string(scores[i].status().message());
      }
    }
    if (count > 0) values.by_prompt[prompt] = sum / static_cast<double>(count);
  }
}

using nlohmann::ordered_json;
using reward::MeanInterval;

std::string IntervalText(const MeanInterval& interval) {
  return absl::StrFormat("%.4g [%.4g, %.4g]", interval.mean, interval.low, interval.high);
}

// "geneval: 553 prompts, pictures of each: 4, seeds 42; ..."
std::string HeadText(const SetReport& report) {
  return absl::StrFormat(
      "%s: %d prompts, pictures of each: %d, seeds %s; 95 %% intervals by prompt, %d resamples, "
      "bootstrap seed %d",
      report.set.name(), report.prompts, PicturesPerPrompt(report.set),
      absl::StrJoin(report.set.seeds(), ", "), reward::kBootstrapResamples, report.seed);
}

std::vector<std::string> Headings(const SetReport& report) {
  std::vector<std::string> names = {"reward", "group", "prompts", "value"};
  if (report.set.report() == v1::SET_REPORT_TENTHS) names.emplace_back("tenths");
  if (report.evaluations.size() == 2) {
    names.emplace_back("other");
    names.emplace_back("other - value");
  }
  names.emplace_back("identity");
  return names;
}

std::vector<std::string> CellsOf(const SetRow& row, bool with_tenths) {
  std::vector<std::string> cells = {row.reward, row.group, absl::StrCat(row.prompts),
                                    IntervalText(row.value)};
  if (with_tenths) cells.push_back(row.tenths ? absl::StrFormat("%.4g", *row.tenths) : "");
  if (row.other) cells.push_back(IntervalText(*row.other));
  if (row.difference) cells.push_back(IntervalText(*row.difference));
  cells.push_back(row.identity);
  return cells;
}

std::vector<std::vector<std::string>> TableOf(const SetReport& report) {
  std::vector<std::vector<std::string>> table = {Headings(report)};
  for (const SetRow& row : report.rows) {
    table.push_back(CellsOf(row, report.set.report() == v1::SET_REPORT_TENTHS));
  }
  return table;
}

// One line for each reward that could not score some pictures.
std::vector<std::string> FailureLines(const SetReport& report) {
  std::vector<std::string> lines;
  for (const SetValues& evaluation : report.evaluations) {
    for (const RewardValues& values : evaluation.rewards) {
      if (values.failed == 0) continue;
      lines.push_back(absl::StrCat(evaluation.source, ": ", values.failed,
                                   " pictures have no score, the first: ", values.failure));
    }
  }
  return lines;
}

ordered_json JsonOf(const MeanInterval& interval) {
  return {{"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

constexpr char kOverall[] = "overall";
constexpr size_t kParts = 10;

// Groups of the prompts in the order in which they first come.
std::vector<std::string> GroupsOf(const std::vector<SetPrompt>& prompts) {
  std::vector<std::string> groups;
  for (const SetPrompt& prompt : prompts) {
    if (std::find(groups.begin(), groups.end(), prompt.group) == groups.end()) {
      groups.push_back(prompt.group);
    }
  }
  return groups;
}

// Values of one group, prompt by prompt: those that all evaluations have.
struct GroupValues {
  std::string group;
  std::vector<std::vector<double>> of;  // By evaluation.
  std::vector<double> differences;      // Where there are two evaluations.
};

GroupValues ValuesOf(const std::string& group, const std::vector<SetPrompt>& prompts,
                     const std::vector<SetValues>& evaluations, size_t reward, double scale) {
  GroupValues values{.group = group, .of = {}, .differences = {}};
  values.of.resize(evaluations.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].group != group) continue;
    const bool whole = std::ranges::all_of(evaluations, [&](const SetValues& evaluation) {
      return evaluation.rewards[reward].by_prompt[i].has_value();
    });
    if (!whole) continue;
    for (size_t e = 0; e < evaluations.size(); ++e) {
      values.of[e].push_back(scale * *evaluations[e].rewards[reward].by_prompt[i]);
    }
    if (values.of.size() == 2) {
      values.differences.push_back(values.of[1].back() - values.of[0].back());
    }
  }
  return values;
}

// The spread that HPSv2's benchmark prints. Nothing for fewer prompts than parts.
std::optional<double> SpreadOfTenths(const std::vector<double>& values) {
  if (values.size() < kParts) return std::nullopt;
  std::vector<double> means;
  for (size_t part = 0; part < kParts; ++part) {
    const auto at = [&](size_t i) {
      return values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / kParts);
    };
    means.push_back(Mean({at(part), at(part + 1)}));
  }
  return StandardDeviation(means, 0);
}

// One row over these groups.
SetRow RowOver(const std::vector<GroupValues>& groups, const RewardValues& reward,
               const std::string& name, uint64_t seed) {
  SetRow row{.reward = reward.name, .identity = reward.identity, .group = name};
  const auto interval = [&](const auto& values_of) {
    std::vector<std::vector<double>> values;
    for (const GroupValues& group : groups) values.push_back(values_of(group));
    return reward::BootstrapMean(values, seed);
  };
  for (const GroupValues& group : groups) row.prompts += group.of[0].size();
  row.value = interval([](const GroupValues& group) { return group.of[0]; });
  if (groups.front().of.size() == 2) {
    row.other = interval([](const GroupValues& group) { return group.of[1]; });
    row.difference = interval([](const GroupValues& group) { return group.differences; });
  }
  return row;
}

// All values as of one group.
GroupValues Pooled(const std::vector<GroupValues>& groups) {
  GroupValues all{.group = kOverall, .of = {}, .differences = {}};
  all.of.resize(groups.front().of.size());
  for (const GroupValues& group : groups) {
    for (size_t e = 0; e < all.of.size(); ++e) {
      all.of[e].insert(all.of[e].end(), group.of[e].begin(), group.of[e].end());
    }
    all.differences.insert(all.differences.end(), group.differences.begin(),
                           group.differences.end());
  }
  return all;
}

}  // namespace

size_t SetValues::failed() const {
  size_t sum = 0;
  for (const RewardValues& values : rewards) sum += values.failed;
  return sum;
}

absl::StatusOr<SetValues> Evaluate(const std::vector<SetPrompt>& prompts, size_t chunk,
                                   const std::string& source, const PicturesOf& pictures,
                                   const std::vector<std::unique_ptr<reward::Scorer>>& scorers) {
  SetValues evaluation{.source = source, .rewards = {}};
  for (const auto& scorer : scorers) {
    RewardValues values{.name = scorer->facts().name,
                        .identity = scorer->facts().identity,
                        .by_prompt = std::vector<std::optional<double>>(prompts.size())};
    evaluation.rewards.push_back(std::move(values));
  }
  for (size_t first = 0; first < prompts.size(); first += chunk) {
    const size_t last = std::min(first + chunk, prompts.size());
    Chunk part;
    OXBOW_ASSIGN_OR_RETURN(part.pictures, pictures(prompts, first, last));
    OXBOW_CHECK(part.pictures.size() == last - first) << part.pictures.size();
    OXBOW_RETURN_IF_ERROR(List(prompts, first, part));
    for (size_t i = 0; i < scorers.size(); ++i) {
      AddScores(*scorers[i], part, evaluation.rewards[i]);
    }
  }
  return evaluation;
}

SetReport Report(const v1::EvaluationSet& set, const std::vector<SetPrompt>& prompts,
                 std::vector<SetValues> evaluations, uint64_t seed) {
  OXBOW_CHECK(evaluations.size() == 1 || evaluations.size() == 2) << evaluations.size();
  SetReport report{
      .set = set, .prompts = prompts.size(), .seed = seed, .evaluations = {}, .rows = {}};
  const std::vector<std::string> names = GroupsOf(prompts);
  for (size_t r = 0; r < evaluations.front().rewards.size(); ++r) {
    const RewardValues& reward = evaluations.front().rewards[r];
    std::vector<GroupValues> groups;
    for (const std::string& name : names) {
      GroupValues values = ValuesOf(name, prompts, evaluations, r, set.scale());
      if (!values.of[0].empty()) groups.push_back(std::move(values));
    }
    if (groups.empty()) continue;
    for (const GroupValues& group : groups) {
      if (group.group.empty()) continue;  // A prompt of no group counts in the whole.
      report.rows.push_back(RowOver({group}, reward, group.group, seed));
      if (set.report() == v1::SET_REPORT_TENTHS) {
        report.rows.back().tenths = SpreadOfTenths(group.of[0]);
      }
    }
    const bool pooled = set.report() == v1::SET_REPORT_PROMPTS;
    report.rows.push_back(
        RowOver(pooled ? std::vector{Pooled(groups)} : groups, reward, kOverall, seed));
  }
  report.evaluations = std::move(evaluations);
  return report;
}

std::string ReportText(const SetReport& report) {
  std::string text = HeadText(report) + "\n";
  const char* const names[] = {"value", "other"};
  for (size_t i = 0; i < report.evaluations.size(); ++i) {
    absl::StrAppend(&text, names[i], ": ", report.evaluations[i].source, "\n");
  }
  absl::StrAppend(&text, TableText(TableOf(report)));
  for (const std::string& line : FailureLines(report)) absl::StrAppend(&text, line, "\n");
  return text;
}

std::string ReportJson(const SetReport& report) {
  ordered_json json = {
      {"set", report.set.name()},
      {"prompts", report.prompts},
      {"pictures_per_prompt", PicturesPerPrompt(report.set)},
      {"seeds", std::vector<uint64_t>(report.set.seeds().begin(), report.set.seeds().end())},
      {"scale", report.set.scale()},
      {"bootstrap", {{"resamples", reward::kBootstrapResamples}, {"seed", report.seed}}}};
  for (const SetValues& evaluation : report.evaluations) {
    ordered_json source = {{"source", evaluation.source}};
    for (const RewardValues& values : evaluation.rewards) {
      source["failed"][values.name] = values.failed;
    }
    json["models"].push_back(std::move(source));
  }
  json["rows"] = ordered_json::array();
  for (const SetRow& row : report.rows) {
    ordered_json object = {{"reward", row.reward},
                           {"identity", row.identity},
                           {"group", row.group},
                           {"prompts", row.prompts},
                           {"value", JsonOf(row.value)}};
    if (row.tenths) object["tenths"] = *row.tenths;
    if (row.other) object["other"] = JsonOf(*row.other);
    if (row.difference) object["difference"] = JsonOf(*row.difference);
    json["rows"].push_back(std::move(object));
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ReportHtml(const SetReport& report) {
  const std::string title = absl::StrCat("oxbow eval: ", report.set.name());
  std::string body = absl::StrCat("<h1>", io::EscapeHtml(title), "</h1>\n<p class=\"lead\">",
                                  io::EscapeHtml(report.set.about()), "</p>\n<p>",
                                  io::EscapeHtml(HeadText(report)), "</p>\n");
  const char* const names[] = {"value", "other"};
  for (size_t i = 0; i < report.evaluations.size(); ++i) {
    absl::StrAppend(&body, "<p>", names[i], ": ", io::EscapeHtml(report.evaluations[i].source),
                    "</p>\n");
  }
  absl::StrAppend(&body, "<figure><div class=\"wide\"><table>\n");
  bool head = true;
  for (const auto& cells : TableOf(report)) {
    absl::StrAppend(&body, "<tr>");
    for (const std::string& cell : cells) {
      const char* const tag = head ? "th" : "td";
      absl::StrAppend(&body, "<", tag, ">", io::EscapeHtml(cell), "</", tag, ">");
    }
    absl::StrAppend(&body, "</tr>\n");
    head = false;
  }
  absl::StrAppend(&body, "</table></div></figure>\n");
  for (const std::string& line : FailureLines(report)) {
    absl::StrAppend(&body, "<p class=\"how\">", io::EscapeHtml(line), "</p>\n");
  }
  return io::Page(title, body);
}

}  // namespace oxbow::cli
