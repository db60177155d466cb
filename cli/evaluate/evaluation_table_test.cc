// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run/prompt.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

std::vector<SetPrompt> Prompts(const std::vector<std::string>& groups) {
  std::vector<SetPrompt> prompts;
  for (size_t i = 0; i < groups.size(); ++i) {
    prompts.push_back({run::MakePrompt("p", ""), groups[i], i, i});
  }
  return prompts;
}

v1::EvaluationSet Set(v1::SetReport report, double scale = 1) {
  v1::EvaluationSet set;
  set.set_name("mine");
  set.set_per_prompt(1);
  set.add_seeds(42);
  set.set_report(report);
  set.set_scale(scale);
  return set;
}

SetValues Of(const std::vector<std::optional<double>>& values, const std::string& source = "a") {
  return {.source = source,
          .rewards = {{.name = "taste", .identity = "taste/1 <x>", .by_prompt = values}}};
}

const SetRow& RowOf(const SetReport& report, const std::string& group) {
  for (const SetRow& row : report.rows) {
    if (row.group == group) return row;
  }
  ADD_FAILURE() << group;
  return report.rows.front();
}

TEST(EvaluationTableTest, TheOverallValueIsOverPromptsOrOverGroups) {
  const auto prompts = Prompts({"x", "x", "x", "y"});
  const SetValues values = Of({0, 0, 0, 1});
  const SetReport by_prompt = Report(Set(v1::SET_REPORT_PROMPTS), prompts, {values}, 0);
  EXPECT_DOUBLE_EQ(RowOf(by_prompt, "overall").value.mean, 0.25);
  const SetReport by_group = Report(Set(v1::SET_REPORT_GROUPS, 100), prompts, {values}, 0);
  EXPECT_DOUBLE_EQ(RowOf(by_group, "overall").value.mean, 50);
  EXPECT_DOUBLE_EQ(RowOf(by_group, "y").value.mean, 100);
  EXPECT_EQ(RowOf(by_group, "x").prompts, 3u);
  EXPECT_EQ(by_group.rows.size(), 3u);
}

TEST(EvaluationTableTest, APromptWithoutAValueIsLeftOutOnBothSides) {
  const auto prompts = Prompts({"", "", ""});
  const SetReport report = Report(Set(v1::SET_REPORT_PROMPTS), prompts,
                                  {Of({1, 5, std::nullopt}), Of({2, 7, 9}, "b")}, 0);
  ASSERT_EQ(report.rows.size(), 1u);
  const SetRow& row = report.rows[0];
  EXPECT_EQ(row.prompts, 2u);
  EXPECT_DOUBLE_EQ(row.value.mean, 3);
  EXPECT_DOUBLE_EQ(row.other->mean, 4.5);
  EXPECT_DOUBLE_EQ(row.difference->mean, 1.5);
  EXPECT_TRUE(Report(Set(v1::SET_REPORT_PROMPTS), prompts,
                     {Of({std::nullopt, std::nullopt, std::nullopt})}, 0)
                  .rows.empty());
}

// Prompts that are easy for one model are easy for the other. Pairing takes that away.
// Promise: Numbers of a report are those of its pictures.
TEST(EvaluationTableTest, ADifferenceIsPairedByPrompt) {
  std::vector<std::optional<double>> one, other;
  for (int i = 0; i < 100; ++i) {
    one.push_back(i % 10);
    other.push_back(i % 10 + 0.1);
  }
  const SetReport report = Report(Set(v1::SET_REPORT_PROMPTS),
                                  Prompts(std::vector<std::string>(100)), {Of(one), Of(other)}, 0);
  const SetRow& row = report.rows.at(0);
  EXPECT_GT(row.value.high, row.other->low);  // Apart they could not be told.
  EXPECT_NEAR(row.difference->low, 0.1, 1e-9);
  EXPECT_NEAR(row.difference->high, 0.1, 1e-9);
}

TEST(EvaluationTableTest, TenthsAreTheSpreadOfTenParts) {
  std::vector<std::optional<double>> values;
  for (int i = 0; i < 40; ++i) values.push_back(i / 4 % 2);  // Parts of four: 0, 1, 0, 1, ..
  const auto prompts = Prompts(std::vector<std::string>(40, "anime"));
  const SetReport report = Report(Set(v1::SET_REPORT_TENTHS, 100), prompts, {Of(values)}, 0);
  EXPECT_DOUBLE_EQ(RowOf(report, "anime").tenths.value(), 50);
  EXPECT_THAT(ReportText(report), HasSubstr("tenths"));
}

TEST(EvaluationTableTest, EveryFormHasTheIdentityBesideTheNumberAndTheSeedOfTheIntervals) {
  SetValues first = Of({1, 2});
  first.rewards[0].failed = 3;
  first.rewards[0].failure = "taste: black";
  const SetReport report =
      Report(Set(v1::SET_REPORT_PROMPTS), Prompts({"", ""}), {first, Of({3, 4}, "b")}, 11);
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("bootstrap seed 11"));
  EXPECT_THAT(text, HasSubstr("taste/1 <x>\n"));
  EXPECT_THAT(text, HasSubstr("a: 3 pictures have no score, the first: taste: black"));
  const auto json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["rows"][0]["identity"], "taste/1 <x>");
  EXPECT_EQ(json["rows"][0]["value"]["mean"], 1.5);
  EXPECT_EQ(json["rows"][0]["difference"]["mean"], 2);
  EXPECT_EQ(json["bootstrap"]["seed"], 11);
  EXPECT_EQ(json["models"][0]["failed"]["taste"], 3);
  const std::string html = ReportHtml(report);
  EXPECT_THAT(html, HasSubstr("<td>taste/1 &lt;x&gt;</td>"));
  EXPECT_THAT(html, HasSubstr("<td>1.5 ["));
}

}  // namespace
}  // namespace oxbow::cli
