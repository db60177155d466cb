// SPDX-License-Identifier: Apache-2.0
// An evaluation for people and for programs: the three forms of one report.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/evaluate/evaluation_table.h"
#include "io/report/html.h"

namespace oxbow::cli {
namespace {

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

}  // namespace

std::string ReportText(const SetReport& report) {
  std::string text = HeadText(report) + "\n";
  const char* const names[] = {"value", "other"};
  for (size_t i = 0; i < report.evaluations.size(); ++i) {
    absl::StrAppend(&text, names[i], ": ", report.evaluations[i].source, "\n");
  }
  const std::vector<std::vector<std::string>> table = TableOf(report);
  std::vector<size_t> widths(table.front().size());
  for (const auto& cells : table) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  for (const auto& cells : table) {
    for (size_t i = 0; i + 1 < cells.size(); ++i) {
      absl::StrAppendFormat(&text, "%-*s  ", static_cast<int>(widths[i]), cells[i]);
    }
    absl::StrAppend(&text, cells.back(), "\n");
  }
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
